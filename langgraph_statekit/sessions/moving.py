"""Sessions to a file and back, and all of a user out of the store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.cells import CellQuery, effects_of
from langgraph_statekit.checkpoint.copying import acopy_threads, copy_threads
from langgraph_statekit.checkpoint.labels import labels_of
from langgraph_statekit.checkpoint.records import Query, Row, SaveRow, SaveWrites, from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Conflict, Corrupt, Misuse, SessionMissing
from langgraph_statekit.sessions.archive import Archive, Thread, Writer, read_archive
from langgraph_statekit.sessions.core import Core, missing
from langgraph_statekit.sessions.facts import thread_config
from langgraph_statekit.sessions.memories import Memories, checked_memory
from langgraph_statekit.sessions.records import (
    ACTIVE,
    CLOSED,
    DELETING,
    EXPIRED,
    IDLE,
    KIND,
    Record,
    Session,
    fields_of,
    group,
    imported,
    new_session_id,
    ref_of,
    required_user,
    unpack,
)

_PAGE: Final = 100
_SCRUBS: Final = 20
_SCRUB_PAUSE_S: Final = 0.1


Target = str | os.PathLike[str] | BinaryIO


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote.

    Attributes:
        session_ids: Sessions in the file.
        checkpoints: Their checkpoints.
        memories: Memories in the file.
        size_bytes: Of the file.
    """

    session_ids: Sequence[str]
    checkpoints: int
    memories: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Erased:
    """What an erasure removed, and what is left and why.

    Attributes:
        session_ids: Sessions that are gone with their threads, checkpoints, leases and data keys.
        memories: Memories that are gone; None: the manager has none.
        left: What of it can still be found, without any content: how many of what, in words.
    """

    session_ids: Sequence[str]
    memories: int | None
    left: Sequence[str]


async def export_one(core: Core, target: Target, session_id: str, user: str | None) -> Exported:
    """Write one session of the manager's."""
    await core.get(session_id, user)
    return await export(core, None, target, [session_id], None)


async def export_user(core: Core, memories: Memories | None, target: Target, user: str) -> Exported:
    """Write all sessions of a user, and what is remembered."""
    return await export(core, memories, target, await sessions_of(core, user), user)


async def export(
    core: Core, memories: Memories | None, target: Target, ids: Sequence[str], user: str | None
) -> Exported:
    """Write sessions, and what is remembered for a user, to a file that is there whole or not at all."""
    if not isinstance(target, str | os.PathLike):
        return await _export(core, memories, target, ids, user)
    path = Path(target)
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        with await core.io(part.open, "wb") as file:
            done = await _export(core, memories, file, ids, user)
            await core.io(_sync, file)
        await core.io(part.replace, path)
    finally:
        await core.io(lambda: part.unlink(missing_ok=True))
    return done


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _export(
    core: Core, memories: Memories | None, file: BinaryIO, ids: Sequence[str], user: str | None
) -> Exported:
    writer = await core.io(Writer, file)
    checkpoints = kept = 0
    written: list[str] = []
    for session_id in ids:
        try:
            thread = await _thread(core, session_id)
        except SessionMissing:  # it was deleted meanwhile
            if user is None:
                raise
            continue
        await core.io(writer.thread, thread)
        checkpoints += len(thread.rows)
        written.append(session_id)
    if memories is not None and user is not None:
        for memory in await memories.listed(user, core.is_async):
            await core.io(writer.memory, user, memory.text, memory.source)
            kept += 1
    await core.io(writer.end)
    return Exported(tuple(written), checkpoints, kept, writer.size_bytes)


def _desk(saver: StatekitSaver) -> StatekitSaver:
    """Return a saver in memory on which threads are laid out between a store and a file, in plain."""
    return StatekitSaver(MemoryBackend(), serde=saver.serde, secret_keys=saver._secret_keys)


