"""The message codec gives what LangGraph's serializer gives, and only faster."""

from __future__ import annotations

import gc
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import ormsgpack
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from langchain_core import messages as lc
from langchain_core.documents import Document
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_statekit.checkpoint import message_kinds, messages
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.errors import Corrupt, DataError, SchemaTooNew
from tests.unit.message_values import (
    CALL,
    CLASSES,
    COUNTS,
    RAW,
    Grown,
    Loud,
    Tagged,
    assert_same,
    changed,
    decode,
    encode,
    mutables,
    no_other,
    no_reader,
    through_codec,
    whole,
)

STRICT = JsonPlusSerializer(allowed_msgpack_modules=None)


@given(st.lists(whole(), min_size=1, max_size=5))
def test_a_list_comes_back_as_from_the_general_serializer(value: list[lc.BaseMessage]) -> None:
    assert_same(through_codec(value), decode(encode(value)))


@given(whole())
def test_a_message_comes_back_as_from_the_general_serializer(value: lc.BaseMessage) -> None:
    assert_same(through_codec(value), decode(encode(value)))


@given(changed(), whole())
def test_a_message_changed_after_validation_comes_back_as_from_the_general_serializer(
    message: lc.BaseMessage, other: lc.BaseMessage
) -> None:
    try:
        expected = decode(encode([message, other]))
    except Exception:
        assume(False)
    assert_same(through_codec([message, other]), expected)
    assert_same(through_codec(message), expected[0])


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_is_known_and_plain_messages_of_it_need_no_other_serializer(cls: type[lc.BaseMessage]) -> None:
    named = {"name": "n", "tool_call_id": "1", "role": "r", "id": "7"}
    fields = {name: value for name, value in named.items() if name in cls.model_fields}
    message = cls(**fields, **({} if cls is lc.RemoveMessage else {"content": "hello"}), extra=[1])
    for value in (message, [message]):
        data = messages.dump(value, NotImplemented)
        assert data is not None
        assert_same(messages.load(data, NotImplemented), decode(encode(value)))


def test_calls_and_usage_of_every_provider_need_no_other_serializer() -> None:
    bad = {"name": "f", "args": "{", "id": None, "error": "cut", "type": "invalid_tool_call"}
    value = [
        lc.AIMessage("", tool_calls=[CALL], additional_kwargs={"tool_calls": [{"function": {}}]}),
        lc.AIMessage([{"type": "text", "text": "x"}, "y"], invalid_tool_calls=[bad], usage_metadata=COUNTS),
        lc.AIMessage("", usage_metadata={**COUNTS, "output_token_details": {"flex": None, "reasoning": 1}}),
        lc.AIMessageChunk("", usage_metadata=COUNTS, chunk_position="last"),
        lc.ToolMessage("", tool_call_id="1", artifact={"rows": [(1, 2)], "raw": b"\0"}, status="error"),
    ]
    data = messages.dump(value, NotImplemented)
    assert data is not None
    assert_same(messages.load(data, NotImplemented), decode(encode(value)))


