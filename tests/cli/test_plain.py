"""Values as plain data, and where two of them differ."""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Send

from langgraph_statekit.checkpoint.facts import network_kind
from langgraph_statekit.checkpoint.plain import bounded, differences, plain, text
from langgraph_statekit.cli.serializer import ForeignSerializer
from langgraph_statekit.cli.terminal import age, table, without_login
from langgraph_statekit.readable import size

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", max_size=1), inner, max_size=3),
    max_leaves=12,
)


class Mood(Enum):
    GOOD = "good"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (float("nan"), "nan"),
        (b"ab", "base64:YWI="),
        ({1: {"b", "a"}, (1, 2): deque([1])}, {"1": ["a", "b"], "(1, 2)": [1]}),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("/a/b"), "/a/b"),
        (Mood.GOOD, {"$class": f"{__name__}.Mood", "value": "good"}),
        (HumanMessage("hi", id="1"), {"type": "human", "content": "hi", "id": "1"}),
        (np.arange(2), {"$class": "numpy.ndarray", "dtype": "int64", "value": [0, 1]}),
        ({"api-key": "x", "password": None, "max_tokens": 3}, {"api-key": "***", "password": None, "max_tokens": 3}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_become_plain_data_without_secrets(value: Any, shown: Any) -> None:
    assert plain(value) == shown
    json.dumps(plain(value), allow_nan=False)


def test_objects_become_their_fields() -> None:
    assert plain(Send("work", {"n": 1}))["node"] == "work"
    call = {"name": "f", "args": {"token": "t"}, "id": "1", "type": "tool_call"}
    assert plain(AIMessage("", tool_calls=[call]))["tool_calls"][0]["args"] == {"token": "***"}


@pytest.mark.parametrize("code", range(10))
@pytest.mark.parametrize(
    "arguments", ["touch {}", ["touch {}"], {"command": "touch {}"}], ids=lambda value: type(value).__name__
)
def test_no_stored_bytes_make_a_reader_import_or_run_anything(code: int, arguments: Any, tmp_path: Path) -> None:
    told = json.loads(json.dumps(arguments).replace("{}", str(tmp_path / "pwned")))
    for module, name in (("os", "system"), ("subprocess", "getoutput"), ("antigravity", "fly")):
        gadget = ormsgpack.Ext(code, ormsgpack.packb((module, name, told, "model_validate_json")))
        json.dumps(plain(ForeignSerializer().loads_typed(("msgpack", ormsgpack.packb({"x": [gadget]})))))
    assert list(tmp_path.iterdir()) == []
    assert "antigravity" not in sys.modules


@given(JSON, JSON)
def test_equal_values_do_not_differ_and_others_do(one: Any, other: Any) -> None:
    assert list(differences(one, one)) == []
    same = json.dumps(one) == json.dumps(other) or (
        isinstance(one, dict) and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    )
    if not same and one != other:
        assert list(differences(one, other))


@given(st.lists(st.integers(), min_size=1, max_size=20), st.integers())
def test_an_item_more_in_a_list_is_one_difference(items: list[int], item: int) -> None:
    at = random.Random(item).randrange(len(items) + 1)
    (found,) = differences({"list": items}, {"list": [*items[:at], item, *items[at:]]})
    assert found[1:] == ("added", None, item)


@given(JSON)
def test_what_is_bounded_is_short(value: Any) -> None:
    assert len(text(bounded([value] * 50, 300))) <= 2 * 300 + 10


def test_sizes_and_ages_are_readable() -> None:
    assert [size(n) for n in (0, 999, 1500, 2_345_678, None)] == ["0 B", "999 B", "1.5 kB", "2.35 MB", "?"]
    assert [age(s) for s in (-1, 59, 150, 7300, 200_000, None)] == ["0s", "59s", "2m", "2h", "2d", "?"]


def test_columns_of_wide_characters_line_up() -> None:
    first, second, _ = table(("A", "B"), [("日本", "x"), ("a\x1b", "y")])
    assert (first, second) == ("A      B", "日本   x")


def test_no_url_shows_its_login() -> None:
    shown = without_login("at redis://u:p@h/0?password=x&db=1 and s3://b?secret_access_key=k postgresql://u:p@h")
    assert shown == "at redis://***@h/0?password=***&db=1 and s3://b?secret_access_key=*** postgresql://***@h"


def test_the_file_system_of_a_path_is_the_innermost_mount() -> None:
    mounts = ["/dev/a / ext4 rw 0 0", "srv:/x /mnt/my\\040data nfs4 rw 0 0", "/dev/b /mnt/my\\040data/local xfs rw 0 0"]
    assert network_kind(mounts, "/mnt/my data/agent.db") == "nfs4"
    assert network_kind(mounts, "/mnt/my data/local/agent.db") is None
    assert network_kind(mounts, "/home/agent.db") is None
