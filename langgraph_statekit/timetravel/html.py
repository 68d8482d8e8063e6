"""A timeline and differences as HTML without scripts: what opens, opens by itself. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from langgraph_statekit.checkpoint.forking import TO_KEY
from langgraph_statekit.checkpoint.plain import text
from langgraph_statekit.readable import duration, size
from langgraph_statekit.timetravel.decisions import Decision
from langgraph_statekit.timetravel.diff import Change
from langgraph_statekit.timetravel.moments import Moment, ran
from langgraph_statekit.timetravel.shown import Shown
from langgraph_statekit.timetravel.style import PAGE_STYLE, STYLE
from langgraph_statekit.timetravel.svg import attr, dot_links, place, timeline_svg
from langgraph_statekit.timetravel.text import SIGNS, clock, decision_line, headline, step_name

_STATE: Final = 6000
_VALUE: Final = 1500
_OPEN_FINDINGS: Final = 6
_LINE: Final = 90
_DOT: Final = 12
_CROWD: Final = 60
_BAR: Final = " <span class='sk-sep'>|</span> "
"""Seen only where the styles are removed, and with them the columns."""
_ABSENT: Final = {"before": "added", "after": "removed"}
_LEVELS: Final = {"bad": "✕", "warn": "!", "note": "i"}


def page(title: str, body: str) -> str:
    """Return a document of its own, which loads nothing and runs nothing."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{attr(title, 200)}</title><style>{PAGE_STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )


def timeline_html(shown: Shown) -> str:
    """Return a timeline for a notebook's output."""
    moments = shown.page.moments
    seed = f"{shown.thread_id}/{moments[0].point.id if moments else ''}/{len(moments)}"
    anchor = f"sk{hashlib.sha256(seed.encode(errors='replace')).hexdigest()[:8]}-"
    names = {point.id: lane.name for lane in shown.lanes for point in lane.points}
    depths = {point.id: lane.depth for lane in shown.lanes for point in lane.points}
    title = f"<h3><bdi>{attr(shown.thread_id, 120)}</bdi></h3><p class='sk-sum'>{attr(shown.summary, 400)}</p>"
    rows = (_row(moment, shown, anchor, names[moment.point.id], depths[moment.point.id]) for moment in moments)
    older = "<p class='sk-sum'>Older checkpoints are not on this page.</p>" if shown.page.older else ""
    earlier = "".join(_row(each, shown, anchor, "earlier", 0) for pair in shown.page.earlier for each in reversed(pair))
    wide = f" style='min-width:{len(moments) * _DOT}px'" if len(moments) > _CROWD else ""
    drawn = f"<div{wide}>{timeline_svg(shown, linked=True)}{dot_links(shown, anchor)}</div>"
    # The styles show it again: where they are removed, what is left of a drawing are its texts in a heap.
    picture = f"<div class='sk-pic' style='display:none'>{drawn}</div>" if moments else ""
    return (
        f"<section class='sk-tt' aria-label='Time travel'><style>{STYLE}</style>{title}"
        f"{_findings(shown, anchor)}{picture}{_legend() if moments else ''}"
        f"<div class='sk-rows'>{''.join(rows)}</div>{older}"
        f"<div class='sk-rows'>{earlier}</div></section>"
    )


def _findings(shown: Shown, anchor: str) -> str:
    if not shown.findings and not shown.page.damaged:
        return ""
    mark = f"<span class='sk-mark' aria-hidden='true'>{_LEVELS['bad']}</span>"
    items = [
        f"<li class='sk-bad'>{mark} checkpoint {attr(id)} cannot be read: <bdi>{attr(why, 300)}</bdi></li>"
        for id, why in shown.page.damaged.items()
    ]
    items += [
        f"<li class='sk-{each.level}'><span class='sk-mark' aria-hidden='true'>{_LEVELS[each.level]}</span> "
        f"<a href='#{anchor}{place(each.point)}'><bdi>{attr(each.text, 600)}</bdi></a></li>"
        for each in shown.findings
    ]
    first, rest = items[:_OPEN_FINDINGS], items[_OPEN_FINDINGS:]
    more = f"<details><summary>{len(rest)} more</summary><ul>{''.join(rest)}</ul></details>" if rest else ""
    return f"<div class='sk-find'><h4>What stands out</h4><ul>{''.join(first)}</ul>{more}</div>"


