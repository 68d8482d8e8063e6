"""What `statekit migrate` changes, says and leaves, and what it takes for a state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from langgraph_statekit import migrate_threads, open_saver
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.versions import VERSION_KEY
from tests.cli.kit import Run, address, named, process
from tests.faces import checkpoint
from tests.stores_under_test import Store
from tests.versions.states import First, Second, Third, chain

STATE = ("--state", "tests.versions.states:Third")
GRAPH: Any = chain(Second, "cents")
COMPILED: Any = GRAPH.compile()
OUTER: Any = StateGraph(First).add_node("inner", COMPILED).add_edge(START, "inner").compile()
NO_GRAPH = object()


@pytest.fixture
def store(new_store: Callable[[str], Store], durable_name: str) -> Store:
    return new_store(durable_name)


def filled(saver: StatekitSaver, *threads: str) -> None:
    for thread in threads:
        chain(First, "euros").compile(checkpointer=saver).invoke({"euros": 1, "log": [1]}, named(thread))


def versions(saver: StatekitSaver, thread: str) -> set[int]:
    return {item.metadata.get(VERSION_KEY, 1) for item in saver.list(named(thread))}  # type: ignore[misc]


def test_threads_are_migrated_reverted_and_committed(store: Store, run: Run) -> None:
    url = ("--url", address(store), "--json", *STATE)
    with store.open() as saver:
        filled(saver, "t", "u")
        before = list(saver.list(None))
        dry = run("migrate", "--all", "--dry-run", *url)
        assert (dry.code, dry.err) == (0, "")
        assert list(saver.list(None)) == before
        done = run("migrate", "--all", *url)
        assert {**done.json, "dry_run": True} == dry.json
        assert done.json["changed"] == 2
        assert done.json["versions"] == {"": 3}
        assert [(row["thread"], row["checkpoints"], row["left"]) for row in sorted(done.json["threads"], key=str)] == [
            ("t", len(before) // 2, None),
            ("u", len(before) // 2, None),
        ]
        assert versions(saver, "t") == versions(saver, "u") == {3}
        assert run("migrate", "--all", *url).json["unchanged"] == 2
        assert run("migrate", "t", "--revert", *url).json["changed"] == 1
        assert (versions(saver, "t"), versions(saver, "u")) == ({1}, {3})
        assert list(saver.list(named("t"))) == [
            item for item in before if item.config["configurable"]["thread_id"] == "t"
        ]
        assert run("migrate", "--all", "--commit", "--dry-run", *url).json["changed"] == 1
        assert run("migrate", "--all", "--commit", *url).json["changed"] == 1
        assert run("migrate", "--all", "--revert", *url).json["changed"] == 0
        assert versions(saver, "u") == {3}


def test_threads_in_use_exit_with_three_and_those_that_cannot_be_migrated_with_one(store: Store, run: Run) -> None:
    url = ("--url", address(store), "--json", *STATE)
    with store.open() as saver:
        filled(saver, "used", "free")
        with saver.lease("used", owner="somebody"):
            told = run("migrate", "--all", *url)
            assert told.code == 3
            assert told.json["changed"] == 1
            (left,) = (row for row in told.json["threads"] if row["left"])
            assert left["thread"] == "used"
            assert "leased by 'somebody'" in left["left"]
            assert (versions(saver, "used"), versions(saver, "free")) == ({1}, {3})
            saver.put(named("bad"), checkpoint({"log": 5}), {VERSION_KEY: 2}, {"log": 1})  # type: ignore[misc]
            told = run("migrate", "--all", *url)
            assert told.code == 1
            assert {row["thread"] for row in told.json["threads"]} == {"used", "bad"}
        text = run("migrate", "used", "--url", address(store), *STATE)
        assert (text.code, text.out.splitlines()[-1]) == (0, "1 of 1 threads changed")


def test_a_graph_names_its_state_and_those_of_its_subgraphs(store: Store, run: Run) -> None:
    url = ("--url", address(store), "--json")
    with store.open() as saver:
        filled(saver, "t")
        for name in ("GRAPH", "COMPILED"):
            told = run("migrate", "t", "--dry-run", "--state", f"{__name__}:{name}", *url)
            assert (told.code, told.json["versions"], told.json["changed"]) == (0, {"": 2}, 1), told
        told = run("migrate", "t", "--dry-run", "--state", f"{__name__}:OUTER", *url)
        assert (told.json["versions"], told.json["changed"]) == ({"inner": 2}, 0)


def test_what_is_no_order_exits_with_two_and_changes_nothing(store: Store, run: Run) -> None:
    with store.open() as saver:
        filled(saver, "t")
    before = sorted(store.raw_dump().split(b"\n"))  # a hash of Redis has no order
    for args in (
        (),
        ("t", "--all"),
        ("nobody",),
        ("t", "--revert", "--commit"),
        ("t", "--wait-s", "-1"),
        ("t", "--state", "tests.versions.states"),
        ("t", "--state", "no.such.module:State"),
        ("t", "--state", "tests.versions.states:Nothing"),
        ("t", "--state", "tests.versions.states:First"),
        ("t", "--state", "tests.versions.states:chain"),
        ("t", "--state", f"{__name__}:NO_GRAPH"),
        ("t", "--state", "json:JSONDecoder"),
    ):
        told = run("migrate", "--url", address(store), *STATE, *args)
        assert (told.code, told.out) == (2, ""), told
        assert told.err
        assert sorted(store.raw_dump().split(b"\n")) == before, args


def test_the_module_is_found_in_the_working_directory_and_what_it_prints_is_not_in_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(
        "from typing import TypedDict\n"
        "from langgraph_statekit import migrates, state_version\n"
        "print('hello')\n"
        "@migrates(from_=1)\n"
        "def loud(state):\n"
        "    print('migrating')\n"
        "    return {**state, 'cents': 5}\n"
        "class Outer:\n"
        "    @state_version(2, loud)\n"
        "    class Order(TypedDict, total=False):\n"
        "        cents: int\n"
    )
    url = f"sqlite:///{tmp_path}/agent.db"
    with open_saver(url) as saver:
        filled(saver, "t")
    monkeypatch.chdir(tmp_path)
    root = str(Path(__file__).parents[2])
    told = process("migrate", "--all", "--json", "--state", "shop:Outer.Order", STATEKIT_URL=url, PYTHONPATH=root)
    assert told.code == 0, told
    assert json.loads(told.out)["changed"] == 1
    assert {"hello", "migrating"} <= set(told.err.split())


TYPED = """
from dataclasses import dataclass
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph_statekit import migrates, open_saver, state_version

