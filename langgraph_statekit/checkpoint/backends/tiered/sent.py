"""What this process brought to the cold store last, by which it knows that a save is there."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.records import Row, Save, SaveRow, Write

_BYTES: Final = 4 << 20
_LAST: Final = 4
_ENTRY_BYTES: Final = 200


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


class Order:
    """Tells whether a save is the last one here to its address: what an earlier one said is no loss."""

    def __init__(self) -> None:
        self._tickets = count(1)
        self._last = Cache[tuple[str, ...], int](_BYTES)

    def take(self, save: Save) -> int:
        """Return a save's ticket, before it is made."""
        ticket = next(self._tickets)
        self._last.put(_address(save), ticket, _ENTRY_BYTES)
        return ticket

    def is_last(self, save: Save, ticket: int) -> bool:
        """Say whether no later one was begun."""
        return self._last.get(_address(save)) in (ticket, None)


def _address(save: Save) -> tuple[str, ...]:
    if isinstance(save, SaveRow):
        return save.row.ref
    return (*save.ref, *sorted({write.task for write in save.writes}))


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
    sizes = [len(row.body) + _ENTRY_BYTES for row in pack.rows.values()]
    return sum(sizes) + sum(len(write.data) + _ENTRY_BYTES for each in pack.writes.values() for write in each)
