"""A timeline and differences as plain text, for terminals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from langgraph_statekit.readable import clipped, duration, harmless, printable, size
from langgraph_statekit.timetravel.decisions import ASKED, CALL, REASON, RESULT, SAID, Decision
from langgraph_statekit.timetravel.diff import Change
from langgraph_statekit.timetravel.glance import one_line
from langgraph_statekit.timetravel.moments import Moment, Point, open_task, ran
from langgraph_statekit.timetravel.shown import Shown

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "moved": ">"}
_ROWS: Final = 20
_COLORS: Final = {"+": "32", "-": "31", "~": "33", ">": "36"}


def step_name(point: Point) -> str:
    """Return what a checkpoint is called: its step."""
    return "?" if point.step is None else str(point.step)


def clock(point: Point) -> str:
    """Return when a checkpoint was made, in UTC."""
    return "" if point.at_s is None else datetime.fromtimestamp(point.at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def change_line(change: Change, most: int = 160) -> str:
    """Return a difference on one line of at most about so many characters."""
    path = clipped(harmless(change.path), 80)
    sign = SIGNS[change.kind]
    if change.kind == "added":
        return f"{sign} {path} = {harmless(one_line(change.after, most))}"
    if change.kind == "removed":
        return f"{sign} {path} (was {harmless(one_line(change.before, most))})"
    half = max(most // 2, 20)
    sides = (harmless(one_line(value, half)) for value in (change.before, change.after))
    return f"{sign} {path}: {' → '.join(sides)}"


def change_lines(changes: Iterable[Change], color: bool = False) -> Iterator[str]:
    """Yield a line for each difference, in colours if asked."""
    for each in changes:
        told = printable(change_line(each))
        yield f"\x1b[{_COLORS[told[0]]}m{told}\x1b[0m" if color else told


def decision_line(each: Decision, most: int = 160) -> str:
    """Return a decision on one line."""
    words = one_line(each.text, most)
    if each.kind == CALL:
        return f"→ {clipped(each.name, 60)}({words})"
    if each.kind == RESULT:
        return f"{'✕' if each.failed else '←'} {clipped(each.name, 60)}: {words}"
    return f"{ {REASON: 'thought', ASKED: 'asked'}.get(each.kind, 'said') }: {words}"


def headline(moment: Moment, most: int = 160) -> str:
    """Return what matters most of a checkpoint on one line."""
    point = moment.point
    if point.rollback:
        more = (f", {key} {point.rollback[key]}" for key in ("item", "attempt") if key in point.rollback)
        return clipped(f"went back to here: {point.rollback['reason']}{''.join(more)}", most)
    if moment.status.errors:
        return f"then {open_task(moment)} raised {one_line(moment.status.errors[0], most)}"
    if moment.status.interrupts:
        return f"then {open_task(moment)} asks {one_line(moment.status.interrupts[0], most)}"
    if moment.decisions:
        return _decided(moment.decisions, most)
    if moment.changes is None:
        return "its parent is not stored"
    if not moment.changes:
        return "a copy of the checkpoint that it goes on from" if point.source == "fork" else "changed nothing"
    return clipped("; ".join(_by_channel(moment.changes, most)) + " and more" * moment.more, most)


def _decided(told: Sequence[Decision], most: int) -> str:
    """Return the first call and why it was made, or the first thing that was said."""
    calls = [each for each in told if each.kind == CALL]
    reasons = [each for each in told if each.kind in (REASON, SAID)]
    first = calls[0] if calls else told[0]
    left = len(calls or told) - 1
    line = decision_line(first, most // 2) + (f" and {left} more" if left else "")
    return f"{line}, since: {one_line(reasons[0].text, most // 2)}" if calls and reasons else line


def _by_channel(changes: Sequence[Change], most: int) -> Iterator[str]:
    """Yield what happened to each channel: the difference if there is one, else how many of each kind."""
    channels: dict[str, list[Change]] = {}
    for each in changes:
        channels.setdefault(each.channel, []).append(each)
    for channel, own in channels.items():
        if len(own) == 1:
            yield change_line(own[0], max(most // len(channels), 40))
        else:
            kinds = {sign: sum(1 for each in own if SIGNS[each.kind] == sign) for sign in SIGNS.values()}
            counts = " ".join(f"{sign}{count}" for sign, count in kinds.items() if count)
            yield f"{clipped(harmless(channel), 60)} {counts}"


def timeline_lines(shown: Shown) -> Iterator[str]:
    """Yield the lines of a timeline: what stands out, then the newest checkpoints."""
    moments = shown.page.moments
    yield f"thread {printable(shown.thread_id)!s}: {shown.summary}"
    for each in shown.findings:
        yield f"  {'!' if each.level != 'note' else 'i'} {printable(each.text)}"
    for id, why in shown.page.damaged.items():
        yield f"  ! checkpoint {printable(id)} cannot be read: {printable(clipped(why, 200))}"
    names = {point.id: lane.name for lane in shown.lanes for point in lane.points}
    rows = []
    for moment in [*moments[:_ROWS], *(each for pair in shown.page.earlier for each in reversed(pair))]:
        lane = names.get(moment.point.id, "earlier")
        where = "" if lane == "current" else f"[{lane}] "
        labels = "".join(f"[{label}] " for label in shown.labels_at(moment.point))
        cells = (
            step_name(moment.point),
            clipped(ran(moment), 24),
            duration(moment.duration_s),
            size(moment.size_bytes),
        )
        rows.append((*cells, f"{where}{labels}{headline(moment, 100)}"))
    yield from _columns(("STEP", "NODE", "TOOK", "SIZE", "WHAT"), rows)
    left = len(moments) - _ROWS
    if left > 0 or shown.page.older:
        yield f"... {f'{left} more on this page' if left > 0 else 'older ones'}"


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    cells = [[printable(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
