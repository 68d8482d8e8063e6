"""How often a thread was tried again, and what of it is dead: kept in cells, so that every process counts alike."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Final

from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellQuery, Cells, cell_ref
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.watchdog.view import Finding

FORGET_S: Final = 7 * 86_400.0
"""Seconds after the last attempt at which the attempts are forgotten."""
_ATTEMPT: Final = "attempt"
_DEAD: Final = "dead"
_PAGE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What was tried again, or is dead.

    Attributes:
        thread_id: The thread.
        item: The item; None if the finding was about none.
        reason: Why.
        message: What people are told.
        attempts: How often it was tried again.
    """

    thread_id: str
    item: str | None
    reason: str
    message: str
    attempts: int


async def count_attempt(cells: Cells, thread_id: str, finding: Finding, token: int) -> int:
    """Count one more attempt and return which one it is, before it is made.

    Raises:
        Fenced: Another worker took the thread over.
        Unavailable: The store did not answer; one attempt may count twice.
    """
    ref = cell_ref(_ATTEMPT, f"{finding.reason}\n{finding.item or ''}", thread_id)
    while True:
        found = (await cells.cells(CellQuery(kind=_ATTEMPT, refs=[ref]))).cells
        attempts = 1 + (_read(found[0]).attempts if found else 0)
        tried = _tried(thread_id, finding, attempts)
        change = CellChange(
            ref=ref,
            value=_packed(tried),
            groups=(to_text(thread_id),),
            expect=found[0].rev if found else 0,
            token=token,
            ttl_us=int(FORGET_S * 1e6),
        )
        if (await cells.change_cell(change)).made:
            return attempts


async def bury(cells: Cells, thread_id: str, finding: Finding, attempts: int, token: int, *, whole: bool) -> None:
    """Put an item, or the whole thread, on the list of the dead."""
    ref = cell_ref(_DEAD, "" if whole else f"item {finding.item or ''}", thread_id)
    value = _packed(_tried(thread_id, finding, attempts))
    await cells.change_cell(CellChange(ref=ref, value=value, groups=(to_text(thread_id),), token=token))


async def revive(cells: Cells, thread_id: str) -> None:
    """Take a thread and its items off the list of the dead, and forget its attempts."""
    for kind in (_DEAD, _ATTEMPT):
        async for cell in _listed(cells, kind, thread_id):
            await cells.change_cell(CellChange(ref=cell.ref, value=None))


async def tried(cells: Cells, thread_id: str | None = None) -> list[Tried]:
    """Return what was tried again, of a thread or of all, newest first."""
    return [_read(cell) async for cell in _listed(cells, _ATTEMPT, thread_id)]


async def dead(cells: Cells, thread_id: str | None = None) -> list[Tried]:
    """Return what is dead, of a thread or of all, newest first."""
    return [_read(cell) async for cell in _listed(cells, _DEAD, thread_id)]


async def is_dead(cells: Cells, thread_id: str) -> bool:
    """Say whether a thread as a whole is dead; nobody should resume it then."""
    return bool((await cells.cells(CellQuery(kind=_DEAD, refs=[cell_ref(_DEAD, "", thread_id)]))).cells)


async def _listed(cells: Cells, kind: str, thread_id: str | None) -> AsyncIterator[Cell]:
    group = None if thread_id is None else to_text(thread_id)
    before = None
    while found := (await cells.cells(CellQuery(kind=kind, group=group, before=before, limit=_PAGE))).cells:
        for cell in found:
            yield cell
        before = found[-1].place


def _tried(thread_id: str, finding: Finding, attempts: int) -> Tried:
    return Tried(
        thread_id=thread_id, item=finding.item, reason=finding.reason, message=finding.message, attempts=attempts
    )


def _packed(tried: Tried) -> bytes:
    return json.dumps(asdict(tried)).encode()


def _read(cell: Cell) -> Tried:
    return Tried(**{**json.loads(cell.value), "thread_id": from_text(cell.ref.thread)})
