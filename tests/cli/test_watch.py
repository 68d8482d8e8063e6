"""What `statekit watch` goes on with, lists and leaves."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from langgraph.graph import StateGraph

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.cli.kit import Log, Run, address, chain, named
from tests.programs import PIPE, Program
from tests.servers import wait_until
from tests.stores_under_test import Store

CHAIN: StateGraph[Log] = chain("a", "b", "c").builder
GRAPH = "chain=tests.cli.test_watch:CHAIN"


def make(saver: StatekitSaver) -> Any:
    print("a graph is made")
    return CHAIN.compile(checkpointer=saver)


@pytest.fixture
def store(new_store: Callable[[str], Store], durable_name: str) -> Store:
    made = new_store(durable_name)
    with made.open() as saver:
        for thread, name in (("left", "chain"), ("other", "unheard of")):
            lease = saver.lease(thread, graph=name, owner="worker")
            for _ in CHAIN.compile(checkpointer=saver).stream({"log": []}, lease.config, durability="sync"):
                break
            lease.hand_over("failed")
        CHAIN.compile(checkpointer=saver).invoke({"log": []}, named("done"))
        for _ in CHAIN.compile(checkpointer=saver).stream({"log": []}, named("nobody's"), durability="sync"):
            break
    return made


def values(store: Store, thread: str) -> list[str]:
    with store.open() as saver:
        found: list[str] = CHAIN.compile(checkpointer=saver).get_state(named(thread)).values["log"]
        return found


def test_once_goes_on_with_what_there_is_and_exits_with_1_if_a_thread_needs_a_look(store: Store, run: Run) -> None:
    url = address(store)
    told = run("watch", "--url", url, "--list", "--json")
    assert told.code == 0
    assert {each["thread_id"]: each["problem"] for each in told.json["leases"]} == {"left": "failed", "other": "failed"}
    assert told.json["unknown"] == ["nobody's"]
    asked = ("watch", "--url", url, "--once", "--quarantine-s", "0", "--json", "--graph")
    told = run(*asked, "chain=tests.cli.test_watch:make")
    assert told.code == 1
    assert "a graph is made" in told.err
    assert [(event["thread_id"], event["outcome"], event["attempt"]) for event in told.json if not event["alert"]] == [
        ("left", "resumed", 1),
        ("left", "finished", 1),
    ]
    (alert,) = [event for event in told.json if event["alert"]]
    assert (alert["thread_id"], alert["outcome"]) == ("other", "unknown")
    assert values(store, "left") == ["a", "b", "c"]
    told = run(*asked, GRAPH, "--graph", "unheard of=tests.cli.test_watch:CHAIN")
    assert (told.code, len(told.json)) == (0, 2)
    told = run("watch", "--url", url, "--list")
    assert "left" not in told.out
    assert "nobody's" in told.out


def test_it_watches_until_a_signal_and_tells_what_happens_line_by_line(store: Store) -> None:
    command = [sys.executable, "-m", "langgraph_statekit", "watch", "--url", address(store), "--json", "--graph", GRAPH]
    command += ["--quarantine-s", "0", "--every-s", "0.1"]
    with Program(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            wait_until(lambda: values(store, "left") == ["a", "b", "c"], "done", 60)
        finally:
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["outcome"] for event in events if event["thread_id"] == "left"] == ["resumed", "finished"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), "name the graphs"),
        (("--graph", "chain"), "--graph must be MODULE:NAME"),
        (("--graph", "chain=no.module:here"), "cannot be imported"),
        (("--graph", "chain=tests.cli.test_watch:GRAPH"), "must name a function"),
        (("--graph", GRAPH, "--every-s", "0"), "every_s"),
    ],
)
def test_wrong_arguments_are_refused(new_store: Callable[[str], Store], run: Run, given: Any, says: str) -> None:
    store = new_store("sqlite")
    with store.open():
        pass
    told = run("watch", "--url", address(store), *given)
    assert (told.code, told.out) == (2, "")
    assert says in told.err
