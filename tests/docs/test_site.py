"""The site of the documentation builds without a warning, has every public name, and loads nothing from elsewhere."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import langgraph_statekit
from tests.docs.pages import ROOT


class Loaded(HTMLParser):
    """What a page loads by itself, its anchors, and where its links lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids.add(found.get("id") or "")
        if tag == "a" and not re.match(r"[a-z]+:", found.get("href") or "#"):
            self.links.add(found["href"] or "")
        if tag in ("script", "img", "iframe", "source", "link"):
            self.addresses += [each for each in (found.get("src"), found.get("href")) if each]


def objects(inventory: Path) -> dict[str, str]:
    """Return the names that a site documents, and where."""
    plain = zlib.decompress(inventory.read_bytes().split(b"\n", 4)[4]).decode()
    rows = (re.match(r"(\S+) +\S+ +\S+ +(\S+)", line) for line in plain.splitlines())
    return {row[1]: row[2].replace("$", row[1]) for row in rows if row}


def build(folder: Path) -> None:
    """Build the site into a folder; a warning is an error."""
    if find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: group docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stdout + built.stderr


def built(factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, which the first test of a run that asks for it builds."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    site = shared / "site"
    with open(shared / "site.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not site.exists():
            building = factory.mktemp("site")
            build(building)
            building.rename(site)
    return site


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    site = built(tmp_path_factory)
    named = objects(site / "objects.inv")
    pages = {str(page.relative_to(site)): Loaded(page) for page in site.rglob("*.html")}
    for name in langgraph_statekit.__all__:
        page, _, anchor = named[f"langgraph_statekit.{name}"].partition("#")
        assert anchor in pages[page].ids, name
    for name, page in pages.items():
        for link in page.links:
            there = (site / name).parent / link.partition("#")[0]
            assert name == "404.html" or there.is_file() or link.startswith("#"), f"{name} links to {link}"
        assert not [each for each in page.addresses if re.match(r"(https?:)?//", each)], name
    for source in (*ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.py")):
        folder = "" if source.suffix == ".md" else "notebooks/"
        assert f"{folder}{source.stem}.html" in pages


def test_what_a_notebook_shows_is_shown_on_its_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: group docs")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: group notebooks")
    pytest.importorskip("nbclient")
    monkeypatch.setenv("STATEKIT_DOCS_OUTPUTS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    hooks: Any = import_module("hooks")
    code = "from IPython.display import HTML\nprint('said')\nHTML('<section>drawn</section>')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("x"), nbformat.v4.new_code_cell(code)])
    nbformat.write(notebook, tmp_path / "one.ipynb")
    pages: dict[str, str] = {}
    shown = [hooks._output(each, "one.0.html", pages) for each in hooks._outputs(tmp_path / "one.py")[1]]
    assert "said" in shown[0]
    assert "src='one.0.html'" in shown[1]
    assert "<section>drawn</section>" in pages["one.0.html"]
