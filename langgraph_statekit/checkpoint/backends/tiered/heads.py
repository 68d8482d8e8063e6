"""Heads in the cold store, as they are stored, or as packs tell those that are missing or damaged."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT, Found
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Keys, decode_head
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import BadHead, gen_told, head_told
from langgraph_statekit.checkpoint.backends.tiered.packs import Packs
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.expiry import is_over
from langgraph_statekit.errors import Corrupt

_LOG: Final = logging.getLogger(__name__)
NO_HEAD: Final = ColdHead("")
_HEADS_BYTES: Final = 8 << 20
_ABSENT_S: Final = 5.0
"""For so long a head that is not there is not looked for again in packs."""

Known = tuple[ColdHead, str]
"""A head and the tag of its object."""


class Heads:
    """Reads them.

    Args:
        bucket: Makes the requests.
        prefix: Folder of all objects.
        name: What messages call the store.
        offload_bytes: From this size on a stored value is an object of its own.
    """

    def __init__(self, bucket: Bucket, prefix: str, name: str, offload_bytes: int) -> None:
        self.bucket, self.name = bucket, name
        self.folder = f"{prefix}/c" if prefix else "c"
        self._clock = f"{prefix}/clock" if prefix else "clock"
        self._heads = Cache[str, Known](_HEADS_BYTES)
        self._asked_s = Cache[str, float](_HEADS_BYTES)
        self.packs = Packs(bucket, self.folder, name, offload_bytes)

    def head(self, thread: str, *, anew: bool = False) -> Known:
        """Read the head of a thread; `NO_HEAD` and `ABSENT` if there is none.

        One that is missing or damaged is made from what the thread's packs tell; the next that is stored replaces it.

        Args:
            thread: The thread.
            anew: Ask the packs of one that is missing or damaged, also if they were asked before.

        Raises:
            BadHead: It is damaged, and no pack tells of it; or it is told from packs one of which cannot be read.
        """
        before = None if anew else self._fresh(thread)
        known = self.head_at(digest(thread), before)
        self._heads.put(thread, known, 1000 + 40 * len(known[0].packs))
        if known[1] == ABSENT and (before is None or before[1] != ABSENT):
            self._asked_s.put(thread, time.monotonic(), 0)
        return known

    def _fresh(self, thread: str) -> Known | None:
        """Return the head that was read or written last here; not what was missing a while ago, as it may be lost."""
        known = self._heads.get(thread)
        if known is None or known[1] != ABSENT:
            return known
        return known if time.monotonic() - (self._asked_s.get(thread) or float("-inf")) < _ABSENT_S else None

    def head_at(self, name: str, before: Known | None = None) -> Known:
        """Read the head of the thread that has this folder.

        Args:
            name: The folder.
            before: What it was a moment ago; of what was not there it is not asked again whether it is lost.
        """
        found, bad = self.stored(name)
        if found is not None and bad is None:
            return decode_head(found.data), found.tag
        tag = ABSENT if found is None else found.tag
        if before is not None and before[1] == tag:
            return before
        keys = Keys.at(self.folder, name)
        told, unread = self.packs.told(keys)
        head = head_told(told)
        gen = 0 if head is None else gen_told(head)
        what = f"object {keys.head} of {self.name}"
        if unread:  # it may be the newest
            raise BadHead(f"{what} is {bad or 'missing'}, and {unread[0]}: statekit verify --repair", tag, gen)
        if head is None and bad is None:
            return NO_HEAD, ABSENT
        if head is None:
            raise BadHead(f"{what}: {bad}; nothing tells of it: statekit verify --repair", tag) from bad
        if head.header:
            key = self.packs.get(head, head.header)
            if key is None:
                raise BadHead(f"{what} is lost, and the thread's key with it", tag, gen) from bad
            head = replace(head, header=key)
        if head.until_us is not None:  # reads may have set it anew since
            head = replace(head, until_us=self.bucket.reading_us(self._clock) + abs(head.ttl_us))
        _LOG.warning("%s is %s: packs tell of it, see statekit verify --repair", what, bad or "missing")
        return head, tag

    def stored(self, name: str) -> tuple[Found | None, Corrupt | None]:
        """Return the head's object in a folder, and what is wrong with it."""
        found = self.bucket.get(Keys.at(self.folder, name).head)
        try:
            if found is not None:
                decode_head(found.data)
        except Corrupt as error:
            return found, error
        return found, None

    def stored_head(self, thread: str) -> ColdHead:
        """Return the head of a thread as it is stored; `NO_HEAD` if there is none.

        Raises:
            Corrupt: It is damaged; or missing, though packs tell of it.
        """
        found, bad = self.stored(digest(thread))
        if bad is not None or (found is None and self.head_at(digest(thread))[0].live):
            what = f"object {self._keys(thread).head} of {self.name}"
            raise Corrupt(f"{what} is {bad or 'missing'}: repair it there first, as a cold store") from bad
        return NO_HEAD if found is None else decode_head(found.data)

    def lives(self, name: str) -> set[str]:
        """Return the epochs of which there is something in the folder of a thread."""
        keys = Keys.at(self.folder, name)
        return {keys.epoch_in(key) for key in self.bucket.list(keys.root) if key != keys.head}

    def known(self, thread: str) -> Known:
        """Return the head that was read or written last here, or read it; it may be out of date."""
        return self._fresh(thread) or self.head(thread)

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

    def _keys(self, thread: str) -> Keys:
        return Keys.of(self.folder, thread)
