"""Sessions in files, and out of the store: what comes back is equal, and what is erased is gone."""

from __future__ import annotations

import io
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langgraph_statekit import (
    Conflict,
    Corrupt,
    EffectLedger,
    Encryption,
    Fenced,
    Memories,
    Misuse,
    SchemaTooNew,
    SessionManager,
    SessionMissing,
    open_saver,
)
from langgraph_statekit.checkpoint.cells import CellChange
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.sessions.archive import read_archive
from tests.faces import LONG, listed
from tests.sessions.kit import chat, eventually, says
from tests.stores_under_test import Store


async def talked(manager: SessionManager, user: str, *texts: str) -> str:
    """Return the id of a session in which these texts were sent."""
    graph, made = chat(manager.saver), await manager.acreate(user, metadata={"of": user})
    for text in texts:
        async with manager.turn(made.session_id) as turn:
            await graph.ainvoke(says(text), turn.config)
    return made.session_id


def told(items: list[Any]) -> list[Any]:
    """Return what is equal of the same thread in two stores."""
    return [
        (item.config, item.checkpoint, item.metadata, item.parent_config, sorted(item.pending_writes or [], key=repr))
        for item in items
    ]


def bare(session: Any) -> tuple[Any, ...]:
    return (
        *(session.session_id, session.user_id, session.agent, session.version, session.status, session.metadata),
        *(session.created_at, session.message_count, session.left),
    )


async def test_an_exported_session_comes_back_equal_on_another_store(
    manager: SessionManager, sessions: Any, real: StatekitSaver, tmp_path: Path, new_store: Callable[[str], Store]
) -> None:
    id = await talked(manager, "ann", LONG, *(f"message {n}" for n in range(5)), "ask")
    real.label((await real.aget_tuple({"configurable": {"thread_id": id}})).config, "here")  # type: ignore[union-attr]
    path = tmp_path / "session.statekit"
    done = await sessions.aexport_session(id, path)
    thread = {"configurable": {"thread_id": id}}
    before, session = await listed(real, thread), await manager.aget(id)
    assert (done.session_ids, done.checkpoints, done.size_bytes) == ((id,), len(before), path.stat().st_size)
    assert not list(tmp_path.glob("*.part"))  # noqa: ASYNC240
    async with new_store("memory").open() as saver:
        there = SessionManager(saver, agent="support", version=1)
        (made,) = await there.aimport_sessions(path)
        assert bare(made) == bare(session)
        assert told(await listed(saver, thread)) == told(before)
        assert saver.labels(id).keys() == {"here"}
        again = io.BytesIO()
        await there.aexport_session(id, again)
        assert told(await listed(saver, thread)) == told(before)
        assert len(again.getvalue()) > 0
    await sessions.adelete(id)
    (made,) = await sessions.aimport_sessions(path)
    assert bare(made) == bare(session)
    assert told(await listed(real, thread)) == told(before)
    async with sessions.turn(id) as turn:
        got = await chat(real).ainvoke(says("go on"), turn.config)
    assert got["messages"][-1].content == "you said go on"
    (copy,) = await sessions.aimport_sessions(path, as_new=True)
    assert copy.session_id != id
    assert (copy.metadata, copy.message_count) == (session.metadata, session.message_count)
    assert len(await listed(real, {"configurable": {"thread_id": copy.session_id}})) == len(before)


async def test_what_is_there_already_is_not_touched_by_an_import(manager: SessionManager, tmp_path: Path) -> None:
    first, second = await talked(manager, "ann", "hello"), await talked(manager, "ann", "good day")
    await manager.aexport_user("ann", tmp_path / "ann")
    await manager.adelete(first)
    kept = await manager.aget(second)
    with pytest.raises(Conflict, match="already"):
        await manager.aimport_sessions(tmp_path / "ann")
    assert await manager.alist(user_id="ann") == [kept]


@pytest.fixture
def exported() -> bytes:
    """Return a file."""
    from langgraph_statekit import open_saver

    with open_saver("memory://") as saver:
        manager = SessionManager(saver, agent="support", version=1)
        made, file = manager.create("ann"), io.BytesIO()
        with manager.turn(made.session_id) as turn:
            chat(saver).invoke(says(LONG), turn.config)
        manager.export_session(made.session_id, file)
        return file.getvalue()


