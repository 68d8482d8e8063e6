"""Who goes first where saves change one object, and for how long the others try again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from langgraph_statekit.checkpoint.records import Ref, Save, SaveRow, from_text
from langgraph_statekit.dice import RANDOM
from langgraph_statekit.errors import Conflict

_ATTEMPTS: Final = 40


def pauses(thread: str) -> Iterator[float]:
    """Yield growing pauses, and fail when they are used up."""
    for attempt in range(_ATTEMPTS):
        yield RANDOM.uniform(0.0, min(0.005 * 2**attempt, 0.2))
    raise Conflict(f"thread {from_text(thread)!r} kept changing while it was written; try again")


def lane_of(save: Save) -> tuple[str, Ref | None, str]:
    """Return what is equal for saves that change the same object."""
    return (save.thread, None, "") if isinstance(save, SaveRow) else (save.thread, save.ref, save.writes[0].task)
