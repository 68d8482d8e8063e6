"""Copies of messages as a prompt shows them: made once, and forgotten with the message."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import NamedTuple
from weakref import ref

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.tokens import fingerprint


class _Held(NamedTuple):
    of: ref[BaseMessage]
    how: Hashable
    said: int
    copy: BaseMessage
    shows: int


class Copies:
    """Remembers a copy as long as its message lives and says the same, and nobody has changed the copy."""

    def __init__(self) -> None:
        self._held: dict[int, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def get(self, message: BaseMessage, how: Hashable, make: Callable[[], BaseMessage]) -> BaseMessage:
        """Return what `make` made of the message, which `how` tells apart from what else is made of it."""
        key = hash((id(message), how))
        held, said = self._held.get(key), fingerprint(message)
        same = held is not None and held.of() is message and held.how == how and held.said == said
        if held is not None and same and held.shows == fingerprint(held.copy):
            return held.copy
        copy = make()
        self._held[key] = _Held(ref(message, partial(self._forget, key)), how, said, copy, fingerprint(copy))
        return copy

    def _forget(self, key: int, gone: ref[BaseMessage]) -> None:
        held = self._held.get(key)
        if held is not None and held.of is gone:
            self._held.pop(key, None)
