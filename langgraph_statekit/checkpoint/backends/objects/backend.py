"""The verbs on an object store. Uploads come first; the compare-and-set of the thread's head publishes them."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.bulk import change_thread, copy_thread, drop, sweep
from langgraph_statekit.checkpoint.backends.objects.cells import ObjectCells
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.heads import Heads
from langgraph_statekit.checkpoint.backends.objects.index import (
    counting,
    select,
    spans,
)
from langgraph_statekit.checkpoint.backends.objects.layout import (
    Entry,
    Head,
    decode_writes,
    digest,
    merged,
    own,
    visible,
)
from langgraph_statekit.checkpoint.backends.objects.reader import NO_HEAD, Gone, Reader, inline, merge
from langgraph_statekit.checkpoint.backends.objects.saving import Saving, in_parallel
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, effects_of
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery
from langgraph_statekit.checkpoint.expiry import Swept
from langgraph_statekit.checkpoint.facts import Fact, Usage
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.records import (
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    Stored,
    Write,
)
from langgraph_statekit.checkpoint.run import Threads
from langgraph_statekit.errors import Corrupt, StatekitError

S = TypeVar("S")
R = TypeVar("R")

_SEGMENTS_AT_ONCE: Final = 8
_LIST_ALL_ROWS: Final = 20


class ObjectBackend:
    """Threads in an object store.

    Args:
        driver: Makes the requests.
        prefix: Folder of all objects; without slash at its ends.
        retry_s: Seconds for which a failed request is repeated.
        grace_s: Seconds for which objects that are no longer needed stay for readers that are under way.
        parallel: Requests under way at once, besides those of the calling threads.
    """

    deltas = False
    sweeps = False

    def __init__(
        self,
        driver: Driver,
        *,
        prefix: str = "",
        retry_s: float = 10.0,
        grace_s: float = 60.0,
        parallel: int = 16,
    ) -> None:
        require_numbers(float, 0, retry_s=retry_s, grace_s=grace_s)
        self._bucket = self.bucket = Bucket(driver, retry_s, parallel)
        self.prefix = prefix
        self._reader = Reader(self._bucket, f"{prefix}/t" if prefix else "t")
        self._heads = Heads(self._bucket, self._reader)
        self._cells = ObjectCells(self._bucket, self._reader)
        self._grace_s = grace_s
        self._parallel = parallel
        self._lanes = Threads(parallel)
        self._saving = Saving(self._bucket, self._reader, self._heads, self._lanes, grace_s)

    def setup(self) -> None:
        """Nothing to create: objects need no schema."""

    def close(self) -> None:
        self._lanes.close()
        self._bucket.close()

    def spare(self) -> ObjectBackend:
        made = copy.copy(self)
        made._bucket = self._bucket.spare()
        made._reader = self._reader.beside(made._bucket)  # a renewal changes the head that the next save replaces
        made._heads = Heads(made._bucket, made._reader)
        made._lanes = Threads(self._parallel)
        made._saving = Saving(made._bucket, made._reader, made._heads, made._lanes, self._grace_s)
        return made

    def exists(self) -> bool:
        return self._bucket.exists()

    def facts(self) -> Sequence[Fact]:
        return self._bucket.facts()

    def usage(self, thread: str) -> Usage:
        return self._reader.usage(thread)

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        return self._saving.save(saves)

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        return self._each(self._heads.claim, claims)

    def _each(self, call: Callable[[S], R], items: Sequence[S]) -> Sequence[R | Exception]:
        results: dict[int, R | Exception] = {}

        def run(at: int) -> None:
            try:
                results[at] = call(items[at])
            except Exception as error:
                results[at] = error

        in_parallel(self._lanes, [partial(run, at) for at in range(len(items))])
        return [results[at] for at in range(len(items))]

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        return self._each(self._cells.change, changes)

    def cells(self, query: CellQuery) -> CellPage:
        return self._cells.read(query)

    def leases(self, query: LeaseQuery) -> LeasePage:
        return self._heads.leases(query)

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        early = None if id is None else self._listing(Ref(thread, ns, id))
        found = self._reader.stable(thread, lambda head: self._load(head, ns, id, early))
        self._refresh(thread, refresh)
        return found

    def _refresh(self, thread: str, refresh: bool) -> None:
        known = self._reader.known(thread) if refresh else None
        if known is not None and self._reader.alive(known[0]):
            with suppress(StatekitError):  # what was read is good all the same
                self._heads.live_on(thread)

    def _listing(self, ref: Ref) -> Future[Sequence[str]]:
        return self._bucket.start(self._bucket.list, self._reader.keys(ref.thread).writes_of(ref))

    def _load(self, head: Head, ns: str, id: str | None, early: Future[Sequence[str]] | None) -> Stored | None:
        if not head.stored:
            return None
        reading = None if early is None else self._bucket.start_all(self._bucket.get, own(head, early.result()))
        entry = self._find(head, ns, id)
        if entry is None:
            return None
        row = entry.row
        counted = counting(head, {row.ref: entry}, row.ref)
        listing = early or self._listing(row.ref)
        at = {key: entry.frames[key] for key in row.keys if key in entry.frames}
        found = self._reader.data(head.thread, head.epoch, {entry.data, *at.values()})
        reading = reading or self._bucket.start_all(self._bucket.get, own(head, listing.result()))
        return Stored(
            row._replace(body=found[entry.data].bodies[row.ref.ns, row.ref.id]),
            {key: Frame(key, found[name].frames[key]) for key, name in at.items()},
            merged(
                (),
                [
                    write
                    for future in reading
                    if (item := future.result())
                    for write in visible(decode_writes(item.data), counted)
                ],
            ),
            head.header,
        )

    def _find(self, head: Head, ns: str, id: str | None) -> Entry | None:
        if id is None:
            top = [entry for entry in head.entries if entry.row.ref.ns == ns and not entry.row.hidden]
            if top:  # the head lists the latest row of each namespace of which it lists any
                return top[-1]
        found = self._select(head, Query(head.thread, ns, id, limit=1))
        return found[0] if found else None

    def rows(self, query: Query) -> Sequence[Row]:
        found = self._reader.stable(query.thread, lambda head: self._rows(head, query))
        self._refresh(query.thread, query.refresh)
        return found

    def _rows(self, head: Head, query: Query) -> Sequence[Row]:
        entries = self._select(head, query)
        found = self._reader.data(head.thread, head.epoch, {entry.data for entry in entries})
        return [
            entry.row._replace(body=found[entry.data].bodies[entry.row.ref.ns, entry.row.ref.id]) for entry in entries
        ]

    def _select(self, head: Head, query: Query) -> Sequence[Entry]:
        """Return the newest matching entries, reading as few segments as show that no newer one is left out."""
        top = inline(head)
        left = list(head.segments)
        read = {}
        if query.before is not None and spans(head, query.before):
            read, left = self._reader.segments(head, left), []
        if query.hidden:
            left = [s for s in left if s.hidden]
        if query.id is not None:
            one = query.ns is not None and Ref(head.thread, query.ns, query.id) in top
            left = [s for s in left if s.min_id <= query.id <= s.max_id and not one]
        left = sorted(
            (s for s in left if query.below_seq is None or s.min_seq < query.below_seq),
            key=lambda s: s.max_seq,
        )
        while True:
            entries = {**merge(head, read), **top}
            floor = left[-1].max_seq if left else 0
            found = [row for row in select(entries.values(), query) if row.seq > floor][: query.limit]
            if len(found) == query.limit or not left:
                return [entries[row.ref] for row in found]
            read |= self._reader.segments(head, left[-_SEGMENTS_AT_ONCE:])
            del left[-_SEGMENTS_AT_ONCE:]

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        known = self._reader.known(thread)
        if known is not None and self._reader.over(known[0]):
            known = None
        listings = self._list_writes(thread, known[0] if known else None, refs)
        head, frames = NO_HEAD, None
        if known is not None:
            head = known[0]
            with suppress(Gone):
                frames = self._frames(head, set(keys), refs)
                counted = self._reader.counting(head, refs)
        if frames is None:
            head, frames, counted = self._reader.stable(
                thread, lambda head: (head, self._all_frames(head, set(keys)), self._reader.counting(head, refs))
            )
        where = {digest(ref.ns, ref.id): ref for ref in counted}
        listed = {
            key: where[folder]
            for listing in listings
            for key in own(head, listing.result())
            if (folder := key.split("/")[-2]) in where
        }
        writes: dict[Ref, list[Write]] = {ref: [] for ref in counted}
        for key, item in self._bucket.get_many(listed).items():
            ref = listed[key]
            writes[ref].extend(visible(decode_writes(item.data), counted[ref]))
        return frames, {ref: merged((), found) for ref, found in writes.items()}

    def _list_writes(self, thread: str, head: Head | None, refs: Collection[Ref]) -> list[Future[Sequence[str]]]:
        keys = self._reader.keys(thread)
        folders = [keys.writes_of(ref) for ref in refs]
        if head is not None:
            rows = len(head.entries) + sum(segment.rows for segment in head.segments)
            if len(refs) > 1 and rows <= _LIST_ALL_ROWS * len(refs):
                folders = [keys.writes]
        return [self._bucket.start(self._bucket.list, folder) for folder in folders]

    def _frames(self, head: Head, keys: set[bytes], refs: Collection[Ref]) -> Mapping[bytes, Frame] | None:
        """Return frames by the entries of `refs`; None if these do not cover the keys: the head is too old."""
        entries = inline(head)
        if any(ref not in entries and spans(head, ref.id) for ref in refs):
            entries = self._reader.index(head)
        if any(ref not in entries for ref in refs) or not keys.issubset(
            {key for ref in refs for key in entries[ref].row.keys}
        ):
            return None
        return self._read_frames(head, keys, [entries[ref] for ref in refs])

    def _all_frames(self, head: Head, keys: set[bytes]) -> Mapping[bytes, Frame]:
        entries = list(head.entries)
        if head.segments and not keys.issubset({key for entry in entries for key in entry.row.keys}):
            entries = list(self._reader.index(head).values())
        return self._read_frames(head, keys, entries)

    def _read_frames(self, head: Head, keys: set[bytes], entries: Sequence[Entry]) -> Mapping[bytes, Frame]:
        at = {key: name for entry in entries for key, name in entry.frames.items() if key in keys}
        found = self._reader.data(head.thread, head.epoch, set(at.values()))
        return {key: Frame(key, found[name].frames[key]) for key, name in at.items()}

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        head, index = self._reader.stable(thread, lambda head: (head, self._reader.index(head)))
        rows = sorted((e.row for e in index.values() if ns in (None, e.row.ref.ns)), key=lambda row: row.seq)
        frames = {key: Frame(key, b"") for entry in index.values() for key in entry.frames}
        return Outline(head.rev if head.stored else 0, rows, frames)

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        known = self._reader.known(thread)
        if known is None or not self._reader.alive(known[0]) or known[0].rev != rev:
            known = self._reader.fresh(thread)
        head, tag = known
        alive = self._reader.alive(head)
        if (head.rev if alive else 0) != rev:
            return False
        if not alive:
            return True
        try:
            return change_thread(self._bucket, self._reader, head, tag, change, self._grace_s)
        except Gone as gone:
            if self._reader.fresh(thread)[0].rev == rev:
                raise Corrupt(f"{gone} is missing in the store; restore the thread from a copy") from gone
            return False

    def drop_thread(self, thread: str) -> bool:
        drop(self._bucket, self._reader, self._heads, thread)
        return self._cells.any_of(effects_of(thread))

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        for pause_s in pauses(target):
            done = copy_thread(self._bucket, self._reader, self._heads, source, target, operation, header)
            if done is not None:
                return done
            time.sleep(pause_s)
        return False

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        return self._heads.headers(threads)

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        return [self._heads.rewrap(*change) for change in changes]

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        return self._reader.threads(run_ids)

    def sweep(self, orphans_us: int) -> Swept:
        self._cells.sweep()
        return sweep(self._bucket, self._reader, self._heads, orphans_us)
