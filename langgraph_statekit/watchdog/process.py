"""A run in a process of its own, which can be ended whatever its nodes do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from langgraph_statekit.errors import Misuse, StatekitError
from langgraph_statekit.watchdog.errors import Died
from langgraph_statekit.watchdog.runs import Run
from langgraph_statekit.watchdog.wire import BEAT, BEGIN, CANCEL, DRAIN, END, PART, RUN, SPEND, Pipe, error_of

_PLAIN = ("tags", "metadata", "configurable", "max_concurrency", "recursion_limit", "run_name")
_REMEDY = 'with isolation="process" all arguments must be data: make live objects in the graph factory'


class ChildRun(Run):
    """The graph in a new process, made by a factory; a new interpreter is started, nothing is forked."""

    factory: str
    is_async: bool
    counts: bool

    def start(self) -> None:
        """Begin.

        Raises:
            Misuse: An argument is no data.
        """
        job = self.job
        serde: Any = job.graph.checkpointer.serde  # type: ignore[union-attr]
        arguments = {key: value for key, value in job.arguments(self.control).items() if key != "control"}
        given = {
            "input": job.input,
            "config": plain_config(job.config),
            "options": arguments,
            "modes": list(job.parts.modes),
            "is_async": self.is_async,
            "counts": self.counts,
        }
        try:
            packed = list(serde.dumps_typed(given))
        except StatekitError as error:
            raise Misuse(f"{_REMEDY}: {error}") from error
        self.stages = (self._cancel, self._kill) if self.is_async else (self._kill,)
        to_child, from_child = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "langgraph_statekit.watchdog.child", str(to_child[0]), str(from_child[1])],
                pass_fds=(to_child[0], from_child[1]),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,  # what its nodes start is ended with it
            )
        finally:
            os.close(to_child[0])
            os.close(from_child[1])
        self._pipe = Pipe(os.fdopen(from_child[0], "rb"), os.fdopen(to_child[1], "wb"))
        self._reaper = threading.Thread(target=self._reap, name="statekit-reap", daemon=True)
        self._reaper.start()
        threading.Thread(target=self._listen, args=(serde, packed), name="statekit-run", daemon=True).start()

    def drain(self, reason: str) -> None:
        """Ask the graph to end after its running step."""
        super().drain(reason)
        self._send(DRAIN, reason)

    def look(self) -> None:
        """Look, and pass on what the caller asked."""
        if not self.over and self.finding is None and self.control.drain_requested:
            self._send(DRAIN, self.control.drain_reason)
        super().look()

    def _send(self, kind: int, payload: Any) -> None:
        with suppress(OSError, ValueError):  # it has ended; its end comes by the other pipe
            self._pipe.send(kind, payload)

    def _cancel(self) -> None:
        self._send(CANCEL, None)

    def _kill(self) -> None:
        if self._process.returncode is None:  # not waited for, so the number is still its own
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Wait for the end of the process, then end what its nodes started, which may hold its end of the pipe."""
        if hasattr(os, "waitid"):  # else its number is free for others for a moment
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self, serde: Any, packed: Any) -> None:
        error: BaseException | None = None
        ended = False
        try:
            self._send(BEGIN, {"factory": self.factory, "path": sys.path})
            self._send(RUN, packed)
            while not ended and (frame := self._pipe.receive()) is not None:
                kind, payload = frame
                if kind == PART:
                    self.take(serde.loads_typed(tuple(payload)))  # of a finding the child is told; it drains
                elif kind == BEAT:
                    self.seen.beat(*payload)
                elif kind == SPEND:
                    self.seen.spend(*payload)
                elif kind == END:
                    ended, error = True, error_of(payload)
        except BaseException as raised:
            ended, error = True, raised
            self._kill()
        if ended:
            self._reaper.join(self._grace_s)
        self._kill()
        self._reaper.join()
        code = self._process.returncode
        self._pipe.close()
        self.finish(error if ended else Died(f"the process of the run ended with exit code {code}"))


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config as data.

    Raises:
        Misuse: It has live callbacks.
    """
    if config.get("callbacks"):
        raise Misuse(f"callbacks cannot go to another process: {_REMEDY}")
    return {key: config[key] for key in _PLAIN if key in config}
