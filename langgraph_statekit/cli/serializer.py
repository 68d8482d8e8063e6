"""Reads what the user's classes made without importing them, and writes it again as it was."""

from __future__ import annotations

from typing import Any, Final

from langgraph_statekit.checkpoint import messages
from langgraph_statekit.checkpoint.foreign import Foreign, read_ext
from langgraph_statekit.checkpoint.serde import StatekitSerializer

_READ: Final = ("null", "bytes", "bytearray", "msgpack", messages.TAG)


class ForeignSerializer(StatekitSerializer):
    """A serializer that builds only what LangGraph's strict mode allows; all else is a `Foreign`, never unpickled."""

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=None)
        self._unpack_ext_hook = read_ext

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type tag and the bytes of a value, of a whole foreign one those that it was read from."""
        if isinstance(obj, Foreign) and isinstance(obj.kind, str):
            return obj.kind, obj.data
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value, or a `Foreign` of one that only another serializer can read."""
        return super().loads_typed(data) if data[0] in _READ else Foreign(*data)
