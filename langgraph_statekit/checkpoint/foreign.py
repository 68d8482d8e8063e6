"""Objects of classes that are not to be imported: shown as plain data, and stored again byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.types import _DeltaSnapshot

_CONSTRUCTED: Final = (
    jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG,
    jsonplus.EXT_CONSTRUCTOR_POS_ARGS,
    jsonplus.EXT_CONSTRUCTOR_KW_ARGS,
    jsonplus.EXT_PYDANTIC_V1,
    jsonplus.EXT_PYDANTIC_V2,
)
_STRICT: Final[Callable[[int, bytes], Any]] = jsonplus._create_msgpack_ext_hook(None)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A stored object, unread.

    Attributes:
        kind: The code of LangGraph's msgpack extension, or the type tag of a whole value.
        data: What is stored.
    """

    kind: int | str
    data: bytes

    def packed(self) -> ormsgpack.Ext:
        """Return it as it was stored inside a value."""
        assert isinstance(self.kind, int)
        return ormsgpack.Ext(self.kind, self.data)

    @property
    def parts(self) -> tuple[str, Any]:
        """The name of its class and what it was made from; of a whole value the type tag and nothing."""
        if isinstance(self.kind, str):
            return self.kind, None
        found = _unpacked(self.data)
        if isinstance(found, list) and len(found) > 2:
            return f"{found[0]}.{found[1]}", found[2]
        return f"extension {self.kind}", found


def read_ext(code: int, data: bytes) -> Any:
    """Return the object of an extension if LangGraph's strict mode allows all classes in it, else a `Foreign`."""
    if code == jsonplus.EXT_DELTA_SNAPSHOT:
        return _DeltaSnapshot(_unpacked(data))
    if code == jsonplus.EXT_NUMPY_ARRAY:
        return _STRICT(code, data)
    found = _unpacked(data)
    known = (
        isinstance(found, list)
        and len(found) > 2
        and (
            (code in _CONSTRUCTED and tuple(found[:2]) in SAFE_MSGPACK_TYPES)
            or (code == jsonplus.EXT_METHOD_SINGLE_ARG and (*found[:2], *found[3:4]) in SAFE_MSGPACK_METHODS)
        )
    )
    if not _has_foreign(found):
        return _STRICT(code, data) if known else Foreign(code, data)
    # A message may hold what is foreign; a set would be checked by making it again.
    return _model(*found[:3]) if known and code == jsonplus.EXT_PYDANTIC_V2 else Foreign(code, data)


def _model(module: str, name: str, values: dict[str, Any]) -> Any:
    cls = getattr(import_module(module), name)
    try:
        return cls(**values)
    except Exception:  # as LangGraph does
        return cls.model_construct(**values)


def _unpacked(data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=read_ext, option=ormsgpack.OPT_NON_STR_KEYS)


def _has_foreign(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_foreign(part) for pair in value.items() for part in pair)
    return isinstance(value, Foreign) or (isinstance(value, list | tuple) and any(map(_has_foreign, value)))
