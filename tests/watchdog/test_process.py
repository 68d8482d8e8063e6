"""A run in a process of its own is ended whatever its nodes do, and goes on in another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig

from langgraph_statekit import Misuse
from langgraph_statekit.events import Event, Found, RolledBack
from langgraph_statekit.watchdog import child
from langgraph_statekit.watchdog.checks import ItemDeadline
from langgraph_statekit.watchdog.errors import ChildError
from langgraph_statekit.watchdog.policy import Backoff, Rollback
from langgraph_statekit.watchdog.view import Finding, View
from langgraph_statekit.watchdog.watchdog import Watchdog
from langgraph_statekit.watchdog.wire import BEGIN, Pipe
from tests.stores_under_test import Store
from tests.watchdog import app

THREADS: list[RunnableConfig] = [{"configurable": {"thread_id": name}} for name in ("good", "bad")]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    events: list[Event] = []
    monkeypatch.setattr(app, "HOOKS", [events.append])
    return events


CASES = [
    *((name, kind) for name in ("sqlite", "redis", "postgres") for kind in ("hanging", "blocking", "sync")),
    ("postgres", "killed"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--stores").split(",")
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", [case for case in CASES if case[0] in chosen], ids="-".join)


@pytest.fixture
def place(
    new_store: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], Path]:
    """Return what tells the graph factory of all processes which graph to make."""

    def choose(name: str, kind: str) -> Path:
        store = new_store(name)
        monkeypatch.setenv(app.PLACE, json.dumps([store.url, store.options, kind, str(tmp_path)]))
        return tmp_path

    return choose


@pytest.fixture
def dog() -> Iterator[Callable[..., Watchdog]]:
    """Return a maker of watchdogs that are quick; their savers are closed."""
    made: list[Watchdog] = []

    def make(clock: Clock, **options: Any) -> Watchdog:
        quick = {"every_s": 0.05, "grace_s": 0.1, "stop_s": 1, "policy": Rollback(backoff=Backoff(first_s=0))}
        made.append(Watchdog(app.make, checks=[clock.look], clock=clock, isolation="process", **{**quick, **options}))
        return made[-1]

    yield make
    for each in made:
        each.graph.checkpointer.close()  # type: ignore[union-attr]


class Clock:
    """Runs on while the bad thread hangs, and keeps the looks at it that came after its deadline."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._now_s = 0.0
        self.late: list[View] = []

    def __call__(self) -> float:
        if (self._place / "went wrong").exists():
            self._now_s += 7
        return self._now_s

    def look(self, view: View) -> Finding | None:
        """Look for the deadline of the bad thread alone: the time of this clock is none for the others."""
        if not any(task.item == "bad/1" for task in view.running):
            return None
        if any(view.now_s - task.item_s > 50 for task in view.running):
            self.late.append(view)
        return ItemDeadline(seconds=50)(view)


async def test_a_hang_is_noticed_killed_rolled_back_and_retried_and_others_are_unharmed(
    case: tuple[str, str], place: Callable[[str, str], Path], told: list[Event], dog: Callable[..., Watchdog]
) -> None:
    name, kind = case
    folder = place(name, kind)
    clock = Clock(folder)
    inputs = [{"i": 0} for _ in THREADS]
    watched = dog(clock)
    found = await watched.abatch(inputs, THREADS) if kind in ("blocking", "hanging") else watched.batch(inputs, THREADS)
    assert [each["done"] for each in found] == [[f"item {i}" for i in range(3)]] * len(THREADS)
    assert sorted(app.calls(folder)) == sorted(
        [*(f"{name} {i}" for name in ("good", "bad") for i in range(3)), "bad 1"]
    )
    assert [event.thread_id for event in told if isinstance(event, RolledBack)] == ["bad"]
    (noticed,) = (event for event in told if isinstance(event, Found))
    if kind != "killed":
        assert (noticed.reason, noticed.item) == ("item_deadline", "bad/1")
        assert len(clock.late) == 1  # the first look after the deadline
    else:
        assert noticed.message == "the process of the run ended with exit code -9"