def assigned(message: lc.BaseMessage, **fields: Any) -> lc.BaseMessage:
    for name, value in fields.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize(
    "message",
    [
        assigned(lc.AIMessage(""), additional_kwargs={"tool_calls": [{"id": "1", "function": RAW}]}),
        assigned(lc.AIMessageChunk(""), additional_kwargs={"tool_calls": [{"id": "1", "function": RAW}]}),
        assigned(lc.AIMessage(""), tool_calls=[dict(reversed(CALL.items()))]),
        assigned(lc.AIMessage(""), tool_calls=[{**CALL, "index": 0}]),
        assigned(lc.AIMessage(""), tool_calls=[{**CALL, "type": "other"}]),
        assigned(lc.AIMessage(""), tool_calls=[{"name": "f", "args": {}, "id": "1"}]),
        assigned(lc.AIMessageChunk(""), tool_calls=[CALL]),
        assigned(lc.AIMessage(""), usage_metadata=dict(reversed(COUNTS.items()))),
        assigned(lc.AIMessage(""), usage_metadata={**COUNTS, "total_tokens": 3.0}),
        assigned(lc.AIMessage(""), usage_metadata={**COUNTS, "total_tokens": True}),
        assigned(lc.AIMessage(""), usage_metadata={**COUNTS, "input_token_details": None}),
        assigned(lc.AIMessage(""), usage_metadata={**COUNTS, "input_token_details": {"x": 1, "audio": 2}}),
        assigned(lc.AIMessage(""), usage_metadata={**COUNTS, "output_token_details": {"audio": 2.0}}),
        assigned(lc.AIMessage(""), usage_metadata={"input_tokens": 1}),
        assigned(lc.HumanMessage(""), content=b"bytes"),
        assigned(lc.HumanMessage(""), content=("a", {"b": 1})),
        assigned(lc.HumanMessage(""), content=Loud("a")),
        assigned(lc.HumanMessage(""), id=7),
        assigned(lc.HumanMessage(""), type="user"),
        assigned(lc.ToolMessage("", tool_call_id="1"), tool_call_id=7),
        assigned(lc.ToolMessage("", tool_call_id="1"), content=["a", 1]),
        assigned(lc.ToolMessage("", tool_call_id="1"), status="maybe"),
        assigned(lc.RemoveMessage(id="1"), content="x"),
    ],
)
def test_what_validation_would_change_is_changed_in_the_same_way(message: lc.BaseMessage) -> None:
    assert_same(through_codec([message, lc.HumanMessage("")]), decode(encode([message, lc.HumanMessage("")])))


def test_the_general_serializer_is_called_only_for_the_odd_parts() -> None:
    own, at, keys = Tagged("own class", label="x"), datetime(2026, 1, 2, tzinfo=UTC), lc.HumanMessage("", map={1: "a"})
    chunk = lc.AIMessageChunk("", tool_call_chunks=[{"name": "f", "args": "{}", "id": "1", "index": 0}])
    artifact = lc.ToolMessage("", tool_call_id="1", artifact=[at, {"a": 1}])
    for message, part in (own, own), (chunk, chunk), (artifact, at), (keys, keys):
        seen: list[Any] = []

        def spy(value: Any, seen: list[Any] = seen) -> bytes:
            seen.append(value)
            return encode(value)

        value = [*(lc.HumanMessage(str(n)) for n in range(20)), message, lc.AIMessage("after")]
        data = messages.dump(value, spy)
        assert data is not None
        assert seen == [part]
        assert_same(messages.load(data, decode), decode(encode(value)))


def test_models_in_fields_come_back_as_the_general_serializer_makes_them() -> None:
    serde = StatekitSerializer()
    value = [
        lc.ToolMessage("", tool_call_id="1", artifact=[Document("d", metadata={"a": (1, {2})})]),
        lc.HumanMessage("", response_metadata={"source": Document("d")}, more=Decimal(1)),
        Tagged("", label="x"),
    ]
    data = messages.dump(value, lambda part: serde.dumps_typed(part)[1])
    assert data is not None
    loaded = messages.load(data, lambda part: serde.loads_typed(("msgpack", part)))
    assert_same(loaded, serde.loads_typed(serde.dumps_typed(value)))
    assert type(loaded[0].artifact[0]) is Document


def test_what_no_message_needs_stays_with_the_general_serializer() -> None:
    for value in ([], [1], [lc.HumanMessage(""), 1], [Tagged("")], Tagged(""), (lc.HumanMessage(""),), {}, "x", None):
        assert messages.dump(value, encode) is None


def test_strict_mode_still_refuses_to_build_an_own_subclass() -> None:
    value = [lc.HumanMessage("a"), Tagged("b")]
    data = messages.dump(value, encode)
    assert data is not None
    loaded = messages.load(data, lambda inner: STRICT.loads_typed(("msgpack", inner)))
    assert_same(loaded, STRICT.loads_typed(("msgpack", encode(value))))
    assert type(loaded[1]) is dict


