"""Expiry of sessions: by the store's clock, warned of, and never while somebody goes on with one."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from langgraph_statekit import Misuse, SessionEnded, SessionManager, SessionMissing
from langgraph_statekit.checkpoint.records import Ref, Row, SaveRow, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import DataError
from langgraph_statekit.events import SessionExpired, SessionExpires
from tests.servers import wait_until
from tests.sessions.kit import SyncSessions, chat, eventually, says
from tests.stores_under_test import Store

SHORT_S = 0.3
DAY_S = 86_400


@pytest.fixture
def quick(real: StatekitSaver, shown: Callable[[SessionManager], Any]) -> Callable[..., Any]:
    """Return a maker of managers whose sessions soon expire."""

    def make(**options: Any) -> Any:
        return shown(SessionManager(real, agent="support", version=1, **{"idle_s": SHORT_S, "warn_s": 0, **options}))

    return make


async def soon(manager: SessionManager, session_id: str) -> None:
    """Let a session expire in `SHORT_S`, however long it took to use it."""
    await manager._async.change(session_id, lambda record, now_us: record.used(idle_us=int(SHORT_S * 1e6)))


async def talked(real: StatekitSaver, text: str = "hello", **options: Any) -> Any:
    """Return a session that was used, and will soon expire."""
    patient = SessionManager(real, agent="support", version=1, warn_s=0, **options)
    made = await patient.acreate("ann")
    async with patient.turn(made.session_id) as turn:
        await chat(real).ainvoke(says(text), turn.config)
    await soon(patient, made.session_id)
    return made


async def expired(sessions: Any, session_id: str) -> None:
    """Wait until a session has expired."""

    async def over() -> bool:
        return bool((await sessions.aget(session_id)).status == "expired")

    await eventually(over)


async def test_a_session_that_nobody_uses_expires_and_stays_readable(quick: Any, real: StatekitSaver) -> None:
    sessions, events = quick(), list[Any]()
    telling = quick(hooks=[events.append])
    made = await talked(real)
    await expired(sessions, made.session_id)
    assert [one.session_id for one in await sessions.alist(status="expired")] == [made.session_id]
    assert await sessions.alist(status="idle") == []
    for use in (sessions.aconfig, sessions.atouch, lambda id: sessions.turn(id).__aenter__()):
        with pytest.raises(SessionEnded, match="expired"):
            await use(made.session_id)
    assert await telling.aclean() == (0, 1, 0, 0)
    assert await telling.aclean() == (0, 0, 0, 0)
    assert [(type(event), event.thread_id, event.user_id, event.policy) for event in events] == [
        (SessionExpired, made.session_id, "ann", "keep")
    ]
    found = await sessions.aget(made.session_id)
    assert (found.status, found.message_count, found.left) == ("expired", 2, None)
    assert [one.session_id for one in await sessions.alist(status="expired")] == [made.session_id]
    assert await real.aget_tuple({"configurable": {"thread_id": made.session_id}}) is not None
    assert (await sessions.aclose(made.session_id)).status == "expired"


async def test_use_keeps_a_session_alive(quick: Any) -> None:
    sessions = quick(idle_s=60)
    made = await sessions.acreate("ann")
    before = (await sessions.aget(made.session_id)).expires_at
    for use in (sessions.atouch, lambda id: sessions.aupdate_metadata(id, {"x": 1})):
        after = (await use(made.session_id)).expires_at
        assert after > before
        before = after
    await sessions.aget(made.session_id)
    await sessions.aconfig(made.session_id)
    assert (await sessions.aget(made.session_id)).expires_at == before


async def hurry(manager: SessionManager, session_id: str) -> None:
    """Let a session expire now."""
    await manager._async.change(session_id, lambda record, now_us: replace(record, idle_us=1))


@pytest.mark.parametrize("policy", ["keep", "delete", "summary"])
async def test_a_session_that_is_taken_over_at_the_last_moment_stays_whole(
    real: StatekitSaver, monkeypatch: Any, policy: str
) -> None:
    on_expiry: Any = (lambda session, values: {}) if policy == "summary" else policy
    here, there = (SessionManager(real, agent="support", version=1, warn_s=0, on_expiry=on_expiry) for _ in range(2))
    made = await here.acreate("ann")
    dead = await here.turn(made.session_id).__aenter__()
    await chat(real).ainvoke(says("hello"), dead.config)
    assert dead._lease is not None
    await here._async.release(dead._lease)  # its process died
    await hurry(here, made.session_id)
    read, turn = there._async.read, here.turn(made.session_id, on_busy="interrupt")
    listed = there._async.settings
    monkeypatch.setattr(there._async, "settings", replace(listed, idle_us=1))  # which passes over nothing

    async def read_before(session_id: str) -> Any:
        monkeypatch.undo()
        found = await read(session_id)
        await turn.__aenter__()
        return found

    monkeypatch.setattr(there._async, "read", read_before)
    assert await there.aclean() == (0, 0, 0, 0)
    await turn.__aexit__(None, None, None)
    found = await here.aget(made.session_id)
    assert (found.status, found.left, found.message_count) == ("idle", None, 2)


@pytest.mark.parametrize("use", ["touch", "turn", "update_metadata", "close"])
async def test_nothing_that_comes_too_late_revives_a_session(
    manager: SessionManager, sessions: Any, real: StatekitSaver, monkeypatch: Any, use: str
) -> None:
    made = await manager.acreate("ann")
    await hurry(manager, made.session_id)
    before = await manager.aget(made.session_id)
    assert before.status == "expired"
    read, write = real.backend.cells, real.backend.change_cells

    def early(query: Any) -> Any:
        """Read as it was before the session expired."""
        return read(query)._replace(now_us=int(made.active_at.timestamp() * 1e6))

    def late(changes: Any) -> Any:
        monkeypatch.undo()
        return write(changes)

    monkeypatch.setattr(real.backend, "cells", early)
    monkeypatch.setattr(real.backend, "change_cells", late)
    if use == "touch":
        with pytest.raises(SessionEnded, match="expired"):
            await sessions.atouch(made.session_id)
    elif use == "turn":
        with pytest.raises(SessionEnded, match="expired"):
            await sessions.turn(made.session_id).__aenter__()
    elif use == "update_metadata":
        assert (await sessions.aupdate_metadata(made.session_id, {"x": 1})).metadata == {"x": 1}
    else:
        assert (await sessions.aclose(made.session_id)).status == "expired"
    assert real.backend.change_cells == write, "it was tried"
    found = await sessions.aget(made.session_id)
    assert (found.status, found.active_at, found.expires_at) == ("expired", made.active_at, before.expires_at)
    assert (found.rev == before.rev) == (use != "update_metadata")


async def test_each_session_is_warned_of_once_before_it_expires(
    quick: Any, real: StatekitSaver, shown: Callable[[SessionManager], Any]
) -> None:
    events = list[Any]()
    workers = [quick(idle_s=60, warn_s=60, hooks=[events.append]) for _ in range(2)]
    sessions = workers[0]
    made = [await sessions.acreate(f"user {n}") for n in range(3)]
    await asyncio.gather(*(worker.aclean() for worker in workers for _ in range(2)))
    assert {(type(event), event.thread_id) for event in events} == {(SessionExpires, one.session_id) for one in made}
    assert len(events) == 3
    assert all(0 < event.in_s <= 60 for event in events)
    await sessions.atouch(made[0].session_id)
    assert (await sessions.aclean()).warned == 1  # it was used since
    assert [event.thread_id for event in events[3:]] == [made[0].session_id]
    assert (await quick(idle_s=60, warn_s=1, hooks=[events.append]).aclean()).warned == 0


async def test_what_an_expired_session_leaves_is_a_policy(quick: Any, real: StatekitSaver) -> None:
    def summary(session: Any, values: Any) -> dict[str, Any]:
        return {"user": session.user_id, "last": values["messages"][-1].content}

    asked = quick(on_expiry=summary)
    made = await talked(real, on_expiry=summary)
    await expired(asked, made.session_id)
    assert await quick().aclean() == (0, 0, 0, 1)  # has no such function
    assert await asked.aclean() == (0, 1, 0, 0)
    found = await asked.aget(made.session_id)
    assert (found.status, found.left) == ("expired", {"user": "ann", "last": "you said hello"})
    assert await real.aget_tuple({"configurable": {"thread_id": made.session_id}}) is None
    gone = quick(on_expiry="delete")
    made = await talked(real, on_expiry="delete")
    await expired(gone, made.session_id)
    assert await gone.aclean() == (0, 1, 1, 0)
    with pytest.raises(SessionMissing):
        await gone.aget(made.session_id)
    assert await real.aget_tuple({"configurable": {"thread_id": made.session_id}}) is None


async def test_a_summary_that_fails_loses_nothing_and_is_asked_for_again(quick: Any, real: StatekitSaver) -> None:
    answers: list[Any] = [ZeroDivisionError, {"not json": object()}, {"fine": True}]

    def summary(session: Any, values: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, type):
            raise answer
        return answer

    sessions = quick(on_expiry=summary)
    made = await talked(real, on_expiry=summary)
    await expired(sessions, made.session_id)
    for _ in range(2):
        assert await sessions.aclean() == (0, 0, 0, 1)
        assert await real.aget_tuple({"configurable": {"thread_id": made.session_id}}) is not None
    assert await sessions.aclean() == (0, 1, 0, 0)
    assert (await sessions.aget(made.session_id)).left == {"fine": True}


async def test_a_thread_that_cannot_be_read_holds_up_no_other_summary(quick: Any, real: StatekitSaver) -> None:
    sessions = quick(on_expiry=lambda session, values: {})
    other, broken = await sessions.acreate("bob"), await sessions.acreate("ann")
    row = Row(Ref(to_text(broken.session_id), "", "1"), body=b"\1")
    real.backend.save([SaveRow(row, ())])
    with pytest.raises(DataError):
        await real.aget_tuple({"configurable": {"thread_id": broken.session_id}})
    await expired(sessions, broken.session_id)
    assert await sessions.aclean() == (0, 1, 0, 1)
    assert (await sessions.aget(other.session_id)).left == {}


async def test_a_long_turn_and_a_waiting_session_do_not_expire(quick: Any, real: StatekitSaver) -> None:
    sessions, graph = quick(), chat(real)
    waiting = await talked(real, "ask")
    patient = SessionManager(real, agent="support", version=1)
    long = await patient.acreate("ann")
    async with patient.turn(long.session_id) as turn:
        await soon(patient, long.session_id)
        other = await sessions.acreate("bob")
        await expired(sessions, other.session_id)
        cleaned = await sessions.aclean()
        assert (cleaned.expired, cleaned.left) == (1, 1)
        assert (await sessions.aget(long.session_id)).status == "active"
        await graph.ainvoke(says("still here"), turn.config)
    assert (await sessions.aget(long.session_id)).message_count == 2
    assert (await sessions.aget(waiting.session_id)).status == "waiting"
    made = await talked(real, "ask", expire_waiting=True)
    await expired(quick(expire_waiting=True), made.session_id)


async def test_a_store_that_removes_threads_removes_their_sessions_too(durable_store: Store) -> None:
    if type(durable_store).__name__ in ("FileStore", "S3Store"):
        pytest.skip("time cannot be made to pass for cells of object stores")
    async with durable_store.open(ttl_s=60) as saver:
        gone = SessionManager(saver, agent="gone", version=1, idle_s=60, on_expiry="delete")
        kept = SessionManager(saver, agent="kept", version=1, idle_s=60)
        made, other = await gone.acreate("ann"), await kept.acreate("ann")
        async with gone.turn(made.session_id) as turn:
            await chat(saver).ainvoke(says("hello"), turn.config)
        durable_store.advance(200)
        with pytest.raises(SessionMissing):
            await gone.aget(made.session_id)
        assert await saver.aget_tuple({"configurable": {"thread_id": made.session_id}}) is None
        assert await kept.aget(other.session_id) == other


async def test_old_sessions_that_ended_are_removed(quick: Any) -> None:
    sessions = quick(idle_s=60, delete_after_s=0.05)
    made, open = await sessions.acreate("ann"), await sessions.acreate("ann")
    await sessions.aclose(made.session_id)
    deleted = 0
    while not deleted:
        deleted = (await sessions.aclean()).deleted
    with pytest.raises(SessionMissing):
        await sessions.aget(made.session_id)
    assert await sessions.aget(open.session_id) == open


async def test_a_clean_up_removes_nothing_that_came_back_since_it_looked(real: StatekitSaver, monkeypatch: Any) -> None:
    sessions = SessionManager(real, agent="support", version=1, delete_after_s=0)
    back, other = await sessions.acreate("ann"), await sessions.acreate("ann")
    file = io.BytesIO()
    await sessions.aexport_session(back.session_id, file)
    for one in (back, other):
        await sessions.aclose(one.session_id)
    core, remove, came = sessions._async, sessions._async.remove, list[str]()

    async def slow(session_id: str, *args: Any) -> bool:
        if session_id == other.session_id and not came:
            came.append(session_id)
            await remove(back.session_id)
            file.seek(0)
            await sessions.aimport_sessions(file)
        return await remove(session_id, *args)

    monkeypatch.setattr(core, "remove", slow)
    deleted = 0
    while not deleted:
        deleted = (await sessions.aclean()).deleted
    assert (came, deleted) == ([other.session_id], 1)
    assert (await sessions.aget(back.session_id)).status == "idle"


async def test_a_deletion_that_was_broken_off_is_finished(quick: Any, real: StatekitSaver, monkeypatch: Any) -> None:
    sessions = quick(idle_s=60)
    made = await sessions.acreate("ann", metadata={"name": "Ann"})
    async with sessions.turn(made.session_id) as turn:
        await chat(real).ainvoke(says("hello"), turn.config)

    def breaks(thread: str) -> None:
        raise ConnectionResetError

    with monkeypatch.context() as patch, suppress(ConnectionResetError):
        patch.setattr(real.backend, "drop_thread", breaks)
        await sessions.adelete(made.session_id)
    with pytest.raises(SessionMissing):
        await sessions.aget(made.session_id)
    with pytest.raises(SessionMissing):
        await sessions.aexport_session(made.session_id, io.BytesIO())
    assert (await sessions.aexport_user("ann", io.BytesIO())).session_ids == ()
    assert await sessions.alist() == await sessions.alist(status="closed") == []
    assert (await sessions.aclean()).deleted == 1
    assert await real.aget_tuple({"configurable": {"thread_id": made.session_id}}) is None
    assert await sessions.alist() == []


@pytest.mark.parametrize("off_s", [-DAY_S, DAY_S])
async def test_the_clock_of_the_host_does_not_count(
    served_name: str, new_store: Any, monkeypatch: Any, off_s: int
) -> None:
    real_s, real_ns = time.time, time.time_ns
    async with new_store(served_name).open() as saver:
        sessions = SessionManager(saver, agent="support", version=1, warn_s=0)
        before = await sessions.acreate("ann")
        monkeypatch.setattr(time, "time", lambda: real_s() + off_s)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + off_s * 10**9)
        after = await sessions.acreate("bob")
        assert 0 <= (after.created_at - before.created_at).total_seconds() < 600
        assert await sessions.aclean() == (0, 0, 0, 0)
        assert [one.status for one in await sessions.alist()] == ["idle", "idle"]
        touched = await sessions.atouch(before.session_id)
        assert touched.active_at > after.active_at


def test_in_its_block_a_manager_cleans_up_by_itself(real_sync: StatekitSaver) -> None:
    events = list[Any]()
    with SessionManager(
        real_sync, agent="support", version=1, idle_s=0.1, warn_s=0, clean_every_s=0.05, hooks=[events.append]
    ) as sessions:
        made = sessions.create("ann")
        wait_until(lambda: bool(events), "cleaned up")
        assert events[0].thread_id == made.session_id
        assert sessions.get(made.session_id).status == "expired"


@pytest.fixture
def real_sync(new_store: Any) -> Any:
    with new_store("memory").open() as saver:
        yield saver


def test_a_policy_that_nobody_knows_is_refused(real_sync: StatekitSaver) -> None:
    async def later(session: Any, values: Any) -> dict[str, Any]:
        return {}

    for wrong in ("summary", later):
        with pytest.raises(Misuse, match="on_expiry"):
            SessionManager(real_sync, on_expiry=wrong)  # type: ignore[arg-type]
    assert SyncSessions
