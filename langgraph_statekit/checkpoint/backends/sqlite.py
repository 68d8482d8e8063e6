"""Checkpoints in one SQLite file: the default that needs no server.

WAL with full sync: a verb that returned survives a crash of the process and of the machine. One write transaction
at a time, across processes too; readers never wait. Not for network file systems, whose locks SQLite cannot trust.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from langgraph_statekit.checkpoint.order import place
from langgraph_statekit.checkpoint.records import (
    HEAD_BYTES,
    KEY_BYTES,
    NAME_BYTES,
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    SaveWrites,
    Stored,
    Write,
)
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.urls import query_options, refuse_query
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew, Unavailable

FORMAT: Final = 1
_PARAMS: Final = 500
_COLUMNS: Final = "r.ns, r.id, r.parent, r.via, r.seq, r.keys, r.deltas, r.run_id, r.hidden"

_SAVE_ROW: Final = """
INSERT INTO rows (tid, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body)
VALUES (:tid, :ns, :id, :seq, :parent, :via, :hidden, :run_id, :keys, :deltas, :body)
ON CONFLICT (tid, ns, id) DO UPDATE SET parent = excluded.parent, via = excluded.via, hidden = excluded.hidden,
    run_id = excluded.run_id, keys = excluded.keys, deltas = excluded.deltas, body = excluded.body
"""
_FRAMES: Final = """
WITH RECURSIVE need(key) AS (
    VALUES {}
    UNION
    SELECT b.key FROM need JOIN frames f ON f.tid = ? AND f.key = need.key AND f.base IS NOT NULL
    JOIN frames b ON b.tid = f.tid AND b.key IN (substr(f.base, 1, 16), f.base)
)
SELECT f.key, f.data FROM need JOIN frames f ON f.tid = ? AND f.key = need.key
"""
_KEEP_WRITE: Final = "INSERT OR IGNORE INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_REPLACE_WRITE: Final = "INSERT OR REPLACE INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ROWS: Final = f"""
SELECT {_COLUMNS}, r.body FROM rows r
WHERE r.tid = :tid AND NOT r.hidden AND (:ns IS NULL OR r.ns = :ns) AND (:id IS NULL OR r.id = :id)
  AND (:below_seq IS NULL OR r.seq < :below_seq)
  AND (:before IS NULL OR coalesce(
      r.seq < (SELECT b.seq FROM rows b WHERE b.tid = r.tid AND b.ns = r.ns AND b.id = :before), r.id < :before))
