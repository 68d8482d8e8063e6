"""Sessions of a file into a store: each has a record before it has a thread, so that what was broken off is found."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from langgraph_statekit.checkpoint.cells import Cell, CellQuery
from langgraph_statekit.checkpoint.labels import label_row
from langgraph_statekit.checkpoint.records import Ref, SaveRow, SaveWrites, from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Conflict, Corrupt, Fenced, Misuse, SessionMissing, StatekitError
from langgraph_statekit.leases import Lease
from langgraph_statekit.sessions.archive import Archive, Thread, read_archive, require_binary
from langgraph_statekit.sessions.core import Core
from langgraph_statekit.sessions.desks import copied, desk_of, leased, put_away
from langgraph_statekit.sessions.memories import Memories, checked_memory
from langgraph_statekit.sessions.records import (
    ACTIVE,
    CLOSED,
    EXPIRED,
    IDLE,
    IMPORTING,
    KIND,
    Record,
    Session,
    imported,
    new_session_id,
    ref_of,
    required_user,
    session_of,
    unpack,
)

Source = str | os.PathLike[str] | BinaryIO
_FILE: Final = "file"


async def load(core: Core, memories: Memories | None, source: Source, as_new: bool) -> Sequence[Session]:
    """Store all sessions of a file, and its memories; nothing, if one is there already or cannot be read."""
    archive = await core.io(_read, source)
    found = [await core.io(_found, core.saver, thread, as_new) for thread in archive.threads]
    try:
        for user, text, said in archive.memories:
            required_user(user)
            checked_memory(text, said)
    except Misuse as error:
        raise Corrupt(f"a memory in the file cannot be one: {error}") from error
    if len(found) != len({each.session_id for each in found}):
        raise Corrupt("the file has a session twice")
    there, left = await _there(core, archive, found)
    begun = [await _begin(core, each, archive, there.get(each.session_id)) for each in left]
    leases: list[Lease] = []
    try:
        for each, rev in zip(left, begun, strict=True):
            leases.append(await _store(core, each, rev))
        if memories is not None:
            for user, text, said in archive.memories:
                await memories.kept(user, text, said, core.is_async)
        # After all threads, so that nobody sees some of the sessions and not the others.
        for each, rev, lease in zip(left, begun, leases, strict=True):
            await _put(core, each.session_id, each.record, rev, lease.token)
    except Fenced:
        raise _overtaken() from None
    finally:
        for lease in leases:
            await core.release(lease)
    return [session_of(each.session_id, *await core.read(each.session_id)) for each in found]


async def _there(
    core: Core, archive: Archive, found: Sequence[_Found]
) -> tuple[Mapping[str, tuple[Cell, bool]], Sequence[_Found]]:
    """Return what is there of these sessions, with whether it is of this file, and those that are to be stored.

    If an import of this file was broken off, the others that are there are what it had finished.
    """
    refs = [ref_of(each.session_id) for each in found]
    there: dict[str, tuple[Cell, bool]] = {}
    done: set[str] = set()
    for cell in (await core.cells.cells(CellQuery(kind=KIND, refs=refs))).cells:
        record = unpack(cell)
        if record.state == IMPORTING:
            there[from_text(cell.ref.thread)] = cell, record.metadata.get(_FILE) == archive.checksum
        else:
            done.add(from_text(cell.ref.thread))
    if done and not any(own for _, own in there.values()):
        raise Conflict(
            f"session {min(done)!r} is there already, and nothing was changed: delete it first, or pass as_new=True to"
            " make another one of it"
        )
    return there, [each for each in found if each.session_id not in done]


async def _begin(core: Core, found: _Found, archive: Archive, there: tuple[Cell, bool] | None) -> int:
    """Store the record of a session that nobody sees yet, and return its `rev`."""
    record = replace(found.record, state=IMPORTING, metadata={_FILE: archive.checksum}, left=None, device="")
    cell, is_own = there or (None, True)
    rev = await _put(core, found.session_id, record, 0 if cell is None else cell.rev)
    if not is_own:  # of another file
        await core.drop_thread(found.session_id, None)
    return rev


async def _store(core: Core, found: _Found, rev: int) -> Lease:
    """Store a thread, and return the lease under which that was done."""
    lease = await core.lease(found.session_id, "import", steal=True)
    target = leased(core.saver, lease.token)
    try:
        await _require_own(core, found.session_id, rev)
        await copied(found.desk, target, found.session_id, core.is_async)
    except BaseException as error:
        await core.release(lease)
        if isinstance(error, StatekitError):  # what it tells may come of that
            await _require_own(core, found.session_id, rev)
        raise
    finally:
        await core.io(put_away, target)
        await core.io(put_away, found.desk)
    return lease


async def _require_own(core: Core, session_id: str, rev: int) -> None:
    """Stop where somebody marked the record; whoever marks it later takes the lease, which stops the copy."""
    try:
        cell, _ = await core.read(session_id)
    except SessionMissing:
        raise _overtaken() from None
    if cell.rev != rev:
        raise _overtaken()


async def _put(core: Core, session_id: str, record: Record, expect: int, token: int | None = None) -> int:
    """Store a record, and return its `rev`."""
    made = await core.add(session_id, record, expect, token)
    if made is None:
        raise _overtaken()
    return made.rev


def _overtaken() -> Conflict:
    return Conflict("somebody deleted or imported a session of this file meanwhile: import it again if it is wanted")


def _read(source: Source) -> Archive:
    if not isinstance(source, str | os.PathLike):
        require_binary(source, "readline")
        return read_archive(source)
    with Path(source).open("rb") as file:
        return read_archive(file)


class _Found(NamedTuple):
    """A session of a file as it is to be stored, its thread laid out."""

    session_id: str
    record: Record
    desk: StatekitSaver


def _found(saver: StatekitSaver, thread: Thread, as_new: bool) -> _Found:
    """Return a session of a file, all of which was read once."""
    record = imported(thread.record, thread.session_id)
    session_id = new_session_id(record.agent, record.version, None) if as_new else thread.session_id
    desk = desk_of(saver)
    try:
        _lay_out(desk, thread, to_text(session_id))
        for _ in desk.list({"configurable": {"thread_id": session_id}}):
            pass
    except Misuse as error:
        raise Corrupt(f"the thread of session {thread.session_id!r} in the file cannot be read: {error}") from error
    finally:
        put_away(desk)
    if not set(thread.labels.values()) <= {(row.ref.ns, row.ref.id) for row in thread.rows}:
        raise Corrupt(f"a label of session {thread.session_id!r} in the file names a checkpoint that it does not have")
    if record.state not in (CLOSED, EXPIRED):
        record = replace(record, state=IDLE if record.state == ACTIVE else record.state, active_us=0, device="")
    return _Found(session_id, record, desk)


def _lay_out(desk: StatekitSaver, thread: Thread, name: str) -> None:
    """Store a thread of a file on a desk under a name."""
    left, stored = list(thread.frames.values()), set[tuple[bytes, bytes]]()
    for number, row in enumerate(thread.rows):
        own = row._replace(ref=row.ref._replace(thread=name))
        while number == 0 and left:  # values first, each after the one that it builds on
            ready = [frame for frame in left if frame.base is None or frame.base in stored]
            if not ready or not all(desk.backend.save([SaveRow(own, ready, whole=True)])):
                raise Corrupt("a value in the file builds on one that it does not have")
            stored.update((frame.key[:16], frame.check) for frame in ready)
            left = [frame for frame in left if frame not in ready]
        desk.backend.save([SaveRow(own, (), whole=True)])
        if writes := thread.writes.get(row.ref):
            desk.backend.save([SaveWrites(own.ref, writes)])
    for label, (ns, id) in thread.labels.items():
        desk.backend.save([SaveRow(label_row(Ref(name, ns, id), label), ())])
