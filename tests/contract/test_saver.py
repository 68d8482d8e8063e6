"""One saver object: many threads, event loops and starters; its serializer; refused values; open iterators."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.errors import DataError
from tests.faces import Face, checkpoint, config, id_of, ids, listed, metadata, put
from tests.graphs.builders import Log, chain, fan_out
from tests.stores_under_test import DEFAULTS, Store

STARTERS = 16


def test_one_saver_serves_event_loops_in_turn_and_sync_calls_between_them(store: Store) -> None:
    with store.open() as saver:
        app = chain().compile(checkpointer=saver)
        log: list[Any] = []
        for turn in range(3):
            log += [f"async {turn}", "a", "b", f"sync {turn}", "a", "b"]
            asyncio.run(app.ainvoke({"log": [f"async {turn}"]}, config()))
            assert app.invoke({"log": [f"sync {turn}"]}, config())["log"] == log
        assert len(list(saver.list(config()))) == 24


async def test_sync_calls_inside_a_running_loop_see_async_ones_and_the_reverse(real: StatekitSaver) -> None:
    app = chain().compile(checkpointer=real)
    await app.ainvoke({"log": [1]}, config())
    assert app.get_state(config()).values["log"] == [1, "a", "b"]
    assert len(list(app.get_state_history(config()))) == 4
    app.update_state(config(), {"log": ["edit"]})
    assert (await app.ainvoke({"log": [2]}, config()))["log"] == [1, "a", "b", "edit", 2, "a", "b"]


def test_many_threads_share_one_saver(store: Store) -> None:
    with store.open() as saver:
        app = chain().compile(checkpointer=saver)
        shared = saver.put(config("shared"), checkpoint({"a": 0}), metadata(), {"a": 1})
        start = threading.Barrier(STARTERS)

        def work(number: int) -> list[Any]:
            start.wait()
            saver.put_writes(shared, [("a", number)], f"task-{number:02}")
            app.invoke({"log": [number]}, config(f"own-{number}"))
            result: list[Any] = app.invoke({"log": [number]}, config(f"own-{number}"))["log"]
            return result

        with ThreadPoolExecutor(STARTERS) as pool:
            results = list(pool.map(work, range(STARTERS)))
        assert results == [[number, "a", "b", number, "a", "b"] for number in range(STARTERS)]
        found = saver.get_tuple(config("shared"))
        assert found is not None
        assert found.pending_writes == [(f"task-{number:02}", "a", number) for number in range(STARTERS)]


async def test_many_runs_at_once_do_not_mix(saver: Face) -> None:
    app = chain().compile(checkpointer=saver)
    results = await asyncio.gather(*(app.ainvoke({"log": [n]}, config(f"own-{n}")) for n in range(40)))
    assert [each["log"] for each in results] == [[n, "a", "b"] for n in range(40)]


async def test_puts_at_once_on_one_thread_are_all_stored_each_in_its_place(saver: Face) -> None:
    made = [f"{n:03}" for n in range(40)]
    await asyncio.gather(*(put(saver, config(), {"a": each}, {"a": each}, id=each) for each in made))
    order = await ids(saver, config())
    assert sorted(order) == made
    for each in made:
        found = await saver.aget_tuple(config(id=each))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": each}
    found = await saver.aget_tuple(config())
    assert found is not None
    assert id_of(found.config) == order[0]


async def test_a_fan_out_of_100_tasks_saves_every_result_async(real: StatekitSaver) -> None:
    app = fan_out(100).compile(checkpointer=real)
    assert (await app.ainvoke({"log": []}, config()))["log"] == [*range(100), "counted 100"]
    await _assert_100_results(real)


async def test_a_fan_out_of_100_tasks_saves_every_result_sync(real: StatekitSaver) -> None:
    app = fan_out(100).compile(checkpointer=real)
    result = await asyncio.to_thread(app.invoke, {"log": []}, config())
    assert result["log"] == [*range(100), "counted 100"]
    await _assert_100_results(real)


async def _assert_100_results(saver: StatekitSaver) -> None:
    history = await listed(saver, config())
    results = [[v for _, channel, v in item.pending_writes or [] if channel == "log"] for item in history]
    assert [[n] for n in range(100)] in results


def test_many_starters_set_up_an_empty_store(store: Store) -> None:
    start = threading.Barrier(STARTERS)

    def work(number: int) -> list[str]:
        with store.open() as saver:
            start.wait()
            saver.put(config(f"own-{number}"), checkpoint({"a": number}), metadata(), {"a": 1})
            return [item.checkpoint["channel_values"]["a"] for item in saver.list(config(f"own-{number}"))]

    for _ in range(2):
        with ThreadPoolExecutor(STARTERS) as pool:
            found = list(pool.map(work, range(STARTERS)))
        assert all(set(values) == {number} for number, values in enumerate(found))
    with store.open() as saver:
        saver.setup()
        assert len(list(saver.list(None))) == 2 * STARTERS


async def test_a_new_saver_sees_what_another_stored(store: Store, face: Callable[[StatekitSaver], Face]) -> None:
    async with store.open() as first:
        at = await put(face(first), config(), {"a": 1})
        async with store.open() as second:
            assert await face(second).aget_tuple(config()) == await face(first).aget_tuple(config())
            await face(second).aput_writes(at, [("a", 2)], "task")
            found = await face(first).aget_tuple(config())
            assert found is not None
            assert found.pending_writes == [("task", "a", 2)]


async def test_a_saver_may_be_used_again_after_close(real: StatekitSaver) -> None:
    await put(real, config(), {"a": 1})
    await real.aclose()
    await real.aclose()
    assert len(await listed(real, config())) == 1
    real.close()
    real.close()
    assert len(list(real.list(config()))) == 1


async def test_a_clone_with_an_allowlist_shares_the_store(
    real: StatekitSaver, face: Callable[[StatekitSaver], Face]
) -> None:
    real.serde = StatekitSerializer(allowed_msgpack_modules=None)
    clone = real.with_allowlist([("tests.graphs.builders", "Log")])
    assert clone is not real
    assert type(clone) is type(real)
    at = await put(face(clone), config(), {"a": 1})
    await put(face(real), at, {"a": 2}, {"a": 2})
    assert await listed(face(real), config()) == await listed(face(clone), config())
    assert len(await listed(face(clone), config())) == 2


class _Stamped(JsonPlusSerializer):
    """Leaves its mark on all it writes, and reads nothing else."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return f"stamped {kind}", b"stamp" + data

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        assert data[0].startswith("stamped ")
        return super().loads_typed((data[0].removeprefix("stamped "), data[1].removeprefix(b"stamp")))


