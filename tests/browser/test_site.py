"""The site of the documentation in a real browser: nothing is cut or comes from elsewhere, and its search finds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.docs.test_site import built

PAGES = ("index", "stores", "performance", "reference/index", "reference/savers")
CUT = """() => {
  const seen = (e) => { const b = e.getBoundingClientRect(); return b.width > 0 && b.height > 0 };
  const out = [];
  if (document.documentElement.scrollWidth > innerWidth) out.push("the page is wider than the window");
  for (const e of document.querySelectorAll("article p, article li, article h1, article h2, article td, article th")) {
    if (!seen(e) || e.closest(".md-typeset__scrollwrap, .highlight")) continue;
    const b = e.getBoundingClientRect();
    if (b.right > innerWidth + 1 || b.left < -1) out.push(`outside: ${e.textContent.slice(0, 60)}`);
  }
  for (const e of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "hidden")
      out.push(`cut: ${e.textContent.slice(0, 60)}`);
  }
  for (const e of document.querySelectorAll(".highlight code")) {
    if (e.scrollWidth > e.clientWidth + 1) out.push(`cut: ${e.textContent.slice(0, 60)}`);
    const button = e.closest(".highlight").querySelector("button");
    if (!button) continue;
    const b = button.getBoundingClientRect(), text = document.createRange();
    text.selectNodeContents(e);
    for (const line of text.getClientRects())
      if (line.width && line.right > b.left + 1 && line.left < b.right && line.bottom > b.top + 1 && line.top < b.bottom - 1)
        out.push(`a button over: ${e.textContent.slice(0, 60)}`);
  }
  return out;
}"""

WHOLE = f"() => ({CUT})().length === 0 || performance.now() > 60_000"
"""True once the site's own script has laid out the page, or has had a minute for it."""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a server of the site."""
    folder = built(tmp_path_factory)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
def test_the_site_is_whole_loads_nothing_from_elsewhere_and_can_be_searched(
    browser: Any, site: str, shot: Callable[[Any, str], None]
) -> None:
    for width, scheme in ((800, "dark"), (1600, "light")):
        page = browser.new_page(viewport={"width": width, "height": 1000}, color_scheme=scheme)
        page.set_default_timeout(90_000)
        asked: list[str] = []
        page.on("request", lambda request, asked=asked: asked.append(request.url))
        for name in PAGES:
            page.goto(f"{site}/{name}.html", wait_until="networkidle")
            shot(page, f"site-{name.replace('/', '-')}-{width}-{scheme}")
            assert page.wait_for_function(WHOLE) and page.evaluate(CUT) == [], f"{name}, {width}"
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") is (scheme == "light")
        if width == 1600:
            page.get_by_placeholder("Search").click()
            page.get_by_text("Type to start searching").wait_for()  # The index is read; what is typed earlier is lost.
            page.get_by_placeholder("Search").press_sequentially("fencing token")
            page.locator(".md-search-result__item").nth(1).wait_for()
        assert [each for each in asked if not each.startswith(site)] == []
        page.close()
