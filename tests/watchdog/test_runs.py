"""One attempt at a run, and the thread that fences it off while its caller does not act."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from langgraph_statekit.watchdog.parts import BEGIN, STEP
from langgraph_statekit.watchdog.runs import NOTHING, Run, Waiting
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


@pytest.mark.parametrize("noted", ["before the step is looked at", "before the next one begins"])
def test_a_finding_that_another_thread_notes_first_holds_up_the_next_step_too(noted: str) -> None:
    places = iter((STEP, BEGIN, BEGIN))
    parts: Any = SimpleNamespace(take=lambda part, seen: (NOTHING, next(places)))
    job: Any = SimpleNamespace(callers=None, parts=parts)
    found = Finding("test", "it broke a rule", since="1")
    seen = Seen((lambda view: found,) if noted.endswith("at") else (), None, time.monotonic, lambda: 0.0)
    lease: Any = SimpleNamespace(lost=False)
    run = Idle(job, seen, Waiting(), lease, 1, 600, lambda: None, lambda finding: None)
    if noted.endswith("at"):
        assert run.note(found)  # the graph has just seen that nobody asked it to drain
    assert not run.take("the step has ended")
    assert run.note(found) != noted.endswith("at")
    assert run.take("a task is about to begin")
    assert run.halted().reason == "test"


def test_a_finding_in_the_midst_of_a_step_does_not_break_it_off() -> None:
    places = iter((STEP, BEGIN, BEGIN))
    parts: Any = SimpleNamespace(take=lambda part, seen: (NOTHING, next(places)))
    job: Any = SimpleNamespace(callers=None, parts=parts)
    lease: Any = SimpleNamespace(lost=False)
    seen = Seen((), None, time.monotonic, lambda: 0.0)
    run = Idle(job, seen, Waiting(), lease, 1, 600, lambda: None, lambda finding: None)
    assert not run.take("the step has ended") and not run.take("a task begins")
    assert run.note(Finding("test", "it takes long"))
    assert not run.take("a task of the same step begins, which it gets its grace to end")
