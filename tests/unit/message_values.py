"""Messages of every kind, as LangChain makes them and as nobody should, and ways to compare them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import reject
from hypothesis import strategies as st
from langchain_core import messages as lc
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_statekit.checkpoint import message_kinds, messages

SERDE = JsonPlusSerializer()
CLASSES = [kind.cls for kind in message_kinds.KINDS.values()]


class Tagged(lc.HumanMessage):
    label: str = "plain"


class Loud(str):
    __slots__ = ()


CALL = {"name": "f", "args": {"a": 1}, "id": "1", "type": "tool_call"}
COUNTS = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
RAW = {"name": "f", "arguments": '{"a": 1}'}


class Grown(lc.AIMessage):
    """What `AIMessage` may become in a later release of LangChain."""

    mood: str = "calm"


def encode(value: Any) -> bytes:
    with warnings.catch_warnings(action="ignore"):
        tag, data = SERDE.dumps_typed(value)
    assert tag == "msgpack"
    return data


def decode(data: bytes) -> Any:
    return SERDE.loads_typed(("msgpack", data))


def through_codec(value: Any) -> Any:
    data = messages.dump(value, encode)
    return decode(encode(value)) if data is None else messages.load(data, decode)


def no_other(value: Any) -> bytes:
    """Stand in for the general serializer in tests of this codec's own bytes."""
    reject()


def no_reader(data: bytes) -> Any:
    raise ValueError("not of this codec")


def assert_same(one: Any, two: Any, at: str = "value") -> None:
    assert type(one) is type(two), at
    if isinstance(one, lc.BaseMessage):
        assert one.model_fields_set == two.model_fields_set, at
        assert one.__pydantic_private__ == two.__pydantic_private__, at
        assert_same(one.__pydantic_extra__, two.__pydantic_extra__, f"{at} extra")
        assert_same(one.__dict__, two.__dict__, at)
        assert repr(one) == repr(two), at
        if "nan" not in repr((one.__dict__, one.__pydantic_extra__)):
            assert one == two, at
    elif isinstance(one, dict):
        assert list(one) == list(two), at
        for key in one:
            assert_same(one[key], two[key], f"{at}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(two), at
        for n, pair in enumerate(zip(one, two, strict=True)):
            assert_same(*pair, f"{at}[{n}]")
    elif isinstance(one, float):
        assert repr(one) == repr(two), at
    else:
        assert one == two, at


def mutables(value: Any) -> Iterator[int]:
    if isinstance(value, lc.BaseMessage):
        yield id(value)
        yield id(value.model_fields_set)
        for part in (value.__dict__, value.__pydantic_extra__):
            yield from mutables(part)
    elif isinstance(value, dict | list):
        yield id(value)
        for item in value.values() if isinstance(value, dict) else value:
            yield from mutables(item)


def only(*names: str) -> Callable[[str], bool]:
    return lambda name: name not in names


text = st.text(max_size=8)
maybe_text = st.none() | text
integers = st.integers(-(1 << 63), (1 << 64) - 1)
scalars = st.none() | st.booleans() | integers | st.floats() | text
plain = st.recursive(
    scalars | st.binary(max_size=4) | st.binary(max_size=4).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3) | st.tuples(inner) | st.tuples()
    ),
    max_leaves=6,
)
odd = st.sampled_from(
    [
        datetime(2026, 1, 2, tzinfo=UTC),
        UUID(int=7),
        Decimal("1.50"),
        {1, 2},
        {1: "a", None: "b"},
        {(1, 2): "a"},
        Loud("x"),
        {Loud("k"): 1},
        ["a", {"b": UUID(int=7)}],
    ]
)
values = plain | odd
maps = st.dictionaries(text, plain, max_size=3) | st.dictionaries(text, values, max_size=2)
blocks = st.fixed_dictionaries({"type": st.sampled_from(["text", "tool_call_chunk"]), "text": plain}) | maps
content = text | st.lists(text | blocks, max_size=3)
calls = st.lists(st.fixed_dictionaries({"name": text, "args": maps, "id": maybe_text}), max_size=2)
invalid_calls = st.lists(
    st.fixed_dictionaries({"name": maybe_text, "args": maybe_text, "id": maybe_text, "error": maybe_text}), max_size=2
)
chunks = st.lists(
    st.fixed_dictionaries(
        {"name": maybe_text, "args": maybe_text, "id": maybe_text, "index": st.none() | st.integers(0, 3)}
    ),
    max_size=2,
)


