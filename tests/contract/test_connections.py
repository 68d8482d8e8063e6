"""Connections that break: what can be repeated is repeated, and callers see nothing of it."""

from __future__ import annotations

import asyncio

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import Face, config, listed, put
from tests.graphs.builders import chain
from tests.stores_under_test import Store


async def test_every_call_works_after_all_connections_broke(real: StatekitSaver, store: Store, saver: Face) -> None:
    async def broken() -> None:
        await asyncio.gather(*(real.aget_tuple(config(f"{n}")) for n in range(8)))  # fill the pool with connections
        await asyncio.to_thread(store.break_connections)

    at = await put(saver, config(), {"a": 1})
    await broken()
    await saver.aput_writes(at, [("a", 1)], "task")
    await broken()
    assert len((await listed(saver, config()))[0].pending_writes or []) == 1
    await broken()
    found = await saver.aget_tuple(config())
    assert found is not None
    await broken()
    at = await put(saver, at, {"a": 2}, {"a": 2})
    await broken()
    assert len(await listed(saver, None)) == 2
    await broken()
    await saver.aget_delta_channel_history(config=at, channels=["a"])
    await broken()
    await saver.acopy_thread("t", "copy")
    await broken()
    await saver.aprune(["t"])
    await broken()
    await saver.adelete_for_runs(["never was"])
    await broken()
    await saver.adelete_thread("t")
    assert await listed(saver, config()) == []
    assert len(await listed(saver, config("copy"))) == 2


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