def test_a_file_says_what_it_is_and_one_that_was_cut_off_or_altered_is_refused(exported: bytes) -> None:
    first = json.loads(exported.split(b"\n", 1)[0])
    assert (first["format"], first["version"]) == ("statekit-sessions", 1)
    whole = read_archive(io.BytesIO(exported))
    assert [len(thread.rows) for thread in whole.threads] == [3]
    choose = random.Random(1)
    for at in {*choose.sample(range(len(exported)), 200), *range(len(exported) - 40, len(exported))}:
        with pytest.raises((Corrupt, Misuse, SchemaTooNew)):
            read_archive(io.BytesIO(exported[:at]))
        altered = bytearray(exported)
        altered[at] ^= 1 << choose.randrange(8)
        with pytest.raises((Corrupt, Misuse, SchemaTooNew)):
            read_archive(io.BytesIO(bytes(altered)))
    for other in (b"", b"hello", b"{}\n", b"[]\n", exported + b"{}\n"):
        with pytest.raises((Misuse, Corrupt)):
            read_archive(io.BytesIO(other))
    with pytest.raises(SchemaTooNew):
        read_archive(io.BytesIO(exported.replace(b'"version":1', b'"version":2', 1)))


async def test_nothing_of_a_file_that_was_altered_is_stored(manager: SessionManager, exported: bytes) -> None:
    with pytest.raises(Corrupt):
        await manager.aimport_sessions(io.BytesIO(exported[:-5]))
    assert await manager.alist() == []
    assert await listed(manager.saver, None) == []


async def test_a_user_is_exported_and_erased_with_all_that_was_remembered(
    store: Store, shown: Callable[[SessionManager], Any], tmp_path: Path
) -> None:
    word, user = "kwyjibo", "ann@example.org"
    async with store.open() as saver:
        memories = Memories(InMemoryStore())
        manager = SessionManager(saver, agent="support", version=1, memories=memories)
        other = SessionManager(saver, agent="billing", version=7)
        sessions = shown(manager)
        ids = {await talked(manager, user, f"{word} {n}") for n in range(3)} | {await talked(other, user, word)}
        kept = await talked(manager, "bob", "hello")
        await sessions.aupdate_metadata(min(i for i in ids if i.startswith("support")), {"note": word})
        memories.remember(user, f"my word is {word}")
        memories.remember("bob", "my word is hello")
        done = await sessions.aexport_user(user, tmp_path / "file")
        assert (set(done.session_ids), done.memories) == (ids, 1)
        running = await manager.turn(next(i for i in ids if i.startswith("support"))).__aenter__()
        report = await sessions.aerase_user(user)
        assert (set(report.session_ids), report.memories) == (ids, 1)
        marks = type(store).__name__ in ("FileStore", "S3Store")
        told = "empty marks of 4 records" if marks else "4 tombstones"
        assert bool(report.left) == (marks or not store.leaves_nothing)
        assert all(told in left for left in report.left)
        with pytest.raises(Fenced):
            await chat(saver).ainvoke(says(word), running.config)
        await running.__aexit__(None, None, None)
        for id in ids:
            with pytest.raises(SessionMissing):
                await other.aget(id)
        saver.sweep()
        rest = store.raw_dump()
        for trace in (word, user, *(() if marks else ids)):
            assert trace.encode() not in rest, trace
        assert memories.list_memories(user) == []
        assert [memory.text for memory in memories.list_memories("bob")] == ["my word is hello"]
        assert [one.session_id for one in await manager.alist()] == [kept]
        assert await sessions.aerase_user(user) == type(report)((), 0, ())
        assert {one.session_id for one in await sessions.aimport_sessions(tmp_path / "file")} == ids
        assert [memory.text for memory in memories.list_memories(user)] == [f"my word is {word}"]


async def test_a_record_that_cannot_be_read_holds_up_neither_clean_up_nor_erasure(store: Store) -> None:
    async with store.open() as saver:
        manager = SessionManager(saver, agent="support", version=1, idle_s=0.05)
        broken, other = await manager.acreate("ann"), await manager.acreate("bob")
        cell, _ = await manager._async.read(broken.session_id)
        await saver.async_cells.change_cell(CellChange(ref=cell.ref, value=b"{", groups=cell.groups))
        with pytest.raises(Corrupt):
            await manager.aget(broken.session_id)

        async def cleaned() -> bool:
            return bool((await manager.aclean()).expired)

        await eventually(cleaned)
        assert (await manager.aget(other.session_id)).status == "expired"
        assert (await manager.aerase_user("ann")).session_ids == (broken.session_id,)
        assert [one.session_id for one in await manager.alist()] == [other.session_id]