def _legend() -> str:
    kinds = (
        ("■", "input", "input"),
        ("●", "loop", "step"),
        ("◆", "update", "update by hand"),
        ("▲", "fork", "fork"),
        ("◌", "fork", "rolled back to"),
        ("✕", "bad", "a task failed"),
        ("Ⅱ", "loop", "waits for an answer"),
        ("⚑", "label", "labelled"),
    )
    items = "".join(
        f"<li><span class='sk-c-{kind}' aria-hidden='true'>{sign}</span> {name}</li>" for sign, kind, name in kinds
    )
    return f"<ul class='sk-legend' aria-label='Signs'>{items}</ul>"


def _row(moment: Moment, shown: Shown, anchor: str, lane: str, depth: int) -> str:
    point = moment.point
    kind = point.source if point.source in ("input", "update", "fork") else "loop"
    sign = {"input": "■", "update": "◆", "fork": "▲"}.get(kind, "●")
    node = ran(moment)
    badges = [f"<span class='sk-badge'><bdi>{attr(label, 40)}</bdi></span>" for label in shown.labels_at(point)]
    if lane != "current":
        badges.append(f"<span class='sk-badge sk-lane'><bdi>{attr(lane, 40)}</bdi></span>")
    if point.id == shown.page.head:
        badges.append("<span class='sk-badge sk-head'>latest</span>")
    if point.rollback:
        badges.append("<span class='sk-badge sk-b-fork'>rolled back</span>")
    if moment.status.errors:
        badges.append("<span class='sk-badge sk-b-bad'>error</span>")
    elif moment.status.interrupts:
        badges.append("<span class='sk-badge sk-b-input'>waits</span>")
    inset = f" style='margin-left:{min(depth, 4) * 1.25}em'" if depth else ""
    return (
        f"<details class='sk-row' id='{anchor}{place(point)}'{inset}><summary>"
        f"<span class='sk-sign sk-c-{kind}' aria-hidden='true'>{sign}</span> "
        f"<span class='sk-step'>{attr(step_name(point), 12)}</span> "
        f"<span class='sk-node' title='{attr(node, 400)}'><bdi>{attr(node, 60)}</bdi></span>{_BAR}"
        f"<span class='sk-what'>{_BAR.join([*badges, f'<bdi>{attr(headline(moment, 160), 200)}</bdi>'])}</span>{_BAR}"
        f"<span class='sk-num'>{attr(duration(moment.duration_s))}</span>{_BAR}"
        f"<span class='sk-num'>{attr(size(moment.size_bytes))}</span>"
        f"</summary><div class='sk-body'>{''.join(_body(moment))}</div></details>"
    )


def _body(moment: Moment) -> Iterator[str]:
    point = moment.point
    facts = {"checkpoint": point.id, "made": clock(point), "namespace": point.ns, "source": point.source}
    facts["goes on from"] = str(point.metadata.get(TO_KEY, ""))
    facts["next"] = ", ".join(moment.status.next)
    if moment.tokens:
        facts["tokens"] = f"{moment.tokens:,}"
    facts |= {f"rollback {key}": str(value) for key, value in point.rollback.items()}
    facts |= {key: str(value) for key, value in point.metadata.items() if not key.startswith("statekit_")}
    yield _facts({key: value for key, value in facts.items() if value})
    for error in moment.status.errors:
        yield f"<p class='sk-bad'>A task raised <code>{attr(str(error), 1000)}</code></p>"
    for each in moment.status.interrupts:
        yield f"<p>It asks <code>{attr(_pretty(each), 600)}</code></p>"
    if moment.decisions:
        yield f"<h5>Decisions</h5>{_trail(moment.decisions)}"
    if moment.changes:
        more = "<p class='sk-sum'>There are more differences than these.</p>" if moment.more else ""
        yield f"<h5>Changes</h5>{changes_table(moment.changes)}{more}"
    yield "<h5>State</h5>"
    yield from _state(moment)


