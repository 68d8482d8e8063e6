"""Files that somebody else made: whatever stands in them, they are stored whole or refused before anything is."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from langgraph_statekit import Corrupt, Memories, Misuse, SchemaTooNew, SessionManager, SessionMissing, Unavailable
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import listed
from tests.sessions.kit import chat, says

Line = tuple[Mapping[str, Any], bytes | None]
HEAD: Line = ({"format": "statekit-sessions", "version": 1}, None)
RECORD = {"user": "ann", "agent": "support", "version": 1, "idle_us": 10**9}
CHECKPOINT = {"kind": "checkpoint", "ns": "", "id": "1", "parent": None, "via": None, "run_id": None}
PACKED = {"keys": "", "deltas": ""}


def session(record: object = RECORD, id: str | None = None, labels: object = ()) -> Line:
    id = f"support_v1_{uuid.uuid4()}" if id is None else id
    return {"kind": "session", "session_id": id, "record": record, "labels": labels or {}}, None


def forged(lines: Sequence[Line]) -> io.BytesIO:
    """Return a file whose checksums are right."""
    whole = b""
    for told, data in lines:
        more = {} if data is None else {"bytes": len(data), "sha256": sha256(data).hexdigest()}
        whole += json.dumps({**told, **more}).encode() + b"\n" + (b"" if data is None else data + b"\n")
    end = {"kind": "end", "lines": len(lines), "sha256": sha256(whole).hexdigest()}
    return io.BytesIO(whole + json.dumps(end).encode() + b"\n")


@pytest.fixture
def manager(real: StatekitSaver) -> SessionManager:
    return SessionManager(real, agent="support", version=1, memories=Memories(InMemoryStore()))


async def require_refused(manager: SessionManager, source: Any) -> None:
    with pytest.raises((Corrupt, Misuse, SchemaTooNew)):
        await manager.aimport_sessions(source)
    assert await manager.alist() == []
    assert await listed(manager.saver, None) == []


async def test_records_that_no_session_can_have_are_refused_with_the_whole_file(manager: SessionManager) -> None:
    odd: Sequence[Mapping[str, Any]] = (
        *({"user": None}, {"user": ""}, {"user": 5}, {"agent": "billing"}, {"version": 2}, {"version": "1"}),
        *({"idle_us": "x"}, {"idle_us": 10**18}, {"created_us": 10**40}, {"active_us": -(10**30), "state": "closed"}),
        *({"state": "weird"}, {"state": "deleting"}, {"on_expiry": "bad"}, {"expire_waiting": 1}, {"device": None}),
        *({"metadata": [1]}, {"metadata": {"x": "y" * 70_000}}, {"left": 3}, {"messages": "x"}, {"size_bytes": -1}),
        {"unknown": 1},
    )
    for bad in ({**RECORD, **fields} for fields in odd):
        await require_refused(manager, forged([HEAD, session(), session(bad)]))
    for bad in ("x", None, [1]):
        await require_refused(manager, forged([HEAD, session(), session(bad)]))
    (made,) = await manager.aimport_sessions(forged([HEAD, session()]))
    assert await manager.alist() == [made]


async def test_lines_that_cannot_be_read_are_refused_with_the_whole_file(manager: SessionManager) -> None:
    one = session()
    for more in (
        [session(labels=[1])],
        [session(labels={"x": ["", "nowhere"]})],
        [session(id="support_v1_17")],
        [one],
        [({**CHECKPOINT, **PACKED, "id": 2}, b"x")],
        [({**CHECKPOINT, **PACKED}, b"x")],
        [({**CHECKPOINT, **PACKED}, b"")],
        *([({"kind": "memory", "user_id": user, "text": "x", "source": {}}, None)] for user in (None, "")),
        *([({"kind": "memory", "user_id": "ann", "text": text, "source": {}}, None)] for text in (5, " ", "x" * 5_000)),
        [({"kind": "memory", "user_id": "ann", "text": "x", "source": []}, None)],
        [({"kind": []}, None)],
    ):
        await require_refused(manager, forged([HEAD, one, *more]))
    assert manager.memories is not None
    assert manager.memories.list_memories("ann") == []


async def test_no_size_and_no_nesting_brings_the_reader_down(manager: SessionManager, tmp_path: Path) -> None:
    first, path = json.dumps(HEAD[0]).encode() + b"\n", tmp_path / "file"
    for raw in (
        b"[" * 100_000 + b"\n",
        first + b"[" * 100_000 + b"\n",
        *(first + b'{"kind":"value","bytes":%d}\n' % 10**digits for digits in (15, 30)),
    ):
        path.write_bytes(raw)
        await require_refused(manager, path)


async def test_an_import_that_was_broken_off_is_done_again(manager: SessionManager, monkeypatch: Any) -> None:
    made = [await manager.acreate("ann") for _ in range(2)]
    for one in made:
        async with manager.turn(one.session_id) as turn:
            await chat(manager.saver).ainvoke(says("hello"), turn.config)
    file = io.BytesIO()
    await manager.aexport_user("ann", file)
    for one in made:
        await manager.adelete(one.session_id)
    save, saves = manager.saver.backend.save, 0

    def breaks(batch: Any) -> Any:
        nonlocal saves
        saves += 1
        if saves > 5:  # in the second thread
            raise Unavailable("broken off")
        return save(batch)

    with monkeypatch.context() as patch:
        patch.setattr(manager.saver.backend, "save", breaks)
        with pytest.raises(Unavailable):
            await manager.aimport_sessions(io.BytesIO(file.getvalue()))
    assert await manager.alist() == []
    again = await manager.aimport_sessions(io.BytesIO(file.getvalue()))
    assert {one.session_id for one in again} == {one.session_id for one in made}
    assert [one.message_count for one in again] == [2, 2]


async def test_an_export_misses_no_session_that_is_used_meanwhile(manager: SessionManager, monkeypatch: Any) -> None:
    made = [await manager.acreate("ann") for _ in range(102)]
    cells = manager._async.cells.cells

    async def used_after_a_page(query: Any) -> Any:
        page = await cells(query)
        if query.group is not None:
            monkeypatch.undo()
            await manager.aupdate_metadata(made[0].session_id, {"x": 1})
        return page

    monkeypatch.setattr(manager._async.cells, "cells", used_after_a_page)
    done = await manager.aexport_user("ann", io.BytesIO())
    assert set(done.session_ids) == {one.session_id for one in made}


async def test_only_whose_it_is_and_its_agent_export_a_session(manager: SessionManager) -> None:
    made, other = await manager.acreate("ann"), SessionManager(manager.saver, agent="billing", version=1)
    for exports in (
        lambda: manager.aexport_session(made.session_id, io.BytesIO(), "bob"),
        lambda: other.aexport_session(made.session_id, io.BytesIO()),
    ):
        with pytest.raises(SessionMissing):
            await exports()
    assert (await manager.aexport_session(made.session_id, io.BytesIO(), "ann")).session_ids == (made.session_id,)
