"""One copy of the cold store in another place."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.heads import NO_HEAD
from langgraph_statekit.checkpoint.backends.tiered.layout import (
    ColdHead,
    Keys,
    decode_head,
    decode_pack,
    encode_head,
)
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import LOST
from langgraph_statekit.checkpoint.backends.tiered.packs import Check, Gone, value_of
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES
from langgraph_statekit.errors import Corrupt

_RETRY_S: Final = 1.0
_MOST_RETRY_S: Final = 60.0


class Replica:
    """Takes over what the cold store has, thread by thread.

    Args:
        cold: The cold store.
        place: Where the copy is.

    Attributes:
        error: What the last request to it failed with; empty if it answered.
        until_s: While it does not answer, when to ask it again, by the monotonic clock.
    """

    def __init__(self, cold: Cold, place: Cold) -> None:
        self._cold, self.place, self.name = cold, place, place.name
        self.error, self.until_s, self._failures = "", 0.0, 0

    @property
    def rests(self) -> bool:
        """Whether it is left alone for a while."""
        return time.monotonic() < self.until_s

    def failed(self, error: Exception) -> None:
        """Note that it did not answer."""
        if not self.rests:  # several calls at once fail once
            self.until_s = time.monotonic() + min(_RETRY_S * 2.0 ** min(self._failures, 8), _MOST_RETRY_S)
            self._failures += 1
        self.error = f"{type(error).__name__}: {error}"

    def answered(self) -> bool:
        """Note that it did, and say whether that is news."""
        was, self.error, self.until_s, self._failures = self.error, "", 0.0, 0
        return bool(was)

    def bring(self, name: str, *, whole: bool = False) -> int:
        """Bring a thread over, given the name of its folder, and return the generation that is there then.

        Args:
            name: The folder.
            whole: Look whether all objects are there, also if the head is.

        Raises:
            Corrupt: An object of the cold store is damaged; nothing was changed.
        """
        key = Keys.at(self._cold.folder, name).head
        for pause_s in pauses(name):
            found = self._cold.bucket.get(key)
            if found is None:
                return 0
            head = decode_head(found.data)
            held, tag = self._held(name)
            if held.gen > head.gen or (held.gen == head.gen and not whole):
                return held.gen
            try:
                self._copy(name, head, held, whole)
            except Gone as gone:
                again = self._cold.bucket.get(key)
                if again is not None and again.tag == found.tag:
                    raise Corrupt(f"{gone} is missing in {self._cold.name}") from gone
                continue
            if held.gen == head.gen:
                if head.header and self.place.packs.get(head, head.header[:HEADER_ID_BYTES]) != head.header:
                    self.place.settle_key(head)
                return head.gen
            if self._publish(name, head, held, tag):
                return head.gen
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def _held(self, name: str) -> tuple[ColdHead, str]:
        found = self.place.bucket.get(Keys.at(self.place.folder, name).head)
        try:
            return (NO_HEAD, ABSENT) if found is None else (decode_head(found.data), found.tag)
        except Corrupt:
            assert found is not None
            return NO_HEAD, found.tag  # it is written over

    def _copy(self, name: str, head: ColdHead, held: ColdHead, whole: bool) -> None:
        """Bring over packs, and the values that they name."""
        old = {ref.name for ref in held.packs} if held.epoch == head.epoch and not whole else set()
        new = [ref for ref in head.packs if ref.name not in old]
        values = {ref.name: ref for pack in self._cold.packs.read(head, new) for ref in pack.values.values()}
        checks: dict[bytes, Check] = {name: partial(value_of, ref) for name, ref in values.items()}
        checks |= {ref.name: partial(decode_pack, head.thread) for ref in new}
        sizes = {ref.name: ref.size_bytes for ref in new} | {name: ref.size_bytes for name, ref in values.items()}
        there = self.place.sizes(name, head.epoch) if whole or values else {}

        def one(hex: str) -> None:
            each = bytes.fromhex(hex)
            data = self._cold.packs.get(head, each)
            if data is None:
                raise Gone(f"object {self._cold.packs.key(head, each)}")
            checks[each](data)  # so that no damage spreads
            self.place.packs.put(head, each, data)

        missing = [each.hex() for each, size in sizes.items() if there.get(each) != size]
        self.place.bucket.all(one, missing)

    def _publish(self, name: str, head: ColdHead, held: ColdHead, tag: str) -> bool:
        keys = Keys.at(self.place.folder, name)
        if head.header and head.header != held.header:
            self.place.packs.put(head, head.header[:HEADER_ID_BYTES], head.header)
        if self.place.bucket.swap(keys.head, encode_head(replace(head, is_copy=True)), tag) is None:
            self.place.settle_key(head)
            return False
        if head.live and held.epoch == head.epoch:
            left = set(head.names)
            if gone := [keys.pack(held.epoch, each) for each in held.names if each not in left]:
                self.place.bucket.delete(gone)
        elif held.live or not head.live:
            # Also a life that a deletion could not name, as its head was lost.
            untold = not head.live or LOST in head.dead
            self.place.clear_at(name, is_copy=True, ended=held.epoch if untold else "")
        return True
