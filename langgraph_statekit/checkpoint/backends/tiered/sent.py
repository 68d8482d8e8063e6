"""What this process brought to the cold store last, by which it knows that a save is there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.records import Row, Save, SaveRow, Write

_BYTES: Final = 4 << 20
_LAST: Final = 4


class Sent:
    """Remembers the last packs of each thread, without their frames; what it has forgotten can be looked up."""

    def __init__(self) -> None:
        self._packs = Cache[str, tuple[Pack, ...]](_BYTES)

    def add(self, thread: str, pack: Pack) -> None:
        """Note that a pack counts."""
        packs = (*(self._packs.get(thread) or ()), Pack(pack.rows, writes=pack.writes))[-_LAST:]
        self._packs.put(thread, packs, sum(map(_size_bytes, packs)))

    def has(self, save: Save) -> bool:
        """Say whether a save went along with one of them."""
        ref = save.row.ref if isinstance(save, SaveRow) else save.ref
        place = ref.ns, ref.id
        packs = self._packs.get(ref.thread) or ()
        return any(has_save(save, pack.rows.get(place), pack.writes.get(place, ())) for pack in packs)


def has_save(save: Save, row: Row | None, writes: Iterable[Write]) -> bool:
    """Say whether a save was made to what stands at its address."""
    if isinstance(save, SaveRow):
        return row is not None and row.body == save.row.body
    there = {(write.task, write.idx): write for write in writes}
    return all(
        (write.task, write.idx) in there and (write.idx >= 0 or write == there[write.task, write.idx])
        for write in save.writes
    )


def is_in(save: Save, held: Thread) -> bool:
    """Say whether a save was made to a thread."""
    ref = save.row.ref if isinstance(save, SaveRow) else save.ref
    return has_save(save, held.rows.get(ref), held.writes.get(ref, {}).values())


def _size_bytes(pack: Pack) -> int:
    sizes = [len(row.body) + 200 for row in pack.rows.values()]
    return sum(sizes) + sum(len(write.data) + 200 for each in pack.writes.values() for write in each)
