"""A real Chromium. Without it, or without Playwright, tests that use it are skipped, and say so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


@pytest.fixture
def browser() -> Iterator[Any]:
    """Yield a browser of one test: while Playwright is open, its event loop runs in the thread of all tests."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("STATEKIT_TEST_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("no Chromium on PATH, and STATEKIT_TEST_CHROMIUM names none")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=path, args=FLAGS)
        try:
            yield found
        finally:
            found.close()
