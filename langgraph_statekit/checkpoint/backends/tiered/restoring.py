"""Threads as they were, made in the cold store: copies of what was stored up to a time, and what lost its head."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.cold import BadHead, Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Pack, new_life, tombstone
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.reading import Reading
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX
from langgraph_statekit.checkpoint.frames import with_bases
from langgraph_statekit.checkpoint.labels import is_label
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, Row, from_text
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
        reading: Reads what is there, or in replicas.
    """

    def __init__(self, hot: Tier, cold: Cold, moving: Moving, reading: Reading) -> None:
        self._hot, self._cold, self._moving, self._reading = hot, cold, moving, reading

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
            if self._cold.append(self._begun(thread, head, held), _pack(held), tag) is not None:
                return self._moving.thaw(thread)
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def _begun(self, thread: str, before: ColdHead, held: Thread) -> ColdHead:
        base = new_life(thread, before)
        return replace(
            base,
            gen=base.gen + 1,
            header=held.header,
            seq=held.seq,
            copied_by=held.copied_by,
            ttl_us=held.ttl_us,
            until_us=self._ends_us(held.ttl_us),
        )

    def _ends_us(self, ttl_us: int) -> int | None:
        return self._cold.now_us() + abs(ttl_us) if ttl_us else None

    def harm(self, thread: str) -> str:
        """Say what is wrong with the head of a thread; empty if nothing is, or there is no thread."""
        found, bad = self._cold.stored(digest(thread))
        if bad is not None:
            return f"its head is damaged: {bad}"
        head, _ = self._cold.head(thread, anew=True)
        if found is None and head.live:
            return "its head is missing"
        has_key = not head.header or self._cold.packs.get(head, head.header[:HEADER_ID_BYTES]) == head.header
        return "" if has_key else "the copy of its key is missing or damaged"

    def repair(self, thread: str) -> bool:
        """Store the head of a thread anew if that is missing or damaged, and say whether it was.

        It is what the packs tell. If they do not, the thread begins anew with what a replica or the hot store has, and
        counts as deleted if neither has anything.

        Raises:
            Corrupt: A pack or a value is gone, too, and no replica has it; nothing was done.
        """
        for pause_s in pauses(thread):
            if not self.harm(thread):
                return False
            state = self._hot.state(thread)
            if state is not None and not state.here:
                self._moving.upload(thread)  # puts a tombstone there, as it was deleted
            elif not self._mended(thread, is_hot=state is not None):
                time.sleep(pause_s)
                continue
            elif state is not None:
                self._moving.upload(thread)
            return True
        raise AssertionError("pauses end with an error")

    def _mended(self, thread: str, *, is_hot: bool) -> bool:
        try:
            if self._reading.own_image(thread) is None:  # or all of it is there, or was put back from a replica
                return True
            head, tag = self._cold.known(thread)
            if head.header:
                self._cold.packs.put(head, head.header[:HEADER_ID_BYTES], head.header)
            new = replace(head, gen=head.gen + 1, until_us=self._ends_us(head.ttl_us))
            return self._cold.publish(thread, new, tag)
        except BadHead as bad:
            lost = ColdHead("lost", thread)
            with suppress(BadHead):
                found = self._reading.image(thread)
                if found is not None:
                    held = replace(found[1], ttl_us=found[0].ttl_us)
                    return self._cold.append(self._begun(thread, lost, held), _pack(held), bad.tag) is not None
            new = self._begun(thread, lost, Thread()) if is_hot else tombstone(lost, 0, self._cold.now_us())
            return self._cold.publish(thread, new, bad.tag)


def _pack(held: Thread) -> Pack:
    return Pack(
        {(ref.ns, ref.id): row for ref, row in held.rows.items()},
        {key: frame.stored for key, frame in held.frames.items()},
        {(ref.ns, ref.id): list(each.values()) for ref, each in held.writes.items()},
    )