def details(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    known = st.fixed_dictionaries({}, optional=dict.fromkeys(names, integers))
    return st.builds(lambda one, two: {**two, **one}, known, st.dictionaries(text, plain, max_size=1))


usage = st.none() | st.fixed_dictionaries(
    {"total_tokens": integers, "input_tokens": integers, "output_tokens": integers},
    optional={
        "output_token_details": details("reasoning", "audio"),
        "extra": plain,
        "input_token_details": details("cache_read", "audio", "cache_creation"),
    },
)
raw_calls = st.just([{"id": "1", "function": RAW}])
kwargs = maps | st.fixed_dictionaries({"tool_calls": st.none() | raw_calls | st.just([])})
metadata = maps | st.just({"output_version": "v1"})
extras = st.dictionaries(text.filter(only("self", "content_blocks")) | st.just("example"), values, max_size=2)


@st.composite
def whole(draw: st.DrawFn, cls: type[lc.BaseMessage] | None = None) -> lc.BaseMessage:
    """A message as its constructor makes it."""
    cls = cls or draw(st.sampled_from(CLASSES))
    given: dict[str, Any] = {"id": draw(maybe_text)}
    if not issubclass(cls, lc.RemoveMessage):
        given["content"] = draw(content)
    optional: dict[str, Any] = {"name": text, "additional_kwargs": kwargs, "response_metadata": metadata}
    needed: dict[str, Any] = {}
    if issubclass(cls, lc.AIMessage):
        optional |= {"tool_calls": calls, "invalid_tool_calls": invalid_calls, "usage_metadata": usage}
    if issubclass(cls, lc.AIMessageChunk):
        optional |= {"tool_call_chunks": chunks, "chunk_position": st.sampled_from([None, "last"])}
    if issubclass(cls, lc.ToolMessage):
        needed["tool_call_id"] = text
        optional |= {"artifact": values, "status": st.sampled_from(["success", "error"])}
    if issubclass(cls, lc.ChatMessage):
        needed["role"] = text
    if issubclass(cls, lc.FunctionMessage):
        needed["name"] = text
    fields = draw(st.fixed_dictionaries(needed, optional={k: v for k, v in optional.items() if k not in needed}))
    extra = draw(extras) if draw(st.integers(0, 3)) == 0 else {}
    try:
        return cls(**{**extra, **given, **fields})
    except (TypeError, ValueError):
        reject()


wrong = values | st.sampled_from(["ai", "human", "last", "error"]) | calls | invalid_calls | usage
wrong_details = st.dictionaries(st.sampled_from(["audio", "cache_read", "x"]), plain, max_size=2)
wrong_usage = st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "total_tokens", "input_token_details"]),
    integers | plain | wrong_details,
)
wrong_calls = st.lists(
    st.dictionaries(
        st.sampled_from(["name", "args", "id", "type", "error", "index"]),
        maybe_text | maps | st.sampled_from(["tool_call", "invalid_tool_call"]),
    ),
    max_size=2,
)


@st.composite
def changed(draw: st.DrawFn) -> lc.BaseMessage:
    """A message whose fields were assigned afterwards, which nothing validates."""
    message = draw(whole())
    name = draw(st.sampled_from(sorted(type(message).model_fields)))
    shaped = {"usage_metadata": wrong_usage, "tool_calls": wrong_calls, "invalid_tool_calls": wrong_calls}
    message.__dict__[name] = draw(wrong | shaped.get(name, wrong))
    if draw(st.booleans()):
        message.__dict__["shadow"] = 1
    if draw(st.booleans()):
        message.__pydantic_extra__ = draw(st.sampled_from([None, {"content_blocks": []}, {"self": 1}, {"a": 1}]))
    if draw(st.booleans()):
        message.__dict__ = dict(reversed(message.__dict__.items()))
    return message