def _bare(saver: StatekitSaver) -> StatekitSaver:
    """Return a saver over the same store, without what would stand in the way of a copy."""
    return StatekitSaver(saver.backend, serde=saver.serde, secret_keys=saver._secret_keys)


def _put_away(saver: StatekitSaver) -> None:
    """Give back what a saver opened beside its store, which is another one's."""
    if saver._lines is not None:
        saver._lines.close()
    saver._threads.close()


async def _copy(source: StatekitSaver, target: StatekitSaver, thread_id: str, is_async: bool) -> None:
    if is_async:
        await acopy_threads(source, target, [thread_id])
    else:
        copy_threads(source, target, [thread_id])


async def _thread(core: Core, session_id: str) -> Thread:
    """Return all there is of a session; its thread was compared after it was read."""
    cell, _ = await core.read(session_id)
    record = unpack(cell)
    if record.state == DELETING:
        raise missing()
    desk, name, bare = _desk(core.saver), to_text(session_id), _bare(core.saver)
    try:
        await _copy(bare, desk, session_id, core.is_async)
        labels = labels_of((await core.io(core.saver.backend.outline, name)).rows)
    finally:
        await core.io(_put_away, bare)
        await core.io(_put_away, desk)
    found: list[Row] = []
    below: int | None = None
    while rows := desk.backend.rows(Query(name, below_seq=below, limit=_PAGE)):
        found += rows
        below = rows[-1].seq
    frames, writes = desk.backend.fill(name, {key for row in found for key in row.keys}, [row.ref for row in found])
    return Thread(
        session_id=session_id,
        record=fields_of(record),
        rows=[row._replace(ref=row.ref._replace(thread="")) for row in reversed(found)],
        frames=frames,
        writes={ref._replace(thread=""): own for ref, own in writes.items()},
        labels={label: (ref.ns, ref.id) for label, ref in labels.items() if ref in writes},
    )


async def load(core: Core, memories: Memories | None, source: Target, as_new: bool) -> Sequence[Session]:
    """Store all sessions of a file, and its memories; nothing, if one is there already or cannot be read."""
    archive = await core.io(_read, source)
    found = [await core.io(_found, core.saver, thread, as_new) for thread in archive.threads]
    try:
        for user, text, said in archive.memories:
            required_user(user)
            checked_memory(text, said)
    except Misuse as error:
        raise Corrupt(f"a memory in the file cannot be one: {error}") from error
    ids = [each.session_id for each in found]
    if len(ids) != len(set(ids)):
        raise Corrupt("the file has a session twice")
    there = (await core.cells.cells(CellQuery(kind=KIND, refs=[ref_of(id) for id in ids]))).cells
    if there:
        raise Conflict(
            f"session {from_text(there[0].ref.thread)!r} is there already, and nothing was changed: delete it"
            " first, or pass as_new=True to make another one of it"
        )
    for each in found:
        await _store(core, each)
    # After all threads, so that who imports again after a crash finds none of the sessions.
    made = [await core.add(each.session_id, each.record) for each in found]
    if memories is not None:
        for user, text, said in archive.memories:
            await memories.kept(user, text, said, core.is_async)
    if None in made:
        raise Conflict(f"session {ids[made.index(None)]!r} was made meanwhile")
    return [session for session in made if session is not None]


def _read(source: Target) -> Archive:
    if not isinstance(source, str | os.PathLike):
        return read_archive(source)
    with Path(source).open("rb") as file:
        return read_archive(file)


class _Found(NamedTuple):
    """A session of a file as it is to be stored, its thread laid out."""

    session_id: str
    record: Record
    labels: Mapping[str, tuple[str, str]]
    desk: StatekitSaver


