"""Pending writes: their order, what a repeat keeps and replaces, and when they may arrive."""

from __future__ import annotations

from langgraph.checkpoint.memory import InMemorySaver

from tests.faces import Face, checkpoint, config, id_of, listed, metadata, put
from tests.graphs.builders import Log, chain


async def _pending(saver: Face, at: object) -> list[tuple[str, str, object]]:
    found = await saver.aget_tuple(at)
    assert found is not None
    return list(found.pending_writes or [])


async def test_come_back_in_the_order_of_task_path_then_task_then_position(saver: Face) -> None:
    at = await put(saver, config())
    await saver.aput_writes(at, [("a", 1), ("b", 2)], "task-1", "~__pregel_pull, z")
    await saver.aput_writes(at, [("a", 3)], "task-3", "~__pregel_pull, a")
    await saver.aput_writes(at, [("a", 4), ("a", 5), ("a", 6)], "task-2", "~__pregel_pull, a")
    await saver.aput_writes(at, [("a", index) for index in range(12)], "task-0", "~__pregel_pull, y")
    expected = [
        *[("task-2", "a", 4), ("task-2", "a", 5), ("task-2", "a", 6), ("task-3", "a", 3)],
        *[("task-0", "a", index) for index in range(12)],
        *[("task-1", "a", 1), ("task-1", "b", 2)],
    ]
    assert await _pending(saver, at) == expected
    (item,) = await listed(saver, config())
    assert item.pending_writes == expected


async def test_of_a_mixed_batch_keep_ordinary_ones_and_replace_special_ones(saver: Face) -> None:
    reference = InMemorySaver()
    for each in (saver, reference):
        at = await put(each, config(), id="1")
        await each.aput_writes(at, [("x", "first"), ("__resume__", ["r1"])], "task")
        await each.aput_writes(at, [("x", "second"), ("__resume__", ["r1", "r2"]), ("y", "new")], "task")
        await each.aput_writes(at, [("__interrupt__", "i1"), ("__error__", "e1")], "task")
        await each.aput_writes(at, [("__error__", "e2"), ("__interrupt__", "i2"), ("y", "late")], "task")
        await each.aput_writes(at, [("x", "other task")], "task-2")
    found = await _pending(saver, config(id="1"))
    assert found == await _pending(reference, config(id="1"))
    assert ("task", "x", "first") in found
    assert ("task", "__resume__", ["r1", "r2"]) in found
    assert ("task", "__error__", "e2") in found


async def test_of_one_batch_are_told_apart_by_position_even_on_one_channel(saver: Face) -> None:
    at = await put(saver, config())
    await saver.aput_writes(at, [("x", 1), ("x", 2), ("x", 1)], "task")
    assert [value for _, _, value in await _pending(saver, at)] == [1, 2, 1]


async def test_may_arrive_before_their_checkpoint(saver: Face) -> None:
    early = config(id="00000000-0000-0000-0000-000000000001")
    await saver.aput_writes(early, [("x", 1), ("__interrupt__", "wait")], "task")
    assert await saver.aget_tuple(config()) is None
    assert await listed(saver, config()) == []
    await saver.aput(config(), checkpoint(id=id_of(early)), metadata(), {})
    assert {(channel, value) for _, channel, value in await _pending(saver, config())} == {
        ("x", 1),
        ("__interrupt__", "wait"),
    }


async def test_may_arrive_after_the_next_checkpoint(saver: Face) -> None:
    first = await put(saver, config(), {"x": 1})
    second = await put(saver, first, {"x": 2}, {"x": 2})
    await saver.aput_writes(first, [("x", "late")], "task")
    assert await _pending(saver, first) == [("task", "x", "late")]
    assert await _pending(saver, second) == []
    latest = await saver.aget_tuple(config())
    assert latest is not None
    assert latest.config == second


async def test_belong_to_one_checkpoint_of_one_namespace_of_one_thread(saver: Face) -> None:
    places = [config(thread, ns, "1") for thread in ("t", "u") for ns in ("", "child:1")]
    for index, place in enumerate(places):
        await put(saver, config(place["configurable"]["thread_id"], place["configurable"]["checkpoint_ns"]), id="1")
        await saver.aput_writes(place, [("x", index)], "task")
    for index, place in enumerate(places):
        assert await _pending(saver, place) == [("task", "x", index)]


async def test_survive_a_repeated_put_of_their_checkpoint(saver: Face) -> None:
    at = await put(saver, config(), {"x": 1}, id="1")
    await saver.aput_writes(at, [("x", 2)], "task")
    await put(saver, config(), {"x": 3}, id="1")
    assert await _pending(saver, at) == [("task", "x", 2)]


async def test_of_a_whole_step_without_its_checkpoint_hide_what_is_left_from_next_alone(saver: Face) -> None:
    """A process killed between the last write of a step and the next checkpoint: whether a thread is finished is told
    by `tasks`; `next` leaves out tasks that have writes, as it does over any saver.
    """
    graph = chain(Log, "a", "b", "c")
    reference = InMemorySaver()
    await graph.compile(checkpointer=reference).ainvoke({"log": ["in"]}, config())
    app = graph.compile(checkpointer=saver)
    at = config()
    for item in [*reversed([item async for item in reference.alist(config())])][:-2]:
        at = await saver.aput(at, item.checkpoint, item.metadata, item.checkpoint["channel_versions"])
        (task,) = {task for task, _, _ in item.pending_writes or ()}
        await saver.aput_writes(at, [(channel, value) for _, channel, value in item.pending_writes or ()], task)
    killed = await app.aget_state(config())
    assert killed.values["log"] == ["in", "a", "b"]
    assert killed.next == ()
    assert [(task.name, task.result) for task in killed.tasks] == [("b", {"log": ["b"]})]
    assert (await app.ainvoke(None, config()))["log"] == ["in", "a", "b", "c"]
    finished = await app.aget_state(config())
    assert (finished.next, finished.tasks) == ((), ())


async def test_an_empty_batch_stores_nothing(saver: Face) -> None:
    at = await put(saver, config())
    await saver.aput_writes(at, [], "task")
    assert await _pending(saver, at) == []


async def test_of_values_without_content_are_kept(saver: Face) -> None:
    at = await put(saver, config())
    await saver.aput_writes(at, [("a", None), ("b", b""), ("c", ""), ("d", [])], "task")
    assert [value for _, _, value in await _pending(saver, at)] == [None, b"", "", []]
