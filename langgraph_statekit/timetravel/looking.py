"""Values that are only looked at: what is equal in several checkpoints is one object, and made once."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, Final

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_statekit.checkpoint import messages
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side

_MOST_BYTES: Final = 4 << 20
_LEAST_BYTES: Final = 256


class _Looking:
    """A serializer that remembers a few values by their bytes; whoever reads with it changes none of them."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self._serde = serde
        self._held: deque[tuple[tuple[str, bytes], Any]] = deque()
        self._left_bytes = _MOST_BYTES
        self._known = messages.Known()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """See LangGraph."""
        return self._serde.dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """See LangGraph."""
        if len(data[1]) < _LEAST_BYTES:
            return self._serde.loads_typed(data)
        for held, value in self._held:
            if held == data:
                return value
        value = self._known.beginning(data[1]) if data[0] == messages.TAG else None
        if value is None:
            value = self._serde.loads_typed(data)
            if data[0] == messages.TAG and isinstance(value, list):
                self._known.learn(data[1], value)
        self._held.appendleft((data, value))
        self._left_bytes -= len(data[1])
        while self._left_bytes < 0:
            self._left_bytes += len(self._held.pop()[0][1])
        return value


def looking(side: Side) -> Side:
    """Return a side whose checkpoints share what is equal in them, for as long as it is used."""
    if not isinstance(side.saver, StatekitSaver):
        return side
    saver = copy.copy(side.saver)
    saver.serde = _Looking(saver.serde)
    return Side(saver, side.is_async)
