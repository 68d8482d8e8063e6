"""Envelope, keys, metadata and credentials."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

from langgraph_statekit.checkpoint.codec import (
    Codec,
    channel_key,
    config_of,
    frame_key,
    matches,
    ref_of,
)
from langgraph_statekit.checkpoint.frames import Frames, seal, unseal
from langgraph_statekit.checkpoint.records import Frame, Ref, Row, from_text, to_text
from langgraph_statekit.checkpoint.secret_keys import SECRET_KEYS
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.errors import Corrupt, DataError, Misuse, SchemaTooNew

CODEC = Codec(StatekitSerializer(), SECRET_KEYS)
VALUES = {"messages": ["hi\x00"] * 50, "n": {"price": 1.5}}


def config(**configurable: Any) -> Any:
    return {"configurable": {"thread_id": "t", "checkpoint_ns": "", **configurable}}


def put(metadata: Any, values: Any = VALUES, where: Any = None) -> tuple[Row, dict[bytes, bytes | None]]:
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = dict(values)
    checkpoint["channel_versions"] = dict.fromkeys(values, "1")
    row, plains = CODEC.pack_put(where or config(), checkpoint, metadata, checkpoint["channel_versions"])
    return row, dict(plains)


def metadata_of(metadata: Any, where: Any = None, codec: Codec = CODEC) -> dict[str, Any]:
    row, _ = codec.pack_put(where or config(), empty_checkpoint(), metadata, {})
    assert codec.metadata(row) == codec.unpack(row, {}.get, ()).metadata
    return codec.metadata(row)


def test_values_come_back_from_row_and_frames() -> None:
    row, plains = put({"source": "loop", "step": 1})
    found = CODEC.unpack(row, plains.get, ())
    assert found.checkpoint["channel_values"] == VALUES
    assert found.metadata == {"source": "loop", "step": 1}


def test_a_value_that_cannot_be_stored_names_channel_path_type_and_remedy() -> None:
    with pytest.raises(DataError, match=r"channel 'n' cannot be stored: at \['a'\]\[1\]: int: .*store str\(value\)"):
        put({}, {"n": {"a": [1, 2**64]}})
    with pytest.raises(DataError, match=r"channel 'm' \(a write of task 7\) cannot be stored: .* a lone surrogate"):
        CODEC.pack_writes(config(checkpoint_id="1"), [("m", "\ud800")], "7", "")
    with pytest.raises(DataError, match=r"metadata cannot be stored: at \['note'\]: str: a lone surrogate"):
        put({"note": "\ud800"})


def test_broken_and_foreign_values_name_their_channel() -> None:
    row, plains = put({})
    key = frame_key("", "n", "1")
    for broken, error in (
        (b"", Corrupt),
        (b"\x07msg", Corrupt),
        (b"\x04yamlx", DataError),
        (b"\x07msgpack\xc1", Corrupt),
    ):
        with pytest.raises(error, match="channel 'n'"):
            CODEC.unpack(row, {**plains, key: broken}.get, ())
    for sealed, error in ((seal(plains[key] or b"")[:-1], Corrupt), (b"", Corrupt), (b"\xff", SchemaTooNew)):
        frames = {key: Frame(key, sealed)}
        with pytest.raises(error, match="channel 'n'"):
            CODEC.unpack(row, Frames().reader("t", frames), ())


NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False)
METADATA = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.recursive(
        st.none() | st.booleans() | NUMBERS | st.text("a\x00é") | st.binary(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a\x00"), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(METADATA)
def test_metadata_comes_back_exactly(metadata: dict[str, Any]) -> None:
    assume(not any(key.lower().replace("-", "_") in SECRET_KEYS for key in metadata))
    assert metadata_of(metadata) == metadata


def test_nul_nan_and_nested_values_in_metadata_are_kept() -> None:
    metadata: Any = {"a": "x\x00", "\x00": {"b": [None, {"c\x00": 1}]}, "nan": math.nan, 3: "three"}
    row, _ = put(metadata)
    back = CODEC.metadata(row)
    assert math.isnan(back.pop("nan"))
    del metadata["nan"]
    assert back == metadata


KEPT = ["statekit_token", "max_tokens", "token_count", "tokens", "key", "user_id", "author", "passwords_reset"]
DROPPED = ["api_key", "auth_token", "Authorization", "X-Api-Key", "password", "PASSWORD", "token", "client-secret"]


@pytest.mark.parametrize("place", ["configurable", "config metadata", "metadata"])
def test_credentials_are_dropped_and_lookalikes_kept(place: str) -> None:
    values = {name: "hush" if name in DROPPED else name for name in KEPT + DROPPED}
    where, metadata = config(), {}
    if place == "configurable":
        where = config(**values)
    elif place == "config metadata":
        where["metadata"] = values
    else:
        metadata = values
    assert metadata_of(metadata, where) == {name: name for name in KEPT}
    row, _ = CODEC.pack_put(where, empty_checkpoint(), metadata, {})  # type: ignore[arg-type]
    assert b"hush" not in unseal(row.body)


def test_the_list_of_credentials_can_be_chosen() -> None:
    codec = Codec(StatekitSerializer(), frozenset({"user_id"}))
    assert metadata_of({"api_key": "a", "User-Id": "b"}, codec=codec) == {"api_key": "a"}


def test_the_list_of_credentials_is_lower_case_with_underscores() -> None:
    assert all(name == name.lower().replace("-", "_") for name in SECRET_KEYS)


def test_metadata_takes_scalars_from_the_config_and_nothing_internal() -> None:
    where = config(user="u", n=1, flag=True, nested={"a": 1}, __pregel_task_id="x", checkpoint_id="p")
    where["metadata"] = {"user": "first", "thread_id": "other", "langgraph_step": 3}
    assert metadata_of({"step": 1, "user": "own"}, where) == {"step": 1, "user": "own", "n": 1, "flag": True}


def test_a_filter_wants_exact_values() -> None:
    metadata = {"a": {"b": 1, "c": 2}, "n": None}
    assert matches(metadata, {"a": {"c": 2, "b": 1}, "n": None, "missing": None})
    assert not matches(metadata, {"a": {"b": 1}})
    assert not matches(metadata, {"missing": 0})


@given(st.text(), st.text(), st.text(), st.text())
def test_any_two_ids_stay_apart_and_come_back(a: str, b: str, c: str, d: str) -> None:
    assert from_text(to_text(a)) == a
    to_text(a).encode()
    assert "\x00" not in to_text(a)
    assert (to_text(a) == to_text(b)) == (a == b)
    if (a, b) != (c, d):
        assert channel_key(to_text(a), b) != channel_key(to_text(c), d)
        assert ref_of(config(thread_id=a, checkpoint_ns=b)) != ref_of(config(thread_id=c, checkpoint_ns=d))


def test_versions_are_told_apart_as_in_a_dict() -> None:
    assert frame_key("", "c", 1) == frame_key("", "c", 1.0)
    assert len({frame_key("", "c", version) for version in (1, "1", 1.5, "1.5", 2)}) == 5


def test_a_config_without_thread_is_misuse() -> None:
    with pytest.raises(Misuse, match="thread_id"):
        ref_of({"configurable": {}})
    with pytest.raises(Misuse, match="checkpoint_id"):
        CODEC.pack_writes(config(), [("a", 1)], "t", "")
    assert ref_of(config_of(Ref("t", "n", "c"))) == ("t", "n", "c")
