"""Ids of any characters stay apart, and one thread's deletion leaves nothing of it and all of its neighbours."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import Face, config, ids, listed, put
from tests.stores_under_test import DEFAULTS, Store

ODD: list[Any] = [
    *("a", "A", " a", "a ", "a b", "a:b", "a::b", "a|b", "a/b", "a//b", "a/", "/a", "a\\b", "a\\\\b", "\\u0000"),
    *("nul\0x", "nulx", "\0", "tab\tx", "line\nx", "\x7f", "\ufeffa", "*", "?", "{}", "{a}", "[a-z]", "%", "_", "a%b"),
    *("%2F", "..", ".", "../a", "~", "'", '"', "--", ";", "$1", ":x", "é", "e\u0301", "ß", "日本", "💾", "\ud800"),
    *("x" * 300, "x" * 299 + "y", "💾" * 300, "null", "None", "0", "-1", "1e3", 5, 5.5, uuid.UUID(int=5)),
]


async def test_threads_stay_apart(real: StatekitSaver, store: Store, saver: Face) -> None:
    for index, thread in enumerate(ODD):
        at = await put(saver, config(thread), {"a": index}, id="1")
        await saver.aput_writes(at, [("a", index)], "task")
    for index, thread in enumerate(ODD):
        for asked in (thread, str(thread)):
            found = await saver.aget_tuple(config(asked))
            assert found is not None
            assert found.checkpoint["channel_values"] == {"a": index}
            assert found.pending_writes == [("task", "a", index)]
            assert found.config["configurable"]["thread_id"] == str(thread)
            assert len(await listed(saver, config(asked))) == 1
    everything = await listed(saver, None)
    assert sorted(i.checkpoint["channel_values"]["a"] for i in everything) == list(range(len(ODD)))
    gone = ODD[::2]
    for thread in gone:
        await saver.adelete_thread(thread)
    for index, thread in enumerate(ODD):
        found = await saver.aget_tuple(config(thread))
        assert (found is None) == (index % 2 == 0)
        assert found is None or found.checkpoint["channel_values"] == {"a": index}
        assert found is None or found.pending_writes == [("task", "a", index)]


async def test_namespaces_stay_apart(saver: Face) -> None:
    for index, ns in enumerate(ODD):
        at = await put(saver, config(ns=ns), {"a": index}, id="1")
        await saver.aput_writes(at, [("a", index)], "task")
    for index, ns in enumerate(ODD):
        found = await saver.aget_tuple(config(ns=str(ns)))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": index}
        assert found.pending_writes == [("task", "a", index)]
        assert found.config["configurable"]["checkpoint_ns"] == str(ns)
        assert len(await listed(saver, config(ns=ns))) == 1


async def test_checkpoints_channels_and_tasks_stay_apart(saver: Face) -> None:
    names = [str(each) for each in ODD if each != "\ud800"]  # no serializer takes that one in a value
    for index, each in enumerate(names):
        at = await put(saver, config(), {each: index}, {each: each}, id=each)
        await saver.aput_writes(at, [(each, index)], each, each)
    assert await ids(saver, config()) == names[::-1]
    for index, each in enumerate(names):
        found = await saver.aget_tuple(config(id=each))
        assert found is not None
        assert found.checkpoint["id"] == found.config["configurable"]["checkpoint_id"] == each
        assert found.checkpoint["channel_values"] == {each: index}
        assert found.pending_writes == [(each, each, index)]
        if index:
            assert await ids(saver, config(), before=config(id=each)) == names[:index][::-1]


@pytest.mark.parametrize(
    ("left", "right"), [(("a", "b:c"), ("a:b", "c")), (("a", "|b"), ("a|", "b")), (("a/", "b"), ("a", "/b"))]
)
async def test_a_separator_moves_nothing_between_thread_and_namespace(saver: Face, left: Any, right: Any) -> None:
    await put(saver, config(*left), {"a": "left"}, id="1")
    await put(saver, config(*right), {"a": "right"}, id="1")
    await saver.adelete_thread(left[0])
    found = await saver.aget_tuple(config(*right))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": "right"}
    assert await saver.aget_tuple(config(*left)) is None


async def test_deletion_leaves_nothing_of_a_thread_in_the_store(real: StatekitSaver, store: Store, saver: Face) -> None:
    def marks() -> dict[str, str]:
        return {kind: f"{kind}{os.urandom(6).hex()}" for kind in ("thread", "id", "channel", "value", "task", "meta")}

    async def fill(mark: dict[str, str]) -> None:
        for ns in ("", "n:1"):
            at = config(mark["thread"], ns)
            for step in range(3):
                value = mark["value"] + str(step)
                meta = {"run_id": mark["meta"]}
                at = await put(
                    saver, at, {mark["channel"]: value}, {mark["channel"]: step}, id=f"{mark['id']}{step}", meta=meta
                )
                await saver.aput_writes(at, [(mark["channel"], value)], mark["task"])
        await saver.aput_writes(config(mark["thread"], id=f"{mark['id']}9"), [("x", mark["value"])], mark["task"])

    gone, kept = marks(), marks()
    await fill(kept)
    before = store.raw_dump()
    await fill(gone)
    full = store.raw_dump()
    assert (gone["value"].encode() in full) == (not DEFAULTS)  # else it is encrypted
    assert len(full) > len(before)
    await saver.adelete_thread(gone["thread"])
    left = store.raw_dump()
    for mark in gone.values():
        assert mark.encode() not in left
    assert len(left) == len(before) or not store.leaves_nothing
    for step in range(3):
        found = await saver.aget_tuple(config(kept["thread"], id=f"{kept['id']}{step}"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {kept["channel"]: kept["value"] + str(step)}
        assert found.pending_writes == [(kept["task"], kept["channel"], kept["value"] + str(step))]
    await saver.adelete_thread(kept["thread"])
    assert kept["value"].encode() not in store.raw_dump()
