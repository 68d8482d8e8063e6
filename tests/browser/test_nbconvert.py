"""An exported notebook shows the timeline, with scripts off, as whole as the page of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import StatekitSaver, TimeTravel
from tests.browser.conftest import ALIGNED, OURS
from tests.timetravel.conftest import real_sqlite  # noqa: F401  (a fixture)
from tests.timetravel.kit import HTML, hostile, talk


@pytest.mark.parametrize("thread", ["agent", HTML], ids=["agent", "hostile"])
def test_an_exported_notebook_is_whole(
    thread: str,
    browser: Any,
    real_sqlite: StatekitSaver,  # noqa: F811
    tmp_path: Path,
    shot: Callable[[Any, str], None],
) -> None:
    nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed: group browser")
    nbformat = pytest.importorskip("nbformat")
    talk(real_sqlite) if thread == "agent" else hostile(real_sqlite)
    shown = TimeTravel(real_sqlite, thread_id=thread).timeline()
    data = {"text/plain": repr(shown), "text/html": shown._repr_html_()}
    output = nbformat.v4.new_output("execute_result", data=data, execution_count=1)
    cells = [nbformat.v4.new_code_cell("tt", execution_count=1, outputs=[output])]
    body, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    path = tmp_path / "notebook.html"
    path.write_text(body, encoding="utf-8")
    context = browser.new_context(viewport={"width": 800, "height": 1000}, java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(path.as_uri())
    rows = page.locator(".sk-tt details.sk-row")
    assert rows.count() == page.locator(".sk-tt .sk-pic .sk-hot").count() == len(shown.page.moments)
    assert page.locator(".sk-tt .sk-pic > div > svg > svg").count() == len(shown.page.moments)
    assert page.locator(".sk-tt script, .sk-tt img").count() == 0
    rows.first.locator("> summary").click()
    assert rows.first.locator(".sk-body").is_visible()
    assert page.locator(".sk-tt").evaluate(ALIGNED) == OURS
    shot(page, f"nbconvert-{'agent' if thread == 'agent' else 'hostile'}")
    context.close()
