"""A slider, two checkpoints side by side, and forks with an edit, in notebooks that can show widgets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from langgraph_statekit.errors import StatekitError
from langgraph_statekit.readable import clipped, harmless
from langgraph_statekit.timetravel.html import diff_page, moment_html
from langgraph_statekit.timetravel.moments import Point, ran
from langgraph_statekit.timetravel.style import STYLE
from langgraph_statekit.timetravel.text import step_name

anywidget: Any = import_module("anywidget")
traitlets: Any = import_module("traitlets")
_CODE: Final = Path(__file__).with_name("widget.js")


class TimeWidget(anywidget.AnyWidget):  # type: ignore[misc]
    """The timeline as a widget; where none can be shown, the static view stands in its place."""

    _esm = _CODE
    _css = STYLE
    steps = traitlets.List().tag(sync=True)
    at = traitlets.Int(0).tag(sync=True)
    against = traitlets.Int(-1).tag(sync=True)
    state_html = traitlets.Unicode().tag(sync=True)
    diff_html = traitlets.Unicode().tag(sync=True)
    told = traitlets.Unicode().tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)

    def __init__(self, travel: Any, limit: int) -> None:
        super().__init__()
        self._travel, self._limit = travel, limit
        self._points: Sequence[Point] = ()
        self._load()
        self.observe(self._show, names=["at", "against"])
        self.observe(self._fork, names=["asked"])

    def _load(self) -> None:
        moments = [*reversed(self._travel.timeline(limit=self._limit).page.moments)]
        self._points = [moment.point for moment in moments]
        titles = (f"step {step_name(moment.point)}, {clipped(harmless(ran(moment)), 40)}" for moment in moments)
        self.steps = [{"id": moment.point.id, "title": title} for moment, title in zip(moments, titles, strict=True)]
        self.at, self.against = max(len(moments) - 1, 0), -1
        self._show()

    def _show(self, change: object = None) -> None:
        if not self._points:
            return
        try:
            here = self._points[min(max(self.at, 0), len(self._points) - 1)]
            other = self._points[self.against] if 0 <= self.against < len(self._points) else None
            self.state_html = moment_html(self._travel.at(here).moment)
            self.diff_html = diff_page(self._travel.diff(other, here))
        except StatekitError as error:
            self.told = str(error)

    def _fork(self, change: object) -> None:
        try:
            edit = json.loads(self.asked.get("edit") or "null")
            made = self._travel.fork(self._points[self.at], edit=edit, as_node=self.asked.get("node") or None)
        except (StatekitError, ValueError, TypeError) as error:
            self.told = f"nothing was forked: {error}"
            return
        self._load()
        self.told = f"forked: {made.id} is the latest checkpoint now; invoke the graph with None to go on from it"

    def _repr_mimebundle_(self, **options: Any) -> Any:
        found = super()._repr_mimebundle_(**options)
        data, metadata = found if isinstance(found, tuple) else (found or {}, {})
        return {**data, "text/html": self._travel._repr_html_(), "text/plain": repr(self._travel)}, metadata
