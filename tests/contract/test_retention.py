"""Prune, delete by run and copy: what must go, what must stay, and what never changes."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.types import Command

from langgraph_statekit.errors import Misuse
from tests.faces import LONG, Face, config, id_of, ids, listed, put
from tests.graphs.builders import DeltaLog, Log, SnapshotLog, chain, nested, question

THREAD = {"configurable": {"thread_id": "t"}}
LOGS = pytest.mark.parametrize("state", [Log, DeltaLog, SnapshotLog])


async def _runs(app: Any, count: int, thread: str = "t", first: int = 0) -> None:
    for index in range(first, first + count):
        at = config(thread)
        await app.ainvoke({"log": [index, LONG]}, {**at, "metadata": {"run_id": f"run-{index}"}})


def _expected(*runs: int) -> list[Any]:
    return [item for run in runs for item in (run, LONG, "a", "b")]


@LOGS
async def test_prune_keeps_the_latest_readable_and_usable(saver: Face, state: type) -> None:
    app = chain(state).compile(checkpointer=saver)
    await _runs(app, 4)
    await _runs(app, 1, "other")
    old = await ids(saver, config())
    neighbour = await listed(saver, config("other"))
    for _ in range(2):
        await saver.aprune(["t", "never was"])
        assert await ids(saver, config()) == old[:1]
        assert (await app.aget_state(config())).values["log"] == _expected(0, 1, 2, 3)
    found = await saver.aget_tuple(config())
    assert found is not None
    assert found.parent_config is None
    assert [await saver.aget_tuple(config(id=each)) for each in old[1:]] == [None] * (len(old) - 1)
    await _runs(app, 2, first=4)
    await saver.aprune(["t"])
    await _runs(app, 1, first=6)
    assert (await app.aget_state(config())).values["log"] == _expected(*range(7))
    assert await listed(saver, config("other")) == neighbour


@LOGS
@pytest.mark.parametrize("build", [question, nested])
async def test_prune_keeps_a_pending_question_answerable(saver: Face, state: type, build: Any) -> None:
    app = build(state).compile(checkpointer=saver)
    await app.ainvoke({"log": [LONG]}, config())
    await saver.aprune(["t"])
    namespaces = [item.config["configurable"]["checkpoint_ns"] for item in await listed(saver, THREAD)]
    assert len(namespaces) == len(set(namespaces))
    snapshot = await app.aget_state(config(), subgraphs=True)
    assert [each.value for task in snapshot.tasks for each in task.interrupts] == ["approve?"]
    result = (await app.ainvoke(Command(resume="yes"), config()))["log"]
    reference = build(state).compile(checkpointer=saver)
    await reference.ainvoke({"log": [LONG]}, config("u"))
    assert result == (await reference.ainvoke(Command(resume="yes"), config("u")))["log"]
    assert "yes" in result
    assert "side" in result


async def test_prune_keeps_the_latest_of_each_namespace_with_its_writes(saver: Face) -> None:
    for ns in ("", "n:1", "n:1|m:2"):
        at = config(ns=ns)
        for step in range(3):
            at = await put(saver, at, {"a": step, "same": 1}, {"a": step, "same": 1}, id=f"{step}{ns}")
            await saver.aput_writes(at, [("a", step)], "task")
    await saver.aprune(["t"])
    found = await listed(saver, THREAD)
    assert sorted(item.checkpoint["id"] for item in found) == ["2", "2n:1", "2n:1|m:2"]
    for item in found:
        assert item.checkpoint["channel_values"] == {"a": 2, "same": 1}
        assert item.pending_writes == [("task", "a", 2)]


async def test_prune_with_delete_removes_threads_whole(saver: Face) -> None:
    for thread in ("t", "u", "v"):
        await put(saver, config(thread), {"a": 1})
    await saver.aprune(["t", "v", "never was"], strategy="delete")
    assert [item.config["configurable"]["thread_id"] for item in await listed(saver, None)] == ["u"]


async def test_prune_refuses_a_string_and_an_unknown_strategy(saver: Face) -> None:
    await put(saver, config(), id="1")
    await put(saver, config(id="1"), id="2")
    for call in (saver.aprune("t"), saver.aprune(["t"], strategy="newest")):
        with pytest.raises(Misuse):
            await call
    with pytest.raises(Misuse):
        await saver.adelete_for_runs("run")
    await saver.aprune([])
    await saver.adelete_for_runs([])
    assert await ids(saver, config()) == ["2", "1"]


async def test_prune_keeps_branches_apart_from_what_it_removes(saver: Face) -> None:
    """The head is a fork of an old checkpoint; the other branch goes and takes none of the head's values along."""
    app = chain(DeltaLog).compile(checkpointer=saver)
    await _runs(app, 1)
    base = (await app.aget_state(config())).config
    await _runs(app, 1, first=1)
    fork = await app.aupdate_state(base, {"log": ["edit"]})
    await saver.aprune(["t"])
    assert await ids(saver, config()) == [id_of(fork)]
    assert (await app.aget_state(config())).values["log"] == [*_expected(0), "edit"]


