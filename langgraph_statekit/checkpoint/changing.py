"""Removals that are planned from an outline, and planned anew when the thread moved on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.records import Change, Outline, from_text
from langgraph_statekit.checkpoint.retention import keep_latest, tells
from langgraph_statekit.errors import Conflict

ATTEMPTS: Final = 8


def changed(store: Backend, thread: str, plan: Callable[[Outline], Change]) -> tuple[int, int | None, int]:
    """Make a planned change; return the rows that it left and dropped (None: nothing to do), and how often in vain."""
    for lost in range(ATTEMPTS):
        outline = store.outline(thread, heads=plan is keep_latest)
        if not tells(outline):
            outline = store.outline(thread)
        change = plan(outline)
        if change.idle or store.apply(thread, outline.rev, change):
            left, dropped = len(outline.rows) - len(change.drop), len(change.drop) + outline.more_rows
            return left, None if change.idle else dropped, lost
    raise Conflict(f"thread {from_text(thread)!r} kept changing while checkpoints were removed; try again")
