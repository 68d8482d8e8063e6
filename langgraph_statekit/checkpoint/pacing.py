"""When a thread's retention is due: seldom enough that it costs little beside the puts."""

from __future__ import annotations

from typing import Final, NamedTuple

from langgraph_statekit.checkpoint.cache import Cache

_LEAST_SAVES: Final = 16
_UNCOUNTED: Final = 128
_KNOWN_BYTES: Final = 4 << 20
_ENTRY_BYTES: Final = 200


def is_due(rev: int, period: int) -> bool:
    """Say whether the save that gave its thread this `rev` makes a pass: one in each period, whoever saves.

    The next save does if that was none that could: a removal, or of a saver without retention. After a pass its removal
    has that place, so no save makes a second one.
    """
    return _ends(rev, period) or _ends(rev - 1, period)


def _ends(rev: int, period: int) -> bool:
    # One in 128 is not counted. Else savers without retention, if they saved in step with the period, would be those
    # that cannot make a pass again and again.
    return rev % _UNCOUNTED > 0 and _counted(rev) % period == 0


def period_of(keep_last: int, left: int) -> int:
    """Return how many saves have one pass: 16, or two thirds of `keep_last`, or up to half of what the last pass left.

    What a pass reads grows with the thread, so its share of the saves' cost does not. A longer period is a shorter one
    times a power of two: who knows of no long thread makes all the passes that are due to who does.
    """
    least = max(_LEAST_SAVES, keep_last * 2 // 3)
    return least << max(0, (left // (2 * least)).bit_length() - 1)


class Known(NamedTuple):
    """What a process knows of a thread.

    Attributes:
        rev: The thread's at its last pass here.
        left: How many checkpoints that left.
        seen: The thread's rev at the last save here.
        saves: How many were made here since the last pass that is known of.
    """

    rev: int = 0
    left: int = 0
    seen: int = 0
    saves: int = 0

    def after(self, rev: int, period: int) -> Known:
        """Return what is known after a save; whoever made one that ended a period has made a pass."""
        goes_on = 0 < rev - self.seen <= period
        passed = goes_on and _counted(rev) // period != _counted(self.seen) // period
        return self._replace(seen=rev, saves=1 if passed else self.saves + 1)


def _counted(rev: int) -> int:
    return rev - rev // _UNCOUNTED


class Pacing:
    """What a process knows of its last passes; without that all goes well, too."""

    def __init__(self) -> None:
        self._known = Cache[str, Known](_KNOWN_BYTES)

    def due(self, thread: str, rev: int, keep_last: int | None) -> bool:
        """Say whether the save that gave a thread this `rev` makes a pass, and take it for made.

        A thread that comes back from a cold store goes on at another rev: so that none is due for ever, a process makes
        one after a period of its own saves, too, if nobody can have made one since.
        """
        before = self._known.get(thread) or Known()
        period = period_of(keep_last or 0, before.left)
        known = before.after(rev, period)
        due = (is_due(rev, period) or known.saves > period) and not 0 <= rev - known.rev < _LEAST_SAVES
        self._known.put(thread, known._replace(rev=rev, saves=0) if due else known, len(thread) + _ENTRY_BYTES)
        return due

    def passed(self, thread: str, rev: int, left: int) -> None:
        """Take note of a pass that left so many checkpoints."""
        self._known.put(thread, Known(rev, left, rev), len(thread) + _ENTRY_BYTES)