ORDER BY r.seq DESC LIMIT :limit
"""


class SqliteBackend:
    """Threads in one SQLite file; one connection writes, a few read."""

    deltas = True

    def __init__(self, path: str | os.PathLike[str], *, lock_wait_s: float = 30.0, readers: int = 8) -> None:
        self.path = Path(path).absolute()
        self._lock_wait_s = lock_wait_s
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._idle: deque[sqlite3.Connection] = deque(maxlen=readers)
        self._pid = os.getpid()

    def setup(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misuse(f"the folder {self.path.parent} cannot be made: {error}") from error
        with self._writing() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version > FORMAT:
                raise SchemaTooNew(f"{self.path} has format {version}, this release reads up to {FORMAT}: upgrade it")
            if version < FORMAT:
                for statement in resources.files(__package__).joinpath("sqlite.sql").read_text().split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {FORMAT}")

    def close(self) -> None:
        with self._write_lock:
            self._forget_after_fork()
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        while self._idle:
            self._idle.pop().close()

    def save(self, saves: Sequence[Save]) -> Sequence[bool | Exception]:
        with self._writing() as db:
            return [self._save_one(db, save) for save in saves]

    def _save_one(self, db: sqlite3.Connection, save: Save) -> bool:
        if isinstance(save, SaveWrites):
            return self._save_writes(db, save.ref, save.writes)
        tid, seq = self._touch(db, save.row.ref.thread)
        if not all(_has(db, tid, *frame.base) for frame in save.frames if frame.data and frame.base):
            return False
        ref = save.row.ref
        if _seq(db, tid, ref.ns, ref.id) is None:
            parent = _seq(db, tid, ref.ns, save.row.parent) if save.row.parent else None
            here = place(save.at, seq, parent or 0)
            while db.execute("SELECT 1 FROM rows WHERE tid = ? AND seq = ?", (tid, here)).fetchone():
                here += 1
            db.execute("UPDATE threads SET seq = max(seq, ?) WHERE tid = ?", (here, tid))
            seq = here
        db.execute(_SAVE_ROW, _row_values(tid, seq, save.row))
        for frame in save.frames:
            _save_frame(db, tid, frame)
        return True

    def _save_writes(self, db: sqlite3.Connection, ref: Ref, writes: Sequence[Write]) -> bool:
        found = _tid(db, ref.thread)
        tid = self._touch(db, ref.thread)[0] if found is None else found
        for write in writes:
            db.execute(
                _KEEP_WRITE if write.idx >= 0 else _REPLACE_WRITE,
                (tid, ref.ns, ref.id, write.task, write.idx, write.channel, write.path, write.data),
            )
        return True

    def load(self, thread: str, ns: str, id: str | None) -> Stored | None:
        with self._reading() as db:
            found = _select_rows(db, Query(thread, ns, id, limit=1))
            if not found:
                return None
            row = found[0]
            frames, writes = _fill(db, thread, row.keys, [row.ref])
            return Stored(row, frames, writes.get(row.ref, ()))

    def rows(self, query: Query) -> Sequence[Row]:
        with self._reading() as db:
            return _select_rows(db, query)

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        with self._reading() as db:
            return _fill(db, thread, keys, refs)

    def outline(self, thread: str, ns: str | None = None) -> Outline:
        with self._reading() as db:
            known = db.execute("SELECT tid, rev FROM threads WHERE thread = ?", (thread,)).fetchone()
            if known is None:
                return Outline(0, (), {})
            tid, rev = known
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM rows r WHERE r.tid = ? AND (? IS NULL OR r.ns = ?) ORDER BY r.seq",
                (tid, ns, ns),
            )
            return Outline(
                rev,
                [_row(thread, (*columns, b"")) for columns in rows],
                {
                    key: Frame(key, head)
                    for key, head in db.execute(
                        f"SELECT key, substr(data, 1, {HEAD_BYTES}) FROM frames WHERE tid = ?", (tid,)
                    )
                },
            )

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        with self._writing() as db:
            known = db.execute("SELECT tid, rev FROM threads WHERE thread = ?", (thread,)).fetchone()
            if (known or (0, 0))[1] != rev:
                return False
            if known is None:
                return True
            tid = known[0]
            gone = [(tid, ref.ns, ref.id) for ref in change.drop]
            db.executemany("DELETE FROM rows WHERE tid = ? AND ns = ? AND id = ?", gone)
            db.executemany("DELETE FROM writes WHERE tid = ? AND ns = ? AND id = ?", gone)
            db.executemany("DELETE FROM frames WHERE tid = ? AND key = ?", [(tid, key) for key in change.drop_frames])
            db.executemany(
                "UPDATE rows SET parent = ?, via = ?, hidden = ? WHERE tid = ? AND ns = ? AND id = ?",
                [(*link, tid, ref.ns, ref.id) for ref, link in change.relink.items()],
            )
            db.execute("UPDATE threads SET rev = rev + 1 WHERE tid = ?", (tid,))
            if db.execute("SELECT 1 FROM rows WHERE tid = ?", (tid,)).fetchone() is None:
                _drop(db, tid)
            return True

    def drop_thread(self, thread: str) -> None:
        with self._writing() as db:
            tid = _tid(db, thread)
            if tid is not None:
                _drop(db, tid)

    def copy_thread(self, source: str, target: str, operation: str) -> bool:
        with self._writing() as db:
            copied = db.execute(
                "SELECT copied_by FROM threads t"
                " WHERE thread = ? AND EXISTS (SELECT 1 FROM rows r WHERE r.tid = t.tid)",
                (target,),
            ).fetchone()
            if copied is not None:
                return bool(copied[0] == operation)
            old = db.execute("SELECT tid, seq FROM threads WHERE thread = ?", (source,)).fetchone()
            if old is None:
                return True
            new = self._touch(db, target)[0]
            db.execute("UPDATE threads SET seq = ?, copied_by = ? WHERE tid = ?", (old[1], operation, new))
            db.execute(
                "INSERT INTO rows SELECT ?, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body"
                " FROM rows WHERE tid = ? ORDER BY seq",
                (new, old[0]),
            )
            db.execute(
                "INSERT OR REPLACE INTO frames SELECT ?, key, base, data FROM frames WHERE tid = ?", (new, old[0])
            )
            db.execute(
                "INSERT OR IGNORE INTO writes SELECT ?, ns, id, task, idx, channel, path, data"
                " FROM writes WHERE tid = ?",
                (new, old[0]),
            )
            return True

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        wanted = None if run_ids is None else list(run_ids)
        last = ""
        while True:
            with self._reading() as db:
                page = [
                    thread
                    for (thread,) in db.execute(
                        "SELECT thread FROM threads t WHERE thread > ?"
                        " AND EXISTS (SELECT 1 FROM rows r WHERE r.tid = t.tid"
                        + ("" if wanted is None else f" AND r.run_id IN ({_marks(wanted)})")
                        + ") ORDER BY thread LIMIT 500",
                        (last, *(wanted or ())),
                    )
                ]
            if not page:
                return
            yield page
            last = page[-1]

    def _touch(self, db: sqlite3.Connection, thread: str) -> tuple[int, int]:
        # A new life of a thread id starts at another rev, so that no plan made for the old one fits it.
        tid, seq = db.execute(
            "INSERT INTO threads (thread, seq, rev) VALUES (?, 0, ?)"
            " ON CONFLICT (thread) DO UPDATE SET rev = rev + 1 RETURNING tid, seq",
            (thread, time.time_ns() // 1000),
        ).fetchone()
        return tid, seq

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        if not self._write_lock.acquire(timeout=self._lock_wait_s):
            raise Unavailable(f"another thread held the write lock of {self.path} for {self._lock_wait_s:g} s")
        try:
            self._forget_after_fork()
            with self._errors():
                if self._writer is None:
                    self._writer = self._patiently(self._connect)
                db = self._writer
                self._patiently(lambda: db.execute("BEGIN IMMEDIATE"))
                try:
                    yield db
                    db.execute("COMMIT")
                except BaseException:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                    raise
        finally:
            self._write_lock.release()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self._forget_after_fork()
        with self._errors():
            try:
                db = self._idle.pop()
            except IndexError:
                db = self._patiently(self._connect)
            try:
                self._patiently(lambda: db.execute("BEGIN"))
                yield db
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                if len(self._idle) == self._idle.maxlen:
                    db.close()
                else:
                    self._idle.append(db)

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            db.execute("PRAGMA synchronous = FULL")
        except BaseException:
            db.close()
            raise
        if mode != "wal":
            db.close()
            raise Misuse(f"{self.path} cannot use write-ahead logging (mode {mode!r}): put it on a local disk")
        return db

    def _patiently(self, call: Any) -> Any:
        """Repeat a call that needs a lock of the file, in short steps, so that each waiting process gets its turn."""
        deadline = time.monotonic() + self._lock_wait_s
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"another process held the write lock of {self.path} for {self._lock_wait_s:g} s"
                    ) from error
            time.sleep(random.uniform(0.001, 0.004))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
                raise Misuse(f"{self.path} cannot be written: {error}; check its folder and its permissions") from error
            raise Unavailable(f"{self.path}: {error}; nothing of this call was saved") from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(f"{self.path} is damaged or not a database: {error}") from error

    def _forget_after_fork(self) -> None:
        # A connection that crosses a fork can corrupt the file, so the child neither uses nor closes it.
        if self._pid != os.getpid():
            _ABANDONED.extend([self._writer, *self._idle])
            self._writer, self._idle, self._pid = None, deque(maxlen=self._idle.maxlen), os.getpid()


_ABANDONED: list[sqlite3.Connection | None] = []


def _marks(values: Collection[Any]) -> str:
    return ",".join("?" * len(values))


def _tid(db: sqlite3.Connection, thread: str) -> int | None:
    found = db.execute("SELECT tid FROM threads WHERE thread = ?", (thread,)).fetchone()
    return None if found is None else found[0]


def _seq(db: sqlite3.Connection, tid: int, ns: str, id: str) -> int | None:
    found = db.execute("SELECT seq FROM rows WHERE tid = ? AND ns = ? AND id = ?", (tid, ns, id)).fetchone()
    return None if found is None else found[0]


def _drop(db: sqlite3.Connection, tid: int) -> None:
    for table in ("rows", "frames", "writes", "threads"):
        db.execute(f"DELETE FROM {table} WHERE tid = ?", (tid,))


def _has(db: sqlite3.Connection, tid: int, key: bytes, check: bytes) -> bool:
    """Whether a delta's base is stored."""
    found = db.execute(
        "SELECT 1 FROM frames WHERE tid = ? AND (key = ? AND substr(data, 3, 4) = ? OR key = ?)",
        (tid, key, check, key + check),
    )
    return found.fetchone() is not None


