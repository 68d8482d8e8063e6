"""The command that goes on with threads whose worker died or hangs; it imports the user's graphs."""

from __future__ import annotations

import json
import logging
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from typing import Any, Final

from langgraph_statekit.checkpoint.records import to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.cli.migrate import load
from langgraph_statekit.cli.stores import opened, read_thread
from langgraph_statekit.cli.terminal import age, emit, table
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import Supervised
from langgraph_statekit.readable import printable
from langgraph_statekit.status import FAILED, UNFINISHED
from langgraph_statekit.watchdog.leased import Leased
from langgraph_statekit.watchdog.policy import DeadLetter, Rollback
from langgraph_statekit.watchdog.supervisor import Supervisor

_FOUND: Final = 1
_SHOWN: Final = ("thread_id", "outcome", "graph", "reason", "item", "attempt", "alert", "message")


def watch(given: Namespace) -> int:
    """Recover threads until a signal comes; with `--once` those of now, with `--list` none. 1 if one needs a look."""
    graphs = dict(_graph(each) for each in given.graph)
    alerts = 0
    with opened(given.url, serde=StatekitSerializer(), workers=max(2, given.workers)) as saver:

        def told(event: Supervised) -> None:
            nonlocal alerts
            alerts += event.alert
            if not given.once:
                _show(event, given.json)

        supervisor = Supervisor(
            saver,
            graphs,
            policy=Rollback(to="retry_head", max_attempts=given.max_attempts, then=DeadLetter()),
            every_s=given.every_s,
            stuck_s=given.stuck_s,
            drain_s=given.drain_s,
            quarantine_s=given.quarantine_s,
            workers=given.workers,
            told=told,
            alert=lambda event: None,
        )
        if given.list:
            _list(saver, supervisor, given.json)
            return 0
        if not graphs:
            raise Misuse("name the graphs to resume: --graph NAME=MODULE:FUNCTION; --list only shows the leases")
        with _printing_aside(), _until_signal(supervisor):
            if not given.once:
                supervisor.run()
                return 0
            events = supervisor.once()
        emit([_document(event) for event in events], map(_line, events), given.json)
    return _FOUND if alerts else 0


def _graph(text: str) -> tuple[str, Callable[[StatekitSaver], Any]]:
    """Return a name, and what makes the graph of the function, the builder or the graph that a text names."""
    name, equals, target = text.rpartition("=")
    found = load(target, "--graph")
    builder = getattr(found, "builder", found)
    if hasattr(builder, "compile"):
        return name if equals else "", lambda saver: builder.compile(checkpointer=saver)
    if not callable(found):
        raise Misuse(f"--graph must name a function of a saver, or a StateGraph, not {type(found).__name__}")
    return name if equals else "", found


@contextmanager
def _printing_aside() -> Iterator[None]:
    """Keep what the graphs print out of the document; the supervisor's own lines go to the real stdout."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def _until_signal(supervisor: Supervisor) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        supervisor.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _document(event: Supervised) -> dict[str, Any]:
    found = asdict(event)
    return {name: found[name] for name in _SHOWN}


def _line(event: Supervised) -> str:
    attempt = f" (attempt {event.attempt})" if event.attempt else ""
    return printable(f"{event.thread_id}: {event.outcome}{attempt}: {event.message}")


def _show(event: Supervised, as_json: bool) -> None:
    line = json.dumps(_document(event)) if as_json else _line(event)
    print(f"{line}\n", end="", file=sys.__stdout__, flush=True)  # in one piece: threads are watched side by side


def _list(saver: StatekitSaver, supervisor: Supervisor, as_json: bool) -> None:
    found = list(supervisor.leases())
    others = ((thread, read_thread(saver, to_text(thread))) for thread in supervisor.unknown())
    unknown = [thread for thread, read in others if read is not None and read.status.name in (UNFINISHED, FAILED)]
    head = ("THREAD", "LEASE", "GRAPH", "OWNER", "ITEM", "LAST PROGRESS")
    rows = [(each.thread_id, _state(each), each.graph, each.owner, each.item or "", age(each.idle_s)) for each in found]
    rows += [(thread, "none", "", "", "", "") for thread in unknown]
    documents: list[dict[str, Any]] = [
        {**{name: value for name, value in asdict(each).items() if name != "process"}, "held": each.held}
        for each in found
    ]
    emit({"leases": documents, "unknown": unknown}, table(head, rows), as_json)


def _state(each: Leased) -> str:
    return each.problem or "runs"
