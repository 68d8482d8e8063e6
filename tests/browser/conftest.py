"""A real Chromium, and screenshots of what it shows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import browser

__all__ = ["browser"]

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
