"""The site of the documentation in a real browser: nothing is cut or comes from elsewhere, and its search finds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_site import build

PAGES = ("index", "tutorial", "stores", "guarantees", "peers", "performance", "reference/savers", "notebooks/03_tiers")
CUT = """() => {
  const seen = (e) => { const b = e.getBoundingClientRect(); return b.width > 0 && b.height > 0 };
  const out = [];
  if (document.documentElement.scrollWidth > innerWidth) out.push("the page is wider than the window");
  for (const e of document.querySelectorAll("article p, article li, article h1, article h2, article td, article th")) {
    if (!seen(e) || e.closest(".md-typeset__scrollwrap, .highlight")) continue;
    const b = e.getBoundingClientRect();
    if (b.right > innerWidth + 1 || b.left < -1) out.push(`outside: ${e.textContent.slice(0, 60)}`);
  }
  for (const e of document.querySelectorAll(".md-typeset__scrollwrap, .highlight code")) {
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden")
      out.push(`cut: ${e.textContent.slice(0, 60)}`);
  }
  return out;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a server of the site."""
    build(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
def test_pages_are_whole_and_load_nothing_from_elsewhere(
    browser: Any, site: str, shot: Callable[[Any, str], None]
) -> None:
    for width in (800, 1600):
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            for name in PAGES:
                page.goto(f"{site}/{name}.html", wait_until="networkidle")
                shot(page, f"site-{name.replace('/', '-')}-{width}-{scheme}")
                assert page.evaluate(CUT) == [], f"{name}, {width}"
            assert [each for each in asked if not each.startswith(site)] == []
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(255, 255, 255)") is (scheme == "light")
            page.close()


@pytest.mark.slow
def test_the_search_finds_a_page(browser: Any, site: str) -> None:
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    page.goto(f"{site}/index.html", wait_until="networkidle")
    page.get_by_placeholder("Search").fill("fencing token")
    page.locator(".md-search-result__item").first.wait_for()
    assert page.locator(".md-search-result__item").count() > 1
    page.close()
