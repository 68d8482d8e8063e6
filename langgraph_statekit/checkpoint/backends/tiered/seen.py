"""Threads that were in the hot store a moment ago; if one has gone since, that does no harm."""

from __future__ import annotations

import time
from typing import Final

from langgraph_statekit.checkpoint.cache import Cache

_BYTES: Final = 4 << 20
_S: Final = 30.0


class Seen:
    """Remembers for 30 seconds which threads were in the hot store."""

    def __init__(self) -> None:
        self._at = Cache[str, float](_BYTES)

    def add(self, thread: str) -> None:
        """Note that a thread is there now."""
        self._at.put(thread, time.monotonic(), 0)

    def has(self, thread: str) -> bool:
        """Say whether a thread was there a moment ago."""
        at = self._at.get(thread)
        return at is not None and time.monotonic() - at < _S

    def forget(self, thread: str) -> None:
        """Note that a thread may be gone."""
        self._at.put(thread, None, 0)
