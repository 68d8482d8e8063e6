"""Frames and writes in the SQLite file: how they are saved and read."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from langgraph_statekit.checkpoint.records import HEAD_BYTES, Frame, Ref, Save, SaveWrites, Write

_NEW_FRAME: Final = "INSERT INTO frames VALUES (?, ?, ?, ?, ?) ON CONFLICT (tid, key) DO NOTHING"
_REPLACE_FRAME: Final = "INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?, ?)"
_WRITE: Final = "(?, ?, ?, ?, ?, ?, ?, ?)"
_SAVE_WRITES: Final = (
    ("INSERT INTO writes VALUES {} ON CONFLICT DO NOTHING", True),
    ("INSERT OR REPLACE INTO writes VALUES {}", False),
)
"""How writes are saved, and whether that is for those with a place of their own: the first one stays."""
_ROWS: Final = 32
"""Each statement gives up the interpreter, for which a thread then waits beside those that run tasks."""

_PARAMS: Final = 400
"""SQLite takes 500 terms in a recursive query, the recursive one among them."""
_FRAMES: Final = """
WITH RECURSIVE need(key) AS (
    VALUES {}
    UNION
    SELECT coalesce((SELECT b.key FROM frames b
        WHERE b.tid = f.tid AND b.key = substr(f.base, 1, 16) AND substr(b.head, 3, 4) = substr(f.base, 17)), f.base)
    FROM need JOIN frames f ON f.tid = ? AND f.key = need.key WHERE f.base IS NOT NULL
)
SELECT f.key, f.{} FROM need JOIN frames f ON f.tid = ? AND f.key = need.key
"""
_WRITES: Final = "SELECT task, idx, channel, path, data FROM writes WHERE tid = ? AND ns = ? AND id = ?"


def save_frame(db: sqlite3.Connection, tid: int, frame: Frame) -> None:
    """Save a frame, or remove what is stored under its key if it has no value."""
    values: tuple[Any, ...] = ()
    if frame.data is not None:
        base = b"".join(frame.base) if frame.base else None
        values = (tid, frame.key, base, frame.data[:HEAD_BYTES], frame.data)
        if db.execute(_NEW_FRAME, values).rowcount == 1:
            return
    old = db.execute("SELECT substr(head, 3, 4) FROM frames WHERE tid = ? AND key = ?", (tid, frame.key)).fetchone()
    if old is not None and (frame.data is None or old[0] != frame.check):
        # Deltas may build on the value that goes, so it stays under another key.
        moved = (frame.key + old[0], tid, frame.key)
        db.execute("UPDATE OR REPLACE frames SET key = ? WHERE tid = ? AND key = ?", moved)
    if values:
        db.execute(_REPLACE_FRAME, values)


def save_writes(db: sqlite3.Connection, tid: int, ref: Ref, writes: Sequence[Write]) -> None:
    """Save the writes of one checkpoint."""
    for statement, kind in _SAVE_WRITES:
        rows = [
            (tid, ref.ns, ref.id, each.task, each.idx, each.channel, each.path, each.data)
            for each in writes
            if (each.idx >= 0) is kind
        ]
        for at in range(0, len(rows), _ROWS):
            some = rows[at : at + _ROWS]
            db.execute(statement.format(",".join([_WRITE] * len(some))), [*chain.from_iterable(some)])


def joined(saves: Sequence[Save]) -> SaveWrites | None:
    """Return writes of parallel tasks to one checkpoint as one save, which takes as many statements as one of them."""
    writes = [save for save in saves if isinstance(save, SaveWrites)]
    if len(writes) < len(saves) or len({(save.ref, save.token, save.header) for save in writes}) > 1:
        return None
    return replace(writes[0], writes=[write for save in writes for write in save.writes])


def has(db: sqlite3.Connection, tid: int, key: bytes, check: bytes) -> bool:
    """Whether a delta's base is stored."""
    found = db.execute(
        "SELECT 1 FROM frames WHERE tid = ? AND key IN (?, ?) AND substr(head, 3, 4) = ?",
        (tid, key, key + check, check),
    )
    return found.fetchone() is not None


def has_all(db: sqlite3.Connection, tid: int, keys: Sequence[bytes]) -> bool:
    """Whether all these frames are stored."""
    found = "SELECT 1 FROM frames WHERE tid = ? AND key = ?"
    return all(db.execute(found, (tid, key)).fetchone() for key in keys)


def closure(
    db: sqlite3.Connection, tid: int | None, keys: Collection[bytes], column: str = "data"
) -> dict[bytes, Frame]:
    """Return the stored ones of some frames with all that they build on; with the column `head`, their heads."""
    wanted = list(keys)
    frames: dict[bytes, Frame] = {}
    for at in range(0, len(wanted), _PARAMS):
        some = wanted[at : at + _PARAMS]
        found = db.execute(_FRAMES.format(",".join(["(?)"] * len(some)), column), (*some, tid, tid))
        frames.update((key, Frame(key, data)) for key, data in found)
    return frames


def fill(
    db: sqlite3.Connection, tid: int | None, keys: Collection[bytes], refs: Collection[Ref]
) -> tuple[dict[bytes, Frame], dict[Ref, list[Write]]]:
    """Return the stored ones of some frames with all that they build on, and the writes of rows that are stored."""
    frames = closure(db, tid, keys)
    writes: dict[Ref, list[Write]] = {}
    for ref in refs:
        stored = db.execute("SELECT 1 FROM rows WHERE tid = ? AND ns = ? AND id = ?", (tid, ref.ns, ref.id))
        if stored.fetchone() is not None:
            writes[ref] = [Write(*columns) for columns in db.execute(_WRITES, (tid, ref.ns, ref.id))]
    return frames, writes
