"""A part of a history, to look at: as text, SVG, HTML or Mermaid. Pure."""

from __future__ import annotations

from langgraph_statekit.readable import clipped, printable
from langgraph_statekit.timetravel.html import timeline_html
from langgraph_statekit.timetravel.moments import ran
from langgraph_statekit.timetravel.shown import Shown
from langgraph_statekit.timetravel.svg import timeline_svg
from langgraph_statekit.timetravel.text import headline, step_name, timeline_lines


class Timeline(Shown):
    """Some checkpoints of a thread, newest first; a notebook shows it, `print` writes it."""

    def __repr__(self) -> str:
        return "\n".join(timeline_lines(self))

    def _repr_html_(self) -> str:
        return timeline_html(self)

    def svg(self) -> str:
        """Return the lanes alone, as an SVG document."""
        return timeline_svg(self)

    def mermaid(self) -> str:
        """Return the lanes as a Mermaid flowchart."""
        return mermaid(self)


_MARKS = {"input": ("([", "])"), "fork": ("{{", "}}"), "update": ("[/", "/]")}


def mermaid(shown: Shown) -> str:
    """Return a Mermaid flowchart of a timeline; texts are quoted so that none of them is taken for syntax."""
    moments = {moment.point.id: moment for moment in shown.page.moments}
    names = {id: f"c{at}" for at, id in enumerate(reversed(moments))}
    lines = ["flowchart LR"]
    for lane in shown.lanes:
        lines.append(f"  subgraph {names[lane.points[0].id]}_lane[{_quoted(lane.name)}]")
        for point in lane.points:
            moment = moments[point.id]
            left, right = _MARKS.get(point.source, ("[", "]"))
            title = f"{step_name(point)} {ran(moment)}"
            lines.append(
                f"    {names[point.id]}{left}{_quoted(f'{clipped(title, 60)}: {headline(moment, 60)}')}{right}"
            )
        lines.append("  end")
    for moment in moments.values():
        point = moment.point
        if point.parent in names:
            arrow = f"-.->|{_quoted(str(point.rollback['reason']))}|" if point.rollback else "-->"
            lines.append(f"  {names[point.parent]} {arrow} {names[point.id]}")
        elif point.above in names and point.parent is None:
            lines.append(f"  {names[point.above]} -.-> {names[point.id]}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a text as Mermaid takes it: what could end it, or start HTML or Markdown, as an entity."""
    shown = clipped(printable(text), 120)
    return '"' + "".join(c if c.isalnum() or c in " .,:=-_" else f"#{ord(c)};" for c in shown) + '"'
