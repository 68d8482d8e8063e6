"""Reading a thread: its head, the entries of its segments, its data objects; with caches of what was read."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.index import counting, overridden, spans, uses
from langgraph_statekit.checkpoint.backends.objects.layout import (
    Data,
    Entry,
    Head,
    Keys,
    Segment,
    decode_data,
    decode_head,
    decode_segment,
    digest,
    encode_data,
)
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.expiry import is_over
from langgraph_statekit.checkpoint.facts import Usage
from langgraph_statekit.checkpoint.records import Ref, SaveRow
from langgraph_statekit.errors import Corrupt

T = TypeVar("T")

NO_HEAD: Final = Head("")
_HEADS_BYTES: Final = 16 * 1024 * 1024
_DECODED_BYTES: Final = 16 * 1024 * 1024
_ENTRY_BYTES: Final = 200
_DATA_BYTES: Final = 32 * 1024 * 1024
_ATTEMPTS: Final = 8
_PAGE_THREADS: Final = 100
_LOCKS: Final = 128


class Gone(Exception):
    """A data object that a head names does not exist, or no longer."""


class Reader:
    """Reads threads below `root`; a missing thread has the head `NO_HEAD` and the tag `ABSENT`."""

    def __init__(self, bucket: Bucket, root: str) -> None:
        self.root = root
        self.marks = Cache[str, Any](_HEADS_BYTES, _HEADS_BYTES // 8)
        self.clock = f"{root.removesuffix('t')}clock"
        self._bucket = bucket
        self._turns = [threading.Lock() for _ in range(_LOCKS)]
        self._data = Cache[str, Data](_DATA_BYTES, _DATA_BYTES // 8)
        self._decoded = Cache[str, tuple[Head, str]](_DECODED_BYTES, _DECODED_BYTES // 8)

    def now_us(self) -> int:
        """Return the time of the store, or that of the host to those who may only read: asking stores an object."""
        return self._bucket.reading_us(self.clock)

    def over(self, head: Head) -> bool:
        """Say whether a thread has expired; asks for the time only if it has an end."""
        return head.until_us is not None and is_over(head.until_us, self.now_us())

    def alive(self, head: Head) -> bool:
        """Say whether a thread has rows and has not expired."""
        return head.stored and not self.over(head)

    def lived_on(self, head: Head) -> Head:
        """Return a head with its end set anew; asks for the time only if the thread has a time to live."""
        return head.lived_on(self._bucket.now_us(self.clock) if head.ttl_us else 0)

    def beside(self, bucket: Bucket) -> Reader:
        """Return a reader through another bucket that shares what was read."""
        made = copy.copy(self)
        made._bucket = bucket
        return made

    def turn(self, thread: str) -> threading.Lock:
        """Return what lets one writer of this process at a time replace the head: it knows the one before."""
        return self._turns[hash(thread) % _LOCKS]

    def keys(self, thread: str) -> Keys:
        """Return where a thread's objects are."""
        return Keys(f"{self.root}/{digest(thread)}")

    def fresh(self, thread: str) -> tuple[Head, str]:
        """Read a thread's head, and its tag."""
        found = self._bucket.get(self.keys(thread).head)
        self.remember(thread, *(found or (b"", ABSENT)))
        return self._head(thread, *(found or (b"", ABSENT)))

    def known(self, thread: str) -> tuple[Head, str] | None:
        """Return the head that was read or written last here; it may be out of date."""
        mark: tuple[bytes, str] | None = self.marks.get(self.keys(thread).head)
        return None if mark is None else self._head(thread, *mark)

    def remember(self, thread: str, data: bytes, tag: str, head: Head | None = None) -> None:
        """Note what a thread's head now is."""
        key = self.keys(thread).head
        self.marks.put(key, (data, tag), len(data))
        if head is not None:
            self._decoded.put(key, (head, tag), _ENTRY_BYTES * sum(1 + len(entry.row.keys) for entry in head.entries))

    def _head(self, thread: str, data: bytes, tag: str) -> tuple[Head, str]:
        if tag == ABSENT:
            return NO_HEAD, ABSENT
        decoded = self._decoded.get(self.keys(thread).head)
        if decoded is None or decoded[1] != tag:
            decoded = decode_head(data), tag
            self.remember(thread, data, tag, decoded[0])
        return decoded

    def stable(self, thread: str, read: Callable[[Head], T]) -> T:
        """Return what `read` makes of the thread's head; once more with the next one if its objects went away."""
        last = ABSENT
        for _ in range(_ATTEMPTS):
            head, tag = self.fresh(thread)
            try:
                return read(head if self.alive(head) else NO_HEAD)
            except Gone as gone:
                if tag == last:
                    raise Corrupt(f"{gone} is missing in the store; restore the thread from a copy") from gone
                last = tag
        raise Corrupt("data objects kept disappearing while a thread was read; try again")

    def data(self, thread: str, epoch: str, names: Collection[bytes]) -> Mapping[bytes, Data]:
        """Return data objects of a thread.

        Raises:
            Gone: One is missing.
        """
        keys = self.keys(thread)
        at = {name: keys.data(epoch, name) for name in names}
        found: dict[bytes, Data] = {name: data for name, key in at.items() if (data := self._data.get(key))}
        missing = [key for name, key in at.items() if name not in found]
        read = self._bucket.get_many(missing)
        for name, key in at.items():
            if name not in found:
                if key not in read:
                    raise Gone(f"object {key}")
                found[name] = decode_data(read[key].data)
                self.keep(key, found[name])
        return found

    def keep(self, key: str, data: Data) -> None:
        """Note a data object that will be read again."""
        size = sum(map(len, data.bodies.values())) + sum(map(len, data.frames.values())) + len(data.segment)
        self._data.put(key, data, size)

    def upload(self, thread: str, epoch: str, name: bytes, data: Data) -> None:
        """Store a data object."""
        key = self.keys(thread).data(epoch, name)
        self._bucket.put(key, encode_data(data))
        if data.segment:
            self.keep(key, data)

    def segments(self, head: Head, segments: Iterable[Segment]) -> dict[Segment, list[Entry]]:
        """Return the entries of segments as they are now."""
        wanted = list(segments)
        found = self.data(head.thread, head.epoch, {segment.name for segment in wanted})
        return {
            segment: [overridden(head, entry) for entry in decode_segment(head.thread, found[segment.name].segment)]
            for segment in wanted
        }

    def deep(self, head: Head) -> dict[Ref, Entry]:
        """Return the entries of all segments, also of rows whose entry in the head counts."""
        return merge(head, self.segments(head, head.segments))

    def lacks(self, head: Head, save: SaveRow) -> bool:
        """Whether retention removed what a checkpoint goes on from: its parent, and values that it does not bring."""
        if save.parent is None or save.parent in inline(head):
            return False  # as nearly always, without reading older entries
        entries = self.index(head)
        stored = {key for entry in entries.values() for key in entry.frames}
        return save.parent not in entries and not stored.issuperset(save.unsent())

    def index(self, head: Head) -> dict[Ref, Entry]:
        """Return all entries of a thread."""
        return {**self.deep(head), **inline(head)}

    def threads(self, run_ids: Collection[str] | None) -> Iterator[Sequence[str]]:
        """Yield thread ids in pages; with `run_ids`, those that may have a row of these runs."""
        folders = sorted(self._bucket.folders(self.root))
        for start in range(0, len(folders), _PAGE_THREADS):
            keys = [f"{self.root}/{folder}/head" for folder in folders[start : start + _PAGE_THREADS]]
            heads = [decode_head(found.data) for found in self._bucket.get_many(keys).values()]
            page = [head.thread for head in heads if not self.over(head) and _may_have(head, run_ids)]
            if page:
                yield page

    def counting(self, head: Head, refs: Collection[Ref]) -> Mapping[Ref, Collection[bytes]]:
        """Return the names of the batches of writes that count, by checkpoint; one that is gone is left out."""
        entries = inline(head)
        if any(ref not in entries and spans(head, ref.id) for ref in refs):
            entries = self.index(head)
        return {ref: counting(head, entries, ref) for ref in refs if ref in entries}

    def usage(self, thread: str) -> Usage:
        """Return what a thread takes up, with objects that are no longer needed."""
        stats = self._bucket.stats(self.keys(thread).root)
        stored = {digest(ref.ns, ref.id) for ref in self.stable(thread, self.index)}
        writes = {key.split("/")[-2] for key in stats if key.startswith(f"{self.keys(thread).writes}/")}
        return Usage(sum(stat.size_bytes for stat in stats.values()), len(writes - stored))

    def named(self, head: Head) -> set[bytes]:
        """Return the names of all data objects of a thread, unneeded ones too."""
        found = set(uses(self.index(head).values()))
        return found.union((segment.name for segment in head.segments), head.unneeded())


def _may_have(head: Head, run_ids: Collection[str] | None) -> bool:
    if run_ids is None:
        return head.stored or bool(head.header)
    return bool(head.segments) or any(entry.row.run_id in run_ids for entry in head.entries)


def inline(head: Head) -> dict[Ref, Entry]:
    """Return the entries in the head."""
    return {entry.row.ref: entry for entry in head.entries}


def merge(head: Head, segments: Mapping[Segment, list[Entry]]) -> dict[Ref, Entry]:
    """Return the entries of segments that were read; the later segment counts."""
    return {entry.row.ref: entry for segment in head.segments for entry in segments.get(segment, ())}
