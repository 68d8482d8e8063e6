"""What retention looks at of a thread in the SQLite file, and the removals that it plans."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable
from typing import Any, Final

from langgraph_statekit.checkpoint.backends.sqlite_frames import closure
from langgraph_statekit.checkpoint.labels import NAMESPACE
from langgraph_statekit.checkpoint.records import Change, Heads, Outline, Ref, Row

COLUMNS: Final = "r.ns, r.id, r.parent, r.via, r.seq, r.keys, r.deltas, r.run_id, r.hidden"

_ROWS: Final = f"SELECT {COLUMNS}, x'' FROM rows r WHERE r.tid = ? AND (?2 IS NULL OR r.ns = ?2) ORDER BY r.seq"
_HEADS: Final = f"""
WITH RECURSIVE spaces (ns) AS (
    SELECT min(ns) FROM rows WHERE tid = ?1
    UNION ALL SELECT (SELECT min(n.ns) FROM rows n WHERE n.tid = ?1 AND n.ns > s.ns) FROM spaces s WHERE s.ns NOT NULL
)
SELECT {COLUMNS}, x'' FROM spaces s JOIN rows r ON r.rowid = (
    SELECT h.rowid FROM rows h WHERE h.tid = ?1 AND h.ns = s.ns AND (NOT h.hidden OR h.ns = ?2)
    ORDER BY h.seq DESC LIMIT 1
) ORDER BY r.seq
"""
_COUNTS: Final = "SELECT (SELECT count(*) FROM rows WHERE tid = ?1), (SELECT count(*) FROM frames WHERE tid = ?1)"
_EARLY: Final = """
SELECT w.rowid FROM early e JOIN writes w ON (w.tid, w.ns, w.id) = (e.tid, e.ns, e.id)
WHERE e.tid = ? AND NOT EXISTS (SELECT 1 FROM rows r WHERE (r.tid, r.ns, r.id) = (e.tid, e.ns, e.id))
"""


def row_of(thread: str, columns: tuple[Any, ...]) -> Row:
    """Return a row from `COLUMNS` and its body."""
    ns, id, parent, via, seq, keys, deltas, run_id, hidden, body = columns
    return Row(Ref(thread, ns, id), parent, via, seq, keys, deltas, run_id, bool(hidden), body)


def outline(db: sqlite3.Connection, thread: str, ns: str | None, *, heads: bool) -> Outline:
    """Return a thread's outline, see `Backend.outline`."""
    known = db.execute("SELECT tid, rev FROM alive WHERE thread = ?", (thread,)).fetchone()
    if known is None:
        return Outline(0, (), {})
    tid, rev = known
    if heads:
        rows = [row_of(thread, columns) for columns in db.execute(_HEADS, (tid, NAMESPACE))]
        frames = closure(db, tid, {key for row in rows for key in row.keys}, "head")
        [counts] = db.execute(_COUNTS, (tid,))
        return Outline(rev, rows, frames, counts[0] - len(rows), counts[1] - len(frames))
    rows = [row_of(thread, columns) for columns in db.execute(_ROWS, (tid, ns))]
    stored = db.execute("SELECT key, head FROM frames WHERE tid = ?", (tid,))
    return Outline(rev, rows, Heads(dict(stored)))


def make(db: sqlite3.Connection, tid: int, change: Change) -> None:
    """Make a change, in a transaction."""
    keep, refs, keys = change.shorter
    if keep:
        _keep(db, tid, refs, keys)
    else:
        gone = [(tid, ref.ns, ref.id) for ref in refs]
        db.executemany("DELETE FROM rows WHERE tid = ? AND ns = ? AND id = ?", gone)
        db.executemany("DELETE FROM writes WHERE tid = ? AND ns = ? AND id = ?", gone)
        db.executemany("DELETE FROM frames WHERE tid = ? AND key = ?", [(tid, key) for key in keys])
    db.executemany(
        "UPDATE rows SET parent = ?, via = ?, hidden = ? WHERE tid = ? AND ns = ? AND id = ?",
        [(row.parent, row.via, row.hidden, tid, row.ref.ns, row.ref.id) for row in change.relink],
    )


def _keep(db: sqlite3.Connection, tid: int, refs: Collection[Ref], keys: Collection[bytes]) -> None:
    """Remove all but these rows with their writes, these frames, and writes without a row."""

    def found(table: str, name: str, names: Iterable[tuple[object, ...]]) -> list[int]:
        find = f"SELECT rowid FROM {table} WHERE tid = ? AND {name}"
        return [rowid for each in names for (rowid,) in db.execute(find, (tid, *each))]

    named = [(ref.ns, ref.id) for ref in refs]
    early = [rowid for (rowid,) in db.execute(_EARLY, (tid,))]
    stay = {
        "writes": found("writes", "ns = ? AND id = ?", named) + early,
        "rows": found("rows", "ns = ? AND id = ?", named),
        "frames": found("frames", "key = ?", [(key,) for key in keys]),
    }
    for table, rowids in stay.items():
        others = "rowid NOT IN (SELECT value FROM json_each(?))"
        db.execute(f"DELETE FROM {table} WHERE tid = ? AND {others}", (tid, json.dumps(rowids)))