@given(st.lists(whole(), min_size=1, max_size=3))
def test_no_object_is_shared_between_loads_or_messages(value: list[lc.BaseMessage]) -> None:
    data = messages.dump([*value, *value], encode)
    assume(data is not None)
    one, two = messages.load(data, decode), messages.load(data, decode)
    found = [*mutables(one), *mutables(two)]
    assert len(found) == len(set(found))


@settings(max_examples=50)
@given(st.lists(whole(), min_size=1, max_size=20), st.lists(whole(), max_size=3), st.integers(0, 20))
def test_a_list_that_a_known_one_begins_with_is_taken_from_it(
    value: list[lc.BaseMessage], other: list[lc.BaseMessage], size: int
) -> None:
    packed, known = messages.dump(value, encode), messages.Known()
    assume(packed is not None)
    assert packed is not None
    assert known.beginning(packed) is None
    known.learn(packed, held := messages.load(packed, decode))
    for part in (value[:size], [*value[:size], *other]):
        if (data := messages.dump(part, encode)) is None:
            continue
        found = known.beginning(data)
        if part == value[:size]:
            assert found is not None
        if found is not None:
            assert_same(found, messages.load(data, decode))
            assert all(one is two for one, two in zip(found, held, strict=False))
    if (one := messages.dump(value[0], encode)) is not None:
        assert known.beginning(one) is None, "a message is no list"


def rows_of(data: bytes) -> bytes:
    head = {0xDC: 3, 0xDD: 5}.get(data[2], 1)
    return data[2 + head :]


@pytest.mark.parametrize("size", [1, 14, 15, 16, 40])
def test_a_list_that_grew_starts_with_the_bytes_of_the_shorter_one(size: int) -> None:
    value: list[Any] = [lc.HumanMessage(f"turn {n}", id=str(n)) for n in range(40)]
    for last in (lc.AIMessage("more"), Tagged("of another class")):
        short, long = messages.dump(value[:size], encode), messages.dump([*value[:size], last], encode)
        assert short is not None
        assert long is not None
        assert rows_of(long).startswith(rows_of(short))


@pytest.mark.parametrize("size", [15, 16, 65535, 65536])
def test_lists_of_any_length_come_back_beside_an_odd_message(size: int) -> None:
    value = [lc.HumanMessage("")] * (size - 1) + [Tagged("")]
    data = messages.dump(value, encode)
    assert data is not None
    assert len(messages.load(data, decode)) == size


@pytest.mark.parametrize("poison", ["\ud800", 1 << 64, -(1 << 63) - 1, {"\ud800": 1}])
@pytest.mark.parametrize("place", ["content", "response_metadata", "extra", "beside"])
def test_what_msgpack_cannot_hold_is_refused_and_never_replaced(poison: Any, place: str) -> None:
    spots = {
        "content": lambda: lc.HumanMessage([{"text": poison}]),
        "response_metadata": lambda: lc.HumanMessage("", response_metadata={"a": poison}),
        "extra": lambda: lc.HumanMessage("", more=poison),
        "beside": lambda: lc.HumanMessage("", response_metadata={"at": {1}, "a": poison}),
    }
    message = spots[place]()
    for value in (message, [lc.AIMessage("before"), message]):
        with pytest.raises(TypeError):
            messages.dump(value, encode)


def test_nan_and_infinities_stay() -> None:
    loaded = through_codec([lc.HumanMessage("", response_metadata={"a": [math.nan, math.inf, -math.inf, -0.0]})])
    assert repr(loaded[0].response_metadata["a"]) == "[nan, inf, -inf, -0.0]"


@given(st.lists(whole(), min_size=1, max_size=3), st.data())
def test_altered_bytes_are_corrupt_or_give_whole_messages(value: list[lc.BaseMessage], data: st.DataObject) -> None:
    good = messages.dump(value, no_other)
    assume(good)
    assert good is not None
    where = data.draw(st.integers(0, len(good) - 1))
    what = data.draw(st.binary(max_size=2))
    bad = good[:where] + what + good[where + data.draw(st.integers(0, 2)) :]
    try:
        loaded = messages.load(bad, no_reader)
    except (Corrupt, SchemaTooNew):
        return
    for message in loaded if type(loaded) is list else [loaded]:
        assert type(message) in CLASSES
        assert_same(message, decode(encode(message)))


