"""The verbs on an object store. Uploads come first; the compare-and-set of the thread's head publishes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.bulk import change_thread, copy, drop
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT, Driver
from langgraph_statekit.checkpoint.backends.objects.index import (
    needs_segments,
    overflow,
    placed,
    segment_of,
    select,
    spans,
    without,
)
from langgraph_statekit.checkpoint.backends.objects.layout import (
    Data,
    Entry,
    Head,
    decode_writes,
    digest,
    empty_head,
    encode_head,
    encode_segment,
    merged,
    new_name,
)
from langgraph_statekit.checkpoint.backends.objects.reader import NO_HEAD, Gone, Reader, inline, merge
from langgraph_statekit.checkpoint.backends.objects.turns import lane_of, pauses
from langgraph_statekit.checkpoint.backends.objects.writes import headers, own, rewrap, save_writes
from langgraph_statekit.checkpoint.claims import Claim, Held, fenced, is_rekeyed, rekeyed
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
    SaveRow,
    Stored,
    Write,
)
from langgraph_statekit.checkpoint.run import Threads
from langgraph_statekit.errors import Corrupt, Misuse, StatekitError

_LOCKS: Final = 128
_SEGMENTS_AT_ONCE: Final = 8
_LIST_ALL_ROWS: Final = 20
_UPLOAD_S: Final = 600


@dataclass(frozen=True, slots=True)
class _Upload:
    """A put's data object, and the entries that it takes over from the head."""

    epoch: str
    name: bytes
    given: Sequence[Entry]
    at: float


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
        self._bucket = Bucket(driver, retry_s, parallel)
        self._reader = Reader(self._bucket, f"{prefix}/t" if prefix else "t")
        self._grace_s = grace_s
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._lanes = Threads(parallel)

    def setup(self) -> None:
        """Nothing to create: objects need no schema."""

    def close(self) -> None:
        self._lanes.close()
        self._bucket.close()

    def spare(self) -> ObjectBackend:
        return self

    def exists(self) -> bool:
        return self._bucket.exists()

    def facts(self) -> Sequence[Fact]:
        return self._bucket.facts()

    def usage(self, thread: str) -> Usage:
        return self._reader.usage(thread)

    def save(self, saves: Sequence[Save]) -> Sequence[bool | Exception]:
        # What changes one object goes in turn, different objects at once.
        lanes: dict[tuple[str, Ref | None, str], list[int]] = {}
        for at, save in enumerate(saves):
            lanes.setdefault(lane_of(save), []).append(at)
        results: list[bool | Exception] = [True] * len(saves)

        def run(lane: Sequence[int]) -> None:
            for at in lane:
                try:
                    results[at] = self._save(saves[at])
                except Exception as error:  # one bad save fails alone
                    results[at] = error

        first, *others = lanes.values()
        under_way = [self._lanes.start(run, lane) for lane in others]
        run(first)
        for future in under_way:
            future.result()
        return results

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | None]:
        raise Misuse("object stores have no leases yet: use SQLite, Redis or Postgres where workers share threads")

    def _save(self, save: Save) -> bool:
        if save.token is not None:
            raise fenced(save)
        if isinstance(save, SaveRow):
            return self._save_row(save)
        save_writes(self._bucket, self._reader, save, self._opened)
        return True

    def _save_row(self, save: SaveRow) -> bool:
        row, frames = save.row, save.frames
        thread = row.ref.thread
        key = self._reader.keys(thread).head
        upload: _Upload | None = None
        for pause_s in pauses(thread):
            head, _ = self._opened(thread)
            if upload is None or upload.epoch != head.epoch or time.monotonic() - upload.at > _UPLOAD_S:
                upload = self._upload(head, row, frames)
            # One writer of this process at a time: it finds the head of the one before in the cache.
            with self._locks[hash(thread) % _LOCKS]:
                head, tag = self._opened(thread)
                if head.epoch != upload.epoch:
                    continue
                if any(entry.data == upload.name for entry in head.entries):
                    return True  # an earlier attempt, though another writer replaced the head before it was confirmed
                if is_rekeyed(save.header, head.header):
                    if self._reader.fresh(thread)[1] == tag:
                        raise rekeyed(thread)
                    continue
                try:
                    if self._reader.lacks(head, save):
                        if self._reader.fresh(thread)[1] == tag:
                            return False
                        continue
                    new, waste = self._placed(head, upload, save)
                except Gone as gone:
                    if self._reader.fresh(thread)[1] == tag:
                        raise Corrupt(f"{gone} is missing in the store; restore the thread from a copy") from gone
                    continue
                data = encode_head(new)
                published = self._bucket.swap(key, data, tag)
                if published is not None:
                    self._reader.remember(thread, data, published, new)
                else:
                    self._reader.fresh(thread)
            if published is not None:
                self._sweep(head, waste)
                return True
            time.sleep(pause_s)
        return False

    def _opened(self, thread: str) -> tuple[Head, str]:
        """Return the head of a thread, perhaps out of date; a new one is announced in the store first."""
        known = self._reader.known(thread)
        if known is not None and known[0].epoch:
            return known
        head = empty_head()
        data = encode_head(head)
        tag = self._bucket.swap(self._reader.keys(thread).head, data, ABSENT)
        if tag is None:
            return self._reader.fresh(thread)
        self._reader.remember(thread, data, tag)
        return head, tag

    def _upload(self, head: Head, row: Row, frames: Sequence[Frame]) -> _Upload:
        given = overflow(head.entries)
        data = Data(
            {(row.ref.ns, row.ref.id): row.body},
            {frame.key: frame.data for frame in frames if frame.data is not None},
            encode_segment(given) if given else b"",
        )
        upload = _Upload(head.epoch, new_name(), given, time.monotonic())
        self._reader.upload(row.ref.thread, head.epoch, upload.name, data)
        return upload

    def _placed(self, head: Head, upload: _Upload, save: SaveRow) -> tuple[Head, Sequence[bytes]]:
        deep = self._reader.deep(head) if needs_segments(head, save.row, save.frames) else {}
        new = placed(head, deep, save.row, save.frames, upload.name, save.at)
        if upload.given:
            new = without(new, upload.given, segment_of(upload.name, upload.given)) or new
        return replace(new, header=head.header or save.header).cleaned(self._grace_s)

    def _sweep(self, head: Head, names: Sequence[bytes]) -> None:
        if names:
            keys = self._reader.keys(head.thread)
            with suppress(StatekitError):  # the save is done; the next `apply` finds what stays
                self._bucket.delete([keys.data(head.epoch, name) for name in names])

    def load(self, thread: str, ns: str, id: str | None) -> Stored | None:
        early = None if id is None else self._listing(Ref(thread, ns, id))
        return self._reader.stable(thread, lambda head: self._load(head, ns, id, early))

    def _listing(self, ref: Ref) -> Future[Sequence[str]]:
        return self._bucket.start(self._bucket.list, self._reader.keys(ref.thread).writes_of(ref))

    def _load(self, head: Head, ns: str, id: str | None, early: Future[Sequence[str]] | None) -> Stored | None:
        if not head.alive:
            return None
        reading = None if early is None else self._bucket.start_all(self._bucket.get, own(head, early.result()))
        entry = self._find(head, ns, id)
        if entry is None:
            return None
        row = entry.row
        listing = early or self._listing(row.ref)
        at = {key: entry.frames[key] for key in row.keys if key in entry.frames}
        found = self._reader.data(head.thread, head.epoch, {entry.data, *at.values()})
        reading = reading or self._bucket.start_all(self._bucket.get, own(head, listing.result()))
        return Stored(
            row._replace(body=found[entry.data].bodies[row.ref.ns, row.ref.id]),
            {key: Frame(key, found[name].frames[key]) for key, name in at.items()},
            merged(
                (), [write for future in reading if (item := future.result()) for write in decode_writes(item.data)]
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
        return self._reader.stable(query.thread, lambda head: self._rows(head, query))

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
        listings = self._list_writes(thread, known[0] if known else None, refs)
        head, frames = NO_HEAD, None
        if known is not None:
            head = known[0]
            with suppress(Gone):
                frames = self._frames(head, set(keys), refs)
        if frames is None:
            head, frames = self._reader.stable(thread, lambda head: (head, self._all_frames(head, set(keys))))
        where = {digest(ref.ns, ref.id): ref for ref in refs}
        listed = {
            key: where[folder]
            for listing in listings
            for key in own(head, listing.result())
            if (folder := key.split("/")[-2]) in where
        }
        writes: dict[Ref, list[Write]] = {ref: [] for ref in refs}
        for key, item in self._bucket.get_many(listed).items():
            writes[listed[key]].extend(decode_writes(item.data))
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

    def outline(self, thread: str, ns: str | None = None) -> Outline:
        head, index = self._reader.stable(thread, lambda head: (head, self._reader.index(head)))
        rows = sorted((e.row for e in index.values() if ns in (None, e.row.ref.ns)), key=lambda row: row.seq)
        frames = {key: Frame(key, b"") for entry in index.values() for key in entry.frames}
        return Outline(head.rev if head.alive else 0, rows, frames)

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        known = self._reader.known(thread)
        if known is None or not known[0].alive or known[0].rev != rev:
            known = self._reader.fresh(thread)
        head, tag = known
        if (head.rev if head.alive else 0) != rev:
            return False
        if not head.alive:
            return True
        try:
            return change_thread(self._bucket, self._reader, head, tag, change, self._grace_s)
        except Gone as gone:
            if self._reader.fresh(thread)[0].rev == rev:
                raise Corrupt(f"{gone} is missing in the store; restore the thread from a copy") from gone
            return False

    def drop_thread(self, thread: str) -> None:
        drop(self._bucket, self._reader, thread)

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        for pause_s in pauses(target):
            done = copy(self._bucket, self._reader, source, target, operation, self._opened, header)
            if done is not None:
                return done
            time.sleep(pause_s)
        return False

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        return headers(self._bucket, self._reader, threads)

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        return [rewrap(self._bucket, self._reader, *change) for change in changes]

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        return self._reader.threads(run_ids)
