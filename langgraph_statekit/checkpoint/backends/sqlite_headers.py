"""Headers of threads in the SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

from langgraph_statekit.checkpoint.frames import is_sealed
from langgraph_statekit.checkpoint.records import Row, Save


def keep(db: sqlite3.Connection, tid: int, save: Save, header: bytes | None) -> None:
    """Give a thread the header of its first sealed save."""
    if save.header and not header:
        db.execute("UPDATE threads SET header = ? WHERE tid = ?", (save.header, tid))


def header_of(db: sqlite3.Connection, row: Row) -> bytes:
    """Return the header of a thread that a row shows to have one; others cost nothing."""
    return dict(headers(db, [row.ref.thread])).get(row.ref.thread, b"") if is_sealed(row.body) else b""


def headers(db: sqlite3.Connection, threads: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the threads that have a header, each with it."""
    for thread in threads:
        found = db.execute("SELECT thread, header FROM alive WHERE thread = ? AND header IS NOT NULL", (thread,))
        yield from found


def rewrap(db: sqlite3.Connection, thread: str, before: bytes, header: bytes) -> bool:
    """Replace a header if it is still the given one."""
    tid = "(SELECT tid FROM alive WHERE thread = ? AND header = ?)"
    return db.execute(f"UPDATE threads SET header = ? WHERE tid = {tid}", (header, thread, before)).rowcount == 1