@pytest.mark.parametrize("where", ["hot", "both", "cold"])
async def test_nothing_of_an_erased_user_stands_in_the_files_of_a_store(tmp_path: Path, where: str) -> None:
    path = tmp_path / "chat.db"
    tiers: Any = {} if where == "hot" else {"cold": f"file://{tmp_path}/cold", "mode": "write_through"}
    async with open_saver(f"sqlite:///{path}", encryption=None, **tiers) as saver:
        manager = SessionManager(saver, agent="support", version=1)
        kept = await talked(manager, "bob", "stays")

        def cold() -> set[Path]:
            return {file for file in tmp_path.rglob("cold/**/*") if file.is_file()}

        below = cold()
        for _ in range(2):
            id = await talked(
                manager, "ann@example.org", *(f"kwyjibo {number} " + "x" * 2000 * number for number in range(4))
            )

        def held(word: str) -> int:
            files = [file for file in tmp_path.rglob("*") if file.is_file()]
            return sum(file.read_bytes().count(word.encode()) for file in files)

        if where == "cold":
            assert saver.tiers.evict(id)  # type: ignore[attr-defined]
        assert held("kwyjibo") > 0
        assert held("ann@example.org") > 0
        left = (await manager.aerase_user("ann@example.org")).left
        assert left == (
            ()
            if where == "hot"
            else ("2 tombstones of threads, without their ids, so that no late upload brings one back",)
        )
        stones = cold() - below
        assert len(stones) == (0 if where == "hot" else 2)
        assert all(file.stat().st_size < 200 for file in stones)
        assert {word: held(word) for word in ("kwyjibo", "ann@example.org", id)} == {
            "kwyjibo": 0,
            "ann@example.org": 0,
            id: 0,
        }
        assert (await manager.aget(kept)).message_count == 2
        assert held(kept) > 0


async def test_of_effects_nothing_but_hashes_is_left(durable_store: Store) -> None:
    async with durable_store.open() as saver:
        manager = SessionManager(saver, agent="support", version=1)
        id = await talked(manager, "ann", "hello")
        config = {"configurable": {"thread_id": id}}
        EffectLedger(saver).run("kwyjibo 17", lambda: "kwyjibo done", request="kwyjibo", config=config)
    async with durable_store.open() as saver:  # without a ledger of its own
        report = await SessionManager(saver).aerase_user("ann")
        assert "1 keyed hashes of effects, with the ids of their sessions, so that none is made twice" in report.left
        assert b"kwyjibo" not in durable_store.raw_dump()


async def test_what_is_said_of_a_session_is_sealed_where_the_store_encrypts(durable_store: Store) -> None:
    async with durable_store.open(encryption=Encryption({"k": b"k" * 32}, "k")) as saver:
        manager = SessionManager(saver, agent="support", version=1)
        id = await talked(manager, "ann@example.org", "hello")
        await manager.aupdate_metadata(id, {"name": "kwyjibo"})
        raw = durable_store.raw_dump()
        assert b"kwyjibo" not in raw
        assert b"ann@example.org" not in raw
        assert (await manager.aget(id)).metadata["name"] == "kwyjibo"
        assert [one.session_id for one in await manager.alist(user_id="ann@example.org")] == [id]
        file = io.BytesIO()
        await manager.aexport_session(id, file)
        await manager.adelete(id)
        file.seek(0)
        (made,) = await manager.aimport_sessions(file)
        assert made.message_count == 2


async def test_an_erasure_that_was_broken_off_at_its_end_is_completed(tmp_path: Path, monkeypatch: Any) -> None:
    async with open_saver(f"sqlite:///{tmp_path}/chat.db", encryption=None) as saver:
        manager = SessionManager(saver, agent="support", version=1)
        await talked(manager, "ann", *("kwyjibo " + "x" * 5000 * number for number in range(4)))

        def breaks() -> bool:
            raise ConnectionResetError

        with monkeypatch.context() as patch:
            patch.setattr(getattr(saver.backend, "inner", saver.backend), "scrub", breaks)
            with pytest.raises(ConnectionResetError):
                await manager.aerase_user("ann")
        assert (await manager.aerase_user("ann")).left == ()
        assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"kwyjibo" in file.read_bytes()]  # noqa: ASYNC240


async def test_an_exported_file_is_its_owners_alone(manager: SessionManager, tmp_path: Path) -> None:
    id = await talked(manager, "ann", "hello")
    await manager.aexport_session(id, tmp_path / "file")
    assert os.name != "posix" or (tmp_path / "file").stat().st_mode & 0o077 == 0


async def test_what_is_no_file_of_bytes_is_refused(manager: SessionManager) -> None:
    id = await talked(manager, "ann", "hello")
    for wrong in (None, io.StringIO("{}"), b"{}"):
        with pytest.raises(Misuse, match="binary"):
            await manager.aexport_session(id, wrong)  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="binary"):
            await manager.aimport_sessions(wrong)  # type: ignore[arg-type]
