"""Checkpoints: what put stores and get_tuple returns."""

from __future__ import annotations

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple

from langgraph_statekit.errors import Misuse
from tests.faces import Face, checkpoint, config, id_of, ids, listed, metadata, put


async def _get(saver: Face, at: object) -> CheckpointTuple:
    found = await saver.aget_tuple(at)
    assert found is not None
    return found


async def test_put_returns_exactly_the_address(saver: Face) -> None:
    at = await put(saver, config("t", "n:1", user="u", __pregel_x=object()), id="1")
    assert at == config("t", "n:1", "1")


@pytest.mark.parametrize("by_id", [False, True])
async def test_get_tuple_config_is_exactly_the_address(saver: Face, by_id: bool) -> None:
    await put(saver, config("t"), id="1")
    await put(saver, config("t", id="1"), id="2")
    asked = config("t", id="2" if by_id else None, user="u", __pregel_read=print)
    found = await _get(saver, asked)
    assert found.config == config("t", "", "2")
    assert found.parent_config == config("t", "", "1")
    assert (await _get(saver, config("t", id="1"))).parent_config is None


async def test_a_config_without_namespace_reads_and_writes_the_root(saver: Face) -> None:
    at = await put(saver, {"configurable": {"thread_id": "t"}}, id="1")
    assert at == config("t", "", "1")
    assert (await _get(saver, {"configurable": {"thread_id": "t", "checkpoint_id": "1"}})).config == at


async def test_an_empty_checkpoint_id_means_the_latest(saver: Face) -> None:
    await put(saver, config(), id="1")
    await put(saver, config(), id="2")
    assert id_of((await _get(saver, config(checkpoint_id=""))).config) == "2"
    assert id_of((await _get(saver, config(checkpoint_id=None))).config) == "2"


async def test_what_is_not_stored_is_none(saver: Face) -> None:
    assert await saver.aget_tuple(config()) is None
    await put(saver, config(), id="1")
    assert await saver.aget_tuple(config(id="2")) is None
    assert await saver.aget_tuple(config(ns="other")) is None
    assert await saver.aget_tuple(config("u", id="1")) is None


async def test_a_config_without_thread_is_refused(saver: Face) -> None:
    for call in (saver.aget_tuple({"configurable": {}}), put(saver, {"configurable": {}})):
        with pytest.raises(Misuse, match="thread"):
            await call


async def test_only_new_versions_are_stored(saver: Face) -> None:
    first = await put(saver, config(), {"a": 1, "b": 1})
    made = checkpoint({"a": "not stored", "b": 2, "c": "not stored"}, {"a": 1, "b": 2, "c": 1})
    await saver.aput(first, made, metadata(), {"b": 2})
    found = await _get(saver, config())
    assert found.checkpoint["channel_values"] == {"a": 1, "b": 2}
    assert found.checkpoint["channel_versions"] == {"a": 1, "b": 2, "c": 1}


async def test_a_new_version_without_value_is_absent(saver: Face) -> None:
    first = await put(saver, config(), {"a": 1})
    await saver.aput(first, checkpoint({}, {"a": 2}), metadata(), {"a": 2})
    assert (await _get(saver, config())).checkpoint["channel_values"] == {}
    assert (await _get(saver, first)).checkpoint["channel_values"] == {"a": 1}


async def test_a_channel_that_left_the_versions_is_absent(saver: Face) -> None:
    first = await put(saver, config(), {"a": 1, "b": 1})
    await saver.aput(first, checkpoint({"a": 1}, {"a": 1}), metadata(), {})
    assert (await _get(saver, config())).checkpoint["channel_values"] == {"a": 1}


async def test_values_without_content_are_kept(saver: Face) -> None:
    values = {"none": None, "bytes": b"", "text": "", "list": [], "dict": {}, "zero": 0, "false": False}
    await put(saver, config(), values)
    found = (await _get(saver, config())).checkpoint["channel_values"]
    assert found == values
    assert type(found["false"]) is bool


async def test_the_same_version_again_takes_the_last_value(saver: Face) -> None:
    first = await put(saver, config(), {"a": "old"}, {"a": 1})
    await put(saver, first, {"a": "new"}, {"a": 1})
    assert (await _get(saver, config())).checkpoint["channel_values"] == {"a": "new"}


async def test_a_repeated_put_keeps_its_place_and_takes_the_new_content(saver: Face) -> None:
    for index in ("1", "2", "3"):
        await put(saver, config(), {"a": index}, {"a": index}, id=index)
    await put(saver, config(id="1"), {"a": "again"}, {"a": "4"}, id="2", meta={"step": 7, "fresh": True})
    assert await ids(saver, config()) == ["3", "2", "1"]
    assert id_of((await _get(saver, config())).config) == "3"
    found = await _get(saver, config(id="2"))
    assert found.checkpoint["channel_values"] == {"a": "again"}
    assert found.metadata["step"] == 7
    assert found.metadata["fresh"] is True
    assert found.parent_config == config(id="1")


