"""Which life of a thread a hot store and a head of the cold one speak of, and what the next head says. Pure."""

from __future__ import annotations

import time
from dataclasses import replace

from langgraph_statekit.checkpoint.backends.tiered.hot import Changes, State
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Pack, epoch_of
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import LOST
from langgraph_statekit.checkpoint.claims import is_rekeyed
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, from_text
from langgraph_statekit.errors import Conflict


def is_dead(state: State, head: ColdHead) -> bool:
    """Say whether a thread in the hot store is one that was deleted."""
    epoch = epoch_of(state.epoch)
    if epoch in head.dead:
        return True
    # The epoch of a life whose head was lost when it was deleted may be named nowhere.
    is_other = bool(epoch) and (epoch == head.epoch or LOST not in head.dead)
    return not is_other and state.born <= head.dead_us


def is_whole(state: State, head: ColdHead) -> bool:
    """Say whether the hot store has all of a head for sure."""
    return state.complete and not state.ended and state.epoch == head.life and state.gen >= head.gen


def own(head: ColdHead) -> ColdHead:
    """Return a head that no longer is that of a replica; what the hot store noted of the lost original is older."""
    return replace(head, is_copy=False, gen=max(head.gen, time.time_ns() // 1000)) if head.is_copy else head


def next_head(base: ColdHead, changes: Changes, pack: Pack) -> ColdHead:
    """Return the head after an upload, without its packs.

    Raises:
        Conflict: The hot store has another data key than the cold one.
    """
    if base.header and changes.header and is_rekeyed(changes.header[:HEADER_ID_BYTES], base.header):
        raise Conflict(
            f"thread {from_text(base.thread)!r} was begun anew with another data key while its older checkpoints are in"
            " the cold store: delete it, or copy what the hot store has to another thread first"
        )
    return replace(
        base,
        gen=base.gen + 1,
        header=changes.header or base.header,
        seq=max(base.seq, changes.seq, *(row.seq for row in pack.rows.values())),
        copied_by=changes.copied_by or base.copied_by,
        ttl_us=changes.ttl_us,
        until_us=changes.until_us,
    )
