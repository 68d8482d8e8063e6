"""What stands in a thread's objects, and where they are. Pure: no requests in here.

A thread is a folder named by a hash of its id: `head`, replaced by compare-and-set only, says what is part of the
thread; `<epoch>/<name>` are immutable data objects, uploaded before a head names them; `w/<checkpoint>/<task>` holds
the writes of one task, in batches. A batch without a name counts at once; one that was saved under a lease has a name,
and counts when the head, which also holds the lease, has taken the name up.

The epoch is random for each life of a thread, and nothing is uploaded under an epoch that no head has announced: so
what a late writer uploads to a deleted thread is never seen, and a deletion that runs while the next life begins can
tell the two apart.

The head lists the newest rows itself. Older ones stand in segments, each part of a data object of a later put.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

import ormsgpack

from langgraph_statekit.checkpoint.claims import Held
from langgraph_statekit.checkpoint.expiry import end, is_held
from langgraph_statekit.checkpoint.frames import seal, unseal
from langgraph_statekit.checkpoint.options import require_texts
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, Ref, Row, Write, split
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew

FORMAT: Final = 1
_NAME: Final = 16
_NONE: Final = bytes(_NAME)
_BATCH: Final = 8
_MOST_WAITS: Final = 64
_PREFIX: Final = re.compile(r"[0-9a-zA-Z_-][0-9a-zA-Z_.-]{0,199}(/[0-9a-zA-Z_-][0-9a-zA-Z_.-]{0,199})*")


def digest(*parts: str) -> str:
    """Return 32 hex digits for texts without NUL."""
    return sha256("\0".join(parts).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Keys:
    """Where a thread's objects are."""

    root: str

    @property
    def head(self) -> str:
        return f"{self.root}/head"

    @property
    def writes(self) -> str:
        return f"{self.root}/w"

    def data(self, epoch: str, name: bytes) -> str:
        return f"{self.root}/{epoch}/{name.hex()}"

    def writes_of(self, ref: Ref) -> str:
        return f"{self.root}/w/{digest(ref.ns, ref.id)}"

    def task(self, ref: Ref, task: str, header: bytes) -> str:
        return f"{self.writes_of(ref)}/{digest(task)}{'-' * bool(header)}{mark_of(header)}"


def mark_of(header: bytes) -> str:
    """Return what the names of sealed writes end with; empty without a header."""
    return header[:HEADER_ID_BYTES].hex()


