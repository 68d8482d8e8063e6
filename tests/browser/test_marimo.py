"""In marimo the timeline is drawn, and follows its theme."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import ALIGNED, OURS
from tests.notebooks.test_marimo import exported


@pytest.mark.slow
def test_marimo_draws_the_timeline_in_its_own_theme(
    browser: Any, tmp_path: Path, shot: Callable[[Any, str], None]
) -> None:
    path = exported(tmp_path)
    page = browser.new_page(viewport={"width": 1600, "height": 1200}, color_scheme="dark")  # marimo's own is light

    def serve(route: Any) -> None:  # an export loads marimo's own files from elsewhere; here they are those installed
        spec = find_spec("marimo")
        assert spec is not None
        assert spec.origin is not None
        name = re.search(r"/dist/([^?#]+)", route.request.url)
        file = Path(spec.origin).parent / "_static" / (name[1] if name else "")
        if file.is_file():
            kind = guess_type(file.name)[0] or "text/plain"
            route.fulfill(path=str(file), content_type=kind, headers={"Access-Control-Allow-Origin": "*"})
        else:
            route.abort()

    page.route(re.compile("^https?://"), serve)
    page.goto(path.as_uri())
    page.get_by_text("pages became empty at step 5").first.wait_for(timeout=60_000)
    shot(page, "marimo")
    assert page.locator(".sk-pic").is_visible()
    assert page.locator("details.sk-row").count() == page.locator(".sk-hot").count() == 20
    background = page.evaluate("getComputedStyle(document.querySelector('.sk-tt')).backgroundColor")
    assert background == "rgb(255, 255, 255)"
    page.locator("details.sk-row > summary").first.click()
    assert page.locator("details.sk-row .sk-body").first.is_visible()
    assert page.locator(".sk-tt").evaluate(ALIGNED) == OURS
    page.close()
