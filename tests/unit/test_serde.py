"""The serializer: a value comes back equal and with its type, or it is a documented conversion."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import ipaddress
import math
import pathlib
import re
import subprocess
import sys
import threading
import uuid
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import SecretStr

from langgraph_statekit.checkpoint.exact import lost
from langgraph_statekit.checkpoint.results import SerializableResult
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.errors import Corrupt, DataError
from tests.unit.serde_types import (
    BERLIN,
    LANGGRAPHS,
    OURS,
    PLAIN,
    Bits,
    Cached,
    Derived,
    Failure,
    Frozen,
    Growing,
    Hidden,
    IntBox,
    Item,
    Level,
    Model,
    Numbers,
    Open,
    Outer,
    Password,
    Point,
    Shade,
    Shelf,
    Strict,
    Text,
    Wider,
    Word,
    again,
    local_class_objects,
    private,
    with_attribute,
)

EXACT: dict[str, Any] = {
    "none": None,
    "bool": [True, False],
    "ints": [0, -(2**63), 2**64 - 1],
    "floats": [0.1, -0.0, math.inf, -math.inf, math.nan],
    "text": "NUL \x00, emoji \U0001f600, é",
    "bytes": b"\x00\xff",
    "nested bytes": {"image": [b"\x89PNG\x00"]},
    "bytearray": bytearray(b"\x00x"),
    "decimals": [decimal.Decimal("1.10"), decimal.Decimal("NaN"), decimal.Decimal("1E+400")],
    "uuid": uuid.UUID(int=7),
    "naive datetime": dt.datetime(2024, 2, 29, 1, 2, 3, 4),
    "utc datetime": dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
    "offset datetime": dt.datetime(2024, 2, 29, tzinfo=dt.timezone(dt.timedelta(hours=-5, seconds=1))),
    "named offset": dt.datetime(2024, 2, 29, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
    "zone datetime": dt.datetime(2024, 7, 1, tzinfo=BERLIN),
    "second 02:30": dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    "naive fold": dt.datetime(2024, 10, 27, 2, 30, fold=1),
    "date": dt.date(2024, 1, 1),
    "times": [dt.time(1, 2, 3, 4), dt.time(1, tzinfo=BERLIN, fold=1), dt.time(1, tzinfo=dt.UTC)],
    "timedelta": dt.timedelta(days=-1, microseconds=3),
    "zones": [BERLIN, dt.timezone(dt.timedelta(hours=1), "CET")],
    "sets": [{1, "a", None}, frozenset({b"x"}), set()],
    "set of tuples": {(1, (2, "x")), (3,)},
    "frozenset of tuples": frozenset({(1, 2)}),
    "set of sets": {frozenset({1})},
    "set of enums and dates": {Shade.RED, dt.date(2024, 1, 1), Frozen("x")},
    "deques": [collections.deque([1, 2]), collections.deque([1], maxlen=3)],
    "enums": [Shade.RED, Shade.GREEN, Shade.OPTIONS, Word.A, Level.HIGH, Bits.A | Bits.B],
    "named tuples": [Point(1, "x"), Point(1, Point(2))],
    "dataclasses": [Item("a", Item("b", decimal.Decimal(1))), Frozen(b"x"), Derived(2), Cached(1)],
    "dataclass with cached property": with_attribute(Cached(3), twice=6),
    "dataclass exception": Failure(3),
    "models": [Model(a=1), Model(a={"x": 1}, t=(1, 2)), Outer(model=Model(a=1), models=[Model()])],
    "subclass in a base field": Outer(model=Wider(a=1, b=5), models=[Wider(b=7)]),
    "model or dataclass in Any": Model(a=[Model(a=3), Item("x"), Point(1), Shade.RED, {1, 2}]),
    "excluded field": Hidden(a=1, secret="kept"),
    "private attribute as new": private(0),
    "alias, computed, forbidden extra": Strict(A=3, inner=Wider(b=2)),
    "extra values": Open(a=1, other=[1], b=Model(a=2)),
    "root model": Numbers([1, 2]),
    "generic model": IntBox(content=3),
    "unvalidated model": Model.model_construct(a=1, t="no tuple"),
    "secret text": [SecretStr("x")],
    "secret field": Password(password=SecretStr("x")),
    "paths": [pathlib.Path("/a/b c"), pathlib.Path()],
    "patterns": [re.compile("a+", re.I), re.compile(b"x")],
    "addresses": [
        ipaddress.ip_address("1.2.3.4"),
        ipaddress.ip_network("fe80::/64"),
        ipaddress.ip_interface("10.0.0.1/8"),
    ],
    "dict keys": {1: "a", "1": "b", None: 1, 1.5: 2, b"x": 3, (1, ("a", b"b")): 4, False: 5},
    "big key": {2**63: 1},
    "delta snapshot": _DeltaSnapshot([Item(1)]),
    "graph types": [
        Send("n", {"a": Item(1)}),
        Interrupt(Item(1), id="i"),
        Overwrite([1]),
        Command(update={"a": 1}, goto=["x"]),
    ],
    "document": Document("text", metadata={"a": Item(1)}, id="1"),
}

MESSAGES: dict[str, Any] = {
    "human": HumanMessage("x\x00", name="ann", id="1"),
    "human blocks": HumanMessage(
        [
            {"type": "text", "text": "hi"},
            {"type": "image", "source_type": "base64", "data": "aGk=", "mime_type": "image/png"},
        ]
    ),
    "human extra": HumanMessage("x", additional_kwargs={"a": [1]}, unknown=3),
    "ai": AIMessage(
        [{"type": "reasoning", "reasoning": "r"}, {"type": "text", "text": "t"}],
        tool_calls=[{"name": "f", "args": {"x": 1, "y": [None]}, "id": "1"}],
        invalid_tool_calls=[{"name": "f", "args": "{", "id": "2", "error": "not JSON"}],
        usage_metadata={
            "input_tokens": 1,
            "output_tokens": 2,
            "total_tokens": 3,
            "input_token_details": {"cache_read": 1},
        },
        response_metadata={"logprobs": [-0.5, math.inf]},
    ),
    "system": SystemMessage("s"),
    "chat": ChatMessage("c", role="critic"),
    "function": FunctionMessage("f", name="f"),
    "tool": ToolMessage("t", tool_call_id="1", status="error", artifact=b"\x00\xff"),
    "tool with table": ToolMessage("t", tool_call_id="1", artifact={"rows": [1, 2]}),
    "remove": RemoveMessage(id="1"),
    "ai chunk": AIMessageChunk("a", tool_call_chunks=[{"name": "f", "args": '{"x', "id": "1", "index": 0}]),
    "human chunk": HumanMessageChunk("a"),
    "system chunk": SystemMessageChunk("a"),
    "chat chunk": ChatMessageChunk("a", role="critic"),
    "function chunk": FunctionMessageChunk("a", name="f"),
    "tool chunk": ToolMessageChunk("a", tool_call_id="1"),
}

ARTIFACTS: dict[str, Any] = {
    "dataclass": Item("a", decimal.Decimal("1.10")),
    "model": Wider(a=1),
    "set of tuples": {(1, 2)},
    "datetime": dt.datetime(2024, 7, 1, tzinfo=BERLIN),
    "enum": Shade.RED,
}

ARRAYS: dict[str, Any] = {
    "c order": np.arange(6).reshape(2, 3),
    "f order": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "transposed": np.arange(24).reshape(2, 3, 4).transpose(1, 0, 2),
    "strided": np.arange(10)[::2],
    "0-d": np.array(5),
    "empty": np.zeros((0, 3)),
    "bool": np.array([True]),
    "complex": np.array([1j]),
    "half": np.array([1.5, np.nan], dtype="f2"),
    "big endian": np.array([1], dtype=">i4"),
    "text": np.array(["ab", "ü"]),
    "bytes": np.array([b"ab"]),
    "dates": np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"),
    "strided dates": np.array(["2024-01-01", "NaT"], dtype="datetime64[ns]")[::-1],
    "durations": np.array([1], dtype="timedelta64[s]"),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_value_comes_back_equal_and_with_its_type(name: str) -> None:
    value = EXACT[name]
    for serde in (OURS, LANGGRAPHS):
        back = again(value, serde)
        assert type(back) is type(value)
        assert lost(value, back) is None
        assert repr(back) == repr(value) or back == value


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_stored_with_langgraphs_bytes(name: str) -> None:
    message = MESSAGES[name]
    assert OURS.dumps_typed(message) == LANGGRAPHS.dumps_typed(message)
    back = again(message, StatekitSerializer(allowed_msgpack_modules=None))
    assert type(back) is type(message)
    assert back == message


@pytest.mark.parametrize("name", ARTIFACTS)
def test_an_artifact_keeps_its_type(name: str) -> None:
    message = ToolMessage("t", tool_call_id="1", artifact=ARTIFACTS[name], additional_kwargs={"a": ARTIFACTS[name]})
    for serde in (OURS, LANGGRAPHS):
        back = again(message, serde)
        assert type(back.artifact) is type(ARTIFACTS[name])
        assert back == message


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_comes_back_bit_by_bit(name: str) -> None:
    array = ARRAYS[name]
    for serde in (OURS, LANGGRAPHS):
        for back in (
            again(array, serde),
            again(ToolMessage("t", tool_call_id="1", artifact=[array]), serde).artifact[0],
        ):
            assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


CONVERSIONS: dict[str, tuple[Any, Any]] = {
    "tuple": ((1, (2,)), [1, [2]]),
    "nested bytearray": ([bytearray(b"x")], [b"x"]),
    "memoryview": (memoryview(b"x"), b"x"),
    "str subclass": (Text("x"), "x"),
    "numpy text": ([np.str_("x")], ["x"]),
    "defaultdict": (collections.defaultdict(list, a=[1]), {"a": [1]}),
    "OrderedDict": (collections.OrderedDict(a=1), {"a": 1}),
    "Counter": (collections.Counter("aab"), {"a": 2, "b": 1}),
    "enum as key": ({Word.A: 1, Level.HIGH: 2}, {"a": 1, 3: 2}),
    "exception": (ValueError("x", 2**70), f"ValueError('x', {2**70})"),
    "class in a class": (Shelf.Book(title="x"), {"title": "x"}),
    "enum in a class": (Shelf.Colour.RED, 1),
    "classes in functions": (local_class_objects(), [{"a": 1}, {"a": 1}]),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_langgraphs_own_conversions_are_kept(name: str) -> None:
    value, expected = CONVERSIONS[name]
    assert OURS.dumps_typed(value) == LANGGRAPHS.dumps_typed(value)
    back = again(value)
    assert type(back) is type(expected)
    assert back == expected


def test_another_time_zone_class_becomes_a_fixed_offset() -> None:
    class Half(dt.tzinfo):
        def utcoffset(self, _: dt.datetime | None) -> dt.timedelta:
            return dt.timedelta(minutes=30)

    value = dt.datetime(2024, 1, 1, tzinfo=Half())
    assert again(value) == value
    assert again(value).tzinfo == dt.timezone(dt.timedelta(minutes=30))


@settings(max_examples=300, deadline=None)
@given(PLAIN)
def test_any_plain_value_comes_back_and_langgraph_reads_the_same(value: Any) -> None:
    back = again(value)
    assert lost(value, back) is None
    # Only a whole list of messages has a form of our own, so inside a dict LangGraph reads it too.
    assert lost({"v": back}, again({"v": value}, LANGGRAPHS)) is None
    assert lost(again(back), back) is None


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers(0, 9) | st.text("ab") | st.binary(max_size=3) | st.decimals(), st.lists, max_leaves=8
    )
)
def test_plain_values_have_langgraphs_bytes(value: Any) -> None:
    assert OURS.dumps_typed(value) == LANGGRAPHS.dumps_typed(value)


def test_strict_mode_blocks_unknown_types_and_allows_listed_ones() -> None:
    strict = StatekitSerializer(allowed_msgpack_modules=None)
    assert again(Item(1), strict) == {"sku": 1, "price": None}
    derived = strict.with_msgpack_allowlist([(Item.__module__, "Item")])
    assert type(derived) is StatekitSerializer
    assert again(Item(1), derived) == Item(1)
    assert again(Item(1), strict) == {"sku": 1, "price": None}
    assert derived.with_msgpack_allowlist([Item]) is derived
    result = SerializableResult.of(ValueError("x"))
    assert again(result, strict) == again(result, derived) == result


@pytest.mark.parametrize(
    "name", ["set of tuples", "zone datetime", "second 02:30", "named offset", "naive fold", "deques"]
)
def test_exact_forms_are_read_in_langgraphs_strict_mode(name: str) -> None:
    back = again(EXACT[name], JsonPlusSerializer(allowed_msgpack_modules=None))
    assert back == EXACT[name]
    if name != "set of tuples":  # a set shows its elements in any order
        assert repr(back) == repr(EXACT[name])


def test_the_environment_variable_turns_strict_mode_on() -> None:
    code = (
        "from langgraph_statekit.checkpoint.serde import StatekitSerializer as S\n"
        "from langgraph_statekit.checkpoint.results import SerializableResult as R\n"
        "import collections\n"
        "class P(collections.namedtuple('P', 'a')): pass\n"
        "s = S(); result = R.of(ValueError('x'))\n"
        "print(s.loads_typed(s.dumps_typed(P(1))), s.loads_typed(s.dumps_typed(result)) == result)"
    )
    env = {"LANGGRAPH_STRICT_MSGPACK": "true"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "{'a': 1} True\n"


def test_an_encrypted_serializer_wraps_ours_and_its_allowlist() -> None:
    class Cipher:
        def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
            return "flip", bytes(byte ^ 255 for byte in plaintext)

        def decrypt(self, _: str, ciphertext: bytes) -> bytes:
            return bytes(byte ^ 255 for byte in ciphertext)

    serde = EncryptedSerializer(Cipher(), StatekitSerializer())
    assert serde.loads_typed(serde.dumps_typed(Item(1))) == Item(1)
    with pytest.raises(DataError, match="surrogate"):
        serde.dumps_typed("\ud800")
    with pytest.raises(DataError, match="unknown type tag 'msgpack\\+flip'"):
        OURS.loads_typed(serde.dumps_typed(1))


def test_nothing_is_pickled_unless_asked_for_by_name() -> None:
    pickling = StatekitSerializer(pickle_fallback=True)
    assert pickling.dumps_typed([1])[0] == "msgpack"
    for value in ([2**70], "\ud800", Growing(1), 1j):
        typed = pickling.dumps_typed(value)
        assert typed[0] == "pickle"
        assert pickling.loads_typed(typed) == value
        with pytest.raises(DataError, match="unknown type tag 'pickle'"):
            OURS.loads_typed(typed)
    with pytest.raises(DataError, match=r"at \['l'\]: _thread.lock"):
        pickling.dumps_typed({"l": threading.Lock()})


def test_unknown_tags_and_broken_bytes_have_clear_errors() -> None:
    with pytest.raises(DataError, match="unknown type tag 'yaml'"):
        OURS.loads_typed(("yaml", b""))
    with pytest.raises(Corrupt, match="cannot be read"):
        OURS.loads_typed(("msgpack", b"\xc1"))


def test_old_json_values_are_read() -> None:
    assert OURS.loads_typed(("json", b'{"a": [1, null]}')) == {"a": [1, None]}


def test_storing_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again(Outer(model=Wider()))
        again(Model.model_construct(t=3))