def new_name() -> bytes:
    """Return a name for a data object."""
    return os.urandom(_NAME)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the index: the row without its body, and the data objects that hold its body and frames.

    `frames` names the object of each stored frame of `row.keys`, and of frames that were put with the row only;
    `batches` are the names of batches of its writes that count, joined.
    """

    row: Row
    data: bytes
    frames: Mapping[bytes, bytes]
    batches: bytes = b""


@dataclass(frozen=True, slots=True)
class Segment:
    """Where older entries stand, which ids and places in the order they span, and whether some are hidden."""

    name: bytes
    rows: int
    max_seq: int
    min_seq: int
    min_id: str
    max_id: str
    hidden: bool = True


@dataclass(frozen=True, slots=True)
class Head:
    """What a thread consists of.

    Attributes:
        epoch: The folder of its data objects.
        thread: Its id; empty without rows and header.
        rev: See `Outline`.
        seq: The last one given.
        copied_by: The operation that made the thread as a copy.
        entries: The newest rows in order of `seq`, and older ones that are heads or were stored again.
        segments: The others; of entries of one row the head's counts, then that of the later segment.
        overrides: Frames that were replaced (or, with an empty name, removed) since their rows went to segments.
        garbage: (seconds of the clock, names) of objects that are no longer needed since then.
        lease: The lease, or what its last holder left of it: without a holder after a deletion.
        early: Batches of writes that count, joined, by (namespace, id) of checkpoints that `entries` did not have then.
        ttl_us: Time to live, see `expiry`.
        until_us: When it ends, by the clock of the store; None: it does not.
        waits: (namespace, id) of the last checkpoints that got an interrupt; without a time to live, not all of them.
        header: Of the data key, see `SaveRow`. It is there before writes that are sealed with it, and their names tell
            it: so what a late writer seals for an earlier life of the thread is never seen.
    """

    epoch: str
    thread: str = ""
    rev: int = 0
    seq: int = 0
    copied_by: str = ""
    entries: Sequence[Entry] = ()
    segments: Sequence[Segment] = ()
    overrides: Mapping[bytes, bytes] = field(default_factory=dict)
    garbage: Sequence[tuple[int, bytes]] = ()
    lease: Held | None = None
    early: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    ttl_us: int = 0
    until_us: int | None = None
    waits: Sequence[tuple[str, str]] = ()
    header: bytes = b""

    @property
    def stored(self) -> bool:
        """Whether the thread has rows, expired or not."""
        return bool(self.entries or self.segments)

    def lived_on(self, now_us: int) -> Head:
        """Return the head with its end set anew."""
        visible = (entry.row for entry in reversed(self.entries) if not entry.row.hidden)
        held = is_held(visible, {Ref(self.thread, *wait) for wait in self.waits})
        leased_us = self.lease.until_us if self.lease else 0
        until_us = end(self.ttl_us, self.until_us, now_us, held=held, leased_us=leased_us)
        return replace(self, until_us=until_us, waits=self.waits[-_MOST_WAITS:])

    def unneeded(self) -> list[bytes]:
        """Return the names in the garbage."""
        return [name for _, names in self.garbage for name in split(names, _NAME)]

    def cleaned(self, grace_s: float) -> tuple[Head, list[bytes]]:
        """Return the head without the garbage that is so old that no reader needs it, and that garbage."""
        limit = time.time() - grace_s
        old = replace(self, garbage=[(at, names) for at, names in self.garbage if at <= limit])
        left = replace(self, garbage=[(at, names) for at, names in self.garbage if at > limit])
        return left, old.unneeded()


def empty_head() -> Head:
    """Return the head of a new life of a thread."""
    return Head(os.urandom(8).hex(), rev=int.from_bytes(os.urandom(6), "big") + 1)


@dataclass(frozen=True, slots=True)
class Data:
    """A data object: bodies by (namespace, id), frames by key, and entries that the head gave away."""

    bodies: Mapping[tuple[str, str], bytes] = field(default_factory=dict)
    frames: Mapping[bytes, bytes] = field(default_factory=dict)
    segment: bytes = b""


def encode_head(head: Head) -> bytes:
    """Pack a head."""
    return packed(
        head.epoch,
        head.thread,
        head.rev,
        head.seq,
        head.copied_by,
        [_plain(entry) for entry in head.entries],
        [(s.name, s.rows, s.max_seq, s.min_seq, s.min_id, s.max_id, s.hidden) for s in head.segments],
        list(head.overrides.items()),
        head.garbage,
        None if head.lease is None else tuple(head.lease),
        [(*ref, batches) for ref, batches in head.early.items()],
        *([(head.ttl_us, head.until_us, head.waits)] if head.ttl_us or head.waits or head.header else []),
        *([head.header] if head.header else []),
    )


def decode_head(data: bytes) -> Head:
    """Unpack a head."""
    epoch, thread, rev, seq, copied_by, entries, segments, overrides, garbage, lease, early, *more = unpacked(data)
    ttl_us, until_us, waits = more[0] if more else (0, None, ())
    return Head(
        epoch,
        thread,
        rev,
        seq,
        copied_by,
        [_entry(thread, item) for item in entries],
        [Segment(*item) for item in segments],
        dict(overrides),
        [(at, names) for at, names in garbage],
        None if lease is None else Held(*lease),
        {(ns, id): batches for ns, id, batches in early},
        ttl_us,
        until_us,
        [(ns, id) for ns, id in waits],
        *more[1:],
    )


def encode_data(data: Data) -> bytes:
    """Pack a data object."""
    bodies = [(ns, id, body) for (ns, id), body in data.bodies.items()]
    return packed(bodies, list(data.frames.items()), data.segment)


def decode_data(data: bytes) -> Data:
    """Unpack a data object."""
    bodies, frames, segment = unpacked(data)
    return Data({(ns, id): body for ns, id, body in bodies}, dict(frames), segment)


def encode_segment(entries: Iterable[Entry]) -> bytes:
    """Pack entries."""
    return ormsgpack.packb([_plain(entry) for entry in entries])


def decode_segment(thread: str, data: bytes) -> list[Entry]:
    """Unpack entries of a thread."""
    return [_entry(thread, item) for item in ormsgpack.unpackb(data)]


Batch = tuple[bytes, Sequence[Write]]
"""Writes that became visible together, and their name; empty if they count at once."""


def new_batch() -> bytes:
    """Return a name for a batch."""
    return os.urandom(_BATCH)


def encode_writes(ref: Ref, batches: Iterable[Batch]) -> bytes:
    """Pack the writes of one task."""
    plain = [(name, [(w.task, w.idx, w.channel, w.path, w.data) for w in writes]) for name, writes in batches]
    return packed(ref.ns, ref.id, plain)


def decode_writes(data: bytes) -> list[Batch]:
    """Unpack the writes of one task."""
    return [(name, [Write(*item) for item in writes]) for name, writes in unpacked(data)[2]]


def with_batch(batches: Sequence[Batch], name: bytes, writes: Sequence[Write]) -> list[Batch]:
    """Return a task's batches with one more, or with the last one enlarged if both have no name."""
    if batches and not name and not batches[-1][0]:
        return [*batches[:-1], (name, merged(batches[-1][1], writes))]
    return [*batches, (name, writes)]


