"""What the pages in docs/ show runs, block by block, each in a place of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    pytest.param(block, id=f"{page.stem} {number}")
    for page in sorted(DOCS.glob("*.md"))
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE), 1
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_code_of_a_page_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs", "exec", dont_inherit=True), {"__name__": "docs"})
