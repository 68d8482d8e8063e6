"""What stands out in a run: state that was lost, the same thing done again and again, steps that led nowhere. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from langgraph_statekit.checkpoint.plain import text
from langgraph_statekit.readable import clipped
from langgraph_statekit.timetravel.decisions import CALL
from langgraph_statekit.timetravel.glance import one_line
from langgraph_statekit.timetravel.moments import Moment, Point, open_task, ran

BAD: Final = "bad"
WARN: Final = "warn"
NOTE: Final = "note"
_ORDER: Final = (BAD, WARN, NOTE)
_LOST: Final = 2
_LOST_NUMBER: Final = 10
"""Smaller numbers fall to zero all the time, such as a count of tries."""
_AGAIN: Final = 3
_IDLE: Final = 3
_MOST: Final = 12
_SHOWN: Final = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that stands out.

    Attributes:
        level: `bad`, `warn` or `note`.
        text: In plain words.
        point: The checkpoint where it began.
    """

    level: str
    text: str
    point: Point


def findings(moments: Sequence[Moment], before: Moment | None = None) -> list[Finding]:
    """Return what stands out in the checkpoints of one branch, given oldest first.

    Args:
        moments: The checkpoints of the branch.
        before: The one of another branch that they go on from, if it is known.
    """
    linked = [*([] if before is None else [before]), *moments]
    found = [*losses(linked), *_again(moments), *_rewritten(moments), *_idle(moments), *_restarts(linked)]
    found += [*_rollbacks(moments), *_open(moments)]
    places = {moment.point.id: at for at, moment in enumerate(moments)}
    return sorted(found, key=lambda each: places.get(each.point.id, 0))


def ranked(found: Sequence[Finding]) -> list[Finding]:
    """Return the worst ones first, and no more than one can read."""
    return sorted(found, key=lambda each: _ORDER.index(each.level))[:_MOST]


def _at(moment: Moment) -> str:
    step = f"step {moment.point.step}" if moment.point.step is not None else "a step"
    by = f"node {', '.join(map(repr, moment.nodes))}" if moment.nodes else ran(moment)
    return f"{step} ({clipped(by, 60)})"


def _pairs(moments: Sequence[Moment]) -> Iterator[tuple[Moment, Moment]]:
    yield from ((a, b) for a, b in pairwise(moments) if b.point.parent == a.point.id)


def losses(moments: Sequence[Moment]) -> list[Finding]:
    """Return where channels became empty, nothing or zero at once; not of those that are emptied again and again."""
    found: dict[str, list[Finding]] = {}
    for name, each in _lost(moments):
        found.setdefault(name, []).append(each)
    return [each for own in found.values() if len(own) < _AGAIN for each in own]


def _lost(moments: Sequence[Moment]) -> Iterator[tuple[str, Finding]]:
    for before, after in _pairs(moments):
        for name, was in before.lengths.items():
            is_number = isinstance(before.channels.get(name), int | float)
            if (
                was < (_LOST_NUMBER if is_number else _LOST)
                or after.lengths.get(name, 0)
                or after.point.source == "fork"
            ):
                continue
            gone = after.channels.get(name) is None
            told = "was lost" if gone else "fell to 0" if is_number else "became empty"
            size = f"{was:g}" if is_number else f"{was:,.0f} items"
            yield name, Finding(BAD, f"{clipped(name, 60)} {told} at {_at(after)}: it was {size} before", after.point)


def _key(value: Any) -> Any:
    """Return what of an added item tells it from others of its kind: of a dict all but its numbers."""
    if isinstance(value, Mapping) and "type" not in value:
        named = {key: each for key, each in value.items() if not isinstance(each, float | int) or key == "id"}
        return text(named) if named else text(value)
    return text(value) if isinstance(value, str | list | int | float) else None


