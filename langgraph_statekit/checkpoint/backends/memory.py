"""Checkpoints in this process: the reference for the other stores, and a saver for tests."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Self

from langgraph_statekit.checkpoint.backends.memory_thread import Thread, clock_us
from langgraph_statekit.checkpoint.cells import (
    Cell,
    CellChange,
    CellPage,
    CellQuery,
    CellRef,
    Changed,
    effects_of,
    is_news,
    page_of,
)
from langgraph_statekit.checkpoint.cells import decide as decide_change
from langgraph_statekit.checkpoint.claims import (
    Claim,
    Held,
    LeasePage,
    LeaseQuery,
    Misplaced,
    decide,
    fenced,
    is_late,
    is_listed,
    is_rekeyed,
    rekeyed,
)
from langgraph_statekit.checkpoint.expiry import Swept, is_over
from langgraph_statekit.checkpoint.facts import BAD, Fact, Usage
from langgraph_statekit.checkpoint.frames import find
from langgraph_statekit.checkpoint.records import (
    HEAD_BYTES,
    HEADER_ID_BYTES,
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    SaveRow,
    Stored,
    Write,
    is_made,
)
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.tenants import of_tenant
from langgraph_statekit.checkpoint.urls import query_options, refuse_query
from langgraph_statekit.errors import Misuse


class MemoryBackend:
    """Threads in a dict behind one lock."""

    deltas = True
    sweeps = True

    def __init__(self, threads: Mapping[str, Thread] | None = None) -> None:
        self._lock = threading.RLock()
        self._threads: dict[str, Thread] = dict(threads or {})
        self._leases: dict[str, Held] = {}
        self._cells: dict[CellRef, tuple[Cell, int | None]] = {}

    def setup(self) -> None:
        """Nothing to create."""

    def close(self) -> None:
        """Nothing to give back; the data stays with the object."""

    def spare(self) -> MemoryBackend:
        return self

    def exists(self) -> bool:
        return True

    def facts(self) -> Sequence[Fact]:
        return [Fact("memory", "this process", BAD, "nothing survives the end of this process: for tests only")]

    def _alive(self, name: str) -> Thread | None:
        """Return a thread, unless it has expired: then it is removed."""
        thread = self._threads.get(name)
        if thread is not None and is_over(thread.until_us, clock_us()):
            del self._threads[name]
            return None
        return thread

    def _live_on(self, name: str) -> None:
        thread = self._alive(name)
        if thread is not None:
            thread.live_on(self._leases.get(name))

    def usage(self, thread: str) -> Usage:
        with self._lock:
            held = self._alive(thread) or Thread()
            sizes = [len(row.body) + len(row.packed_keys) + len(row.packed_deltas) for row in held.rows.values()]
            sizes += [len(frame.stored) for frame in held.frames.values()]
            sizes += [len(write.data) for writes in held.writes.values() for write in writes.values()]
            return Usage(sum(sizes), len(held.writes.keys() - held.rows.keys()))

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        return [self._save(save) for save in saves]

    def _save(self, save: Save) -> int | Exception:
        with self._lock:
            if is_late(save.token, self._leases.get(save.thread)):
                return fenced(save)
            if is_rekeyed(save.header, (self._alive(save.thread) or Thread()).header):
                return rekeyed(save.thread)
            saved = self._save_row(save) if isinstance(save, SaveRow) else self._save_writes(save.ref, save.writes)
            if is_made(saved):
                self._threads[save.thread].header = self._threads[save.thread].header or save.header
                self._live_on(save.thread)
            return saved

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | None]:
        with self._lock:
            for claim in claims:
                granted = decide(claim, self._leases.get(claim.thread), clock_us())
                if granted is not None:
                    self._leases[claim.thread] = granted
                    self._live_on(claim.thread)
            return [self._leases.get(claim.thread) for claim in claims]

    def leases(self, query: LeaseQuery) -> LeasePage:
        with self._lock:
            now_us = clock_us()
            found = sorted(
                (thread, held)
                for thread, held in self._leases.items()
                if is_listed(query, held, now_us) and thread > query.after
            )[: query.limit]
            return LeasePage(found, now_us, found[-1][0] if len(found) == query.limit else "")

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        with self._lock:
            return [self._change_cell(change) for change in changes]

    def _change_cell(self, change: CellChange) -> Changed | Exception:
        if is_late(change.token, self._leases.get(change.thread)):
            return fenced(change)
        cell, now_us = self._cell(change.ref), clock_us()
        changed = decide_change(change, cell, now_us)
        if is_news(changed, cell):
            self._cells.pop(change.ref, None)
            if changed.cell is not None:
                until_us = None if change.ttl_us is None else now_us + change.ttl_us
                self._cells[change.ref] = changed.cell, until_us
        return changed

    def _cell(self, ref: CellRef) -> Cell | None:
        """Return a cell, unless it has expired: then it is removed."""
        cell, until_us = self._cells.get(ref, (None, None))
        if is_over(until_us, clock_us()):
            del self._cells[ref]
            return None
        return cell

    def cells(self, query: CellQuery) -> CellPage:
        with self._lock:
            found = [
                cell for ref in (query.refs if query.refs is not None else [*self._cells]) if (cell := self._cell(ref))
            ]
            return CellPage(found if query.refs is not None else page_of(query, found), clock_us())

    def _save_row(self, save: SaveRow) -> int | Exception:
        row, frames, at = save.row, save.frames, save.at
        with self._lock:
            thread = self._alive(row.ref.thread) or Thread()
            if save.parent and save.parent not in thread.rows and not thread.frames.keys() >= {*save.unsent()}:
                return 0
            if any(f.data and f.base and not find(thread.frames, *f.base) for f in frames):
                return 0
            known = thread.rows.get(row.ref)
            seq = known.seq if known else thread.free(row, at, save.seq)
            if save.seq not in (0, seq):
                return Misplaced(row.ref.thread, seq)
            self._threads[row.ref.thread] = thread
            thread.seq = max(thread.seq, seq)
            thread.rows[row.ref] = row._replace(seq=seq)
            thread.early.pop(row.ref, None)
            thread.ttl_us = thread.ttl_us if save.ttl_us is None else save.ttl_us
            for frame in frames:
                old = thread.frames.pop(frame.key, None)
                if old is not None and (frame.data is None or frame.check != old.check):
                    thread.frames[old.key + old.check] = old._replace(key=old.key + old.check)
                if frame.data is not None:
                    thread.frames[frame.key] = frame
            thread.rev += 1
            return thread.rev

    def _save_writes(self, ref: Ref, writes: Sequence[Write]) -> bool:
        with self._lock:
            thread = self._alive(ref.thread) or self._threads.setdefault(ref.thread, Thread())
            if ref not in thread.rows:
                thread.early.setdefault(ref, clock_us())
            stored = thread.writes.setdefault(ref, {})
            for write in writes:
                if write.idx < 0 or (write.task, write.idx) not in stored:
                    stored[write.task, write.idx] = write
            return True

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        with self._lock:
            held = self._alive(thread) or Thread()
            row = next((row for row in held.latest(ns) if id in (None, row.ref.id)), None)
            if row is None:
                return None
            if refresh:
                self._live_on(thread)
            frames, writes = held.fill(row.keys, [row.ref])
            return Stored(row, frames, writes.get(row.ref, ()), held.header)

    def rows(self, query: Query) -> Sequence[Row]:
        with self._lock:
            thread = self._alive(query.thread) or Thread()
            if query.refresh:
                self._live_on(query.thread)
            rows = thread.latest(query.ns, hidden=query.hidden)
            return [row for row in rows if self._selects(thread, query, row)][: query.limit]

    def _selects(self, thread: Thread, query: Query, row: Row) -> bool:
        if query.id not in (None, row.ref.id) or (query.below_seq is not None and row.seq >= query.below_seq):
            return False
        if query.before is None:
            return True
        bound = thread.rows.get(row.ref._replace(id=query.before))
        return row.ref.id < query.before if bound is None else row.seq < bound.seq

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        with self._lock:
            return (self._alive(thread) or Thread()).fill(keys, refs)

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        with self._lock:
            held = self._alive(thread) or Thread(rev=0)
            rows = sorted((row for row in held.rows.values() if ns in (None, row.ref.ns)), key=lambda row: row.seq)
            return Outline(
                held.rev,
                [row._replace(body=b"") for row in rows],
                {key: Frame(key, f.stored[:HEAD_BYTES]) for key, f in held.frames.items()},
            )

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        with self._lock:
            held = self._alive(thread) or Thread(rev=0)
            if held.rev != rev:
                return False
            for ref in change.drop:
                held.rows.pop(ref, None)
                held.writes.pop(ref, None)
            for key in change.drop_frames:
                held.frames.pop(key, None)
            for row in change.relink:
                if row.ref in held.rows:
                    held.rows[row.ref] = held.rows[row.ref].linked(row)
            held.rev += 1
            if not held.rows:
                self._threads.pop(thread, None)
            self._live_on(thread)
            return True

    def drop_thread(self, thread: str) -> bool:
        with self._lock:
            self._threads.pop(thread, None)
            self._leases.pop(thread, None)
            return bool(self.cells(effects_of(thread)).cells)

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        with self._lock:
            there = self._alive(target) or Thread()
            if there.rows:
                return there.copied_by == operation
            held = self._alive(source)
            if held is None or not held.rows:
                return True
            if held.header[:HEADER_ID_BYTES] != header[:HEADER_ID_BYTES]:
                raise rekeyed(source)
            if there.header and is_rekeyed(header, there.header):
                return False
            self._threads[target] = Thread(
                held.seq,
                there.rev + 1,
                operation,
                {
                    ref._replace(thread=target): row._replace(ref=ref._replace(thread=target))
                    for ref, row in held.rows.items()
                },
                dict(held.frames),
                {ref._replace(thread=target): dict(writes) for ref, writes in held.writes.items()} | there.writes,
                {ref._replace(thread=target): at for ref, at in held.early.items()} | there.early,
                held.ttl_us,
                header=header,
            )
            self._live_on(target)
            return True

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        with self._lock:
            return {name: held.header for name in threads if (held := self._alive(name)) and held.header}

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        with self._lock:
            return [self._rewrap(*change) for change in changes]

    def _rewrap(self, name: str, before: bytes, header: bytes) -> bool:
        held = self._alive(name)
        if held is None or held.header != before:
            return False
        held.header = header
        return True

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        with self._lock:
            found = sorted(
                name
                for name, held in self._threads.items()
                if not is_over(held.until_us, clock_us())
                and (
                    held.rows or held.header
                    if run_ids is None
                    else any(row.run_id in run_ids for row in held.rows.values())
                )
            )
        if found:
            yield found

    def sweep(self, orphans_us: int) -> Swept:
        with self._lock:
            threads = orphans = 0
            for each in [*self._cells]:
                self._cell(each)
            for name in list(self._threads):
                thread = self._alive(name)
                if thread is None:
                    threads += 1
                    continue
                gone = {ref for ref, at in thread.early.items() if at + orphans_us <= clock_us()}
                for ref in gone - thread.rows.keys():
                    orphans += bool(thread.writes.pop(ref, None))
                thread.early = {ref: at for ref, at in thread.early.items() if ref not in gone}
                if not thread.rows and not thread.writes:
                    del self._threads[name]
            return Swept(threads, orphans)


class MemoryStoreSaver(StatekitSaver):
    """A checkpointer in this process, for tests; the checkpoints go with the object.

    Args:
        tenant: As in other stores; no two savers of this class share anything anyway.
        options: As in `StatekitSaver`.
    """

    def __init__(self, *, tenant: str | None = None, **options: Any) -> None:
        of_tenant("", tenant)
        super().__init__(MemoryBackend(), tenant=tenant, **options)

    @classmethod
    @query_options
    def from_url(cls, url: str, **options: Any) -> Self:
        """Open `memory://`."""
        refuse_query(cls, url)
        if url != "memory://":
            raise Misuse("a store in memory has no name and no settings: use memory://")
        return cls(**options)