def visible(batches: Iterable[Batch], counting: Collection[bytes]) -> list[Write]:
    """Return the writes of the batches that count."""
    found: list[Write] = []
    for name, writes in batches:
        if not name or name in counting:
            found = merged(found, writes)
    return found


def own(head: Head, keys: Iterable[str]) -> list[str]:
    """Return the keys of those writes that belong to this life of a thread, in the order in which they count."""
    marks = ("", mark_of(head.header))
    return [key for key in sorted(keys) if key.rpartition("/")[2].partition("-")[2] in marks]


def batch_names(joined: bytes) -> tuple[bytes, ...]:
    """Return the names of batches one by one."""
    return split(joined, _BATCH)


def merged(stored: Iterable[Write], writes: Iterable[Write]) -> list[Write]:
    """Add writes to stored ones: `idx >= 0` keeps what is stored, `idx < 0` replaces it."""
    found = {(write.task, write.idx): write for write in stored}
    for write in writes:
        if write.idx < 0 or (write.task, write.idx) not in found:
            found[write.task, write.idx] = write
    return list(found.values())


def _plain(entry: Entry) -> tuple[Any, ...]:
    row, frames = entry.row, entry.frames
    keys = row.keys
    return (
        row.ref.ns,
        row.ref.id,
        row.parent,
        row.via,
        row.seq,
        row.run_id,
        row.hidden,
        row.packed_keys,
        row.packed_deltas,
        entry.data,
        b"".join(frames.get(key, _NONE) for key in keys),
        b"".join(key + name for key, name in frames.items() if key not in keys),
        entry.batches,
    )


def _entry(thread: str, plain: Sequence[Any]) -> Entry:
    ns, id, parent, via, seq, run_id, hidden, keys, deltas, data, names, others, batches = plain
    own = split(keys, _NAME)
    frames = {key: name for key, name in zip(own, split(names, _NAME), strict=True) if name != _NONE}
    frames.update((pair[:_NAME], pair[_NAME:]) for pair in split(others, 2 * _NAME))
    row = Row(Ref(thread, ns, id), parent, via, seq, keys, deltas, run_id, hidden)
    return Entry(row, data, frames, batches)


def packed(*parts: object) -> bytes:
    """Return parts in an envelope with their format and a checksum."""
    return seal(ormsgpack.packb((FORMAT, *parts)))


def unpacked(data: bytes) -> list[Any]:
    """Undo `packed`."""
    try:
        version, *parts = ormsgpack.unpackb(unseal(data))
    except (ormsgpack.MsgpackDecodeError, TypeError, ValueError) as error:
        if isinstance(error, Corrupt | SchemaTooNew):
            raise
        raise Corrupt(f"a stored object of {len(data)} bytes cannot be read: {error}") from error
    if version > FORMAT:
        raise SchemaTooNew(f"a stored object has layout {version}, this release reads up to {FORMAT}: upgrade it")
    return list(parts)


def checked_prefix(prefix: str) -> str:
    """Return a prefix of keys without slashes at its ends.

    Raises:
        Misuse: Some stores do not take it as it is.
    """
    require_texts(prefix=prefix)
    prefix = prefix.strip("/")
    if prefix and not _PREFIX.fullmatch(prefix):
        raise Misuse(f"prefix {prefix!r}: use names of letters, digits, '_', '-' and '.', separated by single slashes")
    return prefix