def _save_frame(db: sqlite3.Connection, tid: int, frame: Frame) -> None:
    old = db.execute("SELECT substr(data, 3, 4) FROM frames WHERE tid = ? AND key = ?", (tid, frame.key)).fetchone()
    if old is not None and (frame.data is None or old[0] != frame.check):
        # Deltas may build on the value that goes, so it stays under another key.
        moved = (frame.key + old[0], tid, frame.key)
        db.execute("UPDATE OR REPLACE frames SET key = ? WHERE tid = ? AND key = ?", moved)
    if frame.data is not None:
        base = b"".join(frame.base) if frame.base else None
        db.execute("INSERT OR REPLACE INTO frames VALUES (?, ?, ?, ?)", (tid, frame.key, base, frame.data))


def _row_values(tid: int, seq: int, row: Row) -> dict[str, Any]:
    return {
        "tid": tid,
        "ns": row.ref.ns,
        "id": row.ref.id,
        "seq": seq,
        "parent": row.parent,
        "via": row.via,
        "hidden": row.hidden,
        "run_id": row.run_id,
        "keys": b"".join(row.keys),
        "deltas": b"".join(row.deltas),
        "body": row.body,
    }


def _row(thread: str, columns: tuple[Any, ...]) -> Row:
    ns, id, parent, via, seq, keys, deltas, run_id, hidden, body = columns
    return Row(
        Ref(thread, ns, id),
        parent,
        via,
        seq,
        _split(keys, KEY_BYTES),
        _split(deltas, NAME_BYTES),
        run_id,
        bool(hidden),
        body,
    )


