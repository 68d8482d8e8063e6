"""A SQLite file as the upper one of two tiers: triggers note what changes, whoever changes it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Final

from langgraph_statekit.checkpoint.backends import sqlite_leases as leases
from langgraph_statekit.checkpoint.backends import sqlite_threads as life
from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.sqlite import SqliteBackend
from langgraph_statekit.checkpoint.backends.tiered.hot import Changes, State
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack
from langgraph_statekit.checkpoint.records import HEAD_BYTES, Ref, Row, Write

_STUB_US: Final = 24 * 3600 * 1_000_000
"""For how long a thread that went leaves a note of it; no thaw and no upload takes that long."""
_AHEAD_US: Final = 1_000_000
"""A change noted further ahead than this is from before the clock was set back, and due at once."""
_STATE: Final = """
SELECT t.tid, tier.born, tier.epoch, tier.complete OR e.born IS NOT NULL,
    NOT EXISTS (SELECT 1 FROM tier_touched d WHERE d.tid = t.tid), e.born IS NOT NULL, tier.gen
FROM alive t JOIN tier ON tier.tid = t.tid LEFT JOIN tier_ended e ON e.thread = t.thread WHERE t.thread = ?
"""
_ENDED: Final = """
SELECT thread, born, at_us FROM tier_ended
UNION SELECT t.thread, tier.born, t.until_us FROM threads t JOIN tier ON tier.tid = t.tid
WHERE t.until_us IS NOT NULL AND t.thread NOT IN (SELECT thread FROM alive WHERE until_us IS NOT NULL)
"""
_DIRTY: Final = """
SELECT thread FROM (
    SELECT t.thread, d.at_us FROM (SELECT tid, min(mark) AS at_us FROM tier_touched GROUP BY tid) d
    JOIN alive t ON t.tid = d.tid
    UNION SELECT thread, at_us FROM tier_ended
) WHERE at_us < ? OR at_us > ? ORDER BY at_us LIMIT ?
"""
_IDLE: Final = """
SELECT t.thread FROM tier JOIN alive t ON t.tid = tier.tid
WHERE tier.at_us < ? AND tier.epoch <> '' AND tier.complete AND t.ttl_us = 0
    AND NOT EXISTS (SELECT 1 FROM tier_touched d WHERE d.tid = t.tid)
