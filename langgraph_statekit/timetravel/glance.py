"""A value as short plain data, without going through all of it, and about what it weighs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langgraph_statekit.checkpoint.plain import bounded, cut, plain, text
from langgraph_statekit.readable import clipped

MOST_TEXT: Final = 300
_ITEMS: Final = 12
_DEPTH: Final = 5
_SAMPLE: Final = 32


def glance(value: Any, most: int = 2000) -> Any:
    """Return plain data of at most about so many characters; it says what is left out."""
    return bounded(plain(_shrunk(value)), most)


def _shrunk(value: Any, depth: int = _DEPTH) -> Any:
    kind = type(value)
    if kind is str:
        return cut(value, MOST_TEXT)
    if kind in (bytes, bytearray):
        return value if len(value) <= MOST_TEXT else f"{len(value):,} bytes"
    if depth == 0 and kind in (list, tuple, dict):
        return f"... ({len(value):,} items)" if value else value
    if kind in (list, tuple):
        if len(value) <= _ITEMS:
            return [_shrunk(each, depth - 1) for each in value]
        half = _ITEMS // 2
        ends = [[_shrunk(each, depth - 1) for each in part] for part in (value[:half], value[-half:])]
        return [*ends[0], f"... ({len(value) - 2 * half:,} more)", *ends[1]]
    if kind is dict:
        shown = {key: _shrunk(each, depth - 1) for key, each in islice(value.items(), _ITEMS)}
        return shown if len(value) <= _ITEMS else {**shown, "...": f"{len(value) - _ITEMS:,} more"}
    if kind in (set, frozenset) and len(value) > _ITEMS:
        return [*map(_shrunk, islice(value, _ITEMS)), f"... ({len(value) - _ITEMS:,} more)"]
    if isinstance(value, BaseMessage):
        return _message(value)
    if hasattr(value, "dtype") and getattr(value, "size", 0) > _ITEMS:
        return f"array of {value.dtype}, shape {getattr(value, 'shape', '?')}"
    return value


def _message(message: BaseMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {"type": message.type, "id": message.id, "content": message.content}
    for name in ("name", "tool_calls", "invalid_tool_calls", "tool_call_id", "status", "usage_metadata"):
        if held := getattr(message, name, None):
            fields[name] = held
    if message.additional_kwargs:
        fields["additional_kwargs"] = message.additional_kwargs
    return {name: _shrunk(each, _DEPTH - 2) for name, each in fields.items()}


def weight(value: Any, depth: int = 6) -> int:
    """Return about how many bytes a value takes as JSON; of long lists a sample is weighed."""
    kind = type(value)
    if kind is str:
        return len(value) + 2 if value.isascii() else len(value) * 3
    if kind in (bytes, bytearray):
        return len(value)
    if value is None or kind in (int, float, bool):
        return 8
    if depth == 0:
        return 16
    if kind in (list, tuple, set, frozenset):
        sample = list(value if len(value) <= _SAMPLE else islice(value, 0, None, len(value) // _SAMPLE))
        weights = sum(weight(each, depth - 1) + 1 for each in sample)
        return 2 + weights * len(value) // max(len(sample), 1)
    if isinstance(value, Mapping):
        return 2 + sum(weight(key, depth - 1) + weight(each, depth - 1) + 2 for key, each in value.items())
    if hasattr(value, "nbytes"):
        return int(value.nbytes)
    return 16 + weight(getattr(value, "__dict__", None) or str(value), depth - 1)


def one_line(value: Any, most: int) -> str:
    """Return plain data on one line of at most so many characters; a text stands without quotes."""
    return clipped(" ".join((value if isinstance(value, str) else text(value)).split()), most)
