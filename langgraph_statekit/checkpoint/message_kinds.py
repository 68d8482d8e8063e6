"""What the message codec knows of each message class of LangChain: its fields, and which values they may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from langchain_core import messages as lc
from langchain_core.messages import ai

# Names that a constructor or a validator reads as something else than an extra field.
_NOT_EXTRA: Final = frozenset({"self", "content_blocks", "tool_calls", "invalid_tool_calls", "tool_call_chunks"})

_CALL: Final = ("name", "args", "id", "type")
_INVALID_CALL: Final = ("type", "id", "name", "args", "error")
_INPUT: Final = ("audio", "cache_creation", "cache_read")
_OUTPUT: Final = ("audio", "reasoning")
_USAGE: Final = ("input_tokens", "output_tokens", "total_tokens", "input_token_details", "output_token_details")
_DETAILS: Final = (("input_token_details", _INPUT), ("output_token_details", _OUTPUT))
_NONE: Final[dict[str, Any]] = {}

Row = Sequence[Any]


def is_text(value: Any, text: str) -> bool:
    """Say whether the value is exactly this text."""
    return value is text or (value.__class__ is str and value == text)


# `fits`: validation would leave these field values as they are, but for the order of keys in calls and usage.
# `x.__class__` takes half the time of `type(x)`; objects that lie about it have no stored form.


def _fits_base(row: Row) -> bool:
    content, kwargs, metadata, _, name, id = row
    return (
        (content.__class__ is str or _fits_blocks(content))
        and kwargs.__class__ is dict
        and metadata.__class__ is dict
        and (name is None or name.__class__ is str)
        and (id is None or id.__class__ is str)
    )


def _fits_blocks(content: Any) -> bool:
    if content.__class__ is not list:
        return False
    return all(block.__class__ is dict or block.__class__ is str for block in content)


def _fits_remove(row: Row) -> bool:
    return _fits_base(row) and row[0] == ""


def _fits_function(row: Row) -> bool:
    return _fits_base(row) and row[4] is not None


def _fits_chat(row: Row) -> bool:
    return _fits_base(row[:6]) and row[6].__class__ is str


def _fits_tool(row: Row) -> bool:
    content, kwargs, metadata, _, name, id, call, _, status = row
    return (
        (content.__class__ is str or _fits_blocks(content))
        and kwargs.__class__ is dict
        and metadata.__class__ is dict
        and (name is None or name.__class__ is str)
        and (id is None or id.__class__ is str)
        and call.__class__ is str
        and (is_text(status, "success") or is_text(status, "error"))
    )


def _fits_ai(row: Row) -> bool:
    content, kwargs, metadata, _, name, id, calls, invalid, usage = row
    return (
        (content.__class__ is str or _fits_blocks(content))
        and kwargs.__class__ is dict
        and metadata.__class__ is dict
        and (name is None or name.__class__ is str)
        and (id is None or id.__class__ is str)
        and calls.__class__ is list
        and invalid.__class__ is list
        and (_fits_calls(calls, invalid) if calls or invalid else "tool_calls" not in kwargs)  # validation parses these
        and (usage is None or _fits_usage(usage))
    )


def _fits_ai_chunk(row: Row) -> bool:
    # Validation derives the three lists of calls from one another, and completes the blocks of a last chunk.
    return (
        _fits_ai(row[:9])
        and not (row[6] or row[7])
        and row[9].__class__ is list
        and not row[9]
        and (row[10] is None or (is_text(row[10], "last") and row[0].__class__ is str))
    )


def _fits_calls(calls: list[Any], invalid: list[Any]) -> bool:
    for call in calls:
        if call.__class__ is not dict or len(call) != 4 or not is_text(call.get("type"), "tool_call"):
            return False
        id = call.get("id", 0)
        if call.get("name").__class__ is not str or call.get("args").__class__ is not dict:
            return False
        if id is not None and id.__class__ is not str:
            return False
    for call in invalid:
        if call.__class__ is not dict or len(call) != 5 or not is_text(call.get("type"), "invalid_tool_call"):
            return False
        for key in _INVALID_CALL:
            text = call.get(key, 0)
            if text is not None and text.__class__ is not str:
                return False
    return True


def _fits_usage(usage: Any) -> bool:
    if usage.__class__ is not dict:
        return False
    get = usage.get
    if (
        get("input_tokens").__class__ is not int
        or get("output_tokens").__class__ is not int
        or get("total_tokens").__class__ is not int
    ):
        return False
    for details, known in (get("input_token_details", _NONE), _INPUT), (get("output_token_details", _NONE), _OUTPUT):
        if details.__class__ is not dict:
            return False
        for count in details.values():
            if count.__class__ is not int and not _counts(details, known):
                return False
    return True


def _counts(details: Mapping[str, Any], known: Sequence[str]) -> bool:
    return all(details[name].__class__ is int for name in known if name in details)


# `state`: the `__dict__` that validation makes of field values that fit. A display is twice as fast as `dict(zip())`.


def _state_base(row: Row) -> dict[str, Any]:
    content, kwargs, metadata, literal, name, id = row[:6]
    return {
        "content": content,
        "additional_kwargs": kwargs,
        "response_metadata": metadata,
        "type": literal,
        "name": name,
        "id": id,
    }


def _state_chat(row: Row) -> dict[str, Any]:
    state = _state_base(row)
    state["role"] = row[6]
    return state


def _state_tool(row: Row) -> dict[str, Any]:
    state = _state_base(row)
    state["tool_call_id"], state["artifact"], state["status"] = row[6:]
    return state


def _state_ai(row: Row) -> dict[str, Any]:
    calls, invalid, usage = row[6:9]
    state = _state_base(row)
    state["tool_calls"] = [_ordered(call, _CALL) for call in calls] if calls else calls
    state["invalid_tool_calls"] = [_ordered(call, _INVALID_CALL) for call in invalid] if invalid else invalid
    state["usage_metadata"] = usage if usage is None else _ordered_usage(usage)
    return state


def _state_ai_chunk(row: Row) -> dict[str, Any]:
    state = _state_ai(row)
    state["tool_call_chunks"], state["chunk_position"] = row[9:]
    return state


def _ordered(record: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """Return the record with its known keys first and in their own order."""
    keys = tuple(record)
    if keys == known or _leads(keys, known):
        return record
    return {key: record[key] for key in (*known, *keys) if key in record}


def _ordered_usage(usage: dict[str, Any]) -> dict[str, Any]:
    input, output = usage.get("input_token_details", _NONE), usage.get("output_token_details", _NONE)
    if not _usage_in_order(tuple(usage), tuple(input), tuple(output)):
        for key, known in _DETAILS:
            if key in usage:
                usage[key] = _ordered(usage[key], known)
        usage = _ordered(usage, _USAGE)
    return usage


@lru_cache(1024)
def _usage_in_order(usage: tuple[str, ...], input: tuple[str, ...], output: tuple[str, ...]) -> bool:
    return _leads(usage, _USAGE) and _leads(input, _INPUT) and _leads(output, _OUTPUT)


def _leads(keys: tuple[str, ...], known: tuple[str, ...]) -> bool:
    lead = tuple(key for key in known if key in keys)
    return keys[: len(lead)] == lead


class Kind:
    """One message class, and whether the installed one is the one that this codec was written for."""

    __slots__ = ("cls", "fits", "known", "literal", "names", "size", "state", "values")

    def __init__(
        self,
        cls: type[lc.BaseMessage],
        literal: str,
        fields: tuple[str, ...] = (),
        fits: Callable[[Row], bool] = _fits_base,
        state: Callable[[Row], dict[str, Any]] = _state_base,
        validators: tuple[str, ...] = (),
    ) -> None:
        fields = ("content", "additional_kwargs", "response_metadata", "type", "name", "id", *fields)
        self.cls, self.literal, self.fits, self.state = cls, literal, fits, state
        self.size, self.names, self.values = len(fields), frozenset(fields), itemgetter(*fields)
        rules = cls.__pydantic_decorators__
        self.known: bool = (
            tuple(cls.model_fields) == fields
            and tuple(rules.model_validators) == validators
            and not (rules.field_validators or rules.field_serializers or rules.model_serializers)
            and cls.model_config.get("extra") == "allow"
            and all(tuple(record.__annotations__) == keys for record, keys in _RECORDS)
        )

    def fits_extra(self, extra: Any) -> bool:
        """Say whether these are extra fields that a constructor would keep as they are."""
        return type(extra) is dict and _NOT_EXTRA.isdisjoint(extra) and self.names.isdisjoint(extra)


_RECORDS: Final = (
    (lc.ToolCall, _CALL),
    (lc.InvalidToolCall, (*_INVALID_CALL, "index", "extras")),
    (ai.UsageMetadata, _USAGE),
    (ai.InputTokenDetails, _INPUT),
    (ai.OutputTokenDetails, _OUTPUT),
)
_ROLE: Final = (("role",), _fits_chat, _state_chat)
_TOOL: Final = (("tool_call_id", "artifact", "status"), _fits_tool, _state_tool, ("coerce_args",))
_AI: Final = ("tool_calls", "invalid_tool_calls", "usage_metadata")
_AI_CHUNK: Final = (*_AI, "tool_call_chunks", "chunk_position")
_COMPAT: Final = "_backwards_compat_tool_calls"
KINDS: Final = {
    kind.literal: kind
    for kind in (
        Kind(lc.HumanMessage, "human"),
        Kind(lc.HumanMessageChunk, "HumanMessageChunk"),
        Kind(lc.SystemMessage, "system"),
        Kind(lc.SystemMessageChunk, "SystemMessageChunk"),
        Kind(lc.RemoveMessage, "remove", fits=_fits_remove),
        Kind(lc.FunctionMessage, "function", fits=_fits_function),
        Kind(lc.FunctionMessageChunk, "FunctionMessageChunk", fits=_fits_function),
        Kind(lc.ChatMessage, "chat", *_ROLE),
        Kind(lc.ChatMessageChunk, "ChatMessageChunk", *_ROLE),
        Kind(lc.ToolMessage, "tool", *_TOOL),
        Kind(lc.ToolMessageChunk, "ToolMessageChunk", *_TOOL),
        Kind(lc.AIMessage, "ai", _AI, _fits_ai, _state_ai, (_COMPAT,)),
        Kind(
            lc.AIMessageChunk,
            "AIMessageChunk",
            _AI_CHUNK,
            _fits_ai_chunk,
            _state_ai_chunk,
            (_COMPAT, "init_tool_calls", "init_server_tool_calls"),
        ),
    )
}
"""Every kind that may be stored, by the literal of its `type` field."""

KNOWN: Final[dict[type, Kind]] = {kind.cls: kind for kind in KINDS.values() if kind.known}
"""The kinds whose installed class is the one that this codec was written for."""