@LOGS
async def test_delete_for_runs_takes_these_runs_and_breaks_no_history(saver: Face, state: type) -> None:
    app = chain(state).compile(checkpointer=saver)
    await _runs(app, 4)
    await _runs(app, 2, "u")
    states = {id_of(each.config): each.values async for each in app.aget_state_history(config())}
    gone = [item.checkpoint["id"] for item in await listed(saver, config(), filter={"run_id": "run-1"})]
    assert len(gone) == 4
    await saver.adelete_for_runs(["run-1", "never was"])
    left = await listed(saver, config())
    assert [item.checkpoint["id"] for item in left] == [each for each in states if each not in gone]
    assert [await saver.aget_tuple(config(id=each)) for each in gone] == [None] * 4
    assert {item.metadata["run_id"] for item in await listed(saver, config("u"))} == {"run-0"}
    for item, older in zip(left, [*left[1:], None], strict=True):
        assert item.parent_config == (older and older.config)
        assert (await app.aget_state(item.config)).values == states[item.checkpoint["id"]]
    await _runs(app, 1, first=9)
    assert (await app.aget_state(config())).values["log"] == _expected(0, 1, 2, 3, 9)
    await saver.adelete_for_runs([f"run-{n}" for n in range(10)])
    assert await listed(saver, None) == []


async def test_delete_for_runs_of_the_head_brings_back_the_one_before(saver: Face) -> None:
    app = chain().compile(checkpointer=saver)
    await _runs(app, 2)
    await saver.adelete_for_runs(["run-1"])
    assert (await app.aget_state(config())).values["log"] == _expected(0)
    await _runs(app, 1, first=5)
    assert (await app.aget_state(config())).values["log"] == _expected(0, 5)


@LOGS
async def test_a_copy_is_complete_and_independent(saver: Face, state: type) -> None:
    app = nested(state).compile(checkpointer=saver)
    await app.ainvoke({"log": [LONG]}, config())
    before = await listed(saver, THREAD)
    await saver.acopy_thread("t", "copy")
    copied = await listed(saver, {"configurable": {"thread_id": "copy"}})

    def plain(items: list[Any], thread: str) -> list[Any]:
        assert {i.config["configurable"]["thread_id"] for i in items} == {thread}
        return [
            (
                *({**c["configurable"], "thread_id": ""} if c else None for c in (i.config, i.parent_config)),
                *(i.checkpoint, i.metadata, i.pending_writes),
            )
            for i in items
        ]

    assert plain(copied, "copy") == plain(before, "t")
    result = await app.ainvoke(Command(resume="yes"), config("copy"))
    assert "yes" in result["log"]
    assert await listed(saver, THREAD) == before
    await saver.adelete_thread("t")
    assert (await app.aget_state(config("copy"))).values == result
    assert len(await listed(saver, {"configurable": {"thread_id": "copy"}})) > len(before)


async def test_copies_of_pruned_delta_threads_stay_readable(saver: Face) -> None:
    app = chain(DeltaLog).compile(checkpointer=saver)
    await _runs(app, 3)
    await saver.aprune(["t"])
    await saver.acopy_thread("t", "copy")
    await saver.adelete_thread("t")
    assert len(await listed(saver, config("copy"))) == 1
    assert (await app.aget_state(config("copy"))).values["log"] == _expected(0, 1, 2)


async def test_a_copy_onto_a_thread_with_checkpoints_is_refused_and_changes_nothing(saver: Face) -> None:
    at = await put(saver, config("t"), {"a": 1})
    await saver.aput_writes(at, [("a", 1)], "task")
    await put(saver, config("u"), {"a": 2})
    before = await listed(saver, config("t")), await listed(saver, config("u"))
    with pytest.raises(Misuse, match="'u'"):
        await saver.acopy_thread("t", "u")
    assert (await listed(saver, config("t")), await listed(saver, config("u"))) == before
    with pytest.raises(Misuse, match="'u'"):
        await saver.acopy_thread("never was", "u")
    await saver.acopy_thread("t", "t")
    assert (await listed(saver, config("t")), await listed(saver, config("u"))) == before


async def test_a_copy_of_nothing_makes_nothing(saver: Face) -> None:
    await saver.acopy_thread("never was", "copy")
    assert await listed(saver, None) == []
    await put(saver, config("copy"), id="1")
    assert await ids(saver, config("copy")) == ["1"]


async def test_a_copy_keeps_the_order_of_commits(saver: Face) -> None:
    order = ["50", "10", "60", "20"]
    at = config()
    for each in order:
        at = await put(saver, at, id=each)
    await saver.acopy_thread("t", "copy")
    assert await ids(saver, config("copy")) == order[::-1]
    await put(saver, config("copy", id="20"), id="15")
    assert await ids(saver, config("copy")) == ["15", *order[::-1]]
    found = await saver.aget_tuple(config("copy"))
    assert found is not None
    assert id_of(found.config) == "15"
