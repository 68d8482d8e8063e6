"""The change feed: whoever watches a session learns what its other clients do."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from langgraph_statekit import SessionManager, SessionMissing
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.servers import wait_until
from tests.sessions.kit import chat, eventually, says
from tests.stores_under_test import Store


async def test_a_watcher_of_another_process_sees_each_state_of_a_turn(durable_store: Store) -> None:
    async with durable_store.open() as one, durable_store.open() as two:
        here = SessionManager(one, agent="support", version=1)
        async with SessionManager(two, agent="support", version=1, poll_s=0.05) as there:
            made = await here.acreate("ann")
            seen = there.awatch(made.session_id)
            assert await anext(seen) == made
            async with here.turn(made.session_id, device="phone") as turn:
                active = await asyncio.wait_for(anext(seen), 30)
                assert (active.status, active.device) == ("active", "phone")
                await chat(one).ainvoke(says("hello"), turn.config)
            done = await asyncio.wait_for(anext(seen), 30)
            assert (done.status, done.message_count) == ("idle", 2)
            assert done == await here.aget(made.session_id)
            await here.adelete(made.session_id)
            rest = [session.status async for session in seen]
            assert set(rest) <= {"closed"}


async def test_news_of_another_process_come_without_asking(served_name: str, new_store: Any) -> None:
    if served_name == "s3":
        pytest.skip("object stores have no bell: they are asked")
    store = new_store(served_name)
    async with store.open() as one, store.open() as two:
        here = SessionManager(one, agent="support", version=1)
        async with SessionManager(two, agent="support", version=1, poll_s=600) as there:
            made = await here.acreate("ann")
            seen = there.awatch(made.session_id)
            assert await anext(seen) == made
            for number in range(3):
                news = asyncio.ensure_future(anext(seen))
                told = None
                while told is None:  # a hint that came before anybody listened is lost
                    changed = await here.aupdate_metadata(made.session_id, {"n": number})
                    done, _ = await asyncio.wait([news], timeout=0.5)
                    told = done.pop().result() if done else None
                assert told.rev <= changed.rev
                assert told.metadata == {"n": number}
            store.break_connections()  # the listener comes back
            news = asyncio.ensure_future(anext(seen))
            while not news.done():
                await here.aupdate_metadata(made.session_id, {"n": 9})
                await asyncio.wait([news], timeout=0.5)
            assert (await news).metadata["n"] in (2, 9)
            await seen.aclose()


async def test_a_watcher_goes_on_from_what_it_has(manager: SessionManager) -> None:
    made = await manager.acreate("ann")
    changed = await manager.aupdate_metadata(made.session_id, {"x": 1})
    assert [one async for one in manager.awatch(made.session_id, since=made.rev, wait_s=0.01)] == [changed]
    assert [one async for one in manager.awatch(made.session_id, since=changed.rev, wait_s=0.01)] == []
    assert list(manager.watch(made.session_id, wait_s=0.01)) == [changed]
    with pytest.raises(SessionMissing):
        await anext(manager.awatch("support_v1_nobody"))


async def test_a_watcher_that_comes_back_finds_the_same_listener(manager: SessionManager) -> None:
    made, threads = await manager.acreate("ann"), set[Any]()
    seen = manager.awatch(made.session_id, since=made.rev)
    for number in range(20):
        news = asyncio.ensure_future(anext(seen))
        await eventually(lambda: manager._feed._waiting.get(made.session_id))
        threads.add(manager._feed._thread)
        await manager.aupdate_metadata(made.session_id, {"n": number})
        assert (await asyncio.wait_for(news, 30)).metadata == {"n": number}
    assert len(threads) == 1
    await seen.aclose()
    manager.stop()


async def test_many_watchers_cost_one_request(manager: SessionManager, real: StatekitSaver, monkeypatch: Any) -> None:
    made = [await manager.acreate("ann") for _ in range(20)]
    asked = 0
    cells = type(real.backend).cells if not hasattr(real.backend, "inner") else None
    if cells is None:
        pytest.skip("encrypted stores are counted below their encryption")

    def counted(self: Any, query: Any) -> Any:
        nonlocal asked
        asked += query.refs is not None and len(query.refs) > 1
        return cells(self, query)

    monkeypatch.setattr(type(real.backend), "cells", counted)
    watchers = [manager.awatch(one.session_id, since=one.rev) for one in made]
    waiting = [asyncio.ensure_future(anext(watcher)) for watcher in watchers]
    await eventually(lambda: len(manager._feed._waiting) == 20)
    asked = 0
    for one in made:
        await manager.aupdate_metadata(one.session_id, {"x": 1})
    told = await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert [one.metadata for one in told] == [{"x": 1}] * 20
    assert asked <= 20
    manager.stop()


async def test_watching_ends_with_the_manager(real: StatekitSaver) -> None:
    manager = SessionManager(real, agent="support", version=1)
    made = await manager.acreate("ann")
    seen: list[Any] = []
    watcher = threading.Thread(target=lambda: seen.extend(manager.watch(made.session_id)))
    async with manager:
        task = asyncio.create_task(anext(manager.awatch(made.session_id, since=made.rev)))
        watcher.start()
        await asyncio.to_thread(
            wait_until, lambda: len(manager._feed._waiting.get(made.session_id, ())) == 2, "both watch"
        )
    await asyncio.to_thread(watcher.join, 30)
    assert not watcher.is_alive()
    with pytest.raises(StopAsyncIteration):
        await task
    assert seen == [made]
    assert manager._feed._thread is None