def _split(packed: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(packed[at : at + size] for at in range(0, len(packed), size))


def _select_rows(db: sqlite3.Connection, query: Query) -> list[Row]:
    tid = _tid(db, query.thread)
    if tid is None:
        return []
    values = {
        "tid": tid,
        "ns": query.ns,
        "id": query.id,
        "before": query.before,
        "below_seq": query.below_seq,
        "limit": query.limit,
    }
    return [_row(query.thread, columns) for columns in db.execute(_ROWS, values)]


def _fill(
    db: sqlite3.Connection, thread: str, keys: Collection[bytes], refs: Collection[Ref]
) -> tuple[dict[bytes, Frame], dict[Ref, list[Write]]]:
    tid = _tid(db, thread)
    wanted = list(keys)
    frames: dict[bytes, Frame] = {}
    for at in range(0, len(wanted), _PARAMS):
        some = wanted[at : at + _PARAMS]
        found = db.execute(_FRAMES.format(",".join(["(?)"] * len(some))), (*some, tid, tid))
        frames.update((key, Frame(key, data)) for key, data in found)
    writes: dict[Ref, list[Write]] = {}
    for ref in refs:
        stored = [
            Write(*columns)
            for columns in db.execute(
                "SELECT task, idx, channel, path, data FROM writes WHERE tid = ? AND ns = ? AND id = ?",
                (tid, ref.ns, ref.id),
            )
        ]
        if stored:
            writes[ref] = stored
    return frames, writes


class SqliteSaver(StatekitSaver):
    """A checkpointer in one SQLite file, made on first use; a checkpoint that was acknowledged survives power loss.

    Any number of threads and processes of one machine may use the file at once; one writes at a time.

    Args:
        path: The file; missing folders are made.
        lock_wait_s: Seconds to wait for another writer before `Unavailable`.
        options: As in `StatekitSaver`.
    """

    def __init__(self, path: str | os.PathLike[str], *, lock_wait_s: float = 30.0, **options: Any) -> None:
        if str(path) in ("", ":memory:"):
            raise Misuse("a SQLite saver needs a file; for a store in memory use open_saver('memory://')")
        super().__init__(SqliteBackend(path, lock_wait_s=lock_wait_s), **options)

    @classmethod
    @query_options
    def from_url(cls, url: str, **options: Any) -> Self:
        """Open `sqlite:///relative/path.db` or `sqlite:////absolute/path.db`.

        Args:
            url: The file, with `%20` and the like undone. Options may stand in its query.
            options: As in the class.

        Raises:
            Misuse: The URL names no file, or an option is unknown.
        """
        refuse_query(cls, url)
        scheme, _, path = url.partition(":///")
        if scheme != "sqlite" or not path:
            raise Misuse(f"{url!r} names no SQLite file: use sqlite:///name.db or sqlite:////absolute/name.db")
        return cls(unquote(path), **options)
