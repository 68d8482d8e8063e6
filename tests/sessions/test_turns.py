"""Turns: two clients of one session never interleave, and each finds what the other left."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langgraph_statekit import Conflict, Fenced, Misuse, SessionEnded, SessionManager, SessionMissing, Unavailable
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.sessions.turns import Turn
from tests.faces import put
from tests.sessions.kit import chat, eventually, says
from tests.stores_under_test import Store


def die(turn: Turn) -> None:
    """Leave a turn as a process does that dies in it: nobody renews its lease any more."""
    assert turn._lease is not None
    turn._lease._keeper.forget(turn._lease)


def texts(state: Any) -> list[str]:
    return [str(message.content) for message in state.values["messages"]]


async def test_two_devices_take_turns_in_order_and_see_the_same_state(
    manager: SessionManager, real: StatekitSaver
) -> None:
    graph, made = chat(real), await manager.acreate("ann")
    inside = most = 0

    async def send(text: str) -> None:
        nonlocal inside, most
        async with manager.turn(made.session_id, device=text) as turn:
            inside += 1
            most = max(most, inside)
            await graph.ainvoke(says(text), turn.config)
            inside -= 1

    await asyncio.gather(*(send(f"m{n}") for n in range(8)))
    assert most == 1
    state = await graph.aget_state(await manager.aconfig(made.session_id))
    assert texts(state) == [text for n in range(8) for text in (f"m{n}", f"you said m{n}")]
    assert (await manager.aget(made.session_id)).message_count == 16


async def test_threads_and_tasks_stand_in_one_line(manager: SessionManager) -> None:
    made, order = await manager.acreate("ann"), list[str]()
    begun, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with manager.turn(made.session_id):
            begun.set()
            go_on.wait(60)
            order.append("thread")

    async def follow() -> None:
        async with manager.turn(made.session_id):
            order.append("task")

    holder = threading.Thread(target=hold)
    holder.start()
    await asyncio.to_thread(begun.wait, 30)
    task = asyncio.create_task(follow())
    await eventually(lambda: len(manager._queues._lines.get(made.session_id, ())) == 2)
    go_on.set()
    await asyncio.wait_for(task, 30)
    await asyncio.to_thread(holder.join, 30)
    assert order == ["thread", "task"]


async def test_a_busy_session_is_refused_at_once_or_after_the_wait(
    manager: SessionManager, sessions: Any, real: StatekitSaver
) -> None:
    other = SessionManager(real, agent="support", version=1)  # as another process would have it
    made = await manager.acreate("ann")
    async with other.turn(made.session_id):
        for options in ({"on_busy": "reject"}, {"wait_s": 0.0}, {"wait_s": 0.01}):
            with pytest.raises(Conflict, match="another client"):
                await sessions.turn(made.session_id, **options).__aenter__()
    async with manager.turn(made.session_id):
        for options in ({"on_busy": "reject"}, {"wait_s": 0.0}, {"wait_s": 0.01}):
            with pytest.raises(Conflict, match="another client"):
                await sessions.turn(made.session_id, **options).__aenter__()
    async with sessions.turn(made.session_id, on_busy="reject"):
        pass
    assert not manager._queues._lines


async def test_who_is_interrupted_can_save_nothing_more(sessions: Any, real: StatekitSaver) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(state: Any) -> Any:
        if str(state["messages"][-1].content) == "slow":
            begun.set()
            await go_on.wait()
        return {"messages": [AIMessage(f"you said {state['messages'][-1].content}")]}

    graph, made = chat(real, answer), await sessions.acreate("ann")

    async def slow() -> None:
        async with sessions.turn(made.session_id, device="phone") as turn:
            try:
                await graph.ainvoke(says("slow"), turn.config, durability="sync")
            finally:
                with pytest.raises(Fenced):
                    await put(real, {"configurable": {**turn.config["configurable"], "checkpoint_ns": ""}}, {"x": 1})

    task = asyncio.create_task(slow())
    await begun.wait()
    async with sessions.turn(made.session_id, on_busy="interrupt", device="laptop") as turn:
        go_on.set()
        with pytest.raises(Fenced):
            await task
        assert (await sessions.aget(made.session_id)).device == "laptop"
        await graph.ainvoke(says("quick"), turn.config)
    found = texts(await graph.aget_state(await sessions.aconfig(made.session_id)))
    assert found == ["slow", "quick", "you said quick"]
    assert (await sessions.aget(made.session_id)).status == "idle"


async def test_who_is_interrupted_before_it_began_is_told_that_the_session_is_busy(
    manager: SessionManager, monkeypatch: Any
) -> None:
    made = await manager.acreate("ann")
    acquire, others = manager._async.lease, []

    async def overtaken(*args: Any, **options: Any) -> Any:
        lease = await acquire(*args, **options)
        monkeypatch.undo()
        others.append(await manager.turn(made.session_id, on_busy="interrupt", device="other").__aenter__())
        return lease

    monkeypatch.setattr(manager._async, "lease", overtaken)
    with pytest.raises(Conflict, match="another client"):
        await manager.turn(made.session_id).__aenter__()
    assert (await manager.aget(made.session_id)).device == "other"
    await others[0].__aexit__(None, None, None)
    assert (await manager.aget(made.session_id)).status == "idle"
    assert not manager._queues._lines


async def test_a_turn_that_fails_gives_the_session_back(sessions: Any, real: StatekitSaver) -> None:
    made = await sessions.acreate("ann")
    with pytest.raises(ZeroDivisionError):
        async with sessions.turn(made.session_id):
            raise ZeroDivisionError
    assert (await sessions.aget(made.session_id)).status == "idle"
    async with sessions.turn(made.session_id, on_busy="reject") as turn:
        await chat(real).ainvoke(says("hello"), turn.config)


async def test_a_client_that_gives_up_waiting_holds_up_nobody(manager: SessionManager) -> None:
    made = await manager.acreate("ann")
    async with manager.turn(made.session_id):
        waiting = [asyncio.create_task(manager.turn(made.session_id).__aenter__()) for _ in range(3)]
        await eventually(lambda: len(manager._queues._lines[made.session_id]) == 4)
        for task in waiting[:2]:
            task.cancel()
        await asyncio.wait(waiting[:2])
        assert not waiting[2].done()
    turn = await asyncio.wait_for(waiting[2], 30)
    await turn.__aexit__(None, None, None)
    assert not manager._queues._lines


async def test_a_client_that_is_cancelled_at_any_moment_gives_the_session_back(manager: SessionManager) -> None:
    made, moments = await manager.acreate("ann"), 0

    async def run() -> None:
        async with manager.turn(made.session_id):
            pass

    done = False
    while not done:  # after one, two, three ... turns of the loop, and then once more each turn
        task = asyncio.create_task(run())
        for _ in range(moments):
            await asyncio.sleep(0.0005)
        done, moments = task.done(), moments + 1
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        async with manager.turn(made.session_id, wait_s=60):
            pass
        assert (await manager.aget(made.session_id)).status == "idle"
    assert not manager._queues._lines


async def test_a_session_whose_process_died_is_gone_on_with(durable_store: Store) -> None:
    async with durable_store.open() as first, durable_store.open() as second:
        dead = SessionManager(first, agent="support", version=1, lease_s=60)
        alive = SessionManager(second, agent="support", version=1)
        made = await dead.acreate("ann")
        turn = await dead.turn(made.session_id).__aenter__()
        die(turn)
        with pytest.raises(Conflict):
            await alive.turn(made.session_id, on_busy="reject").__aenter__()
        durable_store.advance(61)
        async with alive.turn(made.session_id, on_busy="reject") as next:
            await chat(second).ainvoke(says("hello"), next.config)
        with pytest.raises(Fenced):
            await chat(first).ainvoke(says("late"), turn.config)
        found = await alive.aget(made.session_id)
        assert (found.status, found.message_count) == ("idle", 2)


async def test_a_touch_tells_whether_the_turn_goes_on_or_its_process_died(durable_store: Store, shown: Any) -> None:
    async with durable_store.open() as first, durable_store.open() as second:
        dead = SessionManager(first, agent="support", version=1, lease_s=60)
        alive = SessionManager(second, agent="support", version=1)
        made, sessions = await dead.acreate("ann"), shown(alive)
        turn = await dead.turn(made.session_id, device="phone").__aenter__()
        await chat(first).ainvoke(says("hello"), turn.config)
        touched = await sessions.atouch(made.session_id)
        assert (touched.status, touched.device, touched.message_count) == ("active", "phone", 2)
        die(turn)
        durable_store.advance(61)
        touched = await sessions.atouch(made.session_id)
        assert (touched.status, touched.device, touched.message_count) == ("idle", "", 2)
        async with alive.turn(made.session_id, on_busy="reject"):
            pass


async def test_a_touch_that_was_made_is_told_though_its_lease_could_not_be_given_back(
    durable_store: Store, shown: Any, monkeypatch: Any
) -> None:
    async with durable_store.open() as first, durable_store.open() as second:
        dead = SessionManager(first, agent="support", version=1, lease_s=60)
        alive = SessionManager(second, agent="support", version=1)
        made, sessions = await dead.acreate("ann"), shown(alive)
        die(await dead.turn(made.session_id).__aenter__())
        durable_store.advance(61)

        async def unanswered(lease: Any) -> None:
            raise Unavailable("the store did not answer")

        for core in (alive._sync, alive._async):
            monkeypatch.setattr(core, "release", unanswered)
        assert (await sessions.atouch(made.session_id)).status == "idle"


@pytest.mark.parametrize("use", ["touch", "update_metadata", "turn"])
async def test_nothing_revives_a_session_whose_process_died_long_ago(
    durable_store: Store, shown: Any, use: str
) -> None:
    async with durable_store.open() as first, durable_store.open() as second:
        dead = SessionManager(first, agent="support", version=1, lease_s=60)
        alive = SessionManager(second, agent="support", version=1)
        made, sessions = await dead.acreate("ann"), shown(alive)
        die(await dead.turn(made.session_id).__aenter__())
        left = await alive._async.change(made.session_id, lambda record, now_us: replace(record, idle_us=1))
        durable_store.advance(61)
        if use == "update_metadata":
            noted = await sessions.aupdate_metadata(made.session_id, {"x": 1})
            assert (noted.metadata, noted.active_at) == ({"x": 1}, left.active_at)
        for _ in range(2):
            with pytest.raises(SessionEnded, match="expired"):
                await (
                    sessions.atouch(made.session_id) if use == "touch" else sessions.turn(made.session_id).__aenter__()
                )
        assert ((await sessions.aget(made.session_id)).status, left.status) == ("expired", "active")


async def test_nobody_goes_on_with_what_was_deleted_or_closed_meanwhile(sessions: Any, real: StatekitSaver) -> None:
    graph, made = chat(real), await sessions.acreate("ann")
    async with sessions.turn(made.session_id) as turn:
        await sessions.adelete(made.session_id)
        with pytest.raises(Fenced):
            await graph.ainvoke(says("late"), turn.config)
    with pytest.raises(SessionMissing):
        await sessions.turn(made.session_id).__aenter__()
    assert await real.aget_tuple({"configurable": {"thread_id": made.session_id}}) is None
    made = await sessions.acreate("ann")
    async with sessions.turn(made.session_id) as turn:
        assert (await sessions.aclose(made.session_id)).status == "closed"
        await graph.ainvoke(says("last"), turn.config)
    found = await sessions.aget(made.session_id)
    assert (found.status, found.message_count) == ("closed", 2)
    with pytest.raises(SessionEnded):
        await sessions.turn(made.session_id).__aenter__()


async def test_what_sessions_cost_is_bounded_in_requests(new_store: Any, monkeypatch: Any) -> None:
    asked: list[str] = []
    async with new_store("memory").open(encryption=None) as saver:
        counted_verbs = ("cells", "change_cells", "claim", "load", "usage", "rows", "fill", "outline", "drop_thread")

        def count(verb: str, call: Any) -> Any:
            def counted(*args: Any, **options: Any) -> Any:
                asked.append(verb)
                return call(*args, **options)

            return counted

        for verb in counted_verbs:
            monkeypatch.setattr(saver.backend, verb, count(verb, getattr(saver.backend, verb)))
        manager = SessionManager(saver, agent="support", version=1)
        made = await manager.acreate("ann")
        for use, most in (
            (lambda: manager.aget(made.session_id), 1),
            (lambda: manager.alist(user_id="ann"), 1),
            (lambda: manager.aconfig(made.session_id), 1),
            (lambda: manager.aclean(), 5),
        ):
            asked.clear()
            await use()
            assert len(asked) <= most, asked
        asked.clear()
        async with manager.turn(made.session_id):
            pass
        assert len(asked) <= 9, asked


async def test_a_turn_is_used_once_and_in_its_block(manager: SessionManager) -> None:
    made = await manager.acreate("ann")
    turn = manager.turn(made.session_id)
    with pytest.raises(Misuse, match="with block"):
        turn.check()
    async with turn:
        turn.check()
        assert not turn.lost
    assert turn.lost
    with pytest.raises(Misuse, match="once"):
        await turn.__aenter__()
    for options in ({"on_busy": "queue"}, {"wait_s": -1}, {"device": 7}):
        with pytest.raises(Misuse):
            manager.turn(made.session_id, **options)  # type: ignore[arg-type]
