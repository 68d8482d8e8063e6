"""In marimo the timeline is shown as it is elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    from langgraph_statekit import SqliteSaver, TimeTravel
    from tests.timetravel.kit import START_OF_SHOP, monitor, named

    graph = monitor(SqliteSaver.from_url("sqlite:///marimo.db"))
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    tt = TimeTravel(graph, named("shop"))
    tt
    return (tt,)


if __name__ == "__main__":
    app.run()
"""


def exported(folder: Path) -> Path:
    """Return the page that marimo makes of the notebook."""
    if find_spec("marimo") is None:
        pytest.skip("marimo is not installed: group browser")
    (folder / "shop.py").write_text(NOTEBOOK)
    command = [sys.executable, "-m", "marimo", "export", "html", "shop.py", "--no-include-code", "-o", "shop.html"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return folder / "shop.html"


@pytest.mark.slow
def test_an_export_of_marimo_has_the_timeline(tmp_path: Path) -> None:
    page = exported(tmp_path).read_text()
    assert "\\u003Csection class='sk-tt'" in page
    assert "pages became empty at step 5" in page