def _done(moment: Moment) -> Iterator[tuple[str, str]]:
    for change in moment.changes or ():
        if change.kind == "added" and change.path.endswith("]") and (key := _key(change.after)) is not None:
            yield f"{clipped(change.channel, 60)} got", key
    for each in moment.decisions:
        if each.kind == CALL:
            yield "called with the same arguments", f"{clipped(each.name, 60)}({each.text})"


def _again(moments: Sequence[Moment]) -> Iterator[Finding]:
    """Yield items that were added, and calls that were made, again and again."""
    seen: dict[tuple[str, str], list[Moment]] = {}
    for moment in moments:
        # Once for each step: tasks of a fan-out may well do the same.
        for each in dict.fromkeys(_done(moment)):
            seen.setdefault(each, []).append(moment)
    for (what, key), at in seen.items():
        if len(at) >= _AGAIN:
            told = f"{clipped(key, 120)} {what}" if what.startswith("called") else f"{what} {clipped(key, 120)}"
            yield Finding(WARN, f"{told} {len(at)} times, first at {_at(at[0])}, last at {_at(at[-1])}", at[0].point)


def _rewritten(moments: Sequence[Moment]) -> Iterator[Finding]:
    """Yield values inside a channel that were changed again and again, such as one price."""
    seen: dict[str, list[tuple[Moment, Any, Any]]] = {}
    for moment in moments:
        for change in moment.changes or ():
            scalar = not isinstance(change.after, dict | list)
            if change.kind == "changed" and scalar and change.path != change.channel:
                seen.setdefault(change.path, []).append((moment, change.before, change.after))
    for path, at in seen.items():
        if len(at) >= _AGAIN:
            values = [at[0][1], *(after for _, _, after in at)]
            if len(values) > _SHOWN + 1:
                values = [*values[:_SHOWN], "…", values[-1]]
            told = " → ".join(one_line(value, 30) for value in values)
            yield Finding(
                WARN, f"{clipped(path, 80)} was changed {len(at)} times since {_at(at[0][0])}: {told}", at[0][0].point
            )


def _idle(moments: Sequence[Moment]) -> Iterator[Finding]:
    """Yield runs of steps that changed nothing."""
    run: list[Moment] = []
    for moment in [*moments, None]:
        if moment is not None and moment.point.source == "loop" and moment.changes is not None and not moment.changes:
            run.append(moment)
            continue
        if len(run) >= _IDLE:
            yield Finding(WARN, f"{len(run)} steps in a row changed nothing, from {_at(run[0])}", run[0].point)
        run = []


def _restarts(moments: Sequence[Moment]) -> Iterator[Finding]:
    """Yield inputs that came while tasks of an earlier one were left."""
    for before, after in _pairs(moments):
        if after.point.source == "input" and before.status.next:
            left = clipped(", ".join(map(repr, before.status.next)), 80)
            told = f"a new input at {_at(after)} started the graph anew, while {left} was still to run"
            yield Finding(BAD, told, after.point)


def _rollbacks(moments: Sequence[Moment]) -> Iterator[Finding]:
    for moment in moments:
        if why := moment.point.rollback:
            item = f", item {one_line(why['item'], 60)}" if "item" in why else ""
            tries = f", attempt {why['attempt']}" if "attempt" in why else ""
            kind = {"rollback": "rolled back"}.get(str(why.get("op")), clipped(str(why.get("op", "went back")), 30))
            told = f"{kind} at {_at(moment)}: {clipped(str(why['reason']), 120)}{item}{tries}"
            yield Finding(WARN, told, moment.point)


def _open(moments: Sequence[Moment]) -> Iterator[Finding]:
    """Yield errors that tasks raised, and what the newest checkpoint waits for."""
    for at, moment in enumerate(moments):
        for error in moment.status.errors:
            yield Finding(BAD, f"{open_task(moment)} raised {one_line(error, 200)} after {_at(moment)}", moment.point)
        if at == len(moments) - 1:
            for each in moment.status.interrupts:
                yield Finding(NOTE, f"it waits for an answer to {one_line(each, 160)}", moment.point)
