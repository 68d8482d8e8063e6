"""The serializer: what would change is refused with path, type and remedy."""

from __future__ import annotations

import collections
import datetime as dt
import pathlib
import re
import socket
import threading
import uuid
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send
from pydantic import SecretStr

from tests.unit.serde_types import (
    PLAIN,
    Derived,
    Failure,
    Frozen,
    Growing,
    Hidden,
    Increments,
    Item,
    Model,
    Moment,
    Number,
    Outer,
    Pair,
    Point,
    Seeded,
    Shade,
    Shelf,
    Text,
    again,
    local_class_objects,
    private,
    refusal,
    with_attribute,
)

REFUSED: dict[str, tuple[Any, str]] = {
    "big int": ({"n": [2**64]}, "at ['n'][0]: int: integers beyond 64 bits: store str(value) or Decimal(value)"),
    "small int": (-(2**63) - 1, "at the value itself: int: integers beyond 64 bits"),
    "big key": ({"a": {2**64: 1}}, f"at ['a'] key {2**64}: int: integers beyond 64 bits"),
    "path": (
        {"items": [0, 1, 2, Item("x", {"raw": object()})]},
        "at ['items'][3].price['raw']: object: no stored form",
    ),
    "model path": (Outer(model=Model(a=[print])), "at .model.a[0]: builtin_function_or_method: functions"),
    "message path": ([AIMessage("x", response_metadata={"n": 2**70})], "at [0].response_metadata['n']: int"),
    "datetime key": ({dt.date(2024, 1, 1): 1}, "at key datetime.date(2024, 1, 1): datetime.date: as a dict key"),
    "enum key": ([{Shade.RED: 1}], "at [0] key <Shade.RED: 1>"),
    "key in a dataclass": (Item({uuid.UUID(int=1): 1}), "at .sku key UUID("),
    "tuple enum": (Shade.BOTH, "Shade becomes list"),
    "numpy scalar": ([np.float64(1)], "at [0]: numpy.float64: a numpy scalar: store value.item()"),
    "numpy key": ({np.int64(1): 1}, "a numpy scalar: store value.item()"),
    "object array": (np.array([{}], dtype=object), "an array of dtype object would lose it"),
    "structured array": ([np.zeros(1, dtype=[("a", "i4")])], "at [0]: numpy.ndarray: an array of dtype [('a', '<i4')]"),
    "masked array": (np.ma.array([1], mask=[True]), "would come back as numpy.ndarray"),
    "datetime subclass": (Moment(2024, 1, 1), "Moment becomes str"),
    "float subclass": (Number(1), "a subclass of float would lose its type"),
    "tuple subclass": (Pair((1, 2)), "a subclass of tuple would lose its type"),
    "complex": (1j, "complex: no stored form"),
    "fraction": (Fraction(1, 2), "fractions.Fraction: no stored form"),
    "set of unhashable on return": ({Frozen((1, 2))}, "set becomes list"),
    "changed init=False": (with_attribute(Derived(1), doubled=9), "it would come back different in .doubled"),
    "InitVar": (Seeded(1, 7), "it would come back different in .seeded"),
    "post_init": (Growing(1), "it would come back different in .a"),
    "attribute": (with_attribute(Item(1), other=2), "attribute .other is no field"),
    "private attribute": (
        [private(3)],
        "Private: it would come back different in ._count",
    ),
    "private attribute within": (Model(a=private(3)), "at .a: "),
    "validator": (Increments(a=1), "it would come back different in .a"),
    "assigned without validation": (with_attribute(Hidden(a=1), a="5"), "it would come back different in .a"),
    "name of another class": (Shelf.Point(1, 2), "it would come back as " + f"{Item.__module__}.Point"),
    "lock": ({"l": threading.Lock()}, "at ['l']: _thread.lock: functions, classes, locks"),
    "class": (Model, "keep it outside the state"),
    "dataclass itself": ([Item], "keep it outside the state"),
    "lambda": (Item(lambda: 1), "at .sku: function"),
    "generator": ([iter(())], "wrap it with SerializableResult.of(...)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_change_is_refused_with_path_type_and_remedy(name: str) -> None:
    value, message = REFUSED[name]
    assert message in refusal(value)


def test_what_contains_itself_is_refused_at_the_place() -> None:
    items: list[Any] = [1]
    items.append({"again": items})
    assert "at [1]['again']: list: it contains itself" in refusal(items)
    item = Item(1)
    item.price = [item]
    assert "at ['a'].price[0]" in refusal({"a": item})


def test_deep_nesting_is_refused_or_comes_back() -> None:
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    assert again(deep) == deep
    for _ in range(400):
        deep = [deep]
    assert "nested too deeply" in refusal(deep)
    chain: Any = None
    for _ in range(300):
        chain = Item(1, chain)
    assert "nested too deeply" in refusal(chain)


def test_a_refusal_deep_inside_models_is_found_fast() -> None:
    value: Any = object()
    for _ in range(40):
        value = Model(a=value)
    assert f"at {'.a' * 40}: object" in refusal(value)


def test_live_objects_are_refused_with_their_place() -> None:
    with socket.socket() as live, open(__file__) as file:
        assert "at .a: socket.socket: functions, classes, locks, sockets and clients" in refusal(Model(a=live))
        assert "wrap it with SerializableResult.of(...)" in refusal({"f": file})


SURROGATES: dict[str, Any] = {
    "text": "a\ud800b",
    "key": {"\ud800": 1},
    "tuple key": {("a", "\udfff"): 1},
    "str subclass": Text("\udc80"),
    "dataclass": Item({"x": ["\ud800"]}),
    "model": Model(a="\ud800"),
    "message": HumanMessage("\ud800"),
    "message block": HumanMessage([{"type": "text", "text": "\ud800"}]),
    "artifact": ToolMessage("t", tool_call_id="1", artifact=[{"\ud800": 1}]),
    "set": {"\ud800"},
    "set of tuples": {("\ud800", 1)},
    "deque": collections.deque(["\ud800"], maxlen=2),
    "named tuple": Point(1, "\ud800"),
    "path": pathlib.Path("\udcff"),
    "pattern": re.compile("\ud800"),
    "secret": SecretStr("\ud800"),
    "zone name": dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(0), "\ud800")),
    "send": Send("n", ["\ud800"]),
    "delta snapshot": _DeltaSnapshot(["\ud800"]),
    "local model": local_class_objects()[0].model_copy(update={"a": "\ud800"}),
}


