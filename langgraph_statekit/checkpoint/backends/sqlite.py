"""Checkpoints in one SQLite file: the default that needs no server.

WAL with full sync: a verb that returned survives a crash of the process and of the machine. One write transaction
at a time, across processes too; readers never wait for it. Not for network file systems: SQLite cannot trust their
locks.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote

from langgraph_statekit.checkpoint.backends import sqlite_cells as cells
from langgraph_statekit.checkpoint.backends import sqlite_facts
from langgraph_statekit.checkpoint.backends import sqlite_headers as keys
from langgraph_statekit.checkpoint.backends import sqlite_leases as leases
from langgraph_statekit.checkpoint.backends import sqlite_outlines as outlines
from langgraph_statekit.checkpoint.backends import sqlite_threads as life
from langgraph_statekit.checkpoint.backends.sqlite_connections import REFUSED, Connections, explained, is_disk_error
from langgraph_statekit.checkpoint.backends.sqlite_frames import fill, has, has_all, joined, save_frame, save_writes
from langgraph_statekit.checkpoint.backends.sqlite_outlines import COLUMNS, row_of
from langgraph_statekit.checkpoint.backends.sqlite_scrub import scrubbed
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, effects_of
from langgraph_statekit.checkpoint.claims import (
    Claim,
    Held,
    LeasePage,
    LeaseQuery,
    Misplaced,
    fenced,
    is_rekeyed,
    rekeyed,
)
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX, Swept, is_over
from langgraph_statekit.checkpoint.facts import Fact, Usage
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.order import place
from langgraph_statekit.checkpoint.records import (
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    SaveRow,
    SaveWrites,
    Stored,
    Write,
)
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.tenants import path_of
from langgraph_statekit.checkpoint.urls import query_options, refuse_query
from langgraph_statekit.errors import DataError, Misuse, SchemaTooNew, StatekitError, Unavailable

FORMAT: Final = 3
_SCRIPTS: Final = {1: "sqlite.sql", 2: "sqlite_cells.sql", 3: "sqlite_leases.sql"}
"""What brings a file from the format before to this one."""

_PLACES: Final = """
SELECT tid, seq,
    (SELECT r.seq FROM rows r WHERE r.tid = t.tid AND r.ns = :ns AND r.id = :id),
    (SELECT r.seq FROM rows r WHERE r.tid = t.tid AND r.ns = :ns AND r.id = :parent), ttl_us, until_us, header
FROM threads t WHERE thread = :thread
"""
_SAVE_ROW: Final = """
INSERT INTO rows (tid, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tid, ns, id) DO UPDATE SET parent = excluded.parent, via = excluded.via, hidden = excluded.hidden,
    run_id = excluded.run_id, keys = excluded.keys, deltas = excluded.deltas, body = excluded.body
