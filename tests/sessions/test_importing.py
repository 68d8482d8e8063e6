"""Imports that break off, are repeated, or meet an erasure: nothing stays that nobody finds."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langgraph_statekit import Conflict, Memories, SessionManager, SessionMissing, Unavailable
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.sessions import expiry
from tests.faces import listed
from tests.sessions.kit import chat, says
from tests.sessions.test_moving import talked
from tests.stores_under_test import Store

WORD, USER = "kwyjibo", "ann@example.org"


class File:
    """Two sessions of a user with one label, as a file; the store has them no more."""

    def __init__(self, data: bytes, ids: list[str]) -> None:
        self.data, self.ids = data, ids

    def open(self) -> io.BytesIO:
        return io.BytesIO(self.data)


@pytest.fixture
def manager(real: StatekitSaver) -> SessionManager:
    return SessionManager(real, agent="support", version=1, memories=Memories(InMemoryStore()))


@pytest.fixture
async def file(manager: SessionManager) -> File:
    ids = [await talked(manager, USER, f"{WORD} {n}") for n in range(2)]
    manager.saver.label({"configurable": {"thread_id": ids[0], "checkpoint_ns": ""}}, f"{WORD} label")
    target = io.BytesIO()
    done = await manager.aexport_user(USER, target)
    await manager.aerase_user(USER)
    return File(target.getvalue(), list(done.session_ids))


@pytest.fixture
def breaking(manager: SessionManager, monkeypatch: Any) -> Callable[[int], Any]:
    """Return what has an import break off at a save, and the process with it: nothing is tidied up."""

    def after(saves: int) -> Any:
        backend, left = manager.saver.backend, saves
        save = backend.save

        def breaks(batch: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Unavailable("broken off")
            return save(batch)

        monkeypatch.setattr(backend, "save", breaks)
        return monkeypatch

    return after


def traces(store: Store, file: File) -> dict[str, bool]:
    rest = store.raw_dump()
    return {trace: trace.encode() in rest for trace in (WORD, USER, *file.ids)}


async def test_what_an_import_left_when_it_broke_off_is_seen_by_nobody_and_erased(
    store: Store, manager: SessionManager, file: File, breaking: Any
) -> None:
    patch = breaking(7)
    with pytest.raises(Unavailable):
        await manager.aimport_sessions(file.open())
    patch.undo()
    assert await manager.alist() == await manager.alist(status="closed") == await manager.alist(user_id=USER) == []
    for id in file.ids:
        for use in (manager.aget, manager.atouch, manager.aclose, lambda id: manager.aupdate_metadata(id, {})):
            with pytest.raises(SessionMissing):
                await use(id)
        with pytest.raises(SessionMissing):
            await manager.aexport_session(id, io.BytesIO())
        with pytest.raises(SessionMissing):
            await manager.adelete(id, "bob")
    assert (await manager.aexport_user(USER, io.BytesIO())).session_ids == ()
    assert (await manager.aclean()).deleted == 0
    report = await manager.aerase_user(USER)
    assert set(report.session_ids) == set(file.ids)
    assert await listed(manager.saver, None) == []
    marks = type(store).__name__ in ("FileStore", "S3Store")  # which the report names
    assert {trace for trace, there in traces(store, file).items() if there} <= ({*file.ids} if marks else set())


@pytest.mark.parametrize("saves", [0, 8])
async def test_an_import_that_is_repeated_completes(
    manager: SessionManager, file: File, breaking: Any, saves: int
) -> None:
    patch = breaking(saves)
    with pytest.raises(Unavailable):
        await manager.aimport_sessions(file.open())
    patch.undo()
    made = await manager.aimport_sessions(file.open())
    assert [one.session_id for one in made] == file.ids
    assert await manager.alist(user_id=USER) == made[::-1]
    assert [one.message_count for one in made] == [2, 2]
    assert manager.saver.labels(file.ids[1]).keys() == {f"{WORD} label"}
    with pytest.raises(Conflict, match="already"):
        await manager.aimport_sessions(file.open())


async def test_an_import_that_broke_off_among_the_last_steps_is_completed_too(
    manager: SessionManager, file: File, monkeypatch: Any
) -> None:
    add, calls = manager._async.add, 0

    async def breaks(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:  # the first session is there
            raise Unavailable("broken off")
        return await add(*args)

    with monkeypatch.context() as patch:
        patch.setattr(manager._async, "add", breaks)
        with pytest.raises(Unavailable):
            await manager.aimport_sessions(file.open())
    (first,) = await manager.alist()
    used = await manager.aupdate_metadata(first.session_id, {"used": True})
    made = await manager.aimport_sessions(file.open())
    assert {one.session_id for one in made} == set(file.ids)
    assert used in made


async def test_what_an_import_left_does_not_stand_in_the_way_of_another_file(
    manager: SessionManager, file: File, breaking: Any
) -> None:
    await manager.aimport_sessions(file.open())
    one, other = file.ids
    await manager.adelete(other)
    async with manager.turn(one) as turn:
        await chat(manager.saver).ainvoke(says("more"), turn.config)
    later = io.BytesIO()
    await manager.aexport_user(USER, later)
    await manager.aerase_user(USER)
    patch = breaking(4)
    with pytest.raises(Unavailable):
        await manager.aimport_sessions(file.open())  # of which the first thread is there in part
    patch.undo()
    (made,) = await manager.aimport_sessions(io.BytesIO(later.getvalue()))
    assert (made.session_id, made.message_count) == (one, 4)
    assert made in await manager.aimport_sessions(file.open())
    assert {session.session_id for session in await manager.alist()} == {one, other}


@pytest.mark.parametrize("saves", [1, 8])
async def test_an_erasure_stops_an_import_and_leaves_nothing(
    store: Store, manager: SessionManager, file: File, monkeypatch: Any, saves: int
) -> None:
    save, left = manager.saver.backend.save, saves

    def meanwhile(batch: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            monkeypatch.undo()
            assert set(manager.erase_user(USER).session_ids) == set(file.ids)
        return save(batch)

    monkeypatch.setattr(manager.saver.backend, "save", meanwhile)
    with pytest.raises(Conflict, match="meanwhile"):
        await manager.aimport_sessions(file.open())
    assert await manager.alist() == []
    assert await listed(manager.saver, None) == []
    assert not traces(store, file)[WORD]
    assert not traces(store, file)[USER]


async def test_an_erasure_while_an_import_compares_what_it_stored_is_told_as_such(
    store: Store, manager: SessionManager, file: File, monkeypatch: Any
) -> None:
    call, stored = manager.saver.backend.rows, manager.saver.backend.save
    saved = 0

    def save(batch: Any) -> Any:
        nonlocal saved
        saved += 1
        return stored(batch)

    def meanwhile(*args: Any) -> Any:
        if saved >= 4:
            monkeypatch.undo()
            manager.erase_user(USER)
        return call(*args)

    monkeypatch.setattr(manager.saver.backend, "save", save)
    monkeypatch.setattr(manager.saver.backend, "rows", meanwhile)
    with pytest.raises(Conflict, match="meanwhile"):
        await manager.aimport_sessions(file.open())
    assert await listed(manager.saver, None) == []
    assert not traces(store, file)[WORD]


async def test_what_nobody_goes_on_to_import_is_removed_some_day(
    manager: SessionManager, file: File, breaking: Any, monkeypatch: Any
) -> None:
    patch = breaking(8)
    with pytest.raises(Unavailable):
        await manager.aimport_sessions(file.open())
    patch.undo()
    monkeypatch.setattr(expiry, "_IMPORT_US", 0)
    assert (await manager.aclean()).deleted == 2
    assert await listed(manager.saver, None) == []
