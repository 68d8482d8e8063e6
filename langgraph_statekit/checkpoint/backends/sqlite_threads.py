"""What concerns a thread of the SQLite file as a whole: its row, its end, its copy. This host's clock counts."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from langgraph_statekit.checkpoint.backends import sqlite_leases as leases
from langgraph_statekit.checkpoint.claims import Claim, Held, is_rekeyed, rekeyed
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX, Swept, end, is_due, is_held, is_over
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, Ref, Row

NOT_EMPTY: Final = "EXISTS (SELECT 1 FROM rows r WHERE r.tid = t.tid)"
_HAS_WRITES: Final = "EXISTS (SELECT 1 FROM writes w WHERE w.tid = t.tid)"
_PART: Final = 1000
_TABLES: Final = ("rows", "frames", "writes", "early", "threads")
_EARLY: Final = (
    "INSERT OR IGNORE INTO early SELECT ?1, ?2, ?3, ?4"
    " WHERE NOT EXISTS (SELECT 1 FROM rows WHERE (tid, ns, id) = (?1, ?2, ?3))"
)
_ASKED: Final = f"SELECT 1 FROM writes WHERE tid = ? AND ns = ? AND id = ? AND idx = {INTERRUPT_IDX}"

_THREADS: Final = (
    f"SELECT thread FROM alive t WHERE thread >= ? AND (header IS NOT NULL OR {NOT_EMPTY}) ORDER BY thread LIMIT 500"
)
_THREADS_OF_RUNS: Final = """
SELECT DISTINCT t.thread FROM rows r CROSS JOIN alive t ON t.tid = r.tid
WHERE t.thread >= ? AND r.run_id IN (SELECT value FROM json_each(?)) ORDER BY t.thread LIMIT 500
"""


def now_us() -> int:
    """Return the time."""
    return time.time_ns() // 1000


def tid_of(db: sqlite3.Connection, thread: str, table: str = "alive") -> int | None:
    """Return the number of a thread; None if there is none, or if it has expired."""
    found = db.execute(f"SELECT tid FROM {table} WHERE thread = ?", (thread,)).fetchone()
    return None if found is None else found[0]


def touch(db: sqlite3.Connection, thread: str, seq: int) -> tuple[int, int]:
    """Make the thread, or say that it changed, and return its number and rev; `seq` is in use from now on."""
    # A new life of a thread id starts at another rev, so that no plan made for the old one fits it.
    found: tuple[int, int] = db.execute(
        "INSERT INTO threads (thread, seq, rev) VALUES (?, ?, ?)"
        " ON CONFLICT (thread) DO UPDATE SET rev = rev + 1, seq = max(seq, excluded.seq) RETURNING tid, rev",
        (thread, seq, now_us()),
    ).fetchone()
    return found


def drop(db: sqlite3.Connection, tid: int) -> None:
    """Remove a thread."""
    for table in _TABLES:
        db.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))


def live_on(db: sqlite3.Connection, thread: str) -> None:
    """Set the end of a thread anew, unless it has expired."""
    found = db.execute("SELECT tid, ttl_us, until_us FROM alive WHERE thread = ?", (thread,)).fetchone()
    if found is not None:
        set_end(db, thread, *found, ttl_us=found[1])


def claim(db: sqlite3.Connection, wanted: Claim) -> Held | None:
    """Decide a claim and return the lease after it."""
    held = leases.claim(db, wanted)
    if held is not None and held.holder == wanted.holder:
        live_on(db, wanted.thread)
    return held


def wants_refresh(db: sqlite3.Connection, thread: str) -> bool:
    """Say whether a read is to set the end of a thread anew."""
    found = db.execute("SELECT ttl_us, until_us FROM alive WHERE thread = ?", (thread,)).fetchone()
    return found is not None and is_due(found[0], found[1], now_us())


def set_end(
    db: sqlite3.Connection,
    thread: str,
    tid: int,
    had_us: int,
    until_us: int | None,
    *,
    ttl_us: int,
    held: bool | None = None,
) -> None:
    """Give a thread a time to live and its end.

    Args:
        db: In a transaction.
        thread: Thread id.
        tid: Its number.
        had_us: The time to live that it had.
        until_us: The end that it had.
        ttl_us: The time to live that it has from now on.
        held: Whether it is interrupted; None to look.
    """
    if ttl_us == had_us == 0:
        return
    new_us = end_of(db, thread, tid, ttl_us, until_us, held=held)
    if (ttl_us, new_us) != (had_us, until_us):
        db.execute("UPDATE threads SET ttl_us = ?, until_us = ? WHERE tid = ?", (ttl_us, new_us, tid))


def end_of(
    db: sqlite3.Connection, thread: str, tid: int, ttl_us: int, until_us: int | None = None, *, held: bool | None = None
) -> int | None:
    """Return when a thread ends that something happens to now; see `set_end`."""
    lease = leases.held(db, thread)
    held = _held(db, tid) if held is None else held
    return end(ttl_us, until_us, now_us(), held=held, leased_us=lease.until_us if lease else 0)


def asked(db: sqlite3.Connection, tid: int, ref: Ref) -> bool:
    """Say whether a checkpoint has an interrupt among its writes."""
    return db.execute(_ASKED, (tid, ref.ns, ref.id)).fetchone() is not None


def _held(db: sqlite3.Connection, tid: int) -> bool:
    found = db.execute("SELECT ns, id FROM rows WHERE tid = ? AND NOT hidden ORDER BY seq DESC", (tid,))
    rows: Iterator[Row] = (Row(Ref("", ns, id)) for ns, id in found)

    class Asked:
        def __contains__(self, ref: object) -> bool:
            return isinstance(ref, Ref) and asked(db, tid, ref)

    return is_held(rows, Asked())


def opened(db: sqlite3.Connection, thread: str) -> tuple[int, int, int | None, bytes | None] | None:
    """Return number, time to live, end and header of a thread to save writes to; one that has expired is removed."""
    find = "SELECT tid, ttl_us, until_us, header FROM threads WHERE thread = ?"
    found: tuple[int, int, int | None, bytes | None] | None = db.execute(find, (thread,)).fetchone()
    if found is not None and is_over(found[2], now_us()):
        drop(db, found[0])
        return None
    return found


def note_early(db: sqlite3.Connection, tid: int, ref: Ref) -> None:
    """Note when writes came, if their checkpoint is not stored."""
    db.execute(_EARLY, (tid, ref.ns, ref.id, now_us()))


def pages(
    reading: Callable[[], AbstractContextManager[sqlite3.Connection]], run_ids: Collection[str] | None
) -> Iterator[Sequence[str]]:
    """Yield thread ids in pages, see `Backend.threads`; no connection is held between two of them."""
    statement = _THREADS if run_ids is None else _THREADS_OF_RUNS
    wanted = () if run_ids is None else (json.dumps(list(run_ids)),)
    start = ""
    while True:
        with reading() as db:
            page = [thread for (thread,) in db.execute(statement, (start, *wanted))]
        if not page:
            return
        yield page
        start = f"{page[-1]}\0"


def copy(db: sqlite3.Connection, source: str, target: str, operation: str, header: bytes) -> bool:
    """Copy a thread, see `Backend.copy_thread`."""
    there = db.execute("SELECT tid, copied_by, header FROM threads WHERE thread = ?", (target,)).fetchone()
    if there is not None and tid_of(db, target) is None:
        drop(db, there[0])
        there = None
    elif there is not None and db.execute("SELECT 1 FROM rows WHERE tid = ?", (there[0],)).fetchone():
        return bool(there[1] == operation)
    find = f"SELECT tid, seq, ttl_us, header FROM alive t WHERE thread = ? AND {NOT_EMPTY}"
    held = db.execute(find, (source,)).fetchone()
    if held is None:
        return True
    old, seq, ttl_us, wrapped = held
    if (wrapped or b"")[:HEADER_ID_BYTES] != header[:HEADER_ID_BYTES]:
        raise rekeyed(source)
    if is_rekeyed(header, there[2] if there else None):
        return False
    new, _ = touch(db, target, seq)
    db.execute("UPDATE threads SET copied_by = ?, header = ? WHERE tid = ?", (operation, header or None, new))
    columns = "ns, id, seq, parent, via, hidden, run_id, keys, deltas, body"
    db.execute(f"INSERT INTO rows SELECT ?, {columns} FROM rows WHERE tid = ? ORDER BY seq", (new, old))
    db.execute("INSERT INTO frames SELECT ?, key, base, head, data FROM frames WHERE tid = ?", (new, old))
    db.execute(
        "INSERT INTO writes SELECT ?, ns, id, task, idx, channel, path, data FROM writes s WHERE tid = ?"
        " AND NOT EXISTS (SELECT 1 FROM writes w WHERE (w.tid, w.ns, w.id) = (?, s.ns, s.id))",
        (new, old, new),
    )
    db.execute("INSERT OR IGNORE INTO early SELECT ?, ns, id, at_us FROM early WHERE tid = ?", (new, old))
    set_end(db, target, new, 0, None, ttl_us=ttl_us)
    return True


def sweep(db: sqlite3.Connection, orphans_us: int) -> Swept:
    """Remove a part of one expired thread, and some orphaned writes: little, as nobody else can write meanwhile."""
    threads = 0
    found = db.execute("SELECT tid FROM threads WHERE until_us <= ? ORDER BY until_us", (now_us(),)).fetchone()
    if found is not None:
        db.execute(
            "UPDATE threads SET until_us = 0 WHERE tid = ? AND until_us > 0", found
        )  # though the clock goes back
        for table in _TABLES:
            part = f"SELECT rowid FROM {table} WHERE tid = ? LIMIT {_PART}"
            if db.execute(f"DELETE FROM {table} WHERE rowid IN ({part})", found).rowcount == _PART:
                return Swept(more=True)
        threads = 1
    old = db.execute(
        f"SELECT tid, ns, id FROM early WHERE at_us <= ? LIMIT {_PART}", (now_us() - orphans_us,)
    ).fetchall()
    orphans = 0
    for key in old:
        db.execute("DELETE FROM early WHERE (tid, ns, id) = (?, ?, ?)", key)
        if db.execute("SELECT 1 FROM rows WHERE (tid, ns, id) = (?, ?, ?)", key).fetchone() is None:
            orphans += db.execute("DELETE FROM writes WHERE (tid, ns, id) = (?, ?, ?)", key).rowcount > 0
            db.execute(f"DELETE FROM threads AS t WHERE tid = ? AND NOT {NOT_EMPTY} AND NOT {_HAS_WRITES}", key[:1])
    return Swept(threads, orphans, more=found is not None or len(old) == _PART)
