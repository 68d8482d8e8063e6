"""Connections that break: what can be repeated is repeated, and callers see nothing of it."""

from __future__ import annotations

import asyncio

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import LONG, Face, config, listed, put
from tests.graphs.builders import chain
from tests.stores.verbs import deltas
from tests.stores_under_test import Store


async def test_every_call_works_after_all_connections_broke(real: StatekitSaver, store: Store, saver: Face) -> None:
    async def broken() -> None:
        await asyncio.gather(*(real.aget_tuple(config(f"{n}")) for n in range(8)))  # fill the pool with connections
        await asyncio.to_thread(store.break_connections)

    at = await put(saver, config(), {"a": [LONG]}, {"a": 1}, meta={"run_id": "first"})
    await broken()
    await saver.aput_writes(at, [("a", 1)], "task")
    await broken()
    assert len((await listed(saver, config()))[0].pending_writes or []) == 1
    await broken()
    found = await saver.aget_tuple(config())
    assert found is not None
    await broken()
    at = await put(saver, at, {"a": [LONG, 2]}, {"a": 2}, meta={"run_id": "second"})
    assert (deltas(real.backend, "t") > 0) == real.backend.deltas
    await broken()
    assert len(await listed(saver, None)) == 2
    await broken()
    await saver.aget_delta_channel_history(config=at, channels=["a"])
    await broken()
    await saver.acopy_thread("t", "copy")
    await broken()
    await saver.adelete_for_runs(["first"])
    await broken()
    assert [item.config for item in await listed(saver, config())] == [at]
    await put(saver, at, {"a": [LONG, 3]}, {"a": 3})
    await broken()
    await saver.aprune(["t", "copy"])
    await broken()
    for thread, last in (("t", 3), ("copy", 2)):
        found = await saver.aget_tuple(config(thread))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"a": [LONG, last]}
        await broken()
        await saver.adelete_thread(thread)
        assert await listed(saver, config(thread)) == []


async def test_runs_go_on_while_connections_break(real: StatekitSaver, store: Store) -> None:
    app = chain().compile(checkpointer=real)
    runs = [asyncio.create_task(app.ainvoke({"log": [n]}, config(f"own-{n}"))) for n in range(20)]
    for _ in range(5):
        await asyncio.to_thread(store.break_connections)
    assert [(await run)["log"] for run in runs] == [[n, "a", "b"] for n in range(20)]


async def test_saved_before_a_break_is_there_after_it(real: StatekitSaver, store: Store, saver: Face) -> None:
    at = config()
    for number in range(5):
        at = await put(saver, at, {"a": number}, {"a": number})
        await asyncio.to_thread(store.break_connections)
    assert [i.checkpoint["channel_values"]["a"] for i in await listed(saver, config())] == [4, 3, 2, 1, 0]
