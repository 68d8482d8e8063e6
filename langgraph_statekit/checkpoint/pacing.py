"""When a thread's retention is due: seldom enough that it costs little beside the puts."""

from __future__ import annotations

from typing import Final

from langgraph_statekit.checkpoint.cache import Cache

_LEAST_SAVES: Final = 16
_UNCOUNTED: Final = 128
_KNOWN_BYTES: Final = 2 << 20


def is_due(rev: int, period: int) -> bool:
    """Say whether the save that gave its thread this `rev` makes a pass: one in each period, whoever saves.

    The next save does if that was none that could: a removal, or of a saver without retention. After a pass its removal
    has that place, so no save makes a second one.
    """
    return _ends(rev, period) or _ends(rev - 1, period)


def _ends(rev: int, period: int) -> bool:
    # One in 128 is not counted. Else savers without retention, if they saved in step with the period, would be those
    # that cannot make a pass again and again.
    rounds, place = divmod(rev, _UNCOUNTED)
    return place > 0 and (rev - rounds) % period == 0


def period_of(keep_last: int, left: int) -> int:
    """Return how many saves have one pass: 16, or two thirds of `keep_last`, or up to half of what the last pass left.

    What a pass reads grows with the thread, so its share of the saves' cost does not. A longer period is a shorter one
    times a power of two: who knows of no long thread makes all the passes that are due to who does.
    """
    least = max(_LEAST_SAVES, keep_last * 2 // 3)
    return least << max(0, (left // (2 * least)).bit_length() - 1)


class Pacing:
    """What a process knows of its last passes; without that all goes well, too."""

    def __init__(self) -> None:
        self._known = Cache[str, tuple[int, int]](_KNOWN_BYTES)

    def due(self, thread: str, rev: int, keep_last: int | None) -> bool:
        """Say whether the save that gave a thread this `rev` makes a pass, and take it for made."""
        at, left = self._known.get(thread) or (0, 0)
        due = is_due(rev, period_of(keep_last or 0, left)) and not 0 <= rev - at < _LEAST_SAVES
        if due:
            self._known.put(thread, (rev, left), len(thread))
        return due

    def passed(self, thread: str, rev: int, left: int) -> None:
        """Take note of a pass that left so many checkpoints."""
        self._known.put(thread, (rev, left), len(thread))
