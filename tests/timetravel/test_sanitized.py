"""Where a viewer removes styles, drawings and ids from a notebook's output, the timeline can still be read."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from langgraph_statekit import StatekitSaver, TimeTravel
from tests.timetravel.kit import HTML, START_OF_SHOP, hostile, monitor, named

COMMON = {
    *("h1", "h2", "h3", "h4", "h5", "h6", "br", "b", "i", "strong", "em", "a", "pre", "code", "div", "p", "ol", "ul"),
    *("table", "thead", "tbody", "blockquote", "dl", "dt", "dd", "tr", "td", "th", "li", "summary", "details"),
}
VIEWERS = {
    # Elements and attributes that are kept. Those of GitHub are as its sanitizer for markup had them while it was
    # public; those of a JupyterLab that does not trust a notebook as release 4 has them.
    "github": (COMMON, {"title", "dir", "colspan", "scope", "open", "href", "tabindex"}),
    "jupyterlab": (COMMON | {"section", "bdi", "span", "small"}, {"class", "style", "title", "dir", "colspan", "href"}),
}
BLOCKS = {"h3", "h4", "h5", "div", "p", "ul", "ol", "li", "table", "tr", "dt", "details", "summary", "pre"}


class Sanitized(HTMLParser):
    """What a viewer leaves of a page: the text as it is read, line by line, and the elements."""

    def __init__(self, page: str, viewer: str) -> None:
        super().__init__()
        self._tags, self._attributes = VIEWERS[viewer]
        self._removed = 0
        self._hidden: list[bool] = []
        self._text: list[str] = []
        self.summaries = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._removed += tag in ("style", "script")
        if tag in self._tags and not self._removed:
            kept = {name: value for name, value in attrs if name in self._attributes}
            self._hidden.append(kept.get("style") == "display:none")
            self.summaries += tag == "summary"
            self._text.append("\n" if tag in BLOCKS else "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._tags and not self._removed:
            self._hidden.pop()
            self._text.append("\n" if tag in BLOCKS else "")
        self._removed -= tag in ("style", "script")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Shapes of drawings are never kept."""

    def handle_data(self, data: str) -> None:
        if not self._removed and not any(self._hidden):
            self._text.append(data)

    @property
    def lines(self) -> list[str]:
        return [" ".join(line.split()) for line in "".join(self._text).splitlines() if line.strip()]


@pytest.mark.parametrize("viewer", VIEWERS)
def test_steps_sources_and_reasons_can_be_read_without_styles(real_sqlite: StatekitSaver, viewer: str) -> None:
    graph = monitor(real_sqlite)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    tt = TimeTravel(graph, named("shop"))
    tt.label("the last good one", 4)
    tt.fork(4, reason="the crawl came back empty")
    shown = tt.timeline()
    read = Sanitized(shown._repr_html_(), viewer)
    lines = read.lines
    assert lines[0] == "shop"
    assert "What stands out" in lines
    assert any(line.endswith("pages became empty at step 5 (node 'crawl'): it was 5 items before") for line in lines)
    assert any(re.search(r"went back to here|fork at step", line) and "came back empty" in line for line in lines)
    first = [next(at for at, line in enumerate(lines) if re.match(rf"[■●◆▲] {step} ", line)) for step in (5, 4, 3)]
    assert re.match(r"▲ 5 .*latest.* the crawl came back empty", lines[first[0]])
    rows = [line for line in lines if re.match(r"[■●◆▲] (-?\d+|input) ", line)]
    assert len(rows) == len(shown.page.moments)
    assert any(re.match(r"● 3 crawl \| ~ round: 1 → 2 \| [\d.]+ m?s \| [\d.]+ k?B$", line) for line in rows)
    assert any("the last good one" in line for line in rows)
    assert {"fork", "loop", "input"} <= {after for line, after in pairwise(lines) if line == "source"}
    assert read.summaries > len(rows)  # each step still opens
    assert not any("{" in line and "sk-" in line for line in lines)


def test_a_drawing_leaves_no_heap_of_texts(real_sqlite: StatekitSaver) -> None:
    graph = monitor(real_sqlite)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    page = TimeTravel(graph, named("shop"))._repr_html_()
    assert not any("time, at most" in line for line in Sanitized(page, "jupyterlab").lines)
    heap = [line for line in Sanitized(page, "github").lines if "time, at most" in line]
    assert re.fullmatch(r"current time, at most [\d.]+ m?s state, at most [\d.]+ k?B", *heap)  # above the steps


@pytest.mark.parametrize("viewer", VIEWERS)
def test_a_hostile_thread_stays_text_when_it_is_sanitized(real_sqlite: StatekitSaver, viewer: str) -> None:
    hostile(real_sqlite)
    lines = Sanitized(TimeTravel(real_sqlite, thread_id=HTML)._repr_html_(), viewer).lines
    assert any("<script>document.title" in line for line in lines)