async def test_what_a_node_raises_in_its_process_is_named(
    place: Callable[[str, str], Path], dog: Callable[..., Watchdog]
) -> None:
    watched = dog(Clock(place("sqlite", "raises")))
    with pytest.raises(ChildError, match=r"builtins.ValueError: no such item \\ud800"):
        watched.invoke({"i": 0}, THREADS[1])
    assert watched.invoke(None, THREADS[1])["i"] == 3


async def test_an_input_is_given_again_only_if_nothing_of_it_was_saved(
    place: Callable[[str, str], Path], dog: Callable[..., Watchdog], told: list[Event]
) -> None:
    watched = dog(Clock(place("sqlite", "stillborn")))
    assert watched.invoke({"i": 0}, THREADS[0])["done"] == [f"item {i}" for i in range(3)]
    assert [event.reason for event in told if isinstance(event, Found)] == ["process"]
    assert not any(isinstance(event, RolledBack) for event in told)
    inputs = [each for each in watched.graph.get_state_history(THREADS[0]) if each.metadata["source"] == "input"]
    assert len(inputs) == 1


@pytest.mark.parametrize("kind", ["bereft", "leaves"])
async def test_what_its_nodes_started_ends_with_it_and_hides_its_death_from_nobody(
    kind: str,
    place: Callable[[str, str], Path],
    dog: Callable[..., Watchdog],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = place("sqlite", kind)
    os.mkfifo(folder / "left")
    left = os.open(folder / "left", os.O_RDONLY | os.O_NONBLOCK)
    clock = Clock(folder)
    monkeypatch.setattr(clock, "look", lambda view: None)
    assert dog(clock).invoke({"i": 0}, THREADS[1])["i"] == 3
    os.set_blocking(left, True)
    assert os.read(left, 4) == b"here"
    assert os.read(left, 1) == b""  # nobody holds it open
    os.close(left)


async def test_a_run_from_an_earlier_checkpoint_whose_process_dies_begins_there_again(
    place: Callable[[str, str], Path], dog: Callable[..., Watchdog]
) -> None:
    folder = place("sqlite", "detour")
    watched = dog(Clock(folder))
    watched.graph.invoke({"i": 0}, THREADS[0])
    (earlier,) = (each for each in watched.graph.get_state_history(THREADS[0]) if each.values.get("i") == 2)
    (folder / "detour").touch()
    assert watched.invoke(None, earlier.config)["i"] == 3
    assert app.calls(folder) == [f"good {i}" for i in (0, 1, 2, 2)]


def test_a_process_whose_parent_has_gone_ends_even_before_it_has_a_graph() -> None:
    to_child, from_child = os.pipe(), os.pipe()
    command = [sys.executable, "-m", child.__name__, str(to_child[0]), str(from_child[1])]
    with subprocess.Popen(command, pass_fds=(to_child[0], from_child[1]), start_new_session=True) as process:
        with os.fdopen(to_child[1], "wb") as out, os.fdopen(from_child[0], "rb") as back:
            Pipe(back, out).send(BEGIN, {"factory": f"{app.__name__}:hang", "path": sys.path})
        try:
            assert process.wait(60) == -signal.SIGKILL
        finally:
            process.kill()
    os.close(to_child[0])
    os.close(from_child[1])


async def test_live_objects_are_refused(place: Callable[[str, str], Path], dog: Callable[..., Watchdog]) -> None:
    folder = place("sqlite", "sync")
    watched = dog(Clock(folder))
    for given in ({"config": {**THREADS[0], "callbacks": [BaseCallbackHandler()]}}, {"context": object()}):
        with pytest.raises(Misuse, match="in the graph factory"):
            watched.invoke({"i": 0}, **{"config": THREADS[0], **given})
    with pytest.raises(Misuse, match="in the graph factory"):
        watched.invoke({"i": folder.open}, THREADS[0])
    for factory in (lambda: None, "tests.watchdog.app:no", "tests.watchdog.app", watched.graph):
        with pytest.raises(Misuse, match=r"factory|must name a function"):
            Watchdog(factory, isolation="process")  # type: ignore[arg-type]
    assert app.calls(folder) == []
