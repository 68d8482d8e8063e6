"""What a check gets to see of a run, and what it says. Pure records; times are monotonic seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a run.

    Attributes:
        reason: What it is, in a word or two: the name of the check. Attempts are counted by it.
        message: What people are told.
        item: The item that the run was at, as text; None if there is none.
        since: Id of the first checkpoint that is not to be trusted; None: the state is well, only time ran out.
        started: Id of the first checkpoint at which the run was at the item; None if that is not known.
        final: To try again does not help.
    """

    reason: str
    message: str
    item: str | None = None
    since: str | None = None
    started: str | None = None
    final: bool = False


class Step(NamedTuple):
    """One checkpoint of a run.

    Attributes:
        id: Its checkpoint id.
        number: The step in its metadata.
        values: The state; the live objects, so a check must not change them.
        next: The nodes that run next.
        at_s: When it was seen.
    """

    id: str
    number: int
    values: Any
    next: tuple[str, ...]
    at_s: float


class Task(NamedTuple):
    """A node's call that has begun.

    Attributes:
        id: The task id.
        node: Name of the node.
        since_s: When it began.
        item: What its last `heartbeat` named; None for nothing.
        item_s: When it named that first.
        ended_s: When it ended; None while it runs.
        error: What it raised, as text; None for nothing.
    """

    id: str
    node: str
    since_s: float
    item: str | None = None
    item_s: float = 0.0
    ended_s: float | None = None
    error: str | None = None


class Mark(NamedTuple):
    """What the state shows of one thing that a check follows, and since when.

    Attributes:
        digest: Of the value.
        text: The value, shortened, as text.
        step: The first step that showed it.
        steps: Steps that showed it, without one between that did not.
        second: Id of the second of them; None while there is one.
    """

    digest: bytes
    text: str
    step: Step
    steps: int = 1
    second: str | None = None


class View(NamedTuple):
    """A run as it is now.

    Attributes:
        now_s: The time.
        started_s: When this call began; a rollback does not begin anew.
        step: The newest checkpoint; None before the first.
        previous: The one before it, since the run began or was rolled back.
        running: Tasks that have begun and not ended.
        ended: The newest tasks that ended, newest last.
        marks: What each check that has a `mark` follows, newest last, by check.
        item: What the run is at, as text.
        beat_s: When the run last showed life: a step, a task that ended, a heartbeat.
        moved_s: When it last got on: a step of a subgraph, or an item of a heartbeat that differs from the one before.
        requests: Requests to chat models, counted where a `Budget` limits them.
        tokens: Tokens of them.
        note: The last note of a heartbeat.
        failing: Part of the saver's operations that failed lately, from 0 to 1.
    """

    now_s: float
    started_s: float
    step: Step | None = None
    previous: Step | None = None
    running: Sequence[Task] = ()
    ended: Sequence[Task] = ()
    marks: Mapping[Any, Sequence[Mark]] = MappingProxyType({})
    item: str | None = None
    beat_s: float = 0.0
    moved_s: float = 0.0
    requests: int = 0
    tokens: int = 0
    note: str | None = None
    failing: float = 0.0


Check: TypeAlias = Callable[[View], Finding | None]
"""Says what is wrong with a run, or None. Called at each step, and in between from another thread: it must be quick.

A check with a method `mark(values)` finds what that returned, and since when, in `view.marks[check]`; it is told at
once, so that values which are changed in place do not mislead it. With an attribute `window` it gets so many marks.
One whose attribute `timed` is true waits for nothing but a time: between quick steps it is not called each time.
"""


def clean(value: Any) -> str:
    """Return a value as a text that can be stored: half a surrogate, as crawled pages and file names have, cannot."""
    text = str(value)
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
