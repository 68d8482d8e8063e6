"""How frames are saved in the SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from langgraph_statekit.checkpoint.records import HEAD_BYTES, Frame

_NEW_FRAME: Final = "INSERT INTO frames VALUES (?, ?, ?, ?, ?) ON CONFLICT (tid, key) DO NOTHING"
_REPLACE_FRAME: Final = "INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?, ?)"


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
