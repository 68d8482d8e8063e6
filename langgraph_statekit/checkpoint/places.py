"""What a process knows of the order of threads, to tell the place of a new row before the store gives it."""

from __future__ import annotations

from typing import Final

from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.order import RACE_US, place
from langgraph_statekit.checkpoint.records import Ref, SaveRow
from langgraph_statekit.dice import RANDOM

_PLACES_BYTES: Final = 2 << 20
_ROOM: Final = 8
_MOST_ROOM: Final = 6


class Places:
    """Places of rows that were read or saved here lately, and the last one of each thread.

    One that is wrong costs a request, as the store refuses it. So nothing needs to be forgotten but with its thread: a
    life of a thread has an id of its own, that of its header.
    """

    def __init__(self) -> None:
        self._last = Cache[tuple[str, bytes], int](_PLACES_BYTES)
        self._rows = Cache[tuple[Ref, bytes], int](_PLACES_BYTES)

    def propose(self, save: SaveRow, life: bytes) -> int:
        """Return the place that a row has, or most likely gets; the next row is to come after it."""
        ref, parent = save.row.ref, save.row.parent
        seq = self._rows.get((ref, life))
        if seq is None:
            above = 0 if parent is None else self._rows.get((ref._replace(id=parent), life)) or 0
            seq = place(save.at, self._last.get((ref.thread, life)) or 0, above)
        self.note(ref, seq, life)
        return seq

    def correct(self, save: SaveRow, seq: int, life: bytes, attempt: int) -> None:
        """Have `propose` return the place that the store would give to a row, or one close above it.

        Who was refused more than once makes room for others who want the last place, too: the more often, the more, so
        that each gets its turn.
        """
        if attempt and (save.at == 0 or seq - save.at > RACE_US):
            room = _ROOM ** min(attempt, _MOST_ROOM)
            seq += RANDOM.randrange(room, 2 * room)
        self.note(save.row.ref, seq, life)

    def note(self, ref: Ref, seq: int, life: bytes) -> None:
        """Remember where a row is."""
        self._rows.put((ref, life), seq, 0)
        last = self._last.get((ref.thread, life)) or 0
        self._last.put((ref.thread, life), max(seq, last), 0)
