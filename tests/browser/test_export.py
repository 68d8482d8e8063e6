"""An exported timeline in a real browser with scripts off: all is there, nothing overlaps, nothing is cut."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import StatekitSaver, TimeTravel
from tests.timetravel.conftest import real_sqlite  # noqa: F401  (a fixture)
from tests.timetravel.kit import HTML, START_OF_SHOP, hostile, monitor, named, talk

# Read from outside: scripts of the page itself are off.
BOXES = """() => {
  const seen = (e) => { const b = e.getBoundingClientRect(); return b.width > 0 && b.height > 0 };
  const out = [];
  for (const e of document.querySelectorAll(".sk-tt *")) {
    if (!seen(e) || e.closest("svg")) continue;
    const b = e.getBoundingClientRect();
    if (b.right > innerWidth + 1 || b.left < -1) out.push(`outside: ${e.className || e.tagName}`);
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden") out.push(`cut: ${e.className}`);
  }
  for (const row of document.querySelectorAll(".sk-row > summary")) {
    const cells = [...row.children].filter(seen).map((e) => e.getBoundingClientRect());
    for (let i = 0; i < cells.length; i++) for (let j = i + 1; j < cells.length; j++) {
      const [a, b] = [cells[i], cells[j]];
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1) out.push("overlap in a row");
    }
  }
  const texts = [...document.querySelectorAll(".sk-pic > div > svg > text")].map((e) => e.getBoundingClientRect());
  const dots = [...document.querySelectorAll(".sk-pic > div > svg > svg")].map((e) => e.getBoundingClientRect());
  const wide = document.querySelector(".sk-pic").getBoundingClientRect();
  for (const a of texts) if (a.right > wide.right + 1) out.push("a text of the picture is cut");
  for (const a of texts) for (const b of [...texts, ...dots]) {
    if (a !== b && a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
      out.push("overlap in the picture");
  }
  const links = [...document.querySelectorAll(".sk-hot")].map((e) => e.getBoundingClientRect());
  dots.forEach((dot, i) => {
    const [x, y] = [links[i].left + links[i].width / 2, links[i].top + links[i].height / 2];
    if (Math.abs(x - (dot.left + dot.right) / 2) > 2 || Math.abs(y - (dot.top + dot.bottom) / 2) > 6) out.push("a link is beside its dot");
  });
  return out;
}"""


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


@pytest.mark.parametrize("make", [incident, chat, broken])
def test_the_export_is_whole_without_scripts(
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
            assert rows.count() == page.locator(".sk-pic a.sk-hot").count() > 10
            first = rows.first
            assert not first.locator(".sk-body").is_visible()
            first.locator("> summary").focus()
            page.keyboard.press("Enter")
            assert first.locator(".sk-body").is_visible()
            first.locator(".sk-chan > summary").first.click()
            assert first.locator("pre").first.is_visible()
            shot(page, f"{name}-open")
            assert page.evaluate(BOXES) == [], f"{name}, opened"
            assert "broken" not in page.title() or make is broken
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


def test_text_has_enough_contrast_in_light_and_dark(browser: Any, real_sqlite: StatekitSaver, tmp_path: Path) -> None:  # noqa: F811
    path = incident(real_sqlite).to_html(tmp_path / "page.html")
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport={"width": 800, "height": 1000}, color_scheme=scheme, java_script_enabled=False)
        page.goto(path.as_uri())
        worst = page.evaluate("""() => {
          const parts = (c) => c.match(/[\\d.]+/g).map(Number);
          const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255;
            return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const under = (e) => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
            if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
          let worst = 21;
          for (const e of document.querySelectorAll(".sk-tt *")) {
            if (e.closest("svg") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
            const [a, b] = [light(parts(getComputedStyle(e).color)), light(under(e))];
            worst = Math.min(worst, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
          }
          return worst;
        }""")
        assert worst >= 4.5, scheme
        page.close()
