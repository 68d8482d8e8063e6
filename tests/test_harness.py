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

from tests import programs
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


SHOWN = """
import os, sys
print(sys.argv[-1], __name__, os.getcwd(), sys.path[0], os.environ.get("SAID"), len(os.environ), flush=True)
print("ünknown", file=sys.stderr)
if sys.argv[-1] == "fails":
    raise KeyError("fails")
if sys.argv[-1] == "dies":
    os.kill(os.getpid(), 9)
sys.exit(3)
"""


@pytest.mark.parametrize("end", ["exits", "fails", "dies"])
@pytest.mark.parametrize("what", ["code", "script", "module"])
def test_a_forked_program_does_what_a_started_one_does(tmp_path: Path, what: str, end: str) -> None:
    (tmp_path / "shown.py").write_text(SHOWN)
    given = {"code": ["-c", SHOWN], "script": ["shown.py"], "module": ["-m", "shown"]}[what]
    command = [sys.executable, *given, end]
    options = {"cwd": tmp_path, "env": {**os.environ, "SAID": "this"}, "text": True, "capture_output": True}
    forked, started = programs.run(command, **options), subprocess.run(command, **options, check=False)
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    said = started.stderr.splitlines()
    assert (forked.stderr.splitlines()[0], forked.stderr.splitlines()[-1]) == (said[0], said[-1])


def test_a_forked_program_takes_signals_and_is_killed_when_it_takes_too_long() -> None:
    command = [sys.executable, "-c", "print('begun', flush=True); import time; time.sleep(600)"]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with programs.Program(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "begun\n"
            assert program.poll() is None
            program.send_signal(number)
            assert program.wait() == -number
    with pytest.raises(subprocess.TimeoutExpired):
        programs.run(command, timeout=0.01)


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
