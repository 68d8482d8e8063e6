"""A real Chromium, and screenshots of what it shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import browser

__all__ = ["ALIGNED", "OURS", "browser"]

ALIGNED = """(page) => {
  const of = (name) => getComputedStyle(page.querySelector(name));
  return [of("td").textAlign, of("ul").paddingLeft, of("dt").float, of("dt").fontWeight, of(".sk-find a").color];
}"""
"""What a notebook's own styles would change in a timeline."""
OURS = ["left", "0px", "none", "400", "rgb(31, 35, 40)"]

SHOTS = "STATEKIT_TEST_SCREENSHOTS"
"""The variable that names a folder in which screenshots are kept."""


@pytest.fixture
def shot() -> Callable[[Any, str], None]:
    """Return what keeps a screenshot of a page where the variable says so."""

    def take(page: Any, name: str) -> None:
        if folder := os.environ.get(SHOTS):
            Path(folder).mkdir(parents=True, exist_ok=True)
            page.screenshot(path=str(Path(folder) / f"{name}.png"))

    return take
