"""The cold store: heads that are replaced by compare-and-set, and packs that never change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT, Found
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.heads import NO_HEAD, Heads, Known
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
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import LOST, BadHead
from langgraph_statekit.checkpoint.backends.tiered.packs import Gone, Rescue
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES
from langgraph_statekit.errors import Corrupt, StatekitError

_LOG: Final = logging.getLogger(__name__)
_IMAGES_BYTES: Final = 64 << 20
_ENTRY_BYTES: Final = 400
_ATTEMPTS: Final = 8
_DYING_US: Final = 600_000_000
_PAGE_THREADS: Final = 100


class Watch(Protocol):
    """Told of each change of a head."""

    def note(self, name: str, gen: int) -> Sequence[str]:
        """Return the keys of objects without content that must be there before the head of a thread has this gen."""

    def changed(self, name: str, gen: int) -> None:
        """Take note that it has."""

    def lives(self, name: str) -> set[str]:
        """Return the epochs of which replicas have something in the folder of a thread, those that answer."""


class Cold(Heads):
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
        super().__init__(bucket, prefix, name, offload_bytes)
        self.notes = f"{prefix}/r" if prefix else "r"
        self._grace_s = grace_s
        self._images = Cache[str, tuple[ColdHead, Thread]](_IMAGES_BYTES)

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

    def append(self, head: ColdHead, pack: Pack, tag: str) -> ColdHead | None:
        """Store a pack, and have a head count that names it, too; return that, None if another one came between."""
        if pack.empty:
            return head if self.publish(head.thread, head, tag) else None
        made = self.packs.upload(head, pack, self._new_key(head.thread, head, tag), self._notes(head.thread, head))
        new = replace(head, packs=[*head.packs, *made.packs])
        if self._swap(head.thread, new, tag):
            return new
        # Who found the head lost a moment ago may have made one that names them. If it is a later one, this may have
        # counted before it, and the reply have been lost: what is left of its values then stays for `clean`.
        now = self.last_head(head.thread)[0]
        packs = [ref.name for ref in made.packs]
        if not {*packs} & {*now.names}:
            self.packs.remove(head, made.names if now.gen == head.gen else packs)
        self.settle_key(head)
        return None

    def publish(self, thread: str, head: ColdHead, tag: str) -> bool:
        """Make a head count instead of the one with the given tag; False if another one came between."""
        self.bucket.put_all({**self._new_key(thread, head, tag), **self._notes(thread, head)})
        if self._swap(thread, head, tag):
            return True
        self.settle_key(head)
        return False

    def settle_key(self, head: ColdHead) -> None:
        """Have the copy of a thread's key be as the head says that counts, after another one did not come to count.

        So none is left of a life that ended meanwhile, nor an older one after a rotation.
        """
        last: str | None = None
        for _ in range(_ATTEMPTS if head.header else 0):
            try:
                now, tag = self.head_at(digest(head.thread))
            except BadHead:
                return  # it may be what is left; a deletion takes it along
            if tag == last:
                return
            id, last = now.header[:HEADER_ID_BYTES], tag
            if now.epoch == head.epoch and id:
                self.packs.put(now, id, now.header)
            if now.epoch != head.epoch or id != head.header[:HEADER_ID_BYTES]:
                self.packs.remove(head, [head.header[:HEADER_ID_BYTES]])

    def _swap(self, thread: str, head: ColdHead, tag: str) -> bool:
        limit = time.time() - self._grace_s
        old = [name for at, name in head.garbage if at <= limit]
        head = replace(head, garbage=[(at, name) for at, name in head.garbage if at > limit])
        data = encode_head(head)
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

    def _notes(self, thread: str, head: ColdHead) -> dict[str, bytes]:
        """Return what tells others of a head before it counts."""
        return dict.fromkeys(() if self.watch is None else self.watch.note(digest(thread), head.gen), b"")

    def _new_key(self, thread: str, head: ColdHead, tag: str) -> dict[str, bytes]:
        """Return the copy of the thread's key, without which no pack tells its head, if it is another one."""
        before, at = self._heads.get(thread) or (NO_HEAD, "")
        same = at == tag and before.life == head.life and before.header == head.header
        return {} if same or not head.header else {self.packs.key(head, head.header[:HEADER_ID_BYTES]): head.header}

    def compact(self, thread: str) -> int:
        """Make one pack of the last small ones; return the new generation.

        0 if there is nothing to do, or another was faster.
        """
        head, tag = self.known(thread)
        count = to_compact(head.packs)
        if not count:
            return 0
        try:
            base, pack = self.replaced(head, count)
        except Gone as gone:
            if self.head(thread)[1] == tag:
                last = head.packs[-1].name
                self.packs.forget([self.packs.key(head, last)])  # so that the next upload looks what is lost
                _LOG.warning("%s is missing in %s", gone, self.name)
            return 0
        new = self.append(replace(base, gen=head.gen + 1), pack, tag)
        return 0 if new is None else new.gen

    def replaced(self, head: ColdHead, count: int, more: Pack | None = None) -> tuple[ColdHead, Pack]:
        """Return a head without its last packs, and a pack in their place.

        Args:
            head: The head.
            count: Of how many packs.
            more: What that pack is to say besides, after them.

        Raises:
            Gone: One is missing: the head is out of date, or the thread is damaged.
        """
        before, last = head.packs[:-count], head.packs[-count:]
        parts = self.packs.read(head, last)
        pack = folded([*parts, more or Pack()], whole=not before)
        now_s = int(time.time())
        garbage = [*head.garbage, *((now_s, ref.name) for ref in last)]
        if not before:
            left = {ref.name for ref in pack.values.values()}
            named = {ref.name for each in parts for ref in each.values.values()}
            garbage += [(now_s, name) for name in named - left]
        return replace(head, packs=before, garbage=garbage), pack

    def last_head(self, thread: str) -> Known:
        """As `head`, for what does not ask what was there; what cannot be told is some life."""
        try:
            return self.head(thread, anew=True)
        except BadHead as bad:
            name = digest(thread)
            # All lives that left something: none of them may go on, nor anything of it stay.
            lives = self.lives(name) | (self.watch.lives(name) if self.watch else set())
            return ColdHead(LOST, thread, dead=sorted(lives)), bad.tag

    def lost(self, head: ColdHead) -> list[bytes]:
        """Return the names of packs of a head that are not there, or not whole; a head that is old may name some."""
        there = self.sizes(digest(head.thread), head.epoch) if head.packs else {}
        return [ref.name for ref in head.packs if there.get(ref.name) != ref.size_bytes]

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
            head, tag = self.last_head(thread)
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

    def clear_at(self, name: str, *, is_copy: bool = False, ended: str = "") -> None:
        """Do so in a thread's folder; in a replica, where others may upload later lives, remove ended ones only.

        Args:
            name: The folder.
            is_copy: Whether it is in a replica.
            ended: An epoch that has ended, if the head there is of another one.
        """
        keys = Keys.at(self.folder, name)
        listed = [key for key in self.bucket.list(keys.root) if key != keys.head]
        found = self.bucket.get(keys.head) if listed else None
        if found is None:
            return
        head = decode_head(found.data)
        spared = head.epoch, next_epoch(name, head)
        over = {*head.dead, ended} - {head.epoch}
        lives = set(map(keys.epoch_in, listed))
        lives = lives & over if is_copy else lives - {*spared}
        gone = [key for key in listed if keys.epoch_in(key) in lives]
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

    def threads(self, bad: Callable[[Corrupt], object] = _LOG.warning) -> Iterator[Sequence[ColdHead]]:
        """Yield the heads of threads in pages, without those that were deleted or have expired.

        Args:
            bad: Told of heads that cannot be read, which are passed over.
        """
        folders = sorted(self.bucket.folders(self.folder))
        for start in range(0, len(folders), _PAGE_THREADS):
            names = folders[start : start + _PAGE_THREADS]
            found = self.bucket.get_many([Keys.at(self.folder, name).head for name in names])
            heads = [self._listed(name, found.get(Keys.at(self.folder, name).head), bad) for name in names]
            page = [head for head in heads if head.live and not self.over(head)]
            if page:
                yield page

    def _listed(self, name: str, found: Found | None, bad: Callable[[Corrupt], object]) -> ColdHead:
        try:
            with suppress(Corrupt):
                if found is not None:
                    return decode_head(found.data)
            return self.head_at(name)[0]
        except BadHead as error:
            bad(error)
            return NO_HEAD

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
        head, _ = self.head_at(name)  # later than the list, so that it names what was new in that
        if not head.live:
            self.bucket.delete(old)
            return
        values = [ref.name for pack in self.packs.read(head, head.packs) for ref in pack.values.values()]
        own = (*head.names, *values, head.header[:HEADER_ID_BYTES])
        named = {keys.pack(head.epoch, each) for each in own}
        if gone := [key for key in old if key not in named]:
            self.bucket.delete(gone)

    def is_dying(self, head: ColdHead) -> bool:
        """Say whether somebody removes a tombstone now; one that is not gone after a while may be replaced."""
        return bool(head.swept_us) and self.now_us() - head.swept_us < _DYING_US


def _size_bytes(held: Thread) -> int:
    sizes = [len(row.body) + _ENTRY_BYTES for row in held.rows.values()]
    sizes += [len(frame.stored) + _ENTRY_BYTES for frame in held.frames.values()]
    return sum(sizes) + sum(len(write.data) + _ENTRY_BYTES for each in held.writes.values() for write in each.values())
