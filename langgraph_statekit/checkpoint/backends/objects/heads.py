"""How a thread's head changes. It holds the lease, so a token is compared where a save becomes visible."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.index import counting, with_batch_of
from langgraph_statekit.checkpoint.backends.objects.layout import Head, decode_head, empty_head, encode_head
from langgraph_statekit.checkpoint.backends.objects.marks import Marks
from langgraph_statekit.checkpoint.backends.objects.reader import Reader, inline
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery, decide, is_late, is_rekeyed
from langgraph_statekit.checkpoint.expiry import is_due, is_over
from langgraph_statekit.checkpoint.records import Ref, Save, SaveWrites


class Heads:
    """Changes heads by compare-and-set."""

    def __init__(self, bucket: Bucket, reader: Reader) -> None:
        self._bucket = bucket
        self._reader = reader
        self._marks = Marks(bucket, f"{reader.root.removesuffix('t')}l", reader.clock)

    def opened(self, thread: str) -> tuple[Head, str]:
        """Return the head of a thread, perhaps out of date; a new one is announced in the store first."""
        known = self._reader.known(thread)
        if known is not None and self._reader.over(known[0]):
            known = self._reader.fresh(thread)
        if known is not None and self._reader.over(known[0]):
            known = self.renewed(thread, *known) or self._reader.fresh(thread)
        if known is not None and known[0].epoch:
            return known
        head = empty_head()
        data = encode_head(head)
        tag = self._bucket.swap(self._reader.keys(thread).head, data, ABSENT)
        if tag is None:
            return self._reader.fresh(thread)
        self._reader.remember(thread, data, tag)
        return head, tag

    def renewed(self, thread: str, head: Head, tag: str) -> tuple[Head, str] | None:
        """Begin a new life of a thread that has expired, and remove the old one; None if it changed meanwhile."""
        if not is_over(head.until_us, self._bucket.now_us(self._reader.clock)):  # not the host's clock
            return None
        keys = self._reader.keys(thread)
        listed = [key for key in self._bucket.list(keys.root) if key != keys.head]
        new = replace(empty_head(), rev=head.rev + 1, lease=head.lease)
        data = encode_head(new)
        done = self._bucket.swap(keys.head, data, tag)
        if done is None:
            return None
        self._reader.remember(thread, data, done)
        self._reader.marks.forget(lambda key: key in listed)
        self._bucket.delete(listed)
        return new, done

    def live_on(self, thread: str, asking: Ref | None = None) -> None:
        """Set the end of a thread anew if it is due by the head that was seen last.

        Args:
            thread: Thread id.
            asking: A checkpoint that gets an interrupt; it is noted unless the thread has no time to live.
        """
        # Read once if it is not known: writes of a new life must not come before the end of the old one.
        known = self._reader.known(thread) or self._reader.fresh(thread)
        if asking is None and not known[0].epoch:
            return
        for pause_s in pauses(thread):
            if self._reader.over(known[0]) or not known[0].epoch:
                known = self.opened(thread)
            head, tag = known
            new = head
            if (
                asking is not None
                and (head.ttl_us or not self._reader.alive(head))
                and (asking.ns, asking.id) not in head.waits
            ):
                new = self._reader.lived_on(replace(head, waits=[*head.waits, (asking.ns, asking.id)]))
            elif head.until_us is not None and is_due(head.ttl_us, head.until_us, self._reader.now_us()):
                new = self._reader.lived_on(head)
            if new is head:
                return
            data = encode_head(new)
            done = self._bucket.swap(self._reader.keys(thread).head, data, tag)
            if done is not None:
                self._reader.remember(thread, data, done, new)
                return
            known = self._reader.fresh(thread)
            time.sleep(pause_s)

    def edit(self, thread: str, change: Callable[[Head], Head | None]) -> Head:
        """Replace a head by what `change` makes of it, and return it; None leaves it as it is."""
        for pause_s in pauses(thread):
            with self._reader.turn(thread):
                known = self._reader.known(thread)
                new = None if known is None else change(known[0])
                if known is None or new is None:  # what is known here may be out of date
                    known = self._reader.fresh(thread)
                    new = change(known[0])
                if new is None:
                    return known[0]
                data = encode_head(new)
                done = self._bucket.swap(self._reader.keys(thread).head, data, known[1])
                if done is not None:
                    self._reader.remember(thread, data, done, new)
                    return new
                self._reader.fresh(thread)
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def claim(self, claim: Claim) -> Held | None:
        """Decide a claim, and return the thread's lease."""

        before: Held | None = None

        def change(head: Head) -> Head | None:
            nonlocal before
            if claim.token is not None and (head.lease is None or head.lease.token != claim.token):
                return None  # without asking for the time
            granted = decide(claim, head.lease, self._bucket.now_us(self._reader.clock))
            if granted is None:
                return None
            before = head.lease
            if before is None or before.holder != granted.holder or before.until_us == 0:
                self._marks.put(claim.thread, granted.holder)
            new = replace(head if head.epoch else empty_head(), lease=granted)
            return self._reader.lived_on(new) if new.until_us is not None and self._reader.alive(new) else new

        lease = self.edit(claim.thread, change).lease
        if before is not None and lease is not None and (lease.holder != before.holder or lease.until_us == 0):
            self._marks.remove(claim.thread, before)
        return lease if lease is not None and lease.holder else None

    def leases(self, query: LeaseQuery) -> LeasePage:
        """See `Backend.leases`."""
        return self._marks.listed(query, self._reader.root)

    def is_late(self, save: Save) -> bool:
        """Say whether a save's token is not that of the thread's lease."""
        if save.token is None:
            return False
        known = self._reader.known(save.thread)
        if known is not None and not is_late(save.token, known[0].lease):
            return False  # the head that it goes on from is compared when it is replaced
        return is_late(save.token, self._reader.fresh(save.thread)[0].lease)

    def keep_header(self, save: SaveWrites) -> bool:
        """Give a thread the header with which writes are sealed; False if they are not sealed with its key."""
        thread, header = save.thread, save.header
        known = self._reader.known(thread)
        held = b"" if known is None else known[0].header
        if not header:  # it is enough that who has read an encrypted thread is refused
            return not (held and self._reader.fresh(thread)[0].header)
        if held and not is_rekeyed(header, held):
            return True

        def change(head: Head) -> Head | None:
            if head.header or is_rekeyed(header, head.header):
                return None
            return replace(head if head.epoch else empty_head(), thread=thread, header=header)

        return not is_rekeyed(header, self.edit(thread, change).header)

    def headers(self, threads: Sequence[str]) -> dict[str, bytes]:
        """Return the headers of those threads that have one."""
        at = {self._reader.keys(thread).head: thread for thread in threads}
        found = {at[key]: decode_head(item.data) for key, item in self._bucket.get_many(at).items()}
        return {thread: head.header for thread, head in found.items() if head.header and not self._reader.over(head)}

    def rewrap(self, thread: str, before: bytes, header: bytes) -> bool:
        """Replace a header if it is still the given one."""

        def change(head: Head) -> Head | None:
            return replace(head, header=header) if head.header == before else None

        return self.edit(thread, change).header == header

    def count(self, thread: str, batches: Sequence[tuple[SaveWrites, bytes]]) -> Sequence[bool]:
        """Make batches of writes count in one step, and say for each whether it does; if not, its token was late."""

        def change(head: Head) -> Head | None:
            new = head
            for save, batch in batches:
                if not is_late(save.token, head.lease):
                    new = with_batch_of(new, save.ref, batch)
            return None if new is head else new

        head = self.edit(thread, change)
        entries = inline(head)
        return [batch in counting(head, entries, save.ref) for save, batch in batches]

    def retire(self, thread: str, sure_us: int) -> Head | None:
        """Take a leased thread's rows and its lease away; None if it has no lease.

        The head that it leaves keeps the token, for claims by clocks that differ. One whose token is older than
        `sure_us` need not stay.
        """

        before: Held | None = None

        def change(head: Head) -> Head | None:
            nonlocal before
            before = head.lease
            if head.lease is None:
                return None
            return replace(empty_head(), lease=Held("", "", head.lease.token + 1, 0))

        head = self.edit(thread, change)
        if head.lease is None:
            return None
        self._marks.remove(thread, before)
        if head.lease.token < self._bucket.now_us(self._reader.clock) - sure_us:
            self._bucket.delete([self._reader.keys(thread).head])
        return head
