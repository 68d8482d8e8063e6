"""A thread of the store in memory."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from langgraph_statekit.checkpoint.claims import Held
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX, end, is_held
from langgraph_statekit.checkpoint.frames import with_bases
from langgraph_statekit.checkpoint.order import place
from langgraph_statekit.checkpoint.records import Frame, Ref, Row, Write


@dataclass
class Thread:
    """A thread; its rows, frames and writes by their addresses."""

    seq: int = 0
    rev: int = field(default_factory=time.time_ns)
    copied_by: str = ""
    rows: dict[Ref, Row] = field(default_factory=dict)
    frames: dict[bytes, Frame] = field(default_factory=dict)
    writes: dict[Ref, dict[tuple[str, int], Write]] = field(default_factory=dict)
    early: dict[Ref, int] = field(default_factory=dict)
    ttl_us: int = 0
    until_us: int | None = None
    header: bytes = b""

    def free(self, row: Row, at: int, wanted: int) -> int:
        """The place of a new row."""
        if wanted > self.seq:
            return wanted
        parent = self.rows.get(row.ref._replace(id=row.parent)) if row.parent else None
        seq = place(at, self.seq, parent.seq if parent else 0)
        taken = {other.seq for other in self.rows.values()}
        while seq in taken:
            seq += 1
        return seq

    def latest(self, ns: str | None = None, *, hidden: bool = False) -> list[Row]:
        """Visible rows, or the hidden ones, highest `seq` first."""
        rows = (row for row in self.rows.values() if row.hidden == hidden and ns in (None, row.ref.ns))
        return sorted(rows, key=lambda row: -row.seq)

    def fill(
        self, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        """See `Backend.fill`."""
        return (
            {key: self.frames[key] for key in with_bases(self.frames, keys)},
            {ref: list(self.writes.get(ref, {}).values()) for ref in refs if ref in self.rows},
        )

    def live_on(self, lease: Held | None) -> None:
        """Set the end anew."""
        if not self.ttl_us:
            self.until_us = None
            return
        asked = {ref for ref, writes in self.writes.items() if any(idx == INTERRUPT_IDX for _, idx in writes)}
        held = is_held(self.latest(), asked)
        leased_us = lease.until_us if lease else 0
        self.until_us = end(self.ttl_us, self.until_us, clock_us(), held=held, leased_us=leased_us)


def clock_us() -> int:
    """Return the time."""
    return time.time_ns() // 1000
