"""The story that `make demo` tells comes out well on every store, with both kinds of price systems."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from tests.examples.job import EXAMPLES, demo
from tests.programs import PIPE, Program
from tests.stores_under_test import Store

ITEMS = 64
TOLD = {"sqlite": "strict", "redis": "plain", "postgres": "strict", "file": "plain", "s3": "strict"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--stores").split(",")
    metafunc.parametrize(("told_on", "provider"), [pair for pair in TOLD.items() if pair[0] in chosen])


@pytest.mark.slow
def test_killed_hung_upgraded_and_stopped_it_changes_each_price_exactly_once(
    new_store: Callable[[str], Store],
    told_on: str,
    provider: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    store = new_store(told_on)
    url = f"{store.url}?{urlencode(store.options)}"
    options = ["--store", url, "--provider", provider, "--items", str(ITEMS)]
    if told_on == "sqlite":  # as `make demo` starts it
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "demo.py"), *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        with ExitStack() as started:
            popen = lambda *given, **more: started.enter_context(Program(*given, **more))  # noqa: E731
            monkeypatch.setattr(demo, "subprocess", SimpleNamespace(Popen=popen, PIPE=PIPE))
            monkeypatch.setenv("PYTHONUNBUFFERED", "1")
            code = demo.main(options)
        out, err = capfd.readouterr()
    assert (code, err) == (0, ""), out
    assert "each price was changed exactly once" in out
    for outcome in ("SIGKILL", "does not answer", "demo: draining", "another worker goes on", "handed_over", "SIGSTOP"):
        assert outcome in out, outcome
    assert "demo: fenced" in out or (told_on == "sqlite" and "it was killed" in out), out
    refused, asked = (int(each) for each in re.findall(r"(\d+) were (?:refused|unknown)", out))
    counted = refused if provider == "strict" else asked
    assert counted >= 1, out
