"""The cold store: heads that are replaced by compare-and-set, and packs that never change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.layout import (
    ColdHead,
    Keys,
    Pack,
    PackRef,
    decode_head,
    decode_pack,
    encode_head,
    encode_pack,
    folded,
    new_name,
    parts_of,
    thread_of,
    to_compact,
    tombstone,
)
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.expiry import is_over
from langgraph_statekit.errors import Corrupt, StatekitError

NO_HEAD: Final = ColdHead("")
_HEADS_BYTES: Final = 8 << 20
_PACKS_BYTES: Final = 32 << 20
_IMAGES_BYTES: Final = 64 << 20
_ENTRY_BYTES: Final = 400
_ATTEMPTS: Final = 8
_EXPIRED_US: Final = 24 * 3600 * 1_000_000
_PAGE_THREADS: Final = 100

Known = tuple[ColdHead, str]
"""A head and the tag of its object."""


class Gone(Exception):
    """A pack that a head names does not exist, or no longer."""


class Cold:
    """Threads in a bucket.

    Args:
        bucket: Makes the requests.
        prefix: Folder of all objects.
        grace_s: Seconds for which packs that no longer count stay for readers that are under way.
    """

    def __init__(self, bucket: Bucket, prefix: str, grace_s: float) -> None:
        self.bucket = bucket
        self.folder = f"{prefix}/c" if prefix else "c"
        self._clock = f"{prefix}/clock" if prefix else "clock"
        self._grace_s = grace_s
        self._heads = Cache[str, Known](_HEADS_BYTES)
        self._packs = Cache[str, bytes](_PACKS_BYTES, _PACKS_BYTES // 4)
        self._images = Cache[str, tuple[ColdHead, Thread]](_IMAGES_BYTES)

    def head(self, thread: str) -> Known:
        """Read the head of a thread; `NO_HEAD` and `ABSENT` if there is none."""
        found = self.bucket.get(self._keys(thread).head)
        known = (NO_HEAD, ABSENT) if found is None else (decode_head(found.data), found.tag)
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
        now_us = self.bucket.now_us if sure else self.bucket.reading_us
        return head.until_us is not None and is_over(head.until_us, now_us(self._clock))

    def alive(self, thread: str) -> Known | None:
        """Read the head of a thread; None if it has none, was deleted, or has expired."""
        known = self.head(thread)
        return known if known[0].live and not self.over(known[0]) else None

    def image(self, thread: str) -> tuple[ColdHead, Thread] | None:
        """Return a whole thread, not to be changed; None if there is none.

        Two rounds of requests, whatever its length.
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
                held = head, thread_of(head, self.packs(head, head.packs))
                self._images.put(thread, held, _size_bytes(held[1]))
                return held
            except Gone as gone:
                if tag == last:
                    raise Corrupt(f"{gone} is missing in the cold store; restore the thread from a copy") from gone
                last = tag
        raise Corrupt("packs kept disappearing while a thread was read; try again")

    def packs(self, head: ColdHead, refs: Sequence[PackRef]) -> list[Pack]:
        """Return packs of a head.

        Raises:
            Gone: One is missing: the head is out of date, or the thread is damaged.
        """
        keys = self._keys(head.thread)
        at = {ref.name: keys.pack(head.epoch, ref.name) for ref in refs}
        held = {name: self._packs.get(key) for name, key in at.items()}
        read = self.bucket.get_many([at[name] for name, data in held.items() if data is None])
        packs = []
        for name, key in at.items():
            data = held[name]
            if data is None:
                if key not in read:
                    raise Gone(f"object {key}")
                data = read[key].data
                self._packs.put(key, data, len(data))
            packs.append(decode_pack(head.thread, data))
        return packs

    def upload(self, head: ColdHead, pack: Pack) -> list[PackRef]:
        """Store a pack, in pieces if it is large, and return what a head may name."""
        made: dict[str, tuple[PackRef, bytes]] = {}
        for part in parts_of(pack):
            name, data = new_name(), encode_pack(part)
            made[self._keys(head.thread).pack(head.epoch, name)] = PackRef(name, len(data), len(part.rows)), data
        self.bucket.all(lambda key: self.bucket.put(key, made[key][1]), list(made))
        for key, (_, data) in made.items():
            self._packs.put(key, data, len(data))
        return [ref for ref, _ in made.values()]

    def publish(self, thread: str, head: ColdHead, tag: str) -> bool:
        """Make a head count instead of the one with the given tag; False if another one came between."""
        limit = time.time() - self._grace_s
        old = [name for at, name in head.garbage if at <= limit]
        head = replace(head, garbage=[(at, name) for at, name in head.garbage if at > limit])
        data = encode_head(head)
        new = self.bucket.swap(self._keys(thread).head, data, tag)
        if new is None:
            self._heads.put(thread, None, 0)
            return False
        self._heads.put(thread, (head, new), len(data))
        if old:
            with suppress(StatekitError):  # the head counts; what stays is named by none
                self.bucket.delete([self._keys(thread).pack(head.epoch, name) for name in old])
        return True

    def discard(self, head: ColdHead, refs: Sequence[PackRef]) -> None:
        """Remove packs that no head names."""
        self.bucket.delete([self._keys(head.thread).pack(head.epoch, ref.name) for ref in refs])

    def compact(self, thread: str, *, whole: bool = False) -> bool:
        """Make one pack of the last small ones, or of all; False if there is nothing to do, or another was faster."""
        head, tag = self.known(thread)
        count = len(head.packs) if whole else to_compact(head.packs)
        if count < 2:
            return False
        before, last = list(head.packs[:-count]), head.packs[-count:]
        try:
            made = self.upload(head, folded(self.packs(head, last), whole=not before))
        except Gone:
            self.head(thread)
            return False
        garbage = [*head.garbage, *((int(time.time()), ref.name) for ref in last)]
        if self.publish(thread, replace(head, gen=head.gen + 1, packs=[*before, *made], garbage=garbage), tag):
            return True
        self.discard(head, made)
        return False

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
            stone = tombstone(head, at_us)
            if self.publish(thread, stone, tag):
                return stone.gen
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def clear(self, thread: str) -> None:
        """Remove what does not belong to the life that the head of a thread tells."""
        keys = self._keys(thread)
        listed = [key for key in self.bucket.list(keys.root) if key != keys.head]
        if not listed:
            return
        head, _ = self.head(thread)
        spared = keys.pack(head.epoch, b"") if head.live else None
        gone = [key for key in listed if spared is None or not key.startswith(spared)]
        self._packs.forget(lambda key: key in gone)
        if gone:
            self.bucket.delete(gone)

    def objects(self, thread: str) -> Sequence[str]:
        """Return the keys of all objects of a thread."""
        return self.bucket.list(self._keys(thread).root)

    def threads(self) -> Iterator[Sequence[ColdHead]]:
        """Yield the heads of threads in pages, without those that were deleted or have expired."""
        folders = sorted(self.bucket.folders(self.folder))
        for start in range(0, len(folders), _PAGE_THREADS):
            keys = [f"{self.folder}/{folder}/head" for folder in folders[start : start + _PAGE_THREADS]]
            heads = [decode_head(found.data) for found in self.bucket.get_many(keys).values()]
            page = [head for head in heads if head.live and not self.over(head)]
            if page:
                yield page

    def sweep(self, is_hot: Callable[[str], bool]) -> int:
        """Remove threads that expired a while ago and are not in the hot store; return how many."""
        expired = 0
        long_ago = self.bucket.now_us(self._clock) - _EXPIRED_US
        for folder in self.bucket.folders(self.folder):
            found = self.bucket.get(f"{self.folder}/{folder}/head")
            head = NO_HEAD if found is None else decode_head(found.data)
            if found is None or not head.live or not is_over(head.until_us, long_ago) or is_hot(head.thread):
                continue
            if self.publish(head.thread, tombstone(head, 0), found.tag):
                self.clear(head.thread)
                expired += 1
        return expired

    def _keys(self, thread: str) -> Keys:
        return Keys.of(self.folder, thread)


def _size_bytes(held: Thread) -> int:
    sizes = [len(row.body) + _ENTRY_BYTES for row in held.rows.values()]
    sizes += [len(frame.stored) + _ENTRY_BYTES for frame in held.frames.values()]
    return sum(sizes) + sum(len(write.data) + _ENTRY_BYTES for each in held.writes.values() for write in each.values())
