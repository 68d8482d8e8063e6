"""Python programs that start in a moment, as children of one that has loaded what they need and opened nothing.

Most of a start is imports, and the tests start hundreds of programs. A program is a process of its own all the same: it
has its own threads and connections, and SIGKILL ends it where it stands. What only a real start shows, such as
variables that the interpreter reads, is tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import IO, Any

ROOT = Path(__file__).parents[1]
TOLD = struct.Struct("=i")
"""What is told of a program: its id, and in the end its exit code, or the negative number of a signal."""
_LOCK = threading.Lock()


@cache
def _mother() -> socket.socket:
    """Start the process that forks programs; it ends when this one does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.mother", str(theirs.fileno())],
            stdin=DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
        )

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


class Program:
    """A running `python SCRIPT`, `python -m MODULE` or `python -c CODE`, with what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        text: bool = False,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        python, *self.args = command
        assert python == sys.executable
        self.returncode: int | None = None
        asked = {"args": self.args, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        given: list[int] = []
        self.stdout, self.stderr = (_end(each, own, text, given) for each, own in ((stdout, 1), (stderr, 2)))
        self._told, told = os.pipe()
        with _LOCK:
            socket.send_fds(_mother(), [json.dumps(asked).encode()], [*given, told])
        for each in (*given, told):
            os.close(each)
        self.pid = self._read()

    def _read(self) -> int:
        (number,) = TOLD.unpack(os.read(self._told, TOLD.size))
        return int(number)

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, and return how it ended."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = self._read()
            os.close(self._told)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[Any, Any]:
        """Read all that it writes, and wait for its end; one that takes longer is killed."""
        with ThreadPoolExecutor(2) as pool:
            out, err = (pipe and pool.submit(pipe.read) for pipe in (self.stdout, self.stderr))
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self._close()
        return out and out.result(), err and err.result()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it where it stands."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _close(self) -> None:
        for pipe in (self.stdout, self.stderr):
            if pipe:
                pipe.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *raised: object) -> None:
        self._close()
        self.wait()


def _end(wanted: int | IO[Any] | None, own: int, text: bool, given: list[int]) -> IO[Any] | None:
    """Add the end of a stream that a program gets, and return ours if it is a pipe."""
    if wanted == PIPE:
        ours, theirs = os.pipe()
        given.append(theirs)
        return open(ours, encoding="utf-8") if text else open(ours, "rb")
    if wanted == DEVNULL:
        given.append(os.open(os.devnull, os.O_WRONLY))
    else:
        given.append(os.dup(own if wanted is None else wanted if isinstance(wanted, int) else wanted.fileno()))
    return None


def run(
    command: Sequence[str],
    *,
    capture_output: bool = False,
    check: bool = False,
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, as `subprocess.run` does."""
    if capture_output:
        options |= {"stdout": PIPE, "stderr": PIPE}
    with Program(command, **options) as program:
        out, err = program.communicate(timeout)
        done = subprocess.CompletedProcess(command, program.wait(), out, err)
    if check:
        done.check_returncode()
    return done
