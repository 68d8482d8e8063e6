"""The story that `make demo` tells comes out well on every store, with both kinds of price systems."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from urllib.parse import urlencode

import pytest

from tests.examples.job import EXAMPLES
from tests.stores_under_test import Store

ITEMS = 64
TOLD = {"sqlite": "strict", "redis": "plain", "postgres": "strict", "file": "plain", "s3": "strict"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--stores").split(",")
    metafunc.parametrize(("told_on", "provider"), [pair for pair in TOLD.items() if pair[0] in chosen])


@pytest.mark.slow
def test_killed_hung_upgraded_and_stopped_it_changes_each_price_exactly_once(
    new_store: Callable[[str], Store], told_on: str, provider: str
) -> None:
    store = new_store(told_on)
    url = f"{store.url}?{urlencode(store.options)}"
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--store", url, "--provider", provider, "--items", str(ITEMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    out = done.stdout
    assert (done.returncode, done.stderr) == (0, ""), out
    assert "each price was changed exactly once" in out
    for outcome in ("SIGKILL", "does not answer", "demo: draining", "another worker goes on", "handed_over", "SIGSTOP"):
        assert outcome in out, outcome
    assert "demo: fenced" in out or (told_on == "sqlite" and "it was killed" in out), out
    refused, asked = (int(each) for each in re.findall(r"(\d+) were (?:refused|unknown)", out))
    counted = refused if provider == "strict" else asked
    assert counted >= 1, out
