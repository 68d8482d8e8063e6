"""One attempt at a run, and the thread that fences it off while its caller does not act."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from langgraph_statekit.watchdog.runs import Run, Waiting
from langgraph_statekit.watchdog.seen import Seen
from langgraph_statekit.watchdog.view import Finding
from tests.servers import wait_until


class Idle(Run):
    def start(self) -> None:
        """Begin nothing."""


def test_a_fence_that_is_about_to_begin_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    begins, go, fenced = threading.Event(), threading.Event(), threading.Event()
    start = threading.Thread.start

    def late(thread: threading.Thread) -> None:
        if thread.name == "statekit-fence":
            begins.set()
            assert go.wait(60)
        start(thread)

    job: Any = SimpleNamespace(callers=None)
    lease: Any = SimpleNamespace(lost=False)
    run = Idle(
        job, Seen((), None, time.monotonic, lambda: 0.0), Waiting(), lease, 1, 0, fenced.set, lambda finding: None
    )
    assert run.note(Finding("test", "it hangs"))
    monkeypatch.setattr(threading.Thread, "start", late)
    looking, waiting = threading.Thread(target=run.look), threading.Thread(target=run.rescued)
    looking.start()
    wait_until(begins.is_set, "the fence is about to begin")
    waiting.start()
    go.set()
    for each in (waiting, looking):
        each.join()
    assert fenced.is_set()
