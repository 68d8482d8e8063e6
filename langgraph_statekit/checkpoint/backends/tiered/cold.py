"""The cold store: heads that are replaced by compare-and-set, and packs that never change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.layout import (
    ColdHead,
    Keys,
    Pack,
    decode_head,
    encode_head,
    folded,
    next_epoch,
    to_compact,
    tombstone,
)
from langgraph_statekit.checkpoint.backends.tiered.packs import Gone, Made, Packs, Rescue
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.expiry import is_over
from langgraph_statekit.errors import Corrupt, StatekitError

NO_HEAD: Final = ColdHead("")
_HEADS_BYTES: Final = 8 << 20
_IMAGES_BYTES: Final = 64 << 20
_ENTRY_BYTES: Final = 400
_ATTEMPTS: Final = 8
_DYING_US: Final = 600_000_000
_PAGE_THREADS: Final = 100

Known = tuple[ColdHead, str]
"""A head and the tag of its object."""


class BadHead(Corrupt):
    """The head of a thread cannot be read."""


class Watch(Protocol):
    """Told of each change of a head."""

    def note(self, name: str, gen: int) -> Sequence[str]:
        """Return the keys of objects without content that must be there before the head of a thread has this gen."""

    def changed(self, name: str, gen: int) -> None:
        """Take note that it has."""


class Cold:
    """Threads in a bucket.

    Args:
        bucket: Makes the requests.
        prefix: Folder of all objects.
        grace_s: Seconds for which packs that no longer count stay for readers that are under way.
        name: What messages call it.
        offload_bytes: From this size on a stored value is an object of its own.
    """

    watch: Watch | None = None

    def __init__(self, bucket: Bucket, prefix: str, grace_s: float, name: str, offload_bytes: int) -> None:
        self.bucket, self.name = bucket, name
        self.folder = f"{prefix}/c" if prefix else "c"
        self.notes = f"{prefix}/r" if prefix else "r"
        self._clock = f"{prefix}/clock" if prefix else "clock"
        self._grace_s = grace_s
        self._heads = Cache[str, Known](_HEADS_BYTES)
        self.packs = Packs(bucket, self.folder, name, offload_bytes)
        self._images = Cache[str, tuple[ColdHead, Thread]](_IMAGES_BYTES)

    def head(self, thread: str) -> Known:
        """Read the head of a thread; `NO_HEAD` and `ABSENT` if there is none."""
        key = self._keys(thread).head
        found = self.bucket.get(key)
        try:
            known = (NO_HEAD, ABSENT) if found is None else (decode_head(found.data), found.tag)
        except Corrupt as error:
            raise BadHead(f"object {key} of {self.name}: {error}") from error
        self._heads.put(thread, known, 1000 if found is None else len(found.data))
        return known

    def known(self, thread: str) -> Known:
        """Return the head that was read or written last here, or read it; it may be out of date."""
        return self._heads.get(thread) or self.head(thread)

    def over(self, head: ColdHead, *, sure: bool = False) -> bool:
        """Say whether a thread has expired.

        Args:
            head: Of the thread.
            sure: Not by the clock of a host that may not ask for the time, as one that may only read.
        """
        if head.until_us is None:
            return False
        return is_over(head.until_us, self.now_us() if sure else self.bucket.reading_us(self._clock))

    def alive(self, thread: str) -> Known | None:
        """Read the head of a thread; None if it has none, was deleted, or has expired."""
        known = self.head(thread)
        return known if known[0].live and not self.over(known[0]) else None

    def now_us(self) -> int:
        """Return the time by the clock of the store."""
        return self.bucket.now_us(self._clock)

    def image(self, thread: str, rescue: Rescue | None = None) -> tuple[ColdHead, Thread] | None:
        """Return a whole thread, not to be changed; None if there is none.

        Two rounds of requests, whatever its length, or three if it has large values.

        Args:
            thread: The thread.
            rescue: Asked for objects that are missing or damaged.
        """
        last = ABSENT
        for _ in range(_ATTEMPTS):
            known = self.alive(thread)
            if known is None:
                return None
            head, tag = known
            held = self._images.get(thread)
            if held is not None and held[0] == head:
                return held
            try:
                held = head, self.packs.thread(head, rescue, missing=tag == last)
                self._images.put(thread, held, _size_bytes(held[1]))
                return held
            except Gone as gone:
                if tag == last:
                    raise Corrupt(f"{gone} is missing in {self.name}; restore the thread from a copy") from gone
                last = tag
        raise Corrupt("packs kept disappearing while a thread was read; try again")

    def upload(self, head: ColdHead, pack: Pack) -> Made:
        """Store a pack, and return what the next head may name."""
        return self.packs.upload(head, pack, self._notes(head.thread, head.gen + 1))

    def publish(self, thread: str, head: ColdHead, tag: str) -> bool:
        """Make a head count instead of the one with the given tag; False if another one came between."""
        limit = time.time() - self._grace_s
        old = [name for at, name in head.garbage if at <= limit]
        head = replace(head, garbage=[(at, name) for at, name in head.garbage if at > limit])
        data = encode_head(head)
        notes = self._notes(thread, head.gen)
        self.bucket.all(lambda key: self.bucket.put(key, notes[key]), list(notes))
        new = self.bucket.swap(self._keys(thread).head, data, tag)
        if new is None:
            self._heads.put(thread, None, 0)
            return False
        self._heads.put(thread, (head, new), len(data))
        if self.watch is not None:
            self.watch.changed(digest(thread), head.gen)
        if old:
            with suppress(StatekitError):  # the head counts; what stays is named by none
                self.packs.remove(head, old)
        return True

    def _notes(self, thread: str, gen: int) -> dict[str, bytes]:
        return {} if self.watch is None else dict.fromkeys(self.watch.note(digest(thread), gen), b"")

    def discard(self, head: ColdHead, made: Made) -> None:
        """Remove what no head names."""
        self.packs.remove(head, made.names)

    def compact(self, thread: str, *, whole: bool = False) -> int:
        """Make one pack of the last small ones, or of all; return the new generation.

        0 if there is nothing to do, or another was faster.
        """
        head, tag = self.known(thread)
        count = len(head.packs) if whole else to_compact(head.packs)
        if count < 2:
            return 0
        before, last = list(head.packs[:-count]), head.packs[-count:]
        try:
            replaced = self.packs.read(head, last)
        except Gone:
            self.head(thread)
            return 0
        pack = folded(replaced, whole=not before)
        made = self.upload(head, pack)
        now_s = int(time.time())
        garbage = [*head.garbage, *((now_s, ref.name) for ref in last)]
        if not before:
            left = {ref.name for ref in pack.values.values()}
            named = {ref.name for each in replaced for ref in each.values.values()}
            garbage += [(now_s, name) for name in named - left]
        if self.publish(thread, replace(head, gen=head.gen + 1, packs=[*before, *made.packs], garbage=garbage), tag):
            return head.gen + 1
        self.discard(head, made)
        return 0

    def bury(self, thread: str, dead_us: Callable[[], int | None]) -> int | None:
        """Put a tombstone in the place of a thread's head.

        Args:
            thread: The thread.
            dead_us: Called when the head was read; returns up to when lives of the hot store that began are dead, or
                None to leave the head as it is.

        Returns:
            The generation of the tombstone; None if there is none.
        """
        for pause_s in pauses(thread):
            head, tag = self.head(thread)
            at_us = dead_us()
            if at_us is None:
                return None
            stone = tombstone(head, at_us, self.now_us())
            if not self.is_dying(head) and self.publish(thread, stone, tag):
                return stone.gen
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def clear(self, thread: str) -> None:
        """Remove what belongs to no life of a thread that goes on or may begin."""
        self.clear_at(digest(thread))

    def clear_at(self, name: str, *, is_copy: bool = False) -> None:
        """Do so in a thread's folder; in a replica, where others may upload later lives, remove ended ones only."""
        keys = Keys.at(self.folder, name)
        listed = [key for key in self.bucket.list(keys.root) if key != keys.head]
        found = self.bucket.get(keys.head) if listed else None
        if found is None:
            return
        head = decode_head(found.data)
        spared = head.epoch, next_epoch(name, head)
        ended = {
            epoch for epoch in map(keys.epoch_in, listed) if (epoch in head.dead if is_copy else epoch not in spared)
        }
        gone = [key for key in listed if keys.epoch_in(key) in ended]
        self.packs.forget(gone)
        if gone:
            self.bucket.delete(gone)

    def objects(self, thread: str) -> Sequence[str]:
        """Return the keys of all objects of a thread."""
        return self.bucket.list(self._keys(thread).root)

    def sizes(self, name: str, epoch: str) -> dict[bytes, int]:
        """Return the names of the objects of a life, and how large they are."""
        root = Keys.at(self.folder, name).pack(epoch, b"").rstrip("/")
        return {bytes.fromhex(key.rpartition("/")[2]): stat.size_bytes for key, stat in self.bucket.stats(root).items()}

    def threads(self) -> Iterator[Sequence[ColdHead]]:
        """Yield the heads of threads in pages, without those that were deleted or have expired."""
        folders = sorted(self.bucket.folders(self.folder))
        for start in range(0, len(folders), _PAGE_THREADS):
            keys = [f"{self.folder}/{folder}/head" for folder in folders[start : start + _PAGE_THREADS]]
            heads = [decode_head(found.data) for found in self.bucket.get_many(keys).values()]
            page = [head for head in heads if head.live and not self.over(head)]
            if page:
                yield page

    def clean(self, name: str, before_s: float) -> None:
        """Remove from a thread's folder what is older than that and the head does not name: of uploads that died.

        Raises:
            Gone: The head changed meanwhile, or an object is missing; nothing was removed.
        """
        keys = Keys.at(self.folder, name)
        stats = self.bucket.stats(keys.root)
        old = [key for key, stat in stats.items() if key != keys.head and stat.modified_s < before_s]
        if not old:
            return
        found = self.bucket.get(keys.head)  # later than the list, so that it names what was new in that
        head = NO_HEAD if found is None else decode_head(found.data)
        if not head.live:
            self.bucket.delete(old)
            return
        values = [ref.name for pack in self.packs.read(head, head.packs) for ref in pack.values.values()]
        named = {keys.pack(head.epoch, each) for each in (*head.names, *values)}
        if gone := [key for key in old if key not in named]:
            self.bucket.delete(gone)

    def is_dying(self, head: ColdHead) -> bool:
        """Say whether somebody removes a tombstone now; one that is not gone after a while may be replaced."""
        return bool(head.swept_us) and self.now_us() - head.swept_us < _DYING_US

    def _keys(self, thread: str) -> Keys:
        return Keys.of(self.folder, thread)


def _size_bytes(held: Thread) -> int:
    sizes = [len(row.body) + _ENTRY_BYTES for row in held.rows.values()]
    sizes += [len(frame.stored) + _ENTRY_BYTES for frame in held.frames.values()]
    return sum(sizes) + sum(len(write.data) + _ENTRY_BYTES for each in held.writes.values() for write in each.values())
