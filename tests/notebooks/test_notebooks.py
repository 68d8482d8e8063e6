"""Each notebook is a pair of a script and a file for Jupyter, runs as a whole, and ends with something to look at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "notebooks").glob("*.py"))
SHOWN = {"text/html", "image/svg+xml"}


def ids(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_both_parts_of_a_pair_say_the_same(script: Path) -> None:
    jupytext = pytest.importorskip("jupytext", reason="jupytext is not installed: group notebooks")
    pair = [jupytext.read(path) for path in (script, script.with_suffix(".ipynb"))]
    ours, other = ([(cell.cell_type, cell.source) for cell in each.cells] for each in pair)
    assert ours == other, "run: jupytext --sync notebooks/*.py"
    assert not any(cell.get("outputs") for cell in pair[1].cells), "outputs are not kept: they tell times and ids"


@pytest.mark.parametrize("script", SCRIPTS, ids=ids)
def test_a_notebook_runs_and_ends_with_something_to_look_at(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: group notebooks")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    notebook = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    assert re.search(r"Takes: about \d+ seconds", notebook.cells[0].source)
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    assert any(SHOWN & each.get("data", {}).keys() for each in last.outputs)
    errors = [each.text for cell in notebook.cells for each in cell.get("outputs", ()) if each.get("name") == "stderr"]
    assert "Traceback" not in "".join(errors)  # a watchdog warns there
