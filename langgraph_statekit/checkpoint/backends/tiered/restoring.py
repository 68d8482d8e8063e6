"""Threads as they were: a copy of what was stored up to a checkpoint or a time, made in the cold store."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack, new_life
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX
from langgraph_statekit.checkpoint.frames import with_bases
from langgraph_statekit.checkpoint.labels import is_label
from langgraph_statekit.checkpoint.records import Row, from_text
from langgraph_statekit.errors import CheckpointMissing, Misuse

_TIMED: Final = 1_000_000_000_000
"""A place in the order from here on is a time in microseconds, see `order.place`."""

Moment = datetime | str
"""A time, or the id of a checkpoint."""


def as_of(held: Thread, at: Moment | None) -> Thread | None:
    """Return a thread as it was; None if it was not there yet.

    Writes bear no time: those of a checkpoint that has a child by then are older than the child, so they stay. Of
    others only interrupts do, so that what a task answered later is not known yet. Labels stay with their checkpoints.

    Args:
        held: The thread as it is.
        at: Up to this moment; a checkpoint included. None: as it is.

    Raises:
        CheckpointMissing: There is no such checkpoint.
        Misuse: A time is given, and the thread's checkpoint ids hold none.
    """
    if at is None:
        return held
    last = _last(held.rows.values(), at)
    rows = {ref: row for ref, row in held.rows.items() if not is_label(row) and row.seq <= last}
    if not any(not row.hidden for row in rows.values()):
        return None
    ids = {ref.id for ref in rows}  # of a sealed label the namespace cannot be read here
    rows |= {ref: row for ref, row in held.rows.items() if is_label(row) and row.parent in ids}
    gone_on = {row.ref._replace(id=row.parent) for row in rows.values() if row.parent and not is_label(row)}
    writes = {
        ref: {key: write for key, write in each.items() if ref in gone_on or write.idx == INTERRUPT_IDX}
        for ref, each in held.writes.items()
        if ref in rows
    }
    needed = with_bases(held.frames, {key for row in rows.values() for key in row.keys})
    return replace(
        held,
        seq=max(row.seq for row in rows.values()),
        rows=rows,
        frames={key: held.frames[key] for key in needed},
        writes={ref: each for ref, each in writes.items() if each},
    )


def _last(rows: Iterable[Row], at: Moment) -> int:
    """Return the place in the order up to which rows are from before."""
    real = [row for row in rows if not is_label(row)]
    if isinstance(at, datetime):
        if max((row.seq for row in real), default=_TIMED) < _TIMED:
            raise Misuse("the ids of this thread's checkpoints hold no time: name a checkpoint instead")
        return int(at.timestamp() * 1_000_000)
    found = [row.seq for row in real if row.ref.id == at and not row.hidden]
    if not found:
        raise CheckpointMissing(f"there is no checkpoint {from_text(at)!r}: retention removed it, or it never was")
    return max(found)


class Restoring:
    """Makes threads of what threads were.

    Args:
        hot: The upper tier.
        cold: The lower one.
        moving: Moves threads between them.
    """

    def __init__(self, hot: Tier, cold: Cold, moving: Moving) -> None:
        self._hot, self._cold, self._moving = hot, cold, moving

    def adopt(self, thread: str, held: Thread) -> bool:
        """Begin a thread with what was another one; False, and nothing done, if it exists.

        A repeat, of which `held.copied_by` tells, finds what it made.
        """
        for pause_s in pauses(thread):
            state = self._hot.state(thread)
            if state is not None and not state.here:
                self._moving.upload(thread)  # buries what was there before
            head, tag = self._cold.head(thread)
            if head.live and not self._cold.over(head):
                return head.copied_by == held.copied_by and self._moving.thaw(thread)
            if state is not None and state.here:
                return False
            if self._cold.is_dying(head):
                time.sleep(pause_s)
                continue
            base = new_life(thread, head)
            made = self._cold.upload(base, _pack(held))
            until_us = self._cold.now_us() + abs(held.ttl_us) if held.ttl_us else None
            head = replace(
                base,
                gen=base.gen + 1,
                packs=made.packs,
                header=held.header,
                seq=held.seq,
                copied_by=held.copied_by,
                ttl_us=held.ttl_us,
                until_us=until_us,
            )
            if self._cold.publish(thread, head, tag):
                return self._moving.thaw(thread)
            self._cold.discard(base, made)
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")


def _pack(held: Thread) -> Pack:
    return Pack(
        {(ref.ns, ref.id): row for ref, row in held.rows.items()},
        {key: frame.stored for key, frame in held.frames.items()},
        {(ref.ns, ref.id): list(each.values()) for ref, each in held.writes.items()},
    )
