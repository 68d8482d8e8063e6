"""What is shown is safe, complete where it says so, and tells the cause of an incident first."""

from __future__ import annotations

import operator
import re
import sys
from html.parser import HTMLParser
from typing import Annotated, Any, TypedDict
from xml.etree import ElementTree

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send

from langgraph_statekit import Finding, Sampled, StatekitSaver, TimeTravel, rollback
from langgraph_statekit.timetravel.decisions import decisions
from tests.timetravel.kit import EMOJI, HTML, LONG, RTL, START_OF_SHOP, hostile, monitor, named, put, talk


class Log(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


PAGE_TAGS = {"html", "head", "meta", "title", "style", "body", "main"}
TAGS = PAGE_TAGS | {
    *("section", "h3", "h4", "h5", "p", "div", "span", "ul", "ol", "li", "a", "bdi", "details", "summary", "small"),
    *("table", "tr", "th", "td", "dl", "dt", "dd", "pre", "code", "svg", "line", "text", "rect", "circle", "path"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "id", "style", "title", "href", "role", "tabindex"),
    *("aria-label", "aria-hidden", "scope", "dir", "direction", "unicode-bidi", "xmlns", "viewbox"),
    *("width", "height", "x", "y", "x1", "x2", "y1", "y2", "r", "d", "fill", "stroke", "overflow"),
    *("stroke-width", "stroke-dasharray", "font-family", "font-size"),
}
VOID = {"meta"}


class Checked(HTMLParser):
    """Reads a page, and notes what must not be there."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=False)
        self.open: list[str] = []
        self.odd: list[str] = []
        self.rows = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.odd.append(f"<{tag}>")
        for name, value in attrs:
            if name not in ATTRIBUTES:
                self.odd.append(f"{tag} {name}={value!r}")
            if name == "href" and not re.fullmatch(r"#[\w-]+", value or ""):
                self.odd.append(f"{tag} {name}={value!r}")
            if name == "style" and not re.fullmatch(
                r"display:none|margin-left:[\d.]+em|min-width:\d+px|left:[\d.]+%;top:\d+px", value or ""
            ):
                self.odd.append(f"{tag} {name}={value!r}")
        self.rows += tag == "details" and ("class", "sk-row") in attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.odd.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if "&" in data or (self.lasttag != "style" and "<" in data):
            self.odd.append(f"not escaped: {data[:40]!r}")
        if any(not c.isprintable() and c not in "\n\t\u200d\u200c\ufe0f" for c in data):
            self.odd.append(f"control: {data[:40]!r}")


@pytest.fixture
def broken(real_sqlite: StatekitSaver) -> TimeTravel:
    hostile(real_sqlite)
    return TimeTravel(real_sqlite, thread_id=HTML)


def test_a_hostile_thread_breaks_no_page(broken: TimeTravel, tmp_path: Any) -> None:
    for page in (broken._repr_html_(), broken.to_html(tmp_path / "page.html").read_text()):
        found = Checked(page)
        assert not found.odd
        assert not found.open
        assert found.rows == 25
        assert len(page) < 500_000
        assert "5,000,000 characters" in page
        assert "<script" not in page
    ElementTree.fromstring(broken.timeline().svg())
    for where in (-1, 6, 7, 23):
        assert not Checked(broken[where]._repr_html_()).odd
    assert not Checked(broken.diff(0, 23)._repr_html_()).odd


def test_a_hostile_thread_steers_no_terminal_and_no_diagram(broken: TimeTravel) -> None:
    for text in (
        repr(broken),
        repr(broken[23]),
        repr(broken.diff(0, 23)),
        repr(broken.branches()),
        repr(broken.size()),
    ):
        assert all(c.isprintable() or c == "\n" for c in text)
        assert max(map(len, text.splitlines())) < 600
    drawn = broken.to_mermaid()
    assert drawn.startswith("flowchart LR\n")
    for line in drawn.splitlines():
        assert line.count('"') in (0, 2)
        assert not set("<>&`") & set(re.sub(r'"[^"]*"', "", line).replace("-->", "").replace("-.->", ""))
        assert not set("<>&`{}[]()") & set("".join(re.findall(r'"([^"]*)"', line)))


def test_hostile_names_of_nodes_are_shown_and_cut(real_sqlite: StatekitSaver) -> None:
    graph: Any = StateGraph(dict)
    before = START
    for name in (HTML.replace(":", ""), LONG, EMOJI, RTL):
        graph.add_node(name, lambda state: {**state, "n": len(state)})
        graph.add_edge(before, name)
        before = name
    graph.compile(checkpointer=real_sqlite).invoke({"x": 1}, named("t"), durability="sync")
    page = TimeTravel(real_sqlite, thread_id="t")._repr_html_()
    assert not Checked(page).odd
    assert LONG[:59] in page
    assert f"title='{LONG}'" in page


def test_the_incident_shows_its_cause_in_the_first_lines(real_sqlite: StatekitSaver) -> None:
    monitor(real_sqlite).invoke(START_OF_SHOP, named("shop"), durability="sync")
    shown = TimeTravel(real_sqlite, thread_id="shop").timeline()
    first = repr(shown).splitlines()[1:5]
    assert [line.strip(" !").partition(":")[0] for line in first] == [
        "done became empty at step 5 (node 'crawl')",
        "pages became empty at step 5 (node 'crawl')",
        'cuts got {"sku"',
        "prices.A-0 was changed 8 times since step 2 (node 'cut')",
    ]
    page = shown._repr_html_()
    assert page.index("pages became empty at step 5") < page.index("<svg") < page.index("class='sk-row'")


def test_an_error_and_a_question_name_the_node_that_they_are_of(real_sqlite: StatekitSaver) -> None:
    def fail(state: Log) -> Log:
        raise ValueError("no price")

    graph: Any = StateGraph(Log)
    graph.add_node("look", lambda state: {"log": ["looked"]})
    graph.add_node("cut", fail)
    graph = graph.add_edge(START, "look").add_edge("look", "cut").compile(checkpointer=real_sqlite)
    with pytest.raises(ValueError, match="no price"):
        graph.invoke({"log": []}, named("t"), durability="sync")
    told = repr(TimeTravel(graph, named("t")))
    assert "node 'cut' raised ValueError('no price') after step 1 (node 'look')" in told
    assert "then node 'cut' raised ValueError('no price')" in told
    assert "then node 'ask' asks" in repr(TimeTravel(talk(real_sqlite), named("agent")))


def test_a_comparison_says_where_both_came_apart(in_memory: Any) -> None:
    graph = monitor(in_memory)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    tt = TimeTravel(graph, named("shop"))
    tt.fork(4)
    compared = tt.compare(tt.branches()[1])
    for text in (repr(compared), compared._repr_html_()):
        assert "both go on from step 4; 14 and 1 checkpoints since" in text


def test_a_healthy_run_has_nothing_that_stands_out(real_sqlite: StatekitSaver) -> None:
    graph = monitor(real_sqlite, empty_from=99, rounds=7)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    shown = TimeTravel(graph, named("shop")).timeline()
    assert not shown.findings
    assert "What stands out" not in shown._repr_html_()


def test_a_rollback_tells_its_reason_and_what_it_left(real_sqlite: StatekitSaver) -> None:
    graph = monitor(real_sqlite)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    tt = TimeTravel(graph, named("shop"))
    with real_sqlite.lease("shop") as lease:
        finding = Finding("no_progress", "prices fall, and nothing gets done", item="A-0", since=tt[5].id)
        rollback(graph, lease.config, "last_healthy", finding, 2)
    current, branch = tt.branches()
    assert (current.tip.rollback["reason"], branch.reason) == ("no_progress", "no_progress")
    assert branch.fork is not None
    assert branch.fork.step == 4
    told = "rolled back at step 5 (fork): no_progress, item A-0, attempt 2"
    assert told in repr(tt)
    assert told in tt._repr_html_()
    assert "went back to here: no_progress, item A-0, attempt 2" in repr(tt)
    assert "branch 1: pages became empty at step 5" in repr(tt)
    assert tt.at().moment.changes == []
    assert "statekit:" not in repr(tt)


def test_decisions_are_told_with_their_reasons_and_without_secrets(real_sqlite: StatekitSaver) -> None:
    shown = TimeTravel(talk(real_sqlite), named("agent")).timeline()
    assert 'get_price(sku="A-1", api_key="***") called with the same arguments 3 times' in repr(shown)
    assert '→ get_price(sku="A-1", api_key="***"), since: The price of A-0 is above the market.' in repr(shown)
    assert "360 tokens" in shown.summary
    assert "it waits for an answer to" in repr(shown)
    for text in (repr(shown), shown._repr_html_(), shown.mermaid()):
        assert "hunter2" not in text
        assert "k-123" not in text


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", additional_kwargs={"reasoning_content": "why"}),
        AIMessage([{"type": "thinking", "thinking": "why", "signature": "x"}]),
        AIMessage([{"type": "reasoning", "reasoning": "why"}]),
        AIMessage([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}]}]),
    ],
)
def test_reasoning_of_every_provider_is_found(message: AIMessage) -> None:
    assert [(each.kind, each.text) for each in decisions([message])] == [("reason", "why")]


def test_a_restart_from_the_beginning_stands_out(in_memory: Any) -> None:
    graph = monitor(in_memory)
    for _ in graph.stream(START_OF_SHOP, named("shop"), durability="sync", interrupt_after=["crawl"]):
        pass
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync", interrupt_after=["crawl"])
    (found,) = (each for each in TimeTravel(graph, named("shop")).timeline().findings if "anew" in each.text)
    assert "while 'cut' was still to run" in found.text


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (137, 0, "done fell to 0 at step 0 (start): it was 137 before"),
        (3, 0, None),
        ([1, 2], [], "done became empty at step 0 (start): it was 2 items before"),
        ([1], [], None),
        ({"a": 1, "b": 2}, None, "done was lost at step 0 (start): it was 2 items before"),
        ("text", "", "done became empty at step 0 (start): it was 4 items before"),
        (True, False, None),
    ],
)
def test_what_is_lost_at_once_stands_out(in_memory: Any, before: Any, after: Any, told: str | None) -> None:
    put(in_memory, "t", [{"done": before}, {"done": after}])
    assert [each.text for each in TimeTravel(in_memory, thread_id="t").timeline().findings] == [told] * bool(told)


def test_a_queue_that_is_emptied_again_and_again_is_not_lost(in_memory: Any) -> None:
    put(in_memory, "t", [{"queue": queue} for _ in range(3) for queue in ([1, 2], [])])
    assert not TimeTravel(in_memory, thread_id="t").timeline().findings


def test_without_styles_the_same_text_is_there(real_sqlite: StatekitSaver) -> None:
    page = TimeTravel(talk(real_sqlite), named("agent"))._repr_html_()
    text = re.sub(r"<style>.*?</style>|<svg.*</svg>", "", page)
    text = re.sub(r"</(?:p|li|h3|h4|h5|summary|td|dt|dd|div)>", "\n", text)
    words = re.sub(r" +", " ", re.sub(r"<[^>]+>", "", text))
    assert "● 5 think | → get_price(sku=&quot;A-1&quot;" in words
    assert "What stands out\n" in words


def test_a_widget_without_its_library_names_the_extra(
    real_sqlite: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "langgraph_statekit.timetravel.widget", raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"langgraph-statekit\[notebook\]"):
        TimeTravel(real_sqlite, thread_id="t").widget()


def test_steps_that_change_nothing_stand_out(in_memory: Any) -> None:
    state = {"n": 1, "pages": []}
    put(in_memory, "t", [state] * 12)
    assert [each.text for each in TimeTravel(in_memory, thread_id="t").timeline().findings] == [
        "11 steps in a row changed nothing, from step 0 (start)"
    ]


def test_every_dot_has_a_name_and_leads_to_its_row(real_sqlite: StatekitSaver) -> None:
    page = TimeTravel(talk(real_sqlite), named("agent"))._repr_html_()
    rows = set(re.findall(r"<details class='sk-row' id='([^']+)'", page))
    dots = re.findall(r"<a class='sk-hot' href='#([^']+)' title='[^']+' aria-label='([^']+)'", page)
    assert len(rows) == len(dots) == 13
    assert {target for target, _ in dots} == rows
    assert all(label.startswith("step ") for _, label in dots)


def test_a_wide_fan_out_is_shown_whole_and_is_no_repetition(in_memory: Any) -> None:
    inner: Any = StateGraph(Log)
    inner.add_node("look", lambda state: {"log": ["same"]})
    graph: Any = StateGraph(Log)
    graph.add_node("fan", lambda state: {})
    graph.add_node("work", inner.add_edge(START, "look").compile())
    graph.add_edge(START, "fan")
    graph.add_conditional_edges("fan", lambda state: [Send("work", {"log": []}) for _ in range(40)], ["work"])
    graph.compile(checkpointer=in_memory).invoke({"log": []}, named("t"), durability="sync")
    shown = TimeTravel(in_memory, thread_id="t").timeline(limit=500)
    found = Checked(shown._repr_html_())
    assert (found.odd, found.rows) == ([], len(shown.page.moments))
    assert len(shown.lanes) == 41
    assert "and 27 more lanes" in shown.svg()
    assert not shown.findings


def test_steps_that_a_saver_left_out_are_told_as_one(in_memory: Any) -> None:
    graph = monitor(Sampled(in_memory, every=3))
    graph.invoke(START_OF_SHOP, named("shop"))
    moments = TimeTravel(graph, named("shop")).timeline().page.moments
    assert [(each.point.step, sorted(each.nodes)) for each in moments[:2]] == [
        (18, ["crawl", "cut"]),
        (15, ["crawl", "cut"]),
    ]


def test_nodes_that_a_command_asked_for_are_told(in_memory: Any) -> None:
    graph: Any = StateGraph(Log)
    graph.add_node("a", lambda state: {"log": ["a"]})
    graph.add_node("b", lambda state: {"log": ["b"]})
    graph = graph.add_edge(START, "a").compile(checkpointer=in_memory)
    graph.invoke({"log": []}, named("t"), durability="sync")
    graph.invoke(Command(goto="b"), named("t"), durability="sync")
    latest = TimeTravel(graph, named("t")).at()
    assert (latest.values["log"], latest.moment.nodes) == (["a", "b"], ["b"])