@dataclass
class Item:
    price: int

@migrates(from_=1)
def in_cents(state):
    return {"item": Item(state["item"].price * 100)} if "item" in state else state

@state_version(2, in_cents)
class Order(TypedDict, total=False):
    item: Item

if __name__ == "__main__":
    import typed
    with open_saver("sqlite:///agent.db") as saver:
        graph = StateGraph(typed.Order).add_node("a", lambda _: {}).add_edge(START, "a").compile(checkpointer=saver)
        graph.invoke({"item": typed.Item(5)}, {"configurable": {"thread_id": "t"}})
"""


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_migration_gets_the_objects_of_the_state_in_strict_mode_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    monkeypatch.chdir(tmp_path)
    env = {"PYTHONPATH": str(Path(__file__).parents[2]), "LANGGRAPH_STRICT_MSGPACK": strict}
    subprocess.run([sys.executable, "typed.py"], check=True, env={**os.environ, **env})
    url = f"sqlite:///{tmp_path}/agent.db"
    told = process("migrate", "--all", "--json", "--state", "typed:Order", STATEKIT_URL=url, **env)
    assert (told.code, told.json["changed"]) == (0, 1), told
    shown = process("show", "t", "--json", STATEKIT_URL=url, **env)
    assert shown.json["channels"]["item"] == {"$class": "typed.Item", "price": 500}


def test_the_command_does_what_the_function_does(store: Store, run: Run) -> None:
    with store.open() as saver:
        filled(saver, "t")
        saver.copy_thread("t", "u")
        assert run("migrate", "t", "--url", address(store), *STATE).code == 0
        migrate_threads(saver.with_state(Third), ["u"])
        by_command, by_function = (
            [(item.checkpoint, item.metadata) for item in saver.list(named(thread))] for thread in ("t", "u")
        )
        assert by_command == by_function
