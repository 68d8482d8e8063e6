"""Threads as they were, made in the cold store: copies of what was stored up to a time, and what lost its head."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import State, Tier
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Pack, new_life, tombstone
from langgraph_statekit.checkpoint.backends.tiered.lives import is_dead
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import LOST, BadHead, gen_told
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.reading import Reading
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX
from langgraph_statekit.checkpoint.frames import with_bases
from langgraph_statekit.checkpoint.labels import is_label
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, Row, from_text
from langgraph_statekit.errors import CheckpointMissing, Corrupt, Misuse

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
        try:
            head, _ = self._cold.head(thread, anew=True)
        except BadHead as error:
            return str(error)
        if found is None and head.live:
            return "its head is missing"
        return ""

    def lacks_key(self, thread: str) -> bool:
        """Say whether there is no copy of a thread's key beside its packs, as of one that is from before these were.

        The head has the key, so nothing is damaged; but a head that is lost could not be told.
        """
        head, _ = self._cold.head(thread)
        return bool(head.header) and self._cold.packs.get(head, head.header[:HEADER_ID_BYTES]) != head.header

    def repair(self, thread: str) -> bool:
        """Store the head of a thread anew if that is missing or damaged, and say whether it was.

        It is what the packs tell, or that of a replica if it is newer. If neither tells, the thread begins anew with
        what the hot store has. A deletion that is known of is ended.

        Raises:
            Corrupt: What is left may not be all, or a replica cannot be read; nothing was done.
            Unavailable: A replica does not answer; nothing was done.
        """
        for pause_s in pauses(thread):
            if not self.harm(thread):
                if not self.lacks_key(thread):
                    return False
                self._cold.settle_key(self._cold.known(thread)[0])
                return True
            state = self._hot.state(thread)
            if state is not None and not state.here:
                self._moving.upload(thread)  # puts a tombstone there, as it was deleted
                return True
            found, bad = self._cold.stored(digest(thread))
            if found is not None and bad is None:
                continue
            made = self._told(thread, state)
            if made is None:
                return False
            # Else another one stored a head meanwhile.
            if made[1] == (ABSENT if found is None else found.tag) and self._stored(thread, *made):
                if state is not None:
                    self._moving.upload(thread)
                return True
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def _told(self, thread: str, state: State | None) -> tuple[ColdHead, str] | None:
        """Return the head to store, all of whose packs are there, and instead of what; None if there is no thread."""
        copy = self._reading.newest_copy(thread)
        try:
            head, tag = self._cold.head(thread)
        except BadHead as bad:
            if copy.gen <= 0 or copy.gen < bad.gen:
                return self._lost(thread, state, bad), bad.tag
            return self._copied(copy, 0, state), bad.tag
        if copy.gen > gen_told(head) or head.epoch in copy.dead:
            return self._copied(copy, head.gen, state), tag
        if self._reading.own_image(thread) is None:  # or all of it is there, or was put back from a replica
            return None
        return replace(head, gen=head.gen + 1), tag

    def _copied(self, copy: ColdHead, gen: int, state: State | None) -> ColdHead:
        """Return the head of a replica as that of the cold store."""
        if copy.live:
            self._reading.bring_back(copy)
            id = copy.header[:HEADER_ID_BYTES]  # the replica may not know of a rotation
            header = (id and self._cold.packs.get(copy, id)) or copy.header
            made = replace(copy, header=header, is_copy=True)
        elif state is None or state.complete or is_dead(state, copy):
            made = tombstone(copy, 0, self._cold.now_us())
        else:
            raise Corrupt("the thread was deleted, and begun anew, of which the hot store has only a part")
        return replace(made, gen=max(made.gen, gen + 1, time.time_ns() // 1000))

    def _lost(self, thread: str, state: State | None, bad: BadHead) -> ColdHead:
        """Return the head of a thread of which only the hot store has something, or nobody."""
        lost = ColdHead(LOST, thread)
        if state is not None and state.complete and state.gen >= bad.gen:
            return self._begun(thread, lost, Thread())
        if state is not None or len(self._cold.objects(thread)) > 1:
            raise bad
        return tombstone(lost, 0, self._cold.now_us())

    def _stored(self, thread: str, head: ColdHead, tag: str) -> bool:
        if head.header:
            self._cold.packs.put(head, head.header[:HEADER_ID_BYTES], head.header)
        if not self._cold.publish(thread, head, tag):
            return False
        if not head.live:
            self._cold.clear(thread)
        return True


def _pack(held: Thread) -> Pack:
    return Pack(
        {(ref.ns, ref.id): row for ref, row in held.rows.items()},
        {key: frame.stored for key, frame in held.frames.items()},
        {(ref.ns, ref.id): list(each.values()) for ref, each in held.writes.items()},
    )