def _found(saver: StatekitSaver, thread: Thread, as_new: bool) -> _Found:
    """Return a session of a file, all of which was read once."""
    record = imported(thread.record, thread.session_id)
    session_id = new_session_id(record.agent, record.version, None) if as_new else thread.session_id
    desk = _desk(saver)
    try:
        _lay_out(desk, thread, to_text(session_id))
        for _ in desk.list({"configurable": {"thread_id": session_id}}):
            pass
    except Misuse as error:
        raise Corrupt(f"the thread of session {thread.session_id!r} in the file cannot be read: {error}") from error
    finally:
        _put_away(desk)
    if not set(thread.labels.values()) <= {(row.ref.ns, row.ref.id) for row in thread.rows}:
        raise Corrupt(f"a label of session {thread.session_id!r} in the file names a checkpoint that it does not have")
    if record.state not in (CLOSED, EXPIRED):
        record = replace(record, state=IDLE if record.state == ACTIVE else record.state, active_us=0, device="")
    return _Found(session_id, record, thread.labels, desk)


async def _store(core: Core, found: _Found) -> None:
    """Store a thread and its labels."""
    bare = _bare(core.saver)
    try:
        await _copy(found.desk, bare, found.session_id, core.is_async)
    finally:
        await core.io(_put_away, bare)
        await core.io(_put_away, found.desk)
    for label, (ns, id) in found.labels.items():
        at = {**thread_config(found.session_id)["configurable"], "checkpoint_ns": from_text(ns)}
        at["checkpoint_id"] = from_text(id)
        await core.side.call("label", {"configurable": at}, from_text(label))


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


async def sessions_of(core: Core, user_id: str) -> list[str]:
    """Return the ids of all sessions of a user, of all agents, also of those that are used meanwhile."""
    found: dict[str, None] = {}
    newest, known = 0, -1
    while known < len(found):  # one that is used while it is listed moves to the front
        known, upto, newest = len(found), newest, 0
        async with aclosing(core.merged([(group(user=required_user(user_id)), None)])) as listed:
            async for cell, _ in listed:
                newest = max(newest, cell.rev)
                if cell.rev <= upto:
                    break
                found[from_text(cell.ref.thread)] = None
    return list(found)


async def erase(core: Core, memories: Memories | None, user_id: str) -> Erased:
    """Remove all sessions and memories of a user; again until none is left, since some may come meanwhile."""
    gone: dict[str, None] = {}
    effects = 0
    while found := await sessions_of(core, user_id):
        for session_id in found:
            effects += await _effects(core, session_id)
            await core.remove(session_id)
            gone[session_id] = None
    forgotten = None if memories is None else len(await memories.dropped(user_id, core.is_async))
    left = []
    if gone and not await _scrubbed(core):
        left.append("old pages in the log of the SQLite file, until it is closed: somebody else was reading")
    if effects:
        left.append(f"{effects} keyed hashes of effects, so that none is made twice")
    tiers: Any = getattr(core.saver, "tiers", None)
    if tiers is not None and gone:
        stones = sum([bool(await core.io(tiers.is_deleted, to_text(session_id))) for session_id in gone])
        left.append(f"{stones} tombstones of threads, without their ids, so that no late upload brings one back")
    if gone and core.store == "object":  # which has no removal on condition
        left.append(f"empty marks of {len(gone)} records with the ids of their sessions, until a sweep after a day")
    return Erased(tuple(gone), forgotten, tuple(left))


async def _scrubbed(core: Core) -> bool:
    """Overwrite what was deleted, in a store that does not do so by itself; say whether that was done."""
    backend = core.saver.backend
    scrub: Any = getattr(getattr(backend, "inner", backend), "scrub", None)
    for _ in range(_SCRUBS if scrub is not None else 0):
        if await core.io(scrub):
            return True
        await core.cells.sleep(_SCRUB_PAUSE_S)
    return scrub is None


async def _effects(core: Core, session_id: str) -> int:
    """Return how many effects the ledger has of a session's thread."""
    asked = replace(effects_of(to_text(session_id)), limit=_PAGE)
    count = 0
    while cells := (await core.cells.cells(asked)).cells:
        count += sum(bool(cell.value) for cell in cells)
        asked = replace(asked, before=cells[-1].place)
    return count
