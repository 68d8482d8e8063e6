"""An exported timeline in a real browser with scripts off: all is there, nothing overlaps, nothing is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from langgraph_statekit import StatekitSaver, TimeTravel
from langgraph_statekit.timetravel.html import page as document
from tests.browser.measures import BOXES, CONTRAST, LEAST_CONTRAST, OPEN_ALL
from tests.timetravel.conftest import real_sqlite  # noqa: F401  (a fixture)
from tests.timetravel.kit import EMOJI, HTML, LONG, RTL, START_OF_SHOP, hostile, monitor, named, put, talk


def incident(saver: StatekitSaver) -> TimeTravel:
    graph = monitor(saver)
    graph.invoke(START_OF_SHOP, named("price monitor"), durability="sync")
    tt = TimeTravel(graph, named("price monitor"))
    tt.label("the last good one", 4)
    tt.fork(4, reason="the crawl came back empty")
    graph.invoke(None, named("price monitor"), durability="sync", interrupt_after=["cut"])
    return tt


def chat(saver: StatekitSaver) -> TimeTravel:
    return TimeTravel(talk(saver), named("agent"))


def broken(saver: StatekitSaver) -> TimeTravel:
    hostile(saver)
    return TimeTravel(saver, thread_id=HTML)


def deep(saver: StatekitSaver) -> TimeTravel:
    graph: Any = None
    for depth in range(4):
        outer: Any = StateGraph(dict)
        outer.add_node(f"prepare_the_material_of_depth_{depth}", lambda state: state)
        outer.add_node(f"level_{depth}", graph or (lambda state: state))
        outer.add_edge(START, f"prepare_the_material_of_depth_{depth}")
        outer.add_edge(f"prepare_the_material_of_depth_{depth}", f"level_{depth}")
        graph = outer.compile(checkpointer=saver if depth == 3 else None)
    graph.invoke({"x": 1}, named("deep"), durability="sync")
    return TimeTravel(graph, named("deep"))


def failed(saver: StatekitSaver) -> TimeTravel:
    """Nodes whose names are meant to break a page, the last of which raises."""

    def fail(state: Any) -> Any:
        raise ValueError("no price " + "x" * 300)

    graph: Any = StateGraph(dict)
    before = START
    for name in (*(f"{at} {name}" for at in range(3) for name in (HTML.replace(":", ""), EMOJI, RTL)), LONG):
        graph.add_node(name, fail if name == LONG else lambda state: {**state, "n": len(state)})
        graph.add_edge(before, name)
        before = name
    graph = graph.compile(checkpointer=saver)
    with pytest.raises(ValueError, match="no price"):
        graph.invoke({"x": 1}, named("failed"), durability="sync")
    return TimeTravel(graph, named("failed"))


def long(saver: StatekitSaver) -> TimeTravel:
    put(saver, "long", [{"n": at, "pages": [1, 2] if at < 90 else []} for at in range(120)])
    return TimeTravel(saver, thread_id="long")


@pytest.mark.parametrize("make", [incident, chat, broken, deep, failed, long])
def test_the_export_is_whole_and_readable_without_scripts(
    make: Callable[[StatekitSaver], TimeTravel],
    browser: Any,
    real_sqlite: StatekitSaver,  # noqa: F811
    tmp_path: Path,
    shot: Callable[[Any, str], None],
) -> None:
    path = make(real_sqlite).to_html(tmp_path / "page.html")
    for width in (800, 1600):
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": width, "height": 1000}, color_scheme=scheme, java_script_enabled=False
            )
            asked: list[str] = []
            context.on("request", lambda request, asked=asked: asked.append(request.url))
            page = context.new_page()
            page.goto(path.as_uri())
            name = f"{make.__name__}-{width}-{scheme}"
            shot(page, name)
            assert page.evaluate(BOXES) == [], name
            rows = page.locator("details.sk-row")
            assert rows.count() >= page.locator(".sk-pic a.sk-hot").count() > 10
            first = rows.first
            assert not first.locator(".sk-body").is_visible()
            first.locator("> summary").focus()
            page.keyboard.press("Enter")
            assert first.locator(".sk-body").is_visible()
            first.locator(".sk-chan > summary").first.click()
            assert first.locator("pre").first.is_visible()
            shot(page, f"{name}-open")
            page.evaluate(OPEN_ALL)
            assert page.evaluate(BOXES) == [], f"{name}, opened"
            assert page.evaluate(CONTRAST) >= LEAST_CONTRAST, name
            assert "broken" not in page.title() or make in (broken, failed)
            assert page.locator("script, img, iframe").count() == 0
            assert asked == [path.as_uri()]
            context.close()


def test_the_cause_of_the_incident_is_on_the_first_screen(
    browser: Any,
    real_sqlite: StatekitSaver,  # noqa: F811
    tmp_path: Path,
) -> None:
    graph = monitor(real_sqlite)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    path = TimeTravel(graph, named("shop")).to_html(tmp_path / "page.html")
    page = browser.new_page(viewport={"width": 800, "height": 600}, java_script_enabled=False)
    page.goto(path.as_uri())
    for cause in ("pages became empty at step 5 (node 'crawl')", "done became empty", "was changed 8 times"):
        box = page.get_by_text(cause).first.bounding_box()
        assert box["y"] + box["height"] < 600, cause
    page.get_by_text("pages became empty at step 5").first.click()
    assert page.url.endswith(page.locator("details.sk-row:target").get_attribute("id"))
    page.close()


def test_answers_are_whole_and_readable(
    browser: Any,
    real_sqlite: StatekitSaver,  # noqa: F811
    tmp_path: Path,
    shot: Callable[[Any, str], None],
) -> None:
    shop, agent = incident(real_sqlite), chat(real_sqlite)
    answers = {
        "compare": shop.compare(shop.branches()[1]),
        "diff": agent.diff(1, 6),
        "at": shop[4],
        "inside": agent.inside(6)[0],
    }
    for name, answer in answers.items():
        path = tmp_path / f"{name}.html"
        path.write_text(document(name, answer._repr_html_()), encoding="utf-8")
        for width, scheme in ((800, "dark"), (1600, "light")):
            page = browser.new_page(
                viewport={"width": width, "height": 1000}, color_scheme=scheme, java_script_enabled=False
            )
            page.goto(path.as_uri())
            page.evaluate(OPEN_ALL)
            shot(page, f"answer-{name}-{width}-{scheme}")
            assert page.evaluate(BOXES) == [], f"{name}, {width}"
            assert page.evaluate(CONTRAST) >= LEAST_CONTRAST, f"{name}, {scheme}"
            assert page.get_by_text("both go on from step 4").count() == (name == "compare")
            page.close()