async def test_a_serializer_set_after_construction_is_used(real: StatekitSaver, store: Store, face: Any) -> None:
    real.serde = _Stamped()
    saver = face(real)
    at = await put(saver, config(), {"a": 1}, meta={"k": "v"})
    await saver.aput_writes(at, [("a", 2)], "task")
    found = await saver.aget_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": 1}
    assert found.metadata["k"] == "v"
    assert found.pending_writes == [("task", "a", 2)]
    assert await listed(saver, config()) == [found]
    assert store.raw_dump().count(b"stamp") >= (0 if DEFAULTS else 2)  # else it is encrypted


async def test_a_value_that_cannot_be_stored_is_named_and_nothing_is_written(
    real: StatekitSaver, store: Store, face: Any
) -> None:
    saver = face(real)
    at = await put(saver, config(), {"a": 1})
    before = store.raw_dump()
    bad = threading.Lock()
    with pytest.raises(DataError, match="'broken'"):
        await put(saver, at, {"a": "LOST", "broken": {"deep": [bad]}}, {"a": 2, "broken": 1})
    with pytest.raises(DataError, match="'broken'"):
        await saver.aput_writes(at, [("a", "LOST"), ("broken", bad)], "task")
    with pytest.raises(DataError, match="metadata"):
        await put(saver, at, {"a": "LOST"}, {"a": 2}, meta={"odd": bad})
    assert store.raw_dump() == before
    found = await saver.aget_tuple(config())
    assert found is not None
    assert (found.config, found.pending_writes) == (at, [])
    await put(saver, at, {"a": 3}, {"a": 3})
    assert len(await listed(saver, config())) == 2


async def test_a_thread_stays_usable_after_a_node_returned_what_cannot_be_stored(saver: Face) -> None:
    bad: list[Any] = [threading.Lock()]
    graph = chain(Log, "a")
    graph.add_node("odd", lambda _: {"log": bad or ["fine"]})
    app = graph.add_edge("a", "odd").compile(checkpointer=saver)
    with pytest.raises(DataError, match="'log'"):
        await app.ainvoke({"log": ["in"]}, config())
    bad.clear()
    assert (await app.ainvoke(None, config()))["log"] == ["in", "a", "fine"]


async def test_open_and_abandoned_iterators_hold_nothing(real: StatekitSaver, store: Store) -> None:
    at = config()
    for index in range(3):
        at = await put(real, at, {"a": index}, {"a": index})
    open_async = [real.alist(config()) for _ in range(40)]
    open_sync = [real.list(config()) for _ in range(40)]
    for number in range(40):
        assert (await anext(open_async[number])).config == at
        assert next(open_sync[number]).config == at
    async with store.open() as other:
        for saver in (real, other):
            at = await asyncio.wait_for(put(saver, at, {"a": 9}, {"a": 9}), 20)
            await asyncio.wait_for(saver.aput_writes(at, [("a", 1)], "task"), 20)
    assert len([item async for item in open_async[0]]) == 2
    assert len(list(open_sync[0])) == 2
    for iterator in open_async[1:]:
        await iterator.aclose()
    del open_sync
    async for _ in real.alist(config()):
        break
    assert len(await listed(real, config())) == 5
    await asyncio.wait_for(real.adelete_thread("t"), 20)
    assert await listed(real, config()) == []


async def test_delta_history_is_that_of_the_reference(saver: Face) -> None:
    from langgraph.checkpoint.memory import InMemorySaver

    reference = InMemorySaver()
    for each in (saver, reference):
        at = await put(each, config(), {"d": ["seed"]}, {"d": 1, "e": 1}, id="1")
        await each.aput_writes(at, [("d", ["1"]), ("e", ["1"]), ("other", 0)], "task-b", "z")
        await each.aput_writes(at, [("d", ["0"])], "task-c", "a")
        middle = await put(each, at, {}, {"d": 2, "e": 2}, id="2")
        await each.aput_writes(middle, [("e", ["2"]), ("d", ["2"])], "task", "a")
        left = await put(each, middle, {}, {"d": 3, "e": 3}, id="3")
        await each.aput_writes(left, [("d", ["left"])], "task", "a")
        right = await put(each, middle, {"e": ["full"]}, {"d": 3, "e": 4}, id="4")
        await each.aput_writes(right, [("d", ["right"])], "task", "a")
        await put(each, left, {}, {"d": 4, "e": 5}, id="5")
        await put(each, right, {}, {"d": 4, "e": 5}, id="6")
    for asked in (*(config(id=f"{n}") for n in range(1, 7)), config(), config(id="never was"), config("never was")):
        for channels in (["d"], ["d", "e"], ["never was"], []):
            found = await saver.aget_delta_channel_history(config=asked, channels=channels)
            assert found == await reference.aget_delta_channel_history(config=asked, channels=channels), asked
