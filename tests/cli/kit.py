"""What the tests of the command line share: addresses, threads of every status, and calls of `main`."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, TypedDict
from urllib.parse import quote, urlencode

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.cli import main
from tests.stores_under_test import Store


class Told(NamedTuple):
    """What a command wrote, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Told]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what calls `main` and gives back what it wrote."""

    def call(*args: str) -> Told:
        capsys.readouterr()
        code = main(args)
        return Told(code, *capsys.readouterr())

    return call


def process(*args: str, **env: str) -> Told:
    """Run `python -m langgraph_statekit` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "langgraph_statekit", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        check=False,
    )
    return Told(done.returncode, done.stdout, done.stderr)


def address(store: Store) -> str:
    """Return the URL of a store with its options."""
    mark = "&" if "?" in store.url else "?"
    return f"{store.url}{mark}{urlencode(store.options, quote_via=quote)}" if store.options else store.url


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def named(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


def chain(*names: str, saver: StatekitSaver | None = None, **options: Any) -> Any:
    """Return nodes one after the other, compiled."""
    graph = StateGraph(Log)
    before = START
    for name in names:
        graph.add_node(name, lambda _, name=name: {"log": [name]})
        graph.add_edge(before, name)
        before = name
    return graph.add_edge(before, END).compile(checkpointer=saver, **options)


def asking(saver: StatekitSaver | None = None) -> Any:
    """Return a node that asks twice and fails in the end, beside one that finishes; a join and a deferred node follow."""

    def ask(_: Log) -> Log:
        first = interrupt({"question": "approve?", "password": "hunter2"})
        if first == "fail":
            raise ValueError("refused")
        return {"log": [first]}

    graph = StateGraph(Log)
    graph.add_node("ask", ask)
    graph.add_node("side", lambda _: {"log": ["side"]})
    graph.add_node("join+ed", lambda _: Command(update={"log": ["joined"]}, goto=[Send("work", 1), Send("work", 2)]))
    graph.add_node("work", lambda number: {"log": [number]})
    graph.add_node("late", lambda _: {"log": ["late"]}, defer=True)
    graph.add_edge(START, "ask").add_edge(START, "side").add_edge(["ask", "side"], "join+ed")
    return graph.add_edge("work", "late").add_edge("side", "late").compile(checkpointer=saver)


def fill(saver: StatekitSaver) -> dict[str, str]:
    """Make a thread of each status, and return the status by thread."""
    chain("a", "b", saver=saver).invoke({"log": ["x"]}, named("done"), durability="sync")
    asking(saver).invoke({"log": []}, named("asks"), durability="sync")
    graph = asking(saver)
    graph.invoke({"log": []}, named("fails"), durability="sync")
    with suppress(ValueError):
        graph.invoke(Command(resume="fail"), named("fails"), durability="sync")
    chain("a", "b", saver=saver, interrupt_before=["b"]).invoke({"log": []}, named("stops"), durability="sync")
    return {"done": "finished", "asks": "interrupted", "fails": "failed", "stops": "unfinished"}
