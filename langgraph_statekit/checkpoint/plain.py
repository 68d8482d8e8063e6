"""Any stored value as plain data that JSON can hold, without secrets and as short as one wants. Pure."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any, Final

from langchain_core.messages import BaseMessage
from pydantic import BaseModel

from langgraph_statekit.checkpoint.exact import model_fields, parts, qualname, short
from langgraph_statekit.checkpoint.foreign import Foreign
from langgraph_statekit.checkpoint.secret_keys import SECRET_KEYS

HIDDEN: Final = "***"
_CLASS: Final = "$class"
_MOST_TEXT: Final = 400
_MOST_ITEMS: Final = 20
_MOST_DEPTH: Final = 150


def plain(value: Any, depth: int = _MOST_DEPTH) -> Any:
    """Return a value as dicts, lists, texts, numbers, booleans and None, with what a name of a secret holds hidden.

    Messages become their type and the fields that are set. An object of any other class becomes its fields with the
    name of the class under `$class`.
    """
    if value is None or isinstance(value, bool | int | str):
        return value if type(value) in (bool, int, str) or value is None else plain(_base(value))
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"base64:{b64encode(value).decode()}"
    if depth == 0:
        return "..."
    if isinstance(value, Mapping):
        return {_key(key): _unless_secret(key, item, depth) for key, item in value.items()}
    if isinstance(value, BaseMessage):
        fields = {name: item for name, item in model_fields(value).items() if item or name == "content"}
        return plain({"type": value.type, **fields}, depth)
    if isinstance(value, Foreign):
        return _foreign(value, depth)
    if isinstance(value, set | frozenset):
        return sorted((plain(item, depth - 1) for item in value), key=text)
    if not isinstance(value, BaseModel) and hasattr(value, "__iter__") and not hasattr(value, "_asdict"):
        if hasattr(value, "dtype"):
            return {_CLASS: "numpy.ndarray", "dtype": str(value.dtype), "value": plain(value.tolist(), depth - 1)}
        return [plain(item, depth - 1) for item in value]
    if isinstance(value, date | time):
        return value.isoformat()
    fields = {step[1:]: item for step, item in parts(value) if step.startswith(".")}
    kind = type(value)
    if not fields or kind.__module__ in ("uuid", "decimal", "pathlib", "ipaddress", "datetime", "re", "zoneinfo"):
        return str(value)
    return {_CLASS: qualname(kind), **plain(fields, depth)}


def _base(value: Any) -> Any:
    return next(base(value) for base in (str, int) if isinstance(value, base))


def _key(key: Any) -> str:
    return key if isinstance(key, str) else short(key)


def _unless_secret(key: Any, item: Any, depth: int) -> Any:
    if item is not None and str(key).lower().replace("-", "_") in SECRET_KEYS:
        return HIDDEN
    return plain(item, depth - 1)


def _foreign(value: Foreign, depth: int) -> Any:
    name, content = value.parts
    if content is None:
        return {_CLASS: name, "value": f"{len(value.data)} bytes that are not read here"}
    if isinstance(content, dict):
        return {_CLASS: name, **plain(content, depth)}
    return plain(content, depth) if name.startswith("builtins.") else {_CLASS: name, "value": plain(content, depth - 1)}


def cut(value: Any, most_text: int = _MOST_TEXT, most_items: int = _MOST_ITEMS) -> Any:
    """Return plain data with long texts cut and most of long lists and dicts left out; it says what is missing."""
    if isinstance(value, str) and len(value) > most_text:
        return f"{value[:most_text]}... ({len(value):,} characters)"
    if isinstance(value, list):
        if len(value) <= most_items:
            return [cut(item, most_text, most_items) for item in value]
        half = most_items // 2
        gap = f"... ({len(value) - 2 * half:,} more)"
        return [
            *(cut(item, most_text, most_items) for item in value[:half]),
            gap,
            *(cut(item, most_text, most_items) for item in value[-half:]),
        ]
    if isinstance(value, dict):
        shown = {key: cut(item, most_text, most_items) for key, item in list(value.items())[:most_items]}
        return shown if len(value) <= most_items else {**shown, "...": f"{len(value) - most_items:,} more"}
    return value


def bounded(value: Any, most: int = 10_000) -> Any:
    """Return plain data of at most about so many characters as JSON, cut harder where it must be."""
    for most_text, most_items in ((_MOST_TEXT, _MOST_ITEMS), (100, 6), (40, 2)):
        shown = cut(value, most_text, most_items)
        if len(text(shown)) <= most:
            return shown
    return f"{text(shown)[:most]}..."


def text(value: Any) -> str:
    """Return plain data on one line."""
    return json.dumps(value, ensure_ascii=False)


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, str, Any, Any]]:
    """Yield where two plain values differ: the path, `added`, `removed` or `changed`, and the value on each side.

    Lists that share a beginning and an end differ by what lies between, so that an added message is one difference.
    """
    if type(before) is not type(after) or not isinstance(before, dict | list):
        if before != after or type(before) is not type(after):
            yield path, "changed", before, after
        return
    if isinstance(before, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            step = f"{path}.{key}" if path else key
            if key not in after:
                yield step, "removed", before[key], None
            elif key not in before:
                yield step, "added", None, after[key]
            else:
                yield from differences(before[key], after[key], step)
        return
    first, ends = _shared(before, after)
    old, new = before[first : len(before) - ends], after[first : len(after) - ends]
    for at in range(max(len(old), len(new))):
        step = f"{path}[{first + at}]"
        if at >= len(new):
            yield step, "removed", old[at], None
        elif at >= len(old):
            yield step, "added", None, new[at]
        else:
            yield from differences(old[at], new[at], step)


def _shared(before: list[Any], after: list[Any]) -> tuple[int, int]:
    """Return how many items two lists share at their beginning and, of the others, at their end."""
    most = min(len(before), len(after))
    first = next((at for at in range(most) if before[at] != after[at]), most)
    ends = next((at for at in range(most - first) if before[-1 - at] != after[-1 - at]), most - first)
    return first, ends
