"""Sessions to a file and back, and all of a user out of the store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final

from langgraph_statekit.checkpoint.cells import effects_of
from langgraph_statekit.checkpoint.labels import label_query, labels_of
from langgraph_statekit.checkpoint.records import Query, Row, from_text, to_text
from langgraph_statekit.errors import SessionMissing
from langgraph_statekit.sessions.archive import Thread, Writer, require_binary
from langgraph_statekit.sessions.core import Core, missing
from langgraph_statekit.sessions.desks import bare, copied, desk_of, put_away
from langgraph_statekit.sessions.memories import Memories
from langgraph_statekit.sessions.records import (
    fields_of,
    group,
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
        require_binary(target, "write")
        return await _export(core, memories, target, ids, user)
    path = Path(target)
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    try:
        with await core.io(_private, part) as file:
            done = await _export(core, memories, file, ids, user)
            await core.io(_sync, file)
        await core.io(part.replace, path)
    finally:
        await core.io(lambda: part.unlink(missing_ok=True))
    return done


def _private(path: Path) -> BinaryIO:
    """Open a new file that nobody else may read: all in it is in plain."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600), "wb")


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


async def _thread(core: Core, session_id: str) -> Thread:
    """Return all there is of a session; its thread was compared after it was read."""
    cell, _ = await core.read(session_id)
    record = unpack(cell)
    if record.hidden:
        raise missing()
    desk, name, source = desk_of(core.saver), to_text(session_id), bare(core.saver)
    try:
        await copied(source, desk, session_id, core.is_async)
    finally:
        await core.io(put_away, source)
        await core.io(put_away, desk)
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
        labels={label: (ref.ns, ref.id) for label, ref in labels_of(desk.backend.rows(label_query(name))).items()},
    )


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
    if core.search is not None:  # also of sessions that the store removed by itself
        await core.search.drop(required_user(user_id), None, core.is_async)
    forgotten = None if memories is None else len(await memories.dropped(user_id, core.is_async))
    left = []
    # Also if none is left: a call before this one may have been broken off here.
    if not await _scrubbed(core):
        left.append("old pages in the log of the SQLite file, until it is closed: somebody else was reading")
    if effects:
        left.append(f"{effects} keyed hashes of effects, with the ids of their sessions, so that none is made twice")
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
