"""When a thread's retention is due: seldom enough that it costs little beside the puts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.dice import RANDOM

_LEAST_PUTS: Final = 16
_SHARE: Final = 2
_MOST_THREADS: Final = 10_000


class Pacing:
    """Counts the puts of each thread: one pass for 16 of them, or for half of what the last pass left or may leave.

    What a pass reads grows with the thread, so its share of the puts' cost does not. A thread that is new to this
    process begins anywhere in the count, so that processes of few puts each make their share of the passes.
    """

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all."""
        self._lock = threading.Lock()
        self._left: OrderedDict[str, int] = OrderedDict()

    def due(self, thread: str) -> bool:
        """Count a put, and say whether a pass is due."""
        with self._lock:
            left = self._left.pop(thread, None)
            left = (RANDOM.randint(1, _LEAST_PUTS) if left is None else left) - 1
            self._set(thread, left if left > 0 else _LEAST_PUTS)
            return left <= 0

    def passed(self, thread: str, checkpoints: int) -> None:
        """Take note of a pass that left so many checkpoints, or leaves them as soon as there are as many."""
        with self._lock:
            self._left.pop(thread, None)
            self._set(thread, max(_LEAST_PUTS, checkpoints // _SHARE))

    def _set(self, thread: str, left: int) -> None:
        self._left[thread] = left
        if len(self._left) > _MOST_THREADS:
            self._left.popitem(last=False)