async def test_branches_with_versions_of_their_own_do_not_mix(saver: Face) -> None:
    root = await put(saver, config(), {"a": 0}, {"a": saver.get_next_version(None, None)})
    base = (await _get(saver, root)).checkpoint["channel_versions"]["a"]
    left = await put(saver, root, {"a": "left"}, {"a": saver.get_next_version(base, None)})
    right = await put(saver, root, {"a": "right"}, {"a": saver.get_next_version(base, None)})
    assert (await _get(saver, left)).checkpoint["channel_values"] == {"a": "left"}
    assert (await _get(saver, right)).checkpoint["channel_values"] == {"a": "right"}


def test_versions_grow_and_differ_from_any_start(real: BaseCheckpointSaver[str]) -> None:
    for start in (None, 1, 99, "7", "00000000000000000000000000000012.0123456789012345"):
        made = [real.get_next_version(start, None) for _ in range(50)]
        assert len(set(made)) == 50
        after = [real.get_next_version(each, None) for each in made]
        assert all(str(new) > str(old) for old, new in zip(made, after, strict=True))


async def test_returned_objects_belong_to_the_caller(saver: Face) -> None:
    await put(saver, config(), {"a": [1]})
    await saver.aput_writes((await _get(saver, config())).config, [("a", [1])], "task")
    for found in (await _get(saver, config()), (await listed(saver, config()))[0]):
        found.checkpoint["channel_values"]["a"].append(2)
        found.checkpoint["channel_versions"]["b"] = 1
        found.checkpoint["versions_seen"]["n"] = {}
        found.metadata["step"] = 99
        found.config["configurable"]["thread_id"] = "changed"
        assert found.pending_writes is not None
        found.pending_writes[0][2].append(2)
    found = await _get(saver, config())
    assert found.checkpoint["channel_values"] == {"a": [1]}
    assert found.checkpoint["channel_versions"] == {"a": 1}
    assert found.checkpoint["versions_seen"] == {}
    assert found.metadata["step"] == 0
    assert [value for _, _, value in found.pending_writes or []] == [[1]]


async def test_put_leaves_its_arguments_alone_and_keeps_no_part_of_them(saver: Face) -> None:
    made = checkpoint({"a": [1]}, {"a": 1}, id="1")
    meta = metadata(extra={"k": [1]})
    at = config(user="u")
    await saver.aput(at, made, meta, {"a": 1})
    assert made == checkpoint({"a": [1]}, {"a": 1}, id="1") | {"ts": made["ts"]}
    assert at == config(user="u")
    made["channel_values"]["a"].append(2)
    meta["extra"]["k"].append(2)
    found = await _get(saver, config())
    assert found.checkpoint["channel_values"] == {"a": [1]}
    assert found.metadata["extra"] == {"k": [1]}


async def test_metadata_takes_scalars_of_the_config_and_nothing_that_pregel_owns(saver: Face) -> None:
    at = {
        "configurable": {"thread_id": "t", "checkpoint_ns": "", "user": "u", "n": 1, "__pregel_x": "no", "obj": [1]},
        "metadata": {"run_id": "r", "tag": "x", "deep": {"a": 1}},
    }
    await put(saver, at, id="1", meta={"tag": "kept"})
    found = (await _get(saver, config())).metadata
    assert found == {"source": "loop", "step": 0, "parents": {}, "tag": "kept", "user": "u", "n": 1, "run_id": "r"}


async def test_a_deleted_thread_is_gone_and_may_begin_again(saver: Face) -> None:
    at = await put(saver, config(), {"a": 1}, id="2")
    await put(saver, config(ns="n:1"), {"a": 1})
    await saver.aput_writes(at, [("a", 1)], "task")
    await put(saver, config("other"), {"a": 5})
    await saver.adelete_thread("t")
    await saver.adelete_thread("t")
    await saver.adelete_thread("never was")
    assert await listed(saver, {"configurable": {"thread_id": "t"}}) == []
    await put(saver, config(), {}, {"a": 1}, id="1")
    found = await _get(saver, config())
    assert found.checkpoint["channel_values"] == {}
    assert found.pending_writes == []
    assert await ids(saver, config()) == ["1"]
    assert (await _get(saver, config("other"))).checkpoint["channel_values"] == {"a": 5}


async def test_none_is_not_taken_for_a_thread_of_that_name(saver: Face) -> None:
    await put(saver, config("None"), {"a": 1})
    with pytest.raises(Misuse, match="no thread is named"):
        await saver.adelete_thread(None)  # type: ignore[arg-type]
    assert (await _get(saver, config("None"))).checkpoint["channel_values"] == {"a": 1}


async def test_a_late_write_to_a_deleted_thread_brings_nothing_back(saver: Face) -> None:
    at = await put(saver, config(), {"a": 1})
    await saver.adelete_thread("t")
    await saver.aput_writes(at, [("a", "ghost")], "task")
    assert await saver.aget_tuple(config()) is None
    assert await listed(saver, config()) == []
    assert await listed(saver, None) == []
    new = await put(saver, config(), {"a": 2})
    assert (await _get(saver, new)).pending_writes == []
