"""What stands in the cold store, and where. Pure: no requests in here.

A thread is a folder named by a hash of its id: `head`, replaced by compare-and-set only, names the packs that count, in
order; `<epoch>/<name>` are packs, immutable, uploaded before a head names them. A pack holds what changed since the one
before: checkpoints, frames and writes, and the names of those that went; and the head that it was made for, so that a
head that is lost can be told from its packs. All packs of a head together are the thread, so a run of them can be
replaced by one. The epoch is random for each life of a thread. A deleted thread leaves a head
without its id, a tombstone, so that nobody who comes late brings it back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.layout import digest, packed, unpacked
from langgraph_statekit.checkpoint.frames import with_bases
from langgraph_statekit.checkpoint.records import HEAD_BYTES, HEADER_ID_BYTES, Frame, Ref, Row, Write

Place = tuple[str, str]
"""Namespace and id of a checkpoint."""

PACK_BYTES: Final = 8 << 20
_FACTOR: Final = 2
_MOST_SMALL: Final = 8
_DEAD: Final = 16
_COPY: Final = "+"
_NAME_BYTES: Final = 16
PACK: Final = b"\0"
VALUE: Final = b"\xff"


@dataclass(frozen=True, slots=True)
class Keys:
    """Where a thread's objects are."""

    root: str

    @classmethod
    def of(cls, folder: str, thread: str) -> Keys:
        """Return those of a thread."""
        return cls.at(folder, digest(thread))

    @classmethod
    def at(cls, folder: str, name: str) -> Keys:
        """Return those below a folder's subfolder, which is a thread's."""
        return cls(f"{folder}/{name}")

    @property
    def head(self) -> str:
        return f"{self.root}/head"

    def pack(self, epoch: str, name: bytes) -> str:
        return f"{self.root}/{epoch}/{name.hex()}"

    def epoch_in(self, key: str) -> str:
        """Return the epoch in the key of a pack."""
        return key.removeprefix(f"{self.root}/").partition("/")[0]


class PackRef(NamedTuple):
    """A pack that counts: its name, its size, and of how many checkpoints it has the body."""

    name: bytes
    size_bytes: int
    rows: int


class ValueRef(NamedTuple):
    """A frame that is an object of its own, which several packs and frames may name.

    Attributes:
        name: Of the object.
        size_bytes: Of it.
        digest: Of its bytes, as they are stored.
        start: Its first bytes, which tell what it builds on.
    """

    name: bytes
    size_bytes: int
    digest: bytes
    start: bytes


@dataclass(frozen=True, slots=True)
class ColdHead:
    """What a thread consists of in the cold store.

    Attributes:
        epoch: The folder of its packs; empty in a tombstone.
        thread: Its id; empty in a tombstone.
        gen: Grows with every change of the head.
        packs: Those that count, in order.
        header: Of the data key, see `SaveRow`.
        seq: The last place in the order that was given away.
        copied_by: The operation that made the thread as a copy.
        ttl_us: Time to live, see `expiry`.
        until_us: When it ends.
        garbage: (seconds of the clock, name) of packs that no longer count since then.
        dead_us: Lives that began in the hot store by then were deleted, unless they have an epoch that would be known.
        dead: Epochs that were deleted last.
        ended_us: Of a tombstone: since when it is one, by the clock of the store.
        swept_us: Of a tombstone: since when somebody removes it.
        ahead: Whether saves went past the hot store, which does not know of them.
        below: The places of such saves where the hot store may have something else, which is older.
        is_copy: Whether it stands in a replica. Where it does so in the cold store, that was a replica before.
    """

    epoch: str
    thread: str = ""
    gen: int = 0
    packs: Sequence[PackRef] = ()
    header: bytes = b""
    seq: int = 0
    copied_by: str = ""
    ttl_us: int = 0
    until_us: int | None = None
    garbage: Sequence[tuple[int, bytes]] = ()
    dead_us: int = 0
    dead: Sequence[str] = ()
    is_copy: bool = False
    ended_us: int = 0
    swept_us: int = 0
    ahead: bool = False
    below: frozenset[Place] = frozenset()

    @property
    def names(self) -> list[bytes]:
        """The names of packs that count, and of those that readers may still need."""
        return [*(ref.name for ref in self.packs), *(name for _, name in self.garbage)]

    @property
    def live(self) -> bool:
        """Whether there is a thread."""
        return bool(self.epoch)

    @property
    def life(self) -> str:
        """What a hot store notes of a thread that has all of this head; a replica may lack what the cold store had."""
        return self.epoch + _COPY * self.is_copy


