"""What the packs of a thread tell of its head when that is lost. Pure: no requests in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Told
from langgraph_statekit.errors import Corrupt

LOST: Final = "lost"
"""The epoch of a life that cannot be told."""
_UNTOLD: Final = 1 << 20
"""More heads than ever follow one another without a pack."""


class BadHead(Corrupt):
    """The head of a thread cannot be read, nor told from its packs.

    Attributes:
        tag: Of its object.
        gen: Of the last head that its packs tell of.
    """

    def __init__(self, message: str, tag: str, gen: int = 0) -> None:
        super().__init__(message)
        self.tag, self.gen = tag, gen


def gen_told(head: ColdHead) -> int:
    """Return the generation that the packs name of a head that is told from them."""
    return head.gen - _UNTOLD


def head_told(told: Sequence[Told]) -> ColdHead | None:
    """Return the head of the last life that was not deleted, as its packs tell it; None if there is none.

    Packs of the same generation come from uploads at the same time, of which one counted. All of them are taken, as
    what is in the others was saved too, or is there twice. It counts as that of a copy, so that hot stores bring what
    they have and it lacks.

    Args:
        told: What all packs in the folder tell.
    """
    dead = {epoch for head, _ in told for epoch in head.dead}
    lives = {head.epoch for head, _ in told} - dead
    heads = [_last([each for each in told if each.head.epoch == life]) for life in lives]
    # Several lives are first ones that began at once: one that goes on counted, others have no more than it.
    threads = [head for head in heads if any(ref.rows for ref in head.packs)]
    return max(threads, key=lambda head: (len(head.packs) > 1, head.seq, head.gen), default=None)


def _last(told: Sequence[Told]) -> ColdHead:
    gen = max(head.gen for head, _ in told)
    # First what replaces others, last what has most: its view of the thread is the newest.
    tips = sorted(
        (each for each in told if each.head.gen == gen),
        key=lambda each: (len(each.head.packs), each.head.seq, each.parts[-1].rows, each.parts[-1].size_bytes),
    )
    packs = [*tips[0].head.packs, *(ref for tip in tips for ref in tip.parts)]
    return replace(tips[-1].head, packs=packs, gen=gen + _UNTOLD, is_copy=True)