ORDER BY tier.at_us LIMIT ?
"""
_TOUCHED: Final = "SELECT kind, ns, id FROM tier_touched WHERE tid = ?1"
_EVERYTHING: Final = f"""
{_TOUCHED} UNION ALL SELECT 1, ns, id FROM rows WHERE tid = ?1
UNION ALL SELECT 2, NULL, key FROM frames WHERE tid = ?1
UNION ALL SELECT 3, ns, id FROM writes WHERE tid = ?1
"""
_ROWS: Final = """
SELECT d.ns, d.id, r.parent, r.via, r.seq, r.keys, r.deltas, r.run_id, r.hidden, r.body
FROM (SELECT DISTINCT ns, id FROM ({}) WHERE kind = 1) d
LEFT JOIN rows r ON r.tid = ?1 AND r.ns = d.ns AND r.id = d.id
"""
_FRAMES: Final = """
SELECT d.id, f.data FROM (SELECT DISTINCT id FROM ({}) WHERE kind = 2) d
LEFT JOIN frames f ON f.tid = ?1 AND f.key = d.id
"""
_WRITES: Final = """
SELECT d.ns, d.id, w.task, w.idx, w.channel, w.path, w.data
FROM (SELECT DISTINCT ns, id FROM ({}) WHERE kind = 3) d
LEFT JOIN writes w ON w.tid = ?1 AND w.ns = d.ns AND w.id = d.id
"""
_STUB: Final = """
INSERT INTO tier_gone VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE
SET born = max(born, excluded.born), gen = max(gen, excluded.gen), at_us = excluded.at_us
"""
_END: Final = """
INSERT INTO tier_ended VALUES (?, ?, ?) ON CONFLICT (thread) DO UPDATE SET born = max(born, excluded.born)
"""


class SqliteTier:
    """What `Tier` asks of a SQLite file.

    Args:
        backend: The file.
    """

    def __init__(self, backend: SqliteBackend) -> None:
        self._reading, self._writing = backend._reading, backend._writing

    def setup(self) -> None:
        with self._reading() as db:
            if _is_set_up(db):
                return
        with self._writing() as db:
            if not _is_set_up(db):
                for statement in _statements():
                    db.execute(statement)

    def now_us(self) -> int:
        return time.time_ns() // 1_000_000 * 1000

    def state(self, thread: str) -> State | None:
        with self._reading() as db:
            found = db.execute(_STATE, (thread,)).fetchone()
            if found is not None:
                return _state(found)
            removed = "EXISTS (SELECT 1 FROM tier_ended WHERE thread = ?1)"
            find = f"SELECT max(born), {removed} FROM ({_ENDED}) WHERE thread = ?1"
            born, is_removed = db.execute(find, (thread,)).fetchone()
            return None if born is None else State(born, ended=True, here=False, over=not is_removed)

    def ended(self) -> Sequence[str]:
        with self._reading() as db:
            return [thread for (thread,) in db.execute(f"SELECT thread FROM ({_ENDED})")]

    def dirty(self, before_us: int, limit: int) -> Sequence[str]:
        with self._reading() as db:
            ahead_us = life.now_us() + _AHEAD_US
            return [thread for (thread,) in db.execute(_DIRTY, (before_us, ahead_us, limit))]

    def idle(self, before_us: int, limit: int) -> Sequence[str]:
        with self._reading() as db:
            return [thread for (thread,) in db.execute(_IDLE, (before_us, limit))]

    def changes(self, thread: str, whole: bool = False) -> Changes | None:
        with self._reading() as db:
            found = db.execute(_STATE, (thread,)).fetchone()
            if found is None:
                return None
            state, tid = _state(found), found[0]
            columns = "seq, copied_by, ttl_us, until_us, header"
            seq, copied_by, ttl_us, until_us, header = db.execute(
                f"SELECT {columns} FROM threads WHERE tid = ?", (tid,)
            ).fetchone()
            [mark] = db.execute("SELECT coalesce(max(mark), 0) FROM tier_touched WHERE tid = ?", (tid,)).fetchone()
            places = {}
            if whole or not state.complete:
                every = db.execute("SELECT ns, id, seq FROM rows WHERE tid = ?", (tid,))
                places = {(ns, id): at for ns, id, at in every}
            pack = _pack(db, thread, tid, whole)
            if ttl_us and until_us is None:
                until_us = life.end_of(db, thread, tid, ttl_us)
            return Changes(state, mark, pack, places, header or b"", seq, copied_by or "", ttl_us, until_us)

    def uploaded(self, thread: str, born: int, mark: int, epoch: str, gen: int, complete: bool) -> None:
        with self._writing() as db:
            tid = _tid(db, thread, born)
            if tid is None:
                return
            db.execute("DELETE FROM tier_touched WHERE tid = ? AND mark <= ?", (tid, mark))
            db.execute(
                "UPDATE tier SET complete = ?1 OR (complete AND epoch = ?2), epoch = ?2, at_us = max(at_us, ?3),"
                " gen = max(gen, ?4) WHERE tid = ?5",
                (complete, epoch, mark, gen, tid),
            )
            _let_end(db, thread, tid)
            db.execute("DELETE FROM tier_ended WHERE thread = ? AND born < ?", (thread, born))
            db.execute(_STUB, (digest(thread), born, gen, life.now_us()))

    def evict(self, thread: str, born: int, gen: int, leased: bool) -> bool:
        with self._writing() as db:
            tid = _tid(db, thread, born)
            if tid is None or db.execute("SELECT 1 FROM tier_touched WHERE tid = ?", (tid,)).fetchone():
                return False
            lease = leases.held(db, thread)
            if not leased and lease is not None and lease.until_us > life.now_us():
                return False
            [ttl_us] = db.execute("SELECT ttl_us FROM threads WHERE tid = ?", (tid,)).fetchone()
            if ttl_us and not leased:
                return False
            _drop(db, tid)
            db.execute(_STUB, (digest(thread), born, gen, life.now_us()))
            db.execute("DELETE FROM tier_gone WHERE at_us < ?", (life.now_us() - _STUB_US,))
            return True

    def restore(self, thread: str, epoch: str, gen: int, held: Thread) -> bool:
        with self._writing() as db:
            stub = db.execute("SELECT gen, born FROM tier_gone WHERE name = ?", (digest(thread),)).fetchone()
            last, before = stub or (0, 0)
            if last > gen or db.execute("SELECT 1 FROM tier_ended WHERE thread = ?", (thread,)).fetchone():
                return False
            if life.opened(db, thread) is not None:
                return False
            tid, _ = life.touch(db, thread, held.seq)
            db.execute("DELETE FROM tier WHERE tid = ?", (tid,))  # so that nothing counts as changed
            db.execute(
                "UPDATE threads SET copied_by = ?, ttl_us = ?, until_us = ?, header = ? WHERE tid = ?",
                (held.copied_by or None, held.ttl_us, held.until_us, held.header or None, tid),
            )
            _insert(db, tid, held)
            db.execute(
                "INSERT INTO tier VALUES (?, ?, ?, 1, ?, ?)",
                (tid, max(self.now_us(), before + 1), epoch, self.now_us(), gen),
            )
            return True

    def end(self, thread: str) -> bool:
        with self._writing() as db:
            leases.drop(db, thread)
            tid, born = life.tid_of(db, thread, "threads"), 0
            if tid is not None:
                [born] = db.execute("SELECT coalesce(max(born), 0) FROM tier WHERE tid = ?", (tid,)).fetchone()
                _drop(db, tid)
            found = db.execute("SELECT 1 FROM tier_ended WHERE thread = ?", (thread,)).fetchone()
            db.execute(_END, (thread, max(self.now_us(), born), life.now_us()))
            return bool(tid or found)

    def buried(self, thread: str, born: int, gen: int) -> None:
        with self._writing() as db:
            db.execute("DELETE FROM tier_ended WHERE thread = ? AND born <= ?", (thread, born))
            find = "SELECT t.tid FROM threads t JOIN tier USING (tid) WHERE t.thread = ? AND tier.born <= ?"
            expired = db.execute(f"{find} AND t.tid NOT IN (SELECT tid FROM alive)", (thread, born)).fetchone()
            if expired is not None:
                _drop(db, expired[0])
            db.execute(_STUB, (digest(thread), born, gen, life.now_us()))

    def forget(self, thread: str, born: int) -> None:
        with self._writing() as db:
            tid = _tid(db, thread, born)
            if tid is not None:
                _drop(db, tid)


def _is_set_up(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'tier_stay_on'").fetchone() is not None


def _statements() -> Iterator[str]:
    statement = ""
    for line in resources.files(__package__).joinpath("sqlite_tier.sql").read_text().splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _state(found: tuple[int, int, str, int, int, int, int]) -> State:
    _, born, epoch, complete, clean, ended, gen = found
    return State(born, epoch, bool(complete), bool(clean), bool(ended), gen=gen)


def _tid(db: sqlite3.Connection, thread: str, born: int) -> int | None:
    find = "SELECT t.tid FROM alive t JOIN tier ON tier.tid = t.tid WHERE t.thread = ? AND tier.born = ?"
    found = db.execute(find, (thread, born)).fetchone()
    return None if found is None else int(found[0])


def _let_end(db: sqlite3.Connection, thread: str, tid: int) -> None:
    """Give a thread that is in the cold store the end that it has there."""
    ttl_us, until_us = db.execute("SELECT ttl_us, until_us FROM threads WHERE tid = ?", (tid,)).fetchone()
    if ttl_us and until_us is None and not db.execute("SELECT 1 FROM tier_touched WHERE tid = ?", (tid,)).fetchone():
        life.set_end(db, thread, tid, ttl_us, None, ttl_us=ttl_us)
        db.execute("DELETE FROM tier_touched WHERE tid = ?", (tid,))  # the end is noted as a change too


def _drop(db: sqlite3.Connection, tid: int) -> None:
    for table in ("tier", "tier_touched"):  # first, so that the triggers note nothing
        db.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))
    life.drop(db, tid)


def _pack(db: sqlite3.Connection, thread: str, tid: int, whole: bool) -> Pack:
    touched = _EVERYTHING if whole else _TOUCHED
    rows, gone_rows = {}, set()
    for ns, id, parent, via, seq, keys, deltas, run_id, hidden, body in db.execute(_ROWS.format(touched), (tid,)):
        if seq is None:
            gone_rows.add((ns, id))
        else:
            rows[ns, id] = Row(Ref(thread, ns, id), parent, via, seq, keys, deltas, run_id, bool(hidden), body)
    frames = dict(db.execute(_FRAMES.format(touched), (tid,)))
    writes: dict[tuple[str, str], list[Write]] = {}
    for ns, id, task, *rest in db.execute(_WRITES.format(touched), (tid,)):
        each = writes.setdefault((ns, id), [])
        if task is not None:
            each.append(Write(task, *rest))
    return Pack(
        rows,
        {key: data for key, data in frames.items() if data is not None},
        writes,
        frozenset(gone_rows),
        frozenset(key for key, data in frames.items() if data is None),
    )


def _insert(db: sqlite3.Connection, tid: int, held: Thread) -> None:
    db.executemany(
        "INSERT INTO rows (tid, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                tid,
                r.ref.ns,
                r.ref.id,
                r.seq,
                r.parent,
                r.via,
                r.hidden,
                r.run_id,
                r.packed_keys,
                r.packed_deltas,
                r.body,
            )
            for r in sorted(held.rows.values(), key=lambda row: row.seq)
        ),
    )
    db.executemany(
        "INSERT INTO frames VALUES (?, ?, ?, ?, ?)",
        (
            (tid, frame.key, b"".join(frame.base) if frame.base else None, frame.stored[:HEAD_BYTES], frame.stored)
            for frame in held.frames.values()
        ),
    )
    db.executemany(
        "INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (tid, ref.ns, ref.id, w.task, w.idx, w.channel, w.path, w.data)
            for ref, each in held.writes.items()
            for w in each.values()
        ),
    )
    for ref in held.writes.keys() - held.rows.keys():
        life.note_early(db, tid, ref)