@given(whole(), st.data())
def test_cut_bytes_are_corrupt(value: lc.BaseMessage, data: st.DataObject) -> None:
    for good in (messages.dump(value, no_other), messages.dump([value], no_other)):
        if good is not None:
            with pytest.raises(Corrupt):
                messages.load(good[: data.draw(st.integers(0, len(good) - 1))], decode)


@pytest.mark.parametrize("cls", CLASSES)
@settings(max_examples=25)
@given(data=st.data())
def test_fields_of_a_wrong_type_are_corrupt(cls: type[lc.BaseMessage], data: st.DataObject) -> None:
    good = messages.dump(data.draw(whole(cls)), no_other)
    assume(good is not None)
    assert good is not None
    row = ormsgpack.unpackb(good[2:])
    names = list(cls.model_fields)
    at = data.draw(st.sampled_from([n for n, name in enumerate(names) if name != "artifact"]))
    maps = ("additional_kwargs", "response_metadata")
    row[at] = data.draw(st.sampled_from([7, 1.5, True, b"x", [7], [[]], *([] if names[at] in maps else [{"a": 1}])]))
    for bad in (good[:2] + ormsgpack.packb(row), b"\x01\x00" + ormsgpack.packb([row])):
        with pytest.raises(Corrupt):
            messages.load(bad, decode)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x01", b"\x01\x02\x90", b"\x01\x00", b"\x01\x00\xc0", b"\x01\x00\x91\x90", b"\x01\x01\x90"]
    + [b"\x01\x00" + ormsgpack.packb(item) for item in ([1], [None], [{}], ["x"], [[0, 1, 2, []]], [["", 0, 0, "no"]])],
)
def test_bytes_of_no_dump_are_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        messages.load(data, decode)


def test_what_the_general_serializer_cannot_read_is_corrupt_and_its_own_errors_pass() -> None:
    data = messages.dump([lc.HumanMessage(""), Tagged("")], encode)
    assert data is not None

    def broken(inner: bytes) -> Any:
        raise RuntimeError("damaged")

    def refused(inner: bytes) -> Any:
        raise DataError("not allowed here")

    with pytest.raises(Corrupt, match="damaged"):
        messages.load(data, broken)
    with pytest.raises(DataError, match="not allowed here"):
        messages.load(data, refused)


def test_bytes_of_a_later_release_ask_for_an_upgrade() -> None:
    for data in (b"\x02", b"\x02\x00\x90", b"\xff\x00"):
        with pytest.raises(SchemaTooNew):
            messages.load(data, decode)


def test_a_class_that_grew_is_left_to_the_general_serializer_and_its_old_bytes_stay_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = messages.dump([lc.AIMessage("a", id="1", extra=2)], encode)
    assert old is not None
    kind = message_kinds.KINDS["ai"]
    grown = message_kinds.Kind(Grown, "ai", tuple(kind.names), kind.fits, kind.state)
    assert not grown.known
    monkeypatch.setattr(grown, "size", kind.size)
    monkeypatch.setattr(grown, "names", kind.names)
    monkeypatch.setitem(message_kinds.KINDS, "ai", grown)
    loaded = messages.load(old, decode)
    assert loaded == [Grown("a", id="1", extra=2)]
    assert loaded[0].mood == "calm"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_has_the_garbage_collector_that_rested_while_its_parent_read() -> None:
    body = ormsgpack.packb([ormsgpack.packb("x")] + [b""] * 9000)
    reading, go = threading.Event(), threading.Event()

    def decode(data: bytes) -> Any:
        reading.set()
        assert go.wait(60)
        return lc.AIMessage("x")

    with ThreadPoolExecutor(1) as pool:
        loaded = pool.submit(messages.load, bytes((1, 0)) + body, decode)
        assert reading.wait(60)
        assert not gc.isenabled()
        child = os.fork()
        if not child:
            os._exit(not gc.isenabled())
        go.set()
        assert os.waitpid(child, 0)[1] == 0
        assert len(loaded.result()) == 9001
    assert gc.isenabled()
