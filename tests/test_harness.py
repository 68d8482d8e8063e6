"""A test run comes to its end, and leaves nothing behind, whatever happens in it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.servers import wait_until

ROOT = Path(__file__).parents[1]

HUNG = """
import asyncio
from hypothesis import given, settings, strategies

@settings(deadline=None, database=None)
@given(strategies.integers())
def test_hung_in_hypothesis(number):
    while number > 10:
        pass

@settings(deadline=None, database=None)
@given(strategies.integers())
async def test_hung_async_in_hypothesis(number):
    while number > 10:
        await asyncio.sleep(0)

async def test_hung_async():
    await asyncio.Event().wait()

def test_next():
    pass
"""

WITH_SERVER = """
import pathlib, threading

def test_wait(servers):
    pathlib.Path("url.new").write_text(servers.url("redis"))
    pathlib.Path("url.new").rename("url")
    threading.Event().wait()
"""


@contextmanager
def run(folder: Path, tests: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run tests with our fixtures and settings in a process of their own."""
    (folder / "test_inner.py").write_text(tests)
    (folder / "tmp").mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("STATEKIT_TEST_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), "-v"]
    with subprocess.Popen(
        [*command, "-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:randomly", *options, "test_inner.py"],
        cwd=folder,
        env={**env, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_hung_test_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    with run(tmp_path, HUNG, "--timeout", "2") as process:
        out, _ = process.communicate(timeout=120)
    results = dict(re.findall(r"::(\w+) (PASSED|FAILED)", out))
    hung = ("test_hung_in_hypothesis", "test_hung_async_in_hypothesis", "test_hung_async")
    assert results == {**dict.fromkeys(hung, "FAILED"), "test_next": "PASSED"}, out


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_run_that_is_ended_leaves_no_server(tmp_path: Path, how: signal.Signals, workers: str) -> None:
    with run(tmp_path, WITH_SERVER, "-n", workers) as process:
        wait_until((tmp_path / "url").exists, "the server runs")
        process.send_signal(how)
        process.communicate()
    port = urlsplit((tmp_path / "url").read_text()).port
    assert port is not None
    wait_until(lambda: not listens(port), "the server ends")
    if (how, workers) != (signal.SIGKILL, "0"):
        wait_until(lambda: not list((tmp_path / "tmp").glob("statekit-*")), "its files are removed")


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
