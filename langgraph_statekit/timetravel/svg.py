"""The lanes of a timeline as SVG: positions in percent, so that it is as wide as its place. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from langgraph_statekit.readable import clipped, duration, harmless, size
from langgraph_statekit.timetravel.lanes import Lane
from langgraph_statekit.timetravel.moments import Moment, Point, ran
from langgraph_statekit.timetravel.shown import Shown
from langgraph_statekit.timetravel.text import clock, headline, step_name

LANE: Final = 40
_DOT: Final = 25
_BARS: Final = 46
_WIDE: Final = 98
_MOST_LANES: Final = 14
COLORS: Final = {"input": "#0969da", "loop": "#1a7f37", "update": "#8250df", "fork": "#bc4c00"}
_BAD: Final = "#cf222e"
_FG: Final = "#57606a"
STYLE: Final = (
    ".sk-dot-input{fill:var(--sk-input,#0969da)}.sk-dot-loop{fill:var(--sk-loop,#1a7f37)}"
    ".sk-dot-update{fill:var(--sk-update,#8250df)}.sk-dot-fork{fill:var(--sk-fork,#bc4c00)}"
    ".sk-svg-text{fill:var(--sk-muted,#57606a);paint-order:stroke;stroke:var(--sk-bg,#ffffff);stroke-width:3px}"
    ".sk-svg-line{stroke:var(--sk-line,#8c959f)}"
    ".sk-svg-bad{stroke:var(--sk-bad,#cf222e)}.sk-svg-bar{fill:var(--sk-muted,#57606a)}"
    ".sk-svg-warn{stroke:var(--sk-fork,#bc4c00)}.sk-svg-halo{stroke:var(--sk-bg,#ffffff)}"
)


def attr(text: str, most: int = 300) -> str:
    """Return a text for an attribute or an element: cut first, then escaped, so that no entity is cut."""
    return escape(harmless(clipped(text, most)), quote=True)


def timeline_svg(shown: Shown, *, linked: bool = False) -> str:
    """Return an SVG image.

    Args:
        shown: The timeline.
        linked: Whether links lie over the dots, which tell of them; where a viewer removes the drawing and leaves its
            texts, these are few then.
    """
    moments = [*reversed(shown.page.moments)]
    if not moments:
        return ""
    lanes = shown.lanes[:_MOST_LANES]
    left = len(shown.lanes) - len(lanes)
    x = {moment.point.id: f"{_across(at, len(moments)):.2f}%" for at, moment in enumerate(moments)}
    y = {point.id: at * LANE + _DOT for at, lane in enumerate(lanes) for point in lane.points}
    tall = len(lanes) * LANE + (18 if left else 0)
    title = attr(f"Timeline of thread {clipped(shown.thread_id, 100)}: {shown.summary}", 500)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" width="100%" '
        f'height="{tall + 2 * _BARS}" font-family="system-ui,sans-serif" font-size="11">',
        "" if linked else f"<title>{title}</title>",
    ]
    parts += (line for lane in lanes for line in _lines(lane, x, y))
    parts += (_name(lane, at) for at, lane in enumerate(lanes))
    parts += (each for moment in moments if moment.point.id in y for each in _dot(moment, shown, x, y, linked))
    if left:
        more = f"and {left} more lane{'s' * (left > 1)}, listed below"
        parts.append(f'<text class="sk-svg-text" fill="{_FG}" x="4" y="{len(lanes) * LANE + 12}">{more} </text>')
    times = [moment.duration_s or 0.0 for moment in moments]
    parts += _bars("time", times, tall, [duration(value) for value in times], linked)
    sizes = [float(moment.size_bytes) for moment in moments]
    parts += _bars("state", sizes, tall + _BARS, [size(int(value)) for value in sizes], linked)
    return "".join([*parts, "</svg>"])


def _across(at: int, count: int) -> float:
    """Return where the checkpoint of this place stands, in percent; the ends keep a margin for half a dot."""
    return (at + 0.5) * _WIDE / count + (100 - _WIDE) / 2


def _lines(lane: Lane, x: dict[str, str], y: dict[str, int]) -> Iterator[str]:
    first, last = lane.points[0], lane.points[-1]
    dash = ' stroke-dasharray="4 3"' if lane.depth else ""
    stroke = f'class="sk-svg-line" stroke="#8c959f" stroke-width="2"{dash}'
    above = lane.parent or first.above
    if above in x and above in y:
        yield f'<line {stroke} x1="{x[above]}" y1="{y[above]}" x2="{x[first.id]}" y2="{y[first.id]}"/>'
    yield f'<line {stroke} x1="{x[first.id]}" y1="{y[first.id]}" x2="{x[last.id]}" y2="{y[last.id]}"/>'


def _name(lane: Lane, at: int) -> str:
    name = attr(f"{'↳ ' * bool(lane.depth)}{lane.name}", 60)
    place = f'x="4" y="{at * LANE + 12}" direction="ltr" unicode-bidi="embed"'
    return f'<text class="sk-svg-text" fill="{_FG}" {place}>{name} </text>'


def _dot(moment: Moment, shown: Shown, x: dict[str, str], y: dict[str, int], linked: bool) -> Iterator[str]:
    point = moment.point
    kind = point.source if point.source in COLORS else "loop"
    # An svg element has a place in percent and a content in pixels.
    title = "" if linked else f"<title>{told(moment, shown)}</title>"
    inner = title + "".join(_shape(moment, kind, bool(shown.labels_at(point))))
    yield f'<svg x="{x[point.id]}" y="{y[point.id]}" width="1" height="1" overflow="visible">{inner}</svg>'


def told(moment: Moment, shown: Shown) -> str:
    """Return what is told of a dot, for an attribute."""
    point = moment.point
    labels = "".join(f" [{clipped(label, 40)}]" for label in shown.labels_at(point))
    by = clipped(ran(moment), 60)
    facts = ", ".join(filter(None, (duration(moment.duration_s), size(moment.size_bytes), clock(point))))
    return attr(f"step {step_name(point)}{labels}, {by}: {headline(moment, 120)} ({facts})", 400)


def dot_links(shown: Shown, anchor: str) -> str:
    """Return links in HTML that lie over the dots; JupyterLab cannot show an SVG that has links itself.

    A link has no style of its own, which marimo could not show: what is around it has its place.

    Args:
        shown: The timeline.
        anchor: What the ids of the checkpoints' places on the page begin with.
    """
    moments = [*reversed(shown.page.moments)]
    tops = {point.id: at * LANE + _DOT for at, lane in enumerate(shown.lanes[:_MOST_LANES]) for point in lane.points}
    links = (
        f"<span style='left:{_across(at, len(moments)):.2f}%;top:{tops[moment.point.id]}px'>"
        f"<a class='sk-hot' href='#{anchor}{place(moment.point)}' title='{(text := told(moment, shown))}' "
        f"aria-label='{text}'></a></span>"
        for at, moment in enumerate(moments)
        if moment.point.id in tops
    )
    return "".join(links)


def _shape(moment: Moment, kind: str, labelled: bool) -> Iterator[str]:
    fill = f'class="sk-dot-{kind} sk-svg-halo" fill="{COLORS[kind]}" stroke="#ffffff" stroke-width="1"'
    point = moment.point
    if kind == "input":
        yield f'<rect {fill} x="-5" y="-5" width="10" height="10"/>'
    elif kind == "update":
        yield f'<path {fill} d="M0-7 7 0 0 7-7 0Z"/>'
    elif kind == "fork":
        yield f'<path {fill} d="M0-7 7 5-7 5Z"/>'
    else:
        yield f'<circle {fill} r="5"/>'
    if point.rollback:
        yield (
            '<circle class="sk-svg-warn" r="9" fill="none" stroke="#bc4c00" stroke-width="2" stroke-dasharray="3 2"/>'
        )
    if moment.status.errors:
        yield f'<path class="sk-svg-bad" stroke="{_BAD}" stroke-width="2.5" d="M-7-7 7 7M-7 7 7-7"/>'
    elif moment.status.interrupts:
        yield '<path class="sk-svg-halo" stroke="#ffffff" stroke-width="2" d="M-1.7-3V3M1.7-3V3"/>'
    if labelled:
        yield '<path class="sk-svg-bar" fill="#57606a" d="M-3-14h6v6l-3-2-3 2Z"/>'


def _bars(name: str, values: Sequence[float], top: int, texts: Sequence[str], linked: bool) -> Iterator[str]:
    most = max(values)
    yield (
        f'<text class="sk-svg-text" fill="{_FG}" x="4" y="{top + 12}">{name}, at most '
        f"{texts[values.index(most)] if most else 'unknown'} </text>"
    )
    if not most:
        return
    wide = _WIDE / len(values)
    for at, value in enumerate(values):
        # By the square root, so that small ones are seen beside large ones.
        tall = max(math.sqrt(max(value, 0) / most) * (_BARS - 20), 1 if value > 0 else 0)
        if tall:
            left = _across(at, len(values)) - 0.35 * wide
            title = "" if linked else f"<title>{name} {attr(texts[at])}</title>"
            yield (
                f'<rect class="sk-svg-bar" fill="{_FG}" x="{left:.2f}%" y="{top + _BARS - 4 - tall:.1f}" '
                f'width="{wide * 0.7:.2f}%" height="{tall:.1f}">{title}</rect>'
            )


def place(point: Point) -> str:
    """Return what names a checkpoint in the ids of a page."""
    return "".join(c for c in f"{point.ns[-12:]}{point.id}" if c.isalnum() and c.isascii())[-48:]