def _facts(facts: dict[str, str]) -> str:
    items = (
        f"<div><dt>{attr(key, 60)}</dt><dd><bdi>{attr(value, 300)}</bdi></dd></div>" for key, value in facts.items()
    )
    return f"<dl>{''.join(items)}</dl>"


def _trail(trail: Iterable[Decision]) -> str:
    items = (f"<li class='sk-d-{each.kind}'><bdi>{attr(decision_line(each, 500), 600)}</bdi></li>" for each in trail)
    return f"<ol class='sk-trail'>{''.join(items)}</ol>"


def changes_table(changes: Iterable[Change], most: int = 500) -> str:
    """Return differences as a table; a side that none of them has is left out."""
    told = list(changes)
    sides = [side for side, absent in _ABSENT.items() if any(each.kind != absent for each in told)]
    head = "".join(f"<th scope='col'>{title}</th>" for title in ("", "where", *sides))
    rows = (
        f"<tr class='sk-k-{each.kind}'><td title='{each.kind}'>{attr(SIGNS[each.kind])}</td>"
        f"<td><bdi>{attr(each.path, 160)}</bdi></td>"
        f"{''.join(_side(each, side, most) for side in sides)}</tr>"
        for each in told
    )
    place = "class='sk-wide' tabindex='0' role='region' aria-label='Changes'"
    return f"<div {place}><table><tr>{head}</tr>{''.join(rows)}</table></div>"


def _side(each: Change, side: str, most: int) -> str:
    shown = "" if each.kind == _ABSENT[side] else attr(_pretty(getattr(each, side)), most)
    return f"<td><bdi>{shown}</bdi></td>"


def _state(moment: Moment) -> Iterator[str]:
    left = _STATE
    items = list(moment.channels.items())
    for at, (name, value) in enumerate(items):
        shown = _pretty(value)[:_VALUE]
        left -= len(shown)
        if left < 0 and at:
            names = attr(", ".join(key for key, _ in items[at:]), 300)
            yield f"<p class='sk-sum'>{len(items) - at} more channels: <bdi>{names}</bdi></p>"
            return
        length = moment.lengths.get(name)
        count = f" <small>{length:,.0f} items</small>" if isinstance(value, list | dict) and length is not None else ""
        title = f"<summary><bdi>{attr(name, 80)}</bdi>{count}</summary>"
        yield f"<details class='sk-chan'>{title}<pre dir='auto'>{attr(shown, _VALUE)}</pre></details>"
    if not items:
        yield "<p class='sk-sum'>It is empty.</p>"


def _pretty(value: Any) -> str:
    if isinstance(value, str):
        return value
    line = text(value)
    return line if len(line) <= _LINE else json.dumps(value, ensure_ascii=False, indent=1)


def diff_page(changes: Iterable[Change], title: str = "") -> str:
    """Return differences for a notebook's output, with a line above them if one is given."""
    told = list(changes)
    body = f"<p>{attr(title)}</p>" if title else ""
    body += changes_table(told, 2000) if told else "<p class='sk-sum'>No value differs.</p>"
    return f"<section class='sk-tt' aria-label='Differences'><style>{STYLE}</style>{body}</section>"


def moment_html(moment: Moment) -> str:
    """Return one checkpoint for a notebook's output."""
    title = (
        f"<h3>Step {attr(step_name(moment.point))}</h3><p class='sk-sum'><bdi>{attr(headline(moment), 300)}</bdi></p>"
    )
    body = "".join(_body(moment))
    return f"<section class='sk-tt' aria-label='Checkpoint'><style>{STYLE}</style>{title}{body}</section>"
