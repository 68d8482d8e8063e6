"""What the packs of a thread tell of its head when that is lost. Pure: no requests in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, PackRef

_UNTOLD: Final = 1 << 20
"""More heads than ever follow one another without a pack."""


def head_told(told: Sequence[tuple[PackRef, ColdHead]]) -> ColdHead | None:
    """Return the head of the last life that was not deleted, as its packs tell it; None if there is none.

    Packs of the same generation come from uploads at the same time, of which one counted. All of them are taken, as
    what is in the others was saved too, or is there twice. It counts as that of a copy, so that hot stores bring what
    they have and it lacks.

    Args:
        told: All packs in the folder, each with the head that it was made for.
    """
    dead = {epoch for _, head in told for epoch in head.dead}
    lives = {head.epoch for _, head in told} - dead
    heads = [_last([each for each in told if each[1].epoch == life]) for life in lives]
    # Several lives are first ones that began at once: one that goes on counted, others have no more than it.
    threads = [head for head in heads if any(ref.rows for ref in head.packs)]
    return max(threads, key=lambda head: (len(head.packs) > 1, head.seq, head.gen), default=None)


def _last(told: Sequence[tuple[PackRef, ColdHead]]) -> ColdHead:
    gen = max(head.gen for _, head in told)
    # First what replaces others, last what has most: its view of the thread is the newest.
    tips = sorted(
        (each for each in told if each[1].gen == gen),
        key=lambda each: (len(each[1].packs), each[1].seq, each[0].rows, each[0].size_bytes),
    )
    packs = [*tips[0][1].packs, *(ref for ref, _ in tips)]
    return replace(tips[-1][1], packs=packs, gen=gen + _UNTOLD, until_us=None, is_copy=True)
