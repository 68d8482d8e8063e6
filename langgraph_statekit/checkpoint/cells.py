"""Cells: small records beside the threads, changed by compare-and-set on every store. Pure.

A cell is not removed or copied with its thread, not rolled back, and does not have the thread's time to live. A cell
that has expired is to every verb one that does not exist.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from langgraph_statekit.checkpoint.records import Outline, to_text

T = TypeVar("T")

SEALED_START = b"\1"
"""What an encrypted value begins with, and no other one."""
EFFECT = "effect"
"""The kind of the cells of effects, in which a deleted thread leaves something behind."""


class CellRef(NamedTuple):
    """Address of a cell, as storage text.

    Attributes:
        kind: The feature that it belongs to, such as `effect`.
        thread: The thread whose lease may be asked for in the same step; empty: it belongs to none.
        key: Its name among those of its kind and thread.
    """

    kind: str
    thread: str
    key: str


class Cell(NamedTuple):
    """A cell as it is stored.

    Attributes:
        ref: Address.
        value: Opaque bytes.
        groups: Names under which its kind can be listed.
        rev: Rises with each change, and never comes again, also after a removal: the server's clock in microseconds,
            or the `rev` before plus one if that is more.
        operation: Of the change that made it so.
    """

    ref: CellRef
    value: bytes
    groups: tuple[str, ...]
    rev: int
    operation: str

    @property
    def at_us(self) -> int:
        """When it became so, by the server's clock."""
        return self.rev

    @property
    def place(self) -> tuple[int, str, str]:
        """Its place in listings, which go from the highest to the lowest."""
        return self.rev, self.ref.thread, self.ref.key


def new_operation() -> str:
    """Return a name for one change."""
    return os.urandom(12).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellChange:
    """What is to become of a cell.

    Attributes:
        ref: Address.
        value: The new value, which does not begin with `SEALED_START`; None removes the cell.
        groups: The groups that it is in from then on.
        expect: The `rev` that it must have; 0: it must not exist; None: whatever it has. To remove what does not exist
            is always fine.
        deadline_us: The server's clock must not be there yet; None: no matter.
        token: Must be that of the lease of `ref.thread`; None: no matter.
        ttl_us: How long it lives from now; None: for ever.
        operation: Names this change, so that a repeat after a lost reply finds what it did.
    """

    ref: CellRef
    value: bytes | None
    groups: tuple[str, ...] = ()
    expect: int | None = None
    deadline_us: int | None = None
    token: int | None = None
    ttl_us: int | None = None
    operation: str = field(default_factory=new_operation)

    @property
    def thread(self) -> str:
        """The thread whose lease counts."""
        return self.ref.thread


class Changed(NamedTuple):
    """How a change went.

    Attributes:
        made: Whether the cell is now as it was asked for.
        cell: What is stored now.
        now_us: The server's clock.
    """

    made: bool
    cell: Cell | None
    now_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CellQuery:
    """Which cells of a kind to read: those of `refs`, or of a group, or all.

    Attributes:
        kind: Of all that is returned.
        refs: Addresses; what does not exist is left out. Order and `before` are of no matter. None: list.
        group: Only cells in this group; None: all of the kind.
        before: The `place` of the last cell of the page before; None: from the newest.
        limit: So many at most; of listings only.
    """

    kind: str
    refs: Sequence[CellRef] | None = None
    group: str | None = None
    before: tuple[int, str, str] | None = None
    limit: int = 100


class CellPage(NamedTuple):
    """Cells as read, listings from the highest `place` on, and the server's clock."""

    cells: Sequence[Cell]
    now_us: int


class Cells(Protocol):
    """What changes and reads cells for sync or for async callers: the engines of a saver."""

    async def change_cell(self, change: CellChange) -> Changed:
        """Make a change if the cell is as expected.

        Raises:
            Fenced: The token is not that of the thread's lease; nothing was changed.
            Unavailable: The store did not answer; the same change may be repeated.
        """

    async def cells(self, query: CellQuery) -> CellPage:
        """Return the cells that a query asks for."""

    async def outline(self, thread: str, ns: str | None = None) -> Outline:
        """Return the rows of a thread without bodies, and the heads of its frames."""

    async def sleep(self, pause_s: float) -> None:
        """Wait."""


def effects_of(thread: str) -> CellQuery:
    """Return the query for one cell of the effects of a thread."""
    return CellQuery(kind=EFFECT, group=f"thread {thread}", limit=1)


def cell_ref(kind: str, key: object, thread_id: object = "") -> CellRef:
    """Return the address of a cell by the user's own names."""
    return CellRef(to_text(kind), to_text(thread_id), to_text(key))


def only(results: Sequence[T | Exception]) -> T:
    """Return the result of a request for one, or raise its error."""
    (result,) = results
    if isinstance(result, Exception):
        raise result
    return result


def decide(change: CellChange, cell: Cell | None, now_us: int) -> Changed:
    """Return how a change goes, given the cell if it has not expired. A store then writes what `is_news`."""
    if cell is not None and cell.operation == change.operation:
        return Changed(True, cell, now_us)
    if cell is None and change.value is None:
        return Changed(True, None, now_us)
    if change.expect not in (None, cell.rev if cell else 0):
        return Changed(False, cell, now_us)
    if change.deadline_us is not None and now_us >= change.deadline_us:
        return Changed(False, cell, now_us)
    if change.value is None:
        return Changed(True, None, now_us)
    rev = max(now_us, cell.rev + 1 if cell else 0)
    return Changed(True, Cell(change.ref, change.value, change.groups, rev, change.operation), now_us)


def is_news(changed: Changed, before: Cell | None) -> bool:
    """Say whether a change has something to write."""
    return changed.made and changed.cell is not before


def page_of(query: CellQuery, cells: Iterable[Cell]) -> list[Cell]:
    """Return the page that a listing asks for, of cells that a store has found in any order."""
    found = [
        cell
        for cell in cells
        if cell.ref.kind == query.kind
        and (query.group is None or query.group in cell.groups)
        and (query.before is None or cell.place < query.before)
    ]
    return sorted(found, key=lambda cell: cell.place, reverse=True)[: query.limit]
