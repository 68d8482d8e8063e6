"""Where a new checkpoint goes in its thread's order.

The order is that of the commits, so that a host whose clock is behind cannot hide its work. Only runs that race on one
thread are told apart by the time in their ids, as LangGraph itself would sort them.
"""

from __future__ import annotations

from typing import Final

RACE_US: Final = 1_000_000
"""A row whose id is older than the thread's last row by at most this was created while others committed."""
_EPOCH_100NS: Final = 0x01B21DD213814000  # from the start of the Gregorian calendar to that of Unix time
_MOST_US: Final = 1 << 52  # some stores keep the order in a double


def clock_us(id: str) -> int:
    """Return the time in a checkpoint id (UUID version 6) in microseconds since 1970; 0 if it holds none."""
    if len(id) != 36 or id[14] != "6":
        return 0
    try:
        ticks = int(id[0:8] + id[9:13] + id[15:18], 16)
    except ValueError:
        return 0
    at = (ticks - _EPOCH_100NS) // 10
    return at if 0 < at < _MOST_US else 0


def id_at(at_s: float) -> str:
    """Return a checkpoint id that sorts after those from before a time in seconds since 1970, and before all others."""
    ticks = f"{max(int(at_s * 10_000_000), 0) + _EPOCH_100NS:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}-8000-000000000000"


def step_of(id: str, seq: int) -> int:
    """Return the step of a checkpoint, which LangGraph puts into the id (modulo 16,384); of another id its place."""
    return int(id[19:23], 16) & 0x3FFF if clock_us(id) else seq


def place(at: int, last: int, parent: int) -> int:
    """Return the `seq` of a new row; if it is taken, the next free one above it is meant.

    Args:
        at: `clock_us` of its id.
        last: Highest `seq` of the thread, 0 if it has no rows.
        parent: `seq` of its parent, 0 if that is not stored.
    """
    if at == 0 or last - at > RACE_US:
        return last + 1
    return max(at, parent + 1)
