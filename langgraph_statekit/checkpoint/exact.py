"""What makes an object, and what a read-back copy of it has lost."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from typing import Any, Final

from pydantic import BaseModel

SCALARS: Final = frozenset({str, int, float, bool, type(None), bytes})
_GROUPS = (list, tuple, set, frozenset, deque)


class Refused(Exception):
    """An object would not come back as it is; the text says why and what to do."""


def qualname(cls: type) -> str:
    """Return module and name of a class as shown to readers."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def importable(cls: type) -> bool:
    """Say whether LangGraph finds the class again: it looks for `__name__` at the top level of the module.

    Raises:
        Refused: It would find another class there.
    """
    found = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
    if not isinstance(found, type):
        return False
    if found.__qualname__ != cls.__qualname__:
        raise Refused(f"it would come back as {qualname(found)}: give the two classes different names")
    return True


def model_fields(model: BaseModel) -> dict[str, Any]:
    """Return a model's fields and extra values as they are, without serializing them."""
    values, names = model.__dict__, type(model).__pydantic_fields__
    if len(values) != len(names):  # a cached property is kept among the values
        values = {name: values[name] for name in names if name in values}
    extra = model.__pydantic_extra__
    return {**values, **extra} if extra else values


def extras(obj: Any) -> dict[str, Any]:
    """Return what was set on a dataclass object besides its fields."""
    cls, values = type(obj), getattr(obj, "__dict__", {})
    names = {field.name for field in dataclasses.fields(obj)}
    return {
        name: value
        for name, value in values.items()
        if name not in names and not isinstance(getattr(cls, name, None), cached_property)
    }


def parts(obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value inside an object with its step in a path; nothing for a value without parts."""
    if isinstance(obj, type):
        return
    if isinstance(obj, dict):
        yield from ((f"[{short(key)}]", value) for key, value in obj.items())
    elif callable(getattr(obj, "_asdict", None)):
        yield from ((f".{name}", value) for name, value in obj._asdict().items())
    elif isinstance(obj, _GROUPS):
        yield from ((f"[{index}]", value) for index, value in enumerate(obj))
    elif isinstance(obj, BaseModel):
        yield from ((f".{name}", value) for name, value in model_fields(obj).items())
    elif dataclasses.is_dataclass(obj):
        for field in dataclasses.fields(obj):
            yield f".{field.name}", getattr(obj, field.name, None)
    elif isinstance(obj, Enum):
        yield ".value", obj.value
    else:
        for cls in type(obj).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if not name.startswith("__") and hasattr(obj, name):
                    yield f".{name}", getattr(obj, name)


def short(value: object, limit: int = 60) -> str:
    """Return the repr of a value, cut in the middle."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit // 2]}...{text[-limit // 2 :]}"


def lost(before: Any, after: Any) -> str | None:
    """Return where a read-back copy differs from the value, LangGraph's own conversions aside; None: nowhere."""
    cls = type(before)
    if before is after or isinstance(before, BaseException):
        return None
    if cls in SCALARS and cls is type(after):
        return None if before == after or before != before else _CHANGED
    if isinstance(before, dict):
        return _lost_dict(before, after)
    if isinstance(before, list | tuple) and not hasattr(before, "_asdict"):
        if not isinstance(after, list | tuple) or len(before) != len(after):
            return _became(before, after)
        pairs = zip(before, after, strict=True)
        return _first((f"[{index}]", a, b) for index, (a, b) in enumerate(pairs))
    if cls is not type(after):
        return _lost_type(before, after)
    if isinstance(before, BaseModel):
        return _first(_pairs(model_fields(before), model_fields(after))) or _first(
            _pairs(before.__pydantic_private__ or {}, after.__pydantic_private__ or {})
        )
    if dataclasses.is_dataclass(cls):
        return _first(_pairs(_fields(before), _fields(after)))
    if hasattr(before, "_asdict"):
        return _first(_pairs(before._asdict(), after._asdict()))
    if hasattr(before, "dtype") and hasattr(before, "tobytes"):
        same = (before.dtype, before.shape, before.tobytes()) == (after.dtype, after.shape, after.tobytes())
        return None if same else _CHANGED
    if isinstance(before, deque):
        if before.maxlen != after.maxlen or len(before) != len(after):
            return _CHANGED
        return _first((f"[{i}]", a, b) for i, (a, b) in enumerate(zip(before, after, strict=True)))
    return None if _is_equal(before, after) or not _has_equality(before) else _CHANGED


_CHANGED: Final = " (its value changes)"


def _fields(obj: Any) -> dict[str, Any]:
    return {**{field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}, **extras(obj)}


_MISSING: Final = object()


def _pairs(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name, value in before.items():
        yield f".{name}", value, after.get(name, _MISSING)


def _lost_dict(before: dict[Any, Any], after: Any) -> str | None:
    if not isinstance(after, dict) or before.keys() != after.keys():
        return _became(before, after)
    return _first((f"[{short(key)}]", value, after[key]) for key, value in before.items())


def _lost_type(before: Any, after: Any) -> str | None:
    cls = type(before)
    plain = isinstance(before, str | int | bytes | bytearray | memoryview) and not isinstance(before, Enum)
    if plain and type(after) in SCALARS and before == after:
        return None
    if after is not _MISSING and not importable(cls):
        return None
    return _became(before, after)


def _became(before: Any, after: Any) -> str:
    if after is _MISSING:
        return " would be lost"
    return f" ({qualname(type(before))} becomes {qualname(type(after))})"


def _first(items: Iterator[tuple[str, Any, Any]]) -> str | None:
    for step, before, after in items:
        if (found := lost(before, after)) is not None:
            return step + found
    return None


def _is_equal(before: Any, after: Any) -> bool:
    try:
        return bool(before == after)
    except Exception:  # arrays and the like have no single answer
        return False


def _has_equality(obj: Any) -> bool:
    """Say whether being unequal means anything: not for objects known by identity, nor for NaN."""
    return getattr(type(obj), "__eq__", None) is not getattr(object, "__eq__", None) and _is_equal(obj, obj)


def rebuilds(cls: Any) -> bool:
    """Say whether a dataclass does more than keep its arguments, so that a copy may differ."""
    code = getattr(cls.__init__, "__code__", None)
    return (
        code is None
        or code.co_filename != "<string>"  # not the one that `dataclass` made
        or hasattr(cls, "__post_init__")
        or any(not field.init for field in dataclasses.fields(cls))
        or any("InitVar" in str(field.type) for field in cls.__dataclass_fields__.values())
    )