"""
_BOUNDS: Final = {
    "ns": "r.ns = :ns",
    "id": "r.id = :id",
    "below_seq": "r.seq < :below_seq",
    "before": "coalesce(r.seq < (SELECT b.seq FROM rows b WHERE b.tid = r.tid AND b.ns = r.ns AND b.id = :before),"
    " r.id < :before)",
}


class SqliteBackend:
    """Threads in one SQLite file; one connection writes, a few read.

    Args:
        path: The file; missing folders are made.
        lock_wait_s: Seconds to wait for other threads and processes before `Unavailable`.
        readers: Connections that read at once at most.
    """

    deltas = True
    sweeps = True

    def __init__(self, path: str | os.PathLike[str], *, lock_wait_s: float = 30.0, readers: int = 8) -> None:
        require_numbers(float, 0, lock_wait_s=lock_wait_s)
        require_numbers(int, 1, readers=readers)
        self.path = Path(path).absolute()
        self._lock_wait_s = lock_wait_s
        self._connections = Connections(self.path, lock_wait_s, readers)
        self._reading, self._writing = self._connections.reading, self._connections.writing
        self.scrub = partial(scrubbed, self._connections)

    def setup(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Misuse(f"the folder {self.path.parent} cannot be made: {error}") from error
        with self._reading() as db:
            if self._version(db) == FORMAT:
                return
        with self._writing() as db:
            for number in range(self._version(db) + 1, FORMAT + 1):
                for statement in resources.files(__package__).joinpath(_SCRIPTS[number]).read_text().split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {number}")

    def _version(self, db: sqlite3.Connection) -> int:
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT:
            raise SchemaTooNew(f"{self.path} has format {version}, this release reads up to {FORMAT}: upgrade it")
        return version

    def close(self) -> None:
        self._connections.close()

    def spare(self) -> SqliteBackend:
        return SqliteBackend(self.path, lock_wait_s=self._lock_wait_s, readers=1)

    def exists(self) -> bool:
        return sqlite_facts.exists(self.path)

    def facts(self) -> Sequence[Fact]:
        return list(sqlite_facts.facts(self.path, FORMAT))

    def usage(self, thread: str) -> Usage:
        with self._reading() as db:
            return sqlite_facts.usage(db, thread)

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        if len(saves) == 1:
            return [self._save_alone(saves[0])]
        try:
            if (whole := joined(saves)) is not None:
                with suppress(DataError):
                    if self._save_alone(whole) is True:
                        return [True] * len(saves)
            with self._writing() as db:
                return [self._save_apart(db, save) for save in saves]
        except Unavailable as error:
            if not is_disk_error(error.__cause__):
                raise
        return [self._save_on_full_disk(save) for save in saves]

    def _save_alone(self, save: Save) -> int | Exception:
        with self._writing() as db:
            return _save_one(db, save)

    def _save_on_full_disk(self, save: Save) -> int | Exception:
        try:
            return self._save_alone(save)
        except StatekitError as error:
            return error

    def _save_apart(self, db: sqlite3.Connection, save: Save) -> int | Exception:
        db.execute("SAVEPOINT one")
        try:
            return _save_one(db, save)
        except REFUSED as error:
            db.execute("ROLLBACK TO one")
            return explained(self.path, error)
        finally:
            if db.in_transaction:
                db.execute("RELEASE one")

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | None]:
        if all(claim.token is None for claim in claims):  # who waits for a lease must not hold up who saves
            with self._reading() as db:
                if (refused := leases.refused(db, claims)) is not None:
                    return refused
        with self._writing() as db:
            return [life.claim(db, claim) for claim in claims]

    def leases(self, query: LeaseQuery) -> LeasePage:
        with self._reading() as db:
            return leases.listed(db, query)

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        with self._writing() as db:
            return [cells.change(db, change) for change in changes]

    def cells(self, query: CellQuery) -> CellPage:
        with self._reading() as db:
            return cells.read(db, query)

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        with self._reading() as db:
            tid = life.tid_of(db, thread)
            found = _select_rows(db, tid, Query(thread, ns, id, limit=1))
            if not found:
                return None
            row = found[0]
            frames, writes = fill(db, tid, row.keys, [row.ref])
            header = keys.header_of(db, row)
            due = refresh and life.wants_refresh(db, thread)
        self._refresh(thread, due)
        return Stored(row, frames, writes.get(row.ref, ()), header)

    def rows(self, query: Query) -> Sequence[Row]:
        with self._reading() as db:
            found = _select_rows(db, life.tid_of(db, query.thread), query)
            due = query.refresh and life.wants_refresh(db, query.thread)
        self._refresh(query.thread, due)
        return found

    def _refresh(self, thread: str, due: bool) -> None:
        if due:
            with suppress(StatekitError), self._writing() as db:  # what was read is good all the same
                life.live_on(db, thread)

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        with self._reading() as db:
            return fill(db, life.tid_of(db, thread), keys, refs)

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        with self._reading() as db:
            return outlines.outline(db, thread, ns, heads=heads)

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        with self._writing() as db:
            known = db.execute("SELECT tid, rev FROM alive WHERE thread = ?", (thread,)).fetchone()
            if (known or (0, 0))[1] != rev:
                return False
            if known is None:
                return True
            tid = known[0]
            outlines.make(db, tid, change)
            db.execute("UPDATE threads SET rev = rev + 1 WHERE tid = ?", (tid,))
            if db.execute("SELECT 1 FROM rows WHERE tid = ?", (tid,)).fetchone() is None:
                life.drop(db, tid)
            life.live_on(db, thread)
            return True

    def drop_thread(self, thread: str) -> bool:
        with self._writing() as db:
            leases.drop(db, thread)
            tid = life.tid_of(db, thread, "threads")
            if tid is not None:
                life.drop(db, tid)
            return bool(cells.read(db, effects_of(thread)).cells)

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        with self._writing() as db:
            return life.copy(db, source, target, operation, header)

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        with self._reading() as db:
            return dict(keys.headers(db, threads))

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        with self._writing() as db:
            return [keys.rewrap(db, *change) for change in changes]

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        return life.pages(self._reading, run_ids)

    def sweep(self, orphans_us: int) -> Swept:
        with self._writing() as db:
            swept, more = life.sweep(db, orphans_us), cells.sweep(db)
            return swept._replace(more=swept.more or more)


def _save_one(db: sqlite3.Connection, save: Save) -> int | Exception:
    if leases.is_fenced(db, save.thread, save.token):
        return fenced(save)
    return _save_row(db, save) if isinstance(save, SaveRow) else _save_writes(db, save)


def _save_row(db: sqlite3.Connection, save: SaveRow) -> int | Exception:
    row = save.row
    thread, ns, id = row.ref
    known = db.execute(_PLACES, {"thread": thread, "ns": ns, "id": id, "parent": row.parent}).fetchone()
    tid, last, seq, parent, had_us, until_us, header = known or (0, 0, None, None, 0, None, None)
    if is_over(until_us, life.now_us()):
        life.drop(db, tid)
        return _save_row(db, save)
    if is_rekeyed(save.header, header):
        return rekeyed(thread)
    if save.parent and parent is None and not has_all(db, tid, save.unsent()):
        return 0
    if not all(has(db, tid, *frame.base) for frame in save.frames if frame.data and frame.base):
        return 0
    is_new = seq is None
    if seq is None:
        seq = save.seq if save.seq > last else place(save.at, last, parent or 0)
        while seq <= last and db.execute("SELECT 1 FROM rows WHERE tid = ? AND seq = ?", (tid, seq)).fetchone():
            seq += 1
    if save.seq not in (0, seq):
        return Misplaced(thread, seq)
    if is_new:
        db.execute("DELETE FROM early WHERE tid = ? AND ns = ? AND id = ?", (tid, ns, id))
    tid, rev = life.touch(db, thread, seq)
    packed = row.packed_keys, row.packed_deltas
    db.execute(_SAVE_ROW, (tid, ns, id, seq, row.parent, row.via, row.hidden, row.run_id, *packed, row.body))
    for frame in save.frames:
        save_frame(db, tid, frame)
    keys.keep(db, tid, save, header)
    ttl_us = had_us if save.ttl_us is None else save.ttl_us
    if ttl_us or had_us:
        same = until_us is not None and ttl_us == had_us and not life.asked(db, tid, row.ref)
        life.set_end(db, thread, tid, had_us, until_us, ttl_us=ttl_us, held=False if same else None)
    return rev


def _save_writes(db: sqlite3.Connection, save: SaveWrites) -> int | Exception:
    ref, writes = save.ref, save.writes
    known = life.opened(db, ref.thread)
    tid, ttl_us, until_us, header = known or (0, 0, None, None)
    if is_rekeyed(save.header, header):
        return rekeyed(ref.thread)
    tid = tid or life.touch(db, ref.thread, 0)[0]
    keys.keep(db, tid, save, header)
    save_writes(db, tid, ref, writes)
    life.note_early(db, tid, ref)
    asks = any(each.idx == INTERRUPT_IDX for each in writes)
    if ttl_us and (asks or until_us is not None):
        life.set_end(db, ref.thread, tid, ttl_us, until_us, ttl_us=ttl_us, held=None if asks else False)
    return True


def _select_rows(db: sqlite3.Connection, tid: int | None, query: Query) -> list[Row]:
    if tid is None:
        return []
    # Only bounds that are set: a condition such as `:id IS NULL OR ...` keeps SQLite from using an index.
    bounds = [f" AND {bound}" for name, bound in _BOUNDS.items() if getattr(query, name) is not None]
    statement = f"SELECT {COLUMNS}, r.body FROM rows r WHERE r.tid = :tid AND r.hidden = :hidden{''.join(bounds)}"
    found = db.execute(f"{statement} ORDER BY r.seq DESC LIMIT :limit", {"tid": tid, **asdict(query)})
    return [row_of(query.thread, columns) for columns in found]


class SqliteSaver(StatekitSaver):
    """A checkpointer in one SQLite file, made on first use; a checkpoint that was acknowledged survives power loss.

    Any number of threads and processes of one machine may use the file at once; one writes at a time.

    Args:
        path: The file; missing folders are made.
        tenant: Whose threads these are, any text: a tenant has a file of its own, `agent@acme.db`. None: of none.
        lock_wait_s: Seconds to wait for another writer before `Unavailable`.
        options: As in `StatekitSaver`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, tenant: str | None = None, lock_wait_s: float = 30.0, **options: Any
    ) -> None:
        if not isinstance(path, str | os.PathLike) or str(path).startswith("sqlite:"):
            raise Misuse("a SQLite saver needs the path of its file, no connection; for a URL use from_url")
        if str(path) in ("", ":memory:"):
            raise Misuse("a SQLite saver needs a file; for a store in memory use open_saver('memory://')")
        super().__init__(SqliteBackend(path_of(path, tenant), lock_wait_s=lock_wait_s), tenant=tenant, **options)

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
        path = url.removeprefix("sqlite:///")
        if path in ("", url):
            raise Misuse("the URL names no SQLite file: use sqlite:///name.db or sqlite:////absolute/name.db")
        return cls(unquote(path), **options)