@dataclass(frozen=True, slots=True)
class Pack:
    """What changed in a thread: what is now, and what is no more; large frames are in `values`."""

    rows: Mapping[Place, Row] = field(default_factory=dict)
    frames: Mapping[bytes, bytes] = field(default_factory=dict)
    writes: Mapping[Place, Sequence[Write]] = field(default_factory=dict)
    gone_rows: frozenset[Place] = frozenset()
    gone_frames: frozenset[bytes] = frozenset()
    values: Mapping[bytes, ValueRef] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing changed."""
        return self == Pack()


def new_life(thread: str, before: ColdHead) -> ColdHead:
    """Return the head of a new life of a thread, without packs."""
    epoch = next_epoch(digest(thread), before)
    return ColdHead(epoch, thread, _next_gen(before), dead_us=before.dead_us, dead=_dead(before))


def next_epoch(name: str, before: ColdHead) -> str:
    """Return the epoch of the life that may follow; so what is uploaded for one that never began can be told.

    Args:
        name: The thread's folder.
        before: Its head; the first life of all has a random epoch.
    """
    return digest(name, str(before.gen))[:16] if before.gen else os.urandom(8).hex()


def epoch_of(life: str) -> str:
    """Return the epoch of a life that a hot store has noted."""
    return life.removesuffix(_COPY)


def tombstone(before: ColdHead, dead_us: int, now_us: int) -> ColdHead:
    """Return what a deleted thread leaves."""
    dead = max(dead_us, before.dead_us)
    return ColdHead("", gen=_next_gen(before), dead_us=dead, dead=_dead(before), ended_us=now_us)


def _next_gen(before: ColdHead) -> int:
    """Return a generation above all of before, also of a thread whose tombstone has gone."""
    return before.gen + 1 if before.gen else time.time_ns() // 1000


def _dead(before: ColdHead) -> list[str]:
    return [*before.dead, *([before.epoch] if before.live else [])][-_DEAD:]


def new_name(of: bytes) -> bytes:
    """Return a new name; it begins with what it is the name of, `PACK` or `VALUE`."""
    return of + os.urandom(_NAME_BYTES - len(of))


def is_pack(key: str) -> bool:
    """Say whether a key is that of a pack; the name of a data key may begin alike, but is shorter."""
    name = key.rpartition("/")[2]
    return name.startswith(PACK.hex()) and len(name) == 2 * _NAME_BYTES


def encode_head(head: ColdHead) -> bytes:
    """Pack a head."""
    return packed(
        *(head.epoch, head.thread, head.gen, [tuple(ref) for ref in head.packs], head.header, head.seq),
        *(head.copied_by, head.ttl_us, head.until_us, list(head.garbage), head.dead_us, list(head.dead)),
        *(head.is_copy, head.ended_us, head.swept_us, sorted(head.below) or head.ahead),
    )


def decode_head(data: bytes) -> ColdHead:
    """Unpack a head."""
    epoch, thread, gen, packs, header, seq, copied_by, ttl_us, until_us, garbage, *dead = unpacked(data)
    refs = [PackRef(*ref) for ref in packs]
    left = [(at, name) for at, name in garbage]
    head = ColdHead(epoch, thread, gen, refs, header, seq, copied_by, ttl_us, until_us, left, *dead)
    if not isinstance(head.ahead, list):
        return head
    return replace(head, ahead=True, below=frozenset((ns, id) for ns, id in head.ahead))


def encode_pack(pack: Pack, head: ColdHead | None, parts: Sequence[PackRef] = ()) -> bytes:
    """Pack a pack.

    Args:
        pack: The pack.
        head: That it is made for, which it tells but for the key, as that is to be replaced at times; None if another
            part does.
        parts: Those that were stored before it, of one that is large.
    """
    rows = [
        (ns, id, r.parent, r.via, r.seq, r.packed_keys, r.packed_deltas, r.run_id, r.hidden, r.body, r.audit)
        for (ns, id), r in pack.rows.items()
    ]
    writes = [
        (ns, id, [(w.task, w.idx, w.channel, w.path, w.data) for w in each]) for (ns, id), each in pack.writes.items()
    ]
    values = [(key, *ref) for key, ref in pack.values.items()]
    frames = list(pack.frames.items())
    changed = rows, frames, writes, sorted(pack.gone_rows), sorted(pack.gone_frames), values
    if head is None:
        return packed(*changed)
    told = encode_head(replace(head, header=head.header[:HEADER_ID_BYTES], garbage=()))
    return packed(*changed, told, [tuple(ref) for ref in parts])


def decode_pack(thread: str, data: bytes) -> Pack:
    """Unpack a pack of a thread."""
    rows, frames, writes, gone_rows, gone_frames, values, *_ = unpacked(data)
    return Pack(
        {(ns, id): _row(thread, ns, id, *rest) for ns, id, *rest in rows},
        dict(frames),
        {(ns, id): [Write(*each) for each in written] for ns, id, written in writes},
        frozenset((ns, id) for ns, id in gone_rows),
        frozenset(gone_frames),
        {key: ValueRef(*ref) for key, *ref in values},
    )


class Told(NamedTuple):
    """What a pack tells: the head that it was made for, and its parts, of which it is the last."""

    head: ColdHead
    parts: Sequence[PackRef]


def told_in(name: bytes, data: bytes) -> Told | None:
    """Return what a pack tells; None if it is an earlier part of one, or of a time when none was told."""
    rows, _, _, _, _, _, *told = unpacked(data)
    if not told:
        return None
    earlier = [PackRef(*ref) for refs in told[1:] for ref in refs]
    return Told(decode_head(told[0]), [*earlier, PackRef(name, len(data), len(rows))])


def _row(thread: str, ns: str, id: str, *rest: Any) -> Row:
    parent, via, seq, keys, deltas, run_id, hidden, body, audit = rest
    return Row(Ref(thread, ns, id), parent, via, seq, keys, deltas, run_id, hidden, body, audit)


def folded(packs: Iterable[Pack], *, whole: bool) -> Pack:
    """Return what packs say together.

    Args:
        packs: In order.
        whole: They are all that there is: what went need not be named, and frames that nobody needs are left out.
    """
    rows: dict[Place, Row] = {}
    frames: dict[bytes, bytes] = {}
    values: dict[bytes, ValueRef] = {}
    writes: dict[Place, Sequence[Write]] = {}
    gone_rows: set[Place] = set()
    gone_frames: set[bytes] = set()
    for pack in packs:
        for place in pack.gone_rows:
            rows.pop(place, None)
        for key in (*pack.gone_frames, *pack.frames, *pack.values):
            frames.pop(key, None)
            values.pop(key, None)
        rows.update(pack.rows)
        frames.update(pack.frames)
        values.update(pack.values)
        writes.update(pack.writes)
        gone_rows = (gone_rows | pack.gone_rows) - pack.rows.keys()
        gone_frames = (gone_frames | pack.gone_frames) - pack.frames.keys() - pack.values.keys()
    if not whole:
        return Pack(rows, frames, writes, frozenset(gone_rows), frozenset(gone_frames), values)
    known = {key: Frame(key, data) for key, data in frames.items()}
    known |= {key: Frame(key, ref.start) for key, ref in values.items()}
    needed = with_bases(known, {key for row in rows.values() for key in row.keys})
    return Pack(
        rows,
        {key: data for key, data in frames.items() if key in needed},
        {place: each for place, each in writes.items() if each},
        values={key: ref for key, ref in values.items() if key in needed},
    )


def thread_of(head: ColdHead, whole: Pack) -> Thread:
    """Return a thread as its packs tell it, folded to one, with the large frames among the others."""

    def ref(place: Place) -> Ref:
        return Ref(head.thread, *place)

    return Thread(
        head.seq,
        head.gen,
        head.copied_by,
        {ref(place): row for place, row in whole.rows.items()},
        {key: Frame(key, data) for key, data in whole.frames.items()},
        {ref(place): {(w.task, w.idx): w for w in each} for place, each in whole.writes.items()},
        header=head.header,
    )


def offloaded(pack: Pack, least_bytes: int, known: Iterable[ValueRef]) -> tuple[Pack, dict[bytes, bytes]]:
    """Return a pack with its large frames as values, and the bytes of new ones by name.

    Args:
        pack: The pack.
        least_bytes: From this size on a frame is large.
        known: Values that the thread's packs name; what is equal to one of them is not stored again.
    """
    names = {ref.digest: ref.name for ref in known}
    values, new = dict(pack.values), {}
    for key, data in pack.frames.items():
        if len(data) >= least_bytes:
            check = digest_of(data)
            if check not in names:
                names[check] = new_name(VALUE)
                new[names[check]] = data
            values[key] = ValueRef(names[check], len(data), check, data[:HEAD_BYTES])
    return replace(pack, frames={k: data for k, data in pack.frames.items() if k not in values}, values=values), new


def digest_of(data: bytes) -> bytes:
    """Return what equal values have in common."""
    return blake2b(data, digest_size=16).digest()


def parts_of(pack: Pack, most_bytes: int = PACK_BYTES) -> list[Pack]:
    """Return a pack in pieces of about this size at most; each frame and row stays whole."""
    frames: list[dict[bytes, bytes]] = [{}]
    size = 0
    for key, data in pack.frames.items():
        if size + len(data) > most_bytes and frames[-1]:
            frames.append({})
            size = 0
        frames[-1][key] = data
        size += len(data)
    return [Pack(frames=each) for each in frames[:-1]] + [replace(pack, frames=frames[-1])]


def to_compact(packs: Sequence[PackRef]) -> int:
    """Return how many of the last packs to make into one; 0 for none.

    Each byte is then copied about as often as the logarithm of the number of packs, which stays small.
    """
    if len(packs) < _MOST_SMALL:
        return 0
    start, size = len(packs) - 1, packs[-1].size_bytes
    while start > 0 and packs[start - 1].size_bytes < min(_FACTOR * size + 4096, PACK_BYTES):
        start -= 1
        size += packs[start].size_bytes
    count = len(packs) - start
    return count if count >= _MOST_SMALL else 0
