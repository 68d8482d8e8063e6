"""When a thread expires: as a whole, by the store's clock, and not while somebody waits for it. Pure.

A thread's time to live, `ttl_us`, is the one that its last checkpoint came with: 0 for none; a negative one of the same
length expires interrupted threads too. Its end, `until_us`, is None while it does not expire. Reads, writes and lease
renewals set it anew once less than nine tenths of the time are left, so that most of them change nothing.

A thread is interrupted if the latest checkpoint of a namespace has an interrupt among its writes, unless the root has
gone on since: what waits in a subgraph that nobody calls any more waits for nobody.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

from langgraph_statekit.checkpoint.records import Ref, Row

INTERRUPT_IDX: Final = -3
"""`Write.idx` of an interrupt."""
ORPHANS_US: Final = 24 * 3600 * 1_000_000
"""Writes whose checkpoint did not come for so long are swept."""


class Swept(NamedTuple):
    """What a sweep removed: expired threads, checkpoints' worth of orphaned writes; and whether more is left."""

    threads: int = 0
    orphans: int = 0
    more: bool = False


def is_over(until_us: int | None, now_us: int) -> bool:
    """Say whether a thread has expired."""
    return until_us is not None and until_us <= now_us


def is_due(ttl_us: int, until_us: int | None, now_us: int) -> bool:
    """Say whether so little time is left that a read or a write sets the end anew."""
    return until_us is not None and 10 * (until_us - now_us) < 9 * abs(ttl_us)


def end(ttl_us: int, until_us: int | None, now_us: int, *, held: bool, leased_us: int = 0) -> int | None:
    """Return when a thread ends that something happens to now.

    Args:
        ttl_us: Its time to live.
        until_us: When it would have ended.
        now_us: The store's clock.
        held: Whether it is interrupted.
        leased_us: When its lease ends; it does not end before.
    """
    if ttl_us == 0 or (held and ttl_us > 0):
        return None
    if until_us is None or until_us - now_us > abs(ttl_us) or is_due(ttl_us, until_us, now_us):
        until_us = now_us + abs(ttl_us)
    return max(until_us, leased_us)


def is_held(latest: Iterable[Row], interrupted: Container[Ref]) -> bool:
    """Say whether a thread is interrupted.

    Args:
        latest: Its visible rows, highest `seq` first, at least down to the first one of the root.
        interrupted: Those that have an interrupt among their writes.
    """
    seen = set()
    for row in latest:
        if row.ref.ns not in seen and row.ref in interrupted:
            return True
        if row.ref.ns == "":
            return False
        seen.add(row.ref.ns)
    return False
