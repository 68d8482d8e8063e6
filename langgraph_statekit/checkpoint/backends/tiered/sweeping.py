"""Removing from the cold store, and its replicas, what is of no use: expired threads, old tombstones, lost packs.

An object cannot be removed on condition. So a tombstone is first marked, by compare-and-set; while the mark is fresh
nobody begins a life there; and whoever marked it removes it only within a shorter time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.drivers import Found
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.layout import (
    ColdHead,
    Keys,
    decode_head,
    encode_head,
    tombstone,
)
from langgraph_statekit.checkpoint.backends.tiered.packs import Gone
from langgraph_statekit.checkpoint.backends.tiered.replica import Replica
from langgraph_statekit.checkpoint.expiry import is_over
from langgraph_statekit.errors import DataError, StatekitError

_EXPIRED_US: Final = 24 * 3600 * 1_000_000
_REMOVED_S: Final = 300.0
"""Half of what `Cold.is_dying` leaves."""


class Sweeper:
    """Looks at every thread of a cold store.

    Args:
        cold: The store.
        replicas: Its replicas.
        tombstone_s: Seconds for which tombstones stay.
        is_hot: Says whether the hot store knows a thread.
        repair: Stores the head of a thread anew.
    """

    def __init__(
        self,
        cold: Cold,
        replicas: Sequence[Replica],
        tombstone_s: float,
        is_hot: Callable[[str], bool],
        repair: Callable[[str], bool],
    ) -> None:
        self._cold, self._replicas, self._is_hot, self._repair = cold, replicas, is_hot, repair
        self._tombstone_us = int(tombstone_s * 1e6)

    def sweep(self, lost_s: float) -> int:
        """Remove what is of no use, and return how many threads had expired.

        Args:
            lost_s: Packs that nothing names for so long go; it must be longer than any upload takes.
        """
        expired = sum(self._look_at(name) for name in self._cold.bucket.folders(self._cold.folder))
        self._clean(self._cold, lost_s)
        for replica in self._replicas:
            with suppress(StatekitError):  # the next sweep finds them
                self._clean(replica.place, lost_s)
        return expired

    def _look_at(self, name: str) -> bool:
        key = Keys.at(self._cold.folder, name).head
        try:
            found, bad = self._cold.stored(name)
        except DataError:
            return False  # a later release wrote it
        if found is None or bad is not None:
            with suppress(StatekitError):  # `statekit verify` tells
                told, _ = self._cold.head_at(name)
                if told.until_us is not None:
                    self._repair(told.thread)  # else it would never end
            return False
        head = decode_head(found.data)
        now_us = self._cold.now_us()
        if head.live:
            if not is_over(head.until_us, now_us - _EXPIRED_US) or self._is_hot(head.thread):
                return False
            if self._cold.publish(head.thread, tombstone(head, 0, now_us), found.tag):
                self._cold.clear(head.thread)
                return True
        elif head.ended_us and now_us - head.ended_us >= self._tombstone_us:
            with suppress(StatekitError):  # it stays for now
                self._remove(name, key, head, found)
        return False

    def _remove(self, name: str, key: str, head: ColdHead, found: Found) -> None:
        """Remove a tombstone: last where nobody may begin a life without having seen it."""
        if any(replica.bring(name) != head.gen for replica in self._replicas):
            return
        begun_s = time.monotonic()
        dying = replace(head, swept_us=self._cold.now_us())
        if self._cold.bucket.swap(key, encode_head(dying), found.tag) is None:
            return
        for cold in (*(replica.place for replica in self._replicas), self._cold):
            last = Keys.at(cold.folder, name).head
            objects = cold.bucket.list(Keys.at(cold.folder, name).root)
            # The head goes last: of a pack that outlives it a head would be told.
            for gone in ([each for each in objects if each != last], [each for each in objects if each == last]):
                if time.monotonic() - begun_s < _REMOVED_S:
                    cold.bucket.delete(gone)
                else:
                    return

    def _clean(self, cold: Cold, lost_s: float) -> None:
        before_s = cold.now_us() / 1e6 - lost_s
        for name in cold.bucket.folders(cold.folder):
            with suppress(DataError, Gone):
                cold.clean(name, before_s)
