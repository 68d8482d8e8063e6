"""Which threads are leased: an object `l/<thread>/<holder>` for each lease, so that a listing reads no other thread.

It is there before the lease, and goes after it was given back. The head of the thread alone tells whether a lease is
held; a mark that no head agrees with was left by a crash, or is a little ahead of its lease.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.layout import decode_head, digest
from langgraph_statekit.checkpoint.claims import Held, LeasePage, LeaseQuery, is_listed
from langgraph_statekit.errors import StatekitError

_ABANDONED_S: Final = 3600.0
"""No claim takes so long."""


class Marks:
    """The marks of leases below `root`."""

    def __init__(self, bucket: Bucket, root: str, clock: str) -> None:
        self._bucket = bucket
        self._root = root
        self._clock = clock

    def _key(self, thread: str, holder: str) -> str:
        return f"{self._root}/{digest(thread)}/{digest(holder)}"

    def put(self, thread: str, holder: str) -> None:
        """Mark a thread that is about to be leased."""
        self._bucket.put(self._key(thread, holder), thread.encode())

    def remove(self, thread: str, held: Held | None) -> None:
        """Take away the mark of a lease that is over; the lease is over all the same if that fails."""
        if held is not None and held.holder:
            with suppress(StatekitError):
                self._bucket.delete([self._key(thread, held.holder)])

    def listed(self, query: LeaseQuery, threads: str) -> LeasePage:
        """Return a page of leases by the names of their marks; `threads` is the folder of threads."""
        now_us = self._bucket.now_us(self._clock)
        stats = self._bucket.stats(self._root)
        keys = sorted(key for key in stats if key > query.after)
        page = keys[: query.limit]
        heads = {key: f"{threads}/{key.split('/')[-2]}/head" for key in page}
        found = self._bucket.get_many({*heads.values()})
        leases, stale = {}, []
        for key in page:
            item = found.get(heads[key])
            head = decode_head(item.data) if item else None
            held = head.lease if head else None
            if held is None or held.until_us == 0 or digest(held.holder) != key.split("/")[-1]:
                stale += [key] if stats[key].modified_s < now_us / 1e6 - _ABANDONED_S else []
            elif is_listed(query, held, now_us):
                leases[key] = held
        names = self._bucket.get_many(leases)
        if stale:
            with suppress(StatekitError):
                self._bucket.delete(stale)
        listed = [(names[key].data.decode(), held) for key, held in leases.items() if key in names]
        return LeasePage(listed, now_us, page[-1] if len(keys) > len(page) else "")
