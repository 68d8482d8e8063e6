"""In JupyterLab the timeline is shown, the slider moves, and a fork with an edit is stored; an export shows it all."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import SqliteSaver, TimeTravel
from tests.browser.conftest import ALIGNED, OURS

ROOT = Path(__file__).parents[2]
CELLS = (
    "from langgraph_statekit import SqliteSaver, TimeTravel\n"
    "from tests.timetravel.kit import START_OF_SHOP, monitor, named\n"
    "saver = SqliteSaver.from_url('sqlite:///lab.db')\n"
    "graph = monitor(saver)\n"
    "graph.invoke(START_OF_SHOP, named('shop'), durability='sync')\n"
    "tt = TimeTravel(graph, named('shop'))\n"
    "tt",
    "tt.widget()",
)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the address of a JupyterLab and its folder, with a notebook in it."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed: group browser")
    pytest.importorskip("anywidget", reason="anywidget is not installed: extra notebook")
    cells = [
        {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": source, "id": f"c{at}"}
        for at, source in enumerate(CELLS)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "shop.ipynb").write_text(json.dumps(notebook))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JUPYTER_CONFIG_DIR": str(tmp_path),
        "JUPYTER_RUNTIME_DIR": str(tmp_path),
    }
    env |= {"JUPYTER_DATA_DIR": str(tmp_path / "data"), "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    options = ["--ServerApp.port_retries=0", "--IdentityProvider.token=t", "--LabApp.news_url=None"]
    log = (tmp_path / "lab.log").open("w+")
    process = subprocess.Popen(
        [*command, *options, f"--ServerApp.root_dir={tmp_path}"],
        cwd=tmp_path,
        env=env,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        yield f"http://127.0.0.1:{port}/lab/tree/shop.ipynb?token=t", tmp_path
    finally:
        process.terminate()
        process.wait(30)
        log.close()


@pytest.mark.slow
def test_the_notebook_shows_slides_and_forks(
    browser: Any, lab: tuple[str, Path], shot: Callable[[Any, str], None]
) -> None:
    address, folder = lab
    page = browser.new_page(viewport={"width": 1600, "height": 1200})
    page.set_default_timeout(120_000)
    for _ in range(600):
        if re.search(r"is running at|Jupyter Server .* is running", (folder / "lab.log").read_text()):
            break
        page.wait_for_timeout(200)
    page.goto(address)
    page.get_by_text("| Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    timeline = page.locator(".jp-Notebook .sk-tt:not(.sk-widget)").first
    timeline.get_by_text("pages became empty at step 5").first.wait_for()
    timeline.locator("details.sk-row > summary").first.click()
    assert timeline.locator("details.sk-row .sk-body").first.is_visible()
    assert timeline.locator(".sk-pic .sk-hot").count() == 20
    assert timeline.evaluate(ALIGNED) == OURS
    assert page.locator("[data-mime-type*=stderr]").count() == 0
    shot(page, "jupyterlab-timeline")

    widget = page.locator(".jp-Notebook .sk-widget")
    widget.wait_for()
    widget.scroll_into_view_if_needed()
    widget.locator(".sk-at", has_text="step 18").wait_for()
    slider = widget.locator(".sk-slider")
    slider.focus()
    for _ in range(12):
        slider.press("ArrowLeft")
    widget.locator(".sk-at", has_text="step 6").wait_for()
    widget.locator(".sk-side").first.get_by_role("heading", name="Step 6").wait_for()
    widget.locator(".sk-side").nth(1).get_by_text("prices.A-0").first.wait_for()
    widget.get_by_label("Compare with").select_option(label="step 3, crawl")
    widget.locator(".sk-side").nth(1).get_by_text("pages[0]").first.wait_for()
    shot(page, "jupyterlab-widget")

    widget.get_by_text("Fork with an edit").click()
    widget.get_by_label("Edit of the state, as JSON").fill('{"round": 8}')
    widget.get_by_label("As node").fill("cut")
    widget.get_by_role("button", name="Fork here").click()
    widget.get_by_text("is the latest checkpoint now").wait_for()
    shot(page, "jupyterlab-forked")
    page.close()
    with SqliteSaver.from_url(f"sqlite:///{folder}/lab.db") as saver:
        latest = TimeTravel(saver, thread_id="shop").at()
    assert (latest.values["round"], latest.point.source) == (8, "update")