@pytest.mark.parametrize("name", SURROGATES)
def test_a_lone_surrogate_is_refused_anywhere(name: str) -> None:
    value = SURROGATES[name]
    for place in (value, [value], {"a": value}, {1: [value]}, Item(value), Model(a=[value])):
        assert "surrogate" in refusal(place) or name in ("path", "pattern", "zone name", "secret")


def test_an_exception_is_stored_whatever_it_holds() -> None:
    class Odd(Exception):
        def __repr__(self) -> str:
            return "\ud800"

    assert again([Odd(), ValueError("\ud800")]) == ["\\ud800", "ValueError('\\ud800')"]
    assert again(Failure(print)) == "Failure(code=<built-in function print>)"


@settings(max_examples=200, deadline=None)
@given(PLAIN, st.text("ab"), st.text("ab"), st.sampled_from([chr(0xD800), chr(0xDFFF), chr(0xDC80)]), st.data())
def test_a_surrogate_next_to_any_value_is_refused(value: Any, head: str, tail: str, bad: str, data: Any) -> None:
    text = head + bad + tail
    held = data.draw(
        st.sampled_from(
            [
                text,
                [value, text],
                {"k": value, text: 1},
                Item(value, text),
                Model(a=[value, text]),
                {1: {(1, text): value}},
            ]
        )
    )
    assert "a lone surrogate" in refusal([value, held])
