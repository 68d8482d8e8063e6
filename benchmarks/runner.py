"""The process that keeps the stores and tells workers what to run."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import ModuleType, TracebackType
from typing import Any, Self

from benchmarks.bench import Numbers
from benchmarks.peers import ROOT, environment
from benchmarks.savers import Saver
from benchmarks.stores import Stores, proxied

LIMIT_S = 240.0
"""Seconds after which a run counts as failed."""


class Failed(Exception):
    """A run that gave no numbers."""


class Worker:
    """One process of one saver, which ends with the `with` block."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=environment(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def run(self, request: Mapping[str, Any], answers: Mapping[str, Callable[[], Any]], limit_s: float) -> Numbers:
        """Return the numbers of one run; questions of the worker are answered meanwhile.

        Raises:
            Failed: The saver gave a wrong state, crashed, or was too slow.
        """
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(limit_s, end)
        timer.start()
        try:
            self._send(request)
            while line := self._process.stdout.readline():  # type: ignore[union-attr]
                said = json.loads(line)
                if "ask" in said:
                    self._send(answers[said["ask"]]())
                elif "error" in said:
                    raise Failed(said["error"])
                else:
                    numbers: Numbers = said["numbers"]
                    return numbers
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
        if late.is_set():
            raise Failed(f"no end within {limit_s:g} s")
        raise Failed(f"the process ended with {self._process.wait()}")

    def _send(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()


def measure(
    worker: Worker,
    stores: Stores,
    saver: Saver,
    workload: ModuleType,
    mode: str,
    size: Mapping[str, int],
    *,
    thorough: bool,
) -> Numbers:
    """Return the numbers of one run on a fresh store."""
    with ExitStack() as stack:
        store = stack.enter_context(stores.fresh(saver.store))
        url, trips = store.url, lambda: 0
        if getattr(workload, "PROXIED", False):
            url, trips = stack.enter_context(proxied(store))
        request = {
            "workload": workload.__name__.rpartition(".")[2],
            "saver": saver.name,
            "url": url,
            "mode": mode,
            "size": size,
            "thorough": thorough,
        }
        answers = {"stored": store.stored, "copy": store.own_copy_s, "trips": trips}
        return worker.run(request, answers, LIMIT_S)
