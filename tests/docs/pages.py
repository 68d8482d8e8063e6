"""The pages of the documentation and what stands in their fences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
LANGUAGES = {"python", "sh", "sql", "json", "console", "text"}
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """What stands in a fence.

    Attributes:
        language: `python` and `sql` run; `sh` runs, line by line, in a folder where the page's other blocks ran before;
            `console` is checked but not run, `json` is read; `text` is no code.
        title: Of `python` the file that it is, of `text` what it has to do with the block before: `prints`.
    """

    language: str
    title: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Return what stands in a page's fences, in order."""
    return [Block(*found) for found in FENCE.findall(page.read_text(encoding="utf-8"))]
