"""Which checkpoints a thread keeps, told by a `Retention`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from langgraph_statekit.checkpoint.labels import OWN_LABELS, labelled
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.order import clock_us, step_of
from langgraph_statekit.checkpoint.records import Outline, Ref, Row
from langgraph_statekit.errors import Misuse

_UNDER_WAY: Final = 3
"""Newest checkpoints of a namespace that always stay: writes of a run may still come for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which checkpoints of a thread stay; the others go a while after a put, or at once by `prune`.

    A checkpoint stays if it is among the newest ones, or if its step is kept, and is not too old. Whatever the
    settings: the three newest checkpoints of each namespace, the end of each branch, and what a kept checkpoint needs
    (values of delta channels, frames) stay too. Checkpoints of a subgraph's call go with those of its caller.

    A run that began at a checkpoint which goes meanwhile saves all of its values again; with a `DeltaChannel`, which it
    cannot rebuild, it fails with `Conflict`.

    Args:
        keep_last: So many of the newest checkpoints of each namespace; None with `keep_every` for none, else for all.
        keep_every: Also those whose step is a multiple of this; None for none.
        max_age_s: Checkpoints whose id is older go, also ends of branches other than the latest; None keeps them.
        keep_labels: Checkpoints with a label stay whatever their age; both ends of a rollback always do.

    Raises:
        Misuse: A number is too small, or nothing is limited.
    """

    keep_last: int | None = None
    keep_every: int | None = None
    max_age_s: float | None = None
    keep_labels: bool = True

    def __post_init__(self) -> None:
        counts = {"keep_last": self.keep_last, "keep_every": self.keep_every}
        require_numbers(int, 1, **{name: value for name, value in counts.items() if value is not None})
        if self.max_age_s is not None:
            require_numbers(float, 0, max_age_s=self.max_age_s)
        elif self.keep_last is None and self.keep_every is None:
            raise Misuse("a Retention needs keep_last, keep_every or max_age_s; to keep everything pass no Retention")

    def kept(self, outline: Outline, now_us: int) -> set[Ref]:
        """Return the checkpoints that stay, without what they need."""
        shown = [row for row in outline.rows if not row.hidden]
        parents: dict[str, set[str | None]] = {}
        for row in shown:
            parents.setdefault(row.ref.ns, set()).add(row.parent)
        oldest_us = None if self.max_age_s is None else now_us - int(self.max_age_s * 1e6)
        keep: set[Ref] = set()
        floor = 0
        for newest in _by_namespace(shown):
            if ":" in newest[0].ref.ns and newest[0].seq < floor:
                continue  # of a call whose caller's checkpoints are gone
            for place, row in enumerate(newest):
                young = oldest_us is None or (clock_us(row.ref.id) or now_us) >= oldest_us
                if place < _UNDER_WAY or (young and (self._wants(place, row) or row.ref.id not in parents[row.ref.ns])):
                    keep.add(row.ref)
            if newest[0].ref.ns == "":
                oldest = min(row.seq for row in newest if row.ref in keep)
                # What lies between may be of the oldest one's caller or its own: with durability "exit" a call's
                # checkpoints are stored before its caller's.
                floor = max((row.seq for row in newest if row.seq < oldest), default=0)
        return keep | labelled(outline.rows, "" if self.keep_labels else OWN_LABELS)

    def _wants(self, place: int, row: Row) -> bool:
        if self.keep_last is None and self.keep_every is None:
            return True
        if self.keep_last is not None and place < self.keep_last:
            return True
        return self.keep_every is not None and step_of(row.ref.id, row.seq) % self.keep_every == 0


def _by_namespace(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each namespace, newest first; the root's rows come before all others."""
    found: dict[str, list[Row]] = {"": []}
    for row in reversed(rows):
        found.setdefault(row.ref.ns, []).append(row)
    yield from filter(None, found.values())
