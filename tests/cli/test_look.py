"""What ls, show and diff tell on every store, without the graph and without the user's classes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph

from langgraph_statekit import Finding, TimeTravel, rollback
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.cli.kit import Log, Run, address, chain, fill, named, process
from tests.faces import checkpoint as made
from tests.faces import config, metadata
from tests.stores_under_test import Store

SHOP = """
import enum, os, dataclasses
with open(os.environ["IMPORTED"], "a") as trace:
    trace.write("imported")
@dataclasses.dataclass
class Order:
    id: int
    color: object
    token: str = "tok-123"
class Color(enum.Enum):
    RED = "red"
"""


def put(saver: StatekitSaver, values: dict[str, Any], thread: str = "t", **more: Any) -> Any:
    versions = dict.fromkeys(values, 1)
    return saver.put(config(thread), made(values, versions), metadata(**more), versions)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module that can be imported and leaves a trace when it is."""
    (tmp_path / "shop_of_test.py").write_text(SHOP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("IMPORTED", str(tmp_path / "imported"))
    import shop_of_test  # type: ignore[import-not-found]

    (tmp_path / "imported").unlink()
    yield shop_of_test
    assert not (tmp_path / "imported").exists(), "a class of the user was imported"


def test_ls_tells_the_status_of_every_thread(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        expected = fill(saver)
        saver.lease("stops", owner="worker-a", ttl_s=600)
        saver.label(named("done"), "best")
        told = run("ls", "--url", address(durable_store), "--json")
        plain = run("ls", "--url", address(durable_store))
    assert told.code == plain.code == 0
    assert not told.err + plain.err
    found = {each["thread"]: each for each in told.json}
    assert {thread: each["status"] for thread, each in found.items()} == expected
    assert found["done"]["labels"] == ["best"]
    assert found["done"]["checkpoints"] == 4
    assert found["stops"]["next"] == ["b"]
    assert all(each["size_bytes"] > 100 and each["age_s"] < 600 for each in told.json)
    assert found["stops"]["lease"]["owner"] == "worker-a"
    assert "leased by worker-a" in plain.out
    only = run("ls", "--url", address(durable_store), "--json", "--status", "failed")
    assert [each["thread"] for each in only.json] == ["fails"]


def test_show_tells_interrupts_errors_and_pending_writes(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        fill(saver)
    asks = run("show", "asks", "--url", address(durable_store), "--json").json
    assert [each["value"] for each in asks["interrupts"]] == [{"question": "approve?", "password": "***"}]
    assert {"side"} == {value for each in asks["writes"] if each["channel"] == "log" for value in each["value"]}
    fails = run("show", "fails", "--url", address(durable_store), "--json").json
    assert fails["errors"] == ["ValueError('refused')"]
    assert "hunter2" not in str(asks) + run("show", "asks", "--url", address(durable_store)).out


def test_values_of_unknown_classes_are_shown_without_an_import(durable_store: Store, shop: Any, run: Run) -> None:
    with durable_store.open() as saver:
        put(saver, {"order": shop.Order(7, {shop.Color.RED}), "orders": [shop.Order(8, b"x")], "api_key": "k-1"})
    del sys.modules["shop_of_test"]
    for view in (["--json"], []):
        told = run("show", "t", "--url", address(durable_store), *view)
        assert told.code == 0
        assert not told.err
        assert "tok-123" not in told.out
        assert "k-1" not in told.out
        assert "shop_of_test" not in sys.modules
    channels = run("show", "t", "--url", address(durable_store), "--json").json["channels"]
    red = {"$class": "shop_of_test.Color", "value": "red"}
    assert channels["order"] == {"$class": "shop_of_test.Order", "id": 7, "color": [red], "token": "***"}
    assert channels["api_key"] == "***"


def test_a_value_that_only_pickle_can_read_is_not_read(durable_store: Store, run: Run) -> None:
    from langgraph_statekit import StatekitSerializer

    with durable_store.open(serde=StatekitSerializer(pickle_fallback=True)) as saver:
        put(saver, {"odd": {1, 2.5, 3j}, "even": 2})
    told = run("show", "t", "--url", address(durable_store), "--json")
    assert told.code == 0
    assert told.json["channels"]["even"] == 2
    assert "not read here" in told.json["channels"]["odd"]["value"]


def test_large_values_are_cut_unless_all_is_asked_for(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        put(saver, {"text": "x" * 5_000_000, "list": [{"n": n, "deep": ["y" * 900] * 90} for n in range(300)]})
    cut = run("show", "t", "--url", address(durable_store), "--json")
    assert len(cut.out) < 30_000
    assert "5,000,000 characters" in cut.json["channels"]["text"]
    assert len(run("show", "t", "--url", address(durable_store)).out) < 3_000
    assert len(run("show", "t", "--url", address(durable_store), "--json", "--full").json["channels"]["text"]) == 5e6


def test_the_history_names_a_rollback_with_its_reason_and_both_ends(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        graph = chain("a", "b", saver=saver)
        graph.invoke({"log": ["x"]}, named("t"), durability="sync")
        left, target = [item.config["configurable"]["checkpoint_id"] for item in graph.get_state_history(named("t"))][
            :2
        ]
        with saver.lease("t", steal=True) as lease:
            rollback(graph, lease.config, "parent", Finding("review", "the answer was wrong", item="7"), 2)
    told = run("show", "t", "--history", "--json", *url).json[0]["rollback"]
    assert told == {"op": "rollback", "reason": "review", "item": "7", "attempt": 2, "from": left, "to": target}
    assert f"rollback to {target}: review, item 7, attempt 2" in run("show", "t", "--history", *url).out


def test_show_lists_the_history_and_finds_checkpoints_by_label_and_beginning(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        chain("a", "b", saver=saver).invoke({"log": ["x"]}, named("t"), durability="sync")
    history = run("show", "t", "--history", "--json", *url).json
    assert [each["step"] for each in history] == [2, 1, 0, -1]
    assert run("show", "t", "--history", "--json", "-n", "2", *url).json == history[:2]
    second = history[1]["checkpoint"]
    assert run("label", "t", "before-b", "--at", second, *url).code == 0
    for name in ("before-b", second, second[:23]):
        shown = run("show", "t", "--at", name, "--json", *url).json
        assert (shown["checkpoint"], shown["channels"]) == (second, {"log": ["x", "a"]})
    assert run("show", "t", "--at", second[:2], *url).code == 2
    assert run("show", "t", "--at", "nothing", *url).code == 2
    assert "pass no --at" in run("show", "t", "--history", "--at", second, *url).err
    assert "--history" in run("show", "t", "-n", "2", *url).err


def test_commands_take_the_steps_that_time_travel_takes(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        graph = chain("a", "b", saver=saver)
        graph.invoke({"log": ["x"]}, named("t"), durability="sync")
        travel = TimeTravel(graph, named("t"))
        left = travel.at(2)
        travel.fork(0, edit={"log": ["y"]}, as_node="a")
        graph.invoke(None, named("t"), durability="sync")
        steps = {step: travel.at(step).id for step in (0, 1, 2, -1, -2, -4)}
    assert steps[2] == steps[-1] != left.id
    for step, id in steps.items():
        assert run("show", "t", "--at", str(step), "--json", *url).json["checkpoint"] == id
    assert run("diff", "t", "0", "-1", "--json", *url).json["after"] == steps[-1]
    assert run("diff", "t", "--at", "1", *url).out == run("diff", "t", "0", "1", *url).out
    assert run("label", "t", "7", "--at", "1", *url).code == 0
    assert run("show", "t", "--at", "7", "--json", *url).json["checkpoint"] == steps[1]  # a label goes before a step
    assert run("fork", "t", "new", "--at", "1", *url).code == 0
    assert run("show", "new", "--json", *url).json["channels"] == {"log": ["x", "y"]}
    for missing in ("3", "-9", "99999999"):
        told = run("show", "t", "--at", missing, *url)
        assert (told.code, f"has no step '{missing}'" in told.err) == (2, True)
    assert run("show", "t", "--at", "", *url).code == 2
    for more in (("0",), ("--other", "new")):
        assert run("diff", "t", *more, "--at", "1", *url).code == 2


def test_a_fork_is_compared_with_what_it_copies(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        graph = chain("a", "b", saver=saver)
        graph.invoke({"log": ["x"]}, named("t"), durability="sync")
        travel = TimeTravel(graph, named("t"))
        travel.fork(1, reason="b was wrong")
        assert not travel.diff()
        copied = travel.at(1).id
        told = run("diff", "t", "--json", *url)
        assert (told.code, told.json["before"], told.json["differences"]) == (0, copied, [])
        travel.fork(1, edit={"log": ["y"]}, as_node="a")
        told = run("diff", "t", "--json", *url)
        assert [(each["path"], each["after"]) for each in told.json["differences"]] == [("log[2]", "y")]
    assert f"fork to {copied}: b was wrong  " in run("show", "t", "--history", *url).out


def test_steps_of_a_subgraph_are_found_in_its_namespace(new_store: Callable[[str], Store], run: Run) -> None:
    store = new_store("sqlite")
    with store.open() as saver:
        builder: Any = StateGraph(Log).add_node("inner", chain("c", "d")).add_edge(START, "inner")
        builder.compile(checkpointer=saver).invoke({"log": ["x"]}, named("t"), durability="sync")
        ns = TimeTravel(saver, thread_id="t").inside(0)[0].point.ns
    shown = run("show", "t", "--ns", ns, "--at", "1", "--json", "--url", address(store)).json
    assert (shown["namespace"], shown["channels"]) == (ns, {"log": ["x", "c"]})


def test_diff_names_the_paths_that_differ_and_exits_with_one(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        at = put(saver, {"state": {"a": 1, "b": [1, 2, 3]}, "same": 1})
        versions = {"state": 2, "same": 1}
        values = {"state": {"b": [1, 5, 2, 3], "c": "x"}, "same": 1}
        saver.put(at, made(values, versions), metadata(step=1), {"state": 2})
        saver.copy_thread("t", "copy")
    told = run("diff", "t", "--json", *url)
    assert told.code == 1
    assert [(each["path"], each["kind"]) for each in told.json["differences"]] == [
        ("state.a", "removed"),
        ("state.b[1]", "added"),
        ("state.c", "added"),
    ]
    assert "+ state.b[1]  5" in run("diff", "t", *url).out
    same = run("diff", "t", "--other", "copy", "--json", *url)
    assert (same.code, same.json["differences"]) == (0, [])
    label = told.json["before"]
    same = run("diff", "t", label, label, *url)
    assert same.code == 0
    assert same.out.endswith("no value differs\n")


def test_show_writes_a_timeline_as_a_page(durable_store: Store, run: Run, tmp_path: Path, shop: Any) -> None:
    url, page = ("--url", address(durable_store)), tmp_path / "page.html"
    with durable_store.open() as saver:
        fill(saver)
        put(saver, {"order": shop.Order(7, shop.Color.RED), "api_key": "k-1"}, "mine")
    del sys.modules["shop_of_test"]
    assert run("show", "asks", "--html", str(page), "--json", *url).json == {"thread": "asks", "html": str(page)}
    assert "approve?" in page.read_text()
    assert "hunter2" not in page.read_text()
    assert run("show", "done", "--html", str(page), "-n", "2", *url).out == f"{page}\n"
    assert page.read_text().count("class='sk-row'") == 2
    assert run("show", "mine", "--html", str(page), *url).code == 0
    assert "shop_of_test.Order" in page.read_text()
    assert not re.search(r"\bk-1\b|tok-123", page.read_text())
    assert run("show", "done", "--html", str(tmp_path / "no" / "folder.html"), *url).code == 2
    assert "pass no --history" in run("show", "done", "--html", str(page), "--history", *url).err
    assert run("show", "nobody", "--html", str(page), *url).code == 2


def test_diff_finds_messages_by_their_id_and_has_colours_where_asked(
    durable_store: Store, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        old = [HumanMessage(f"question {at}", id=f"m{at}") for at in range(3)]
        at = put(saver, {"messages": old})
        new = [old[0], HumanMessage("edited", id="m1"), old[2], HumanMessage("more", id="m3")]
        saver.put(at, made({"messages": new}, {"messages": 2}), metadata(step=1), {"messages": 2})
    told = run("diff", "t", "--json", *url).json["differences"]
    assert [(each["path"], each["kind"]) for each in told] == [
        ("messages[m1].content", "changed"),
        ("messages[m3]", "added"),
    ]
    plain = run("diff", "t", *url).out
    assert "\x1b" not in plain
    colored = run("diff", "t", "--color", "always", *url).out
    assert "\x1b[31m- messages[m1].content" in colored
    assert "\x1b[32m+ messages[m3]" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for term, without, shown in (("xterm", "", colored), ("dumb", "", plain), ("xterm", "1", plain)):
        monkeypatch.setenv("TERM", term)
        monkeypatch.setenv("NO_COLOR", without)
        assert run("diff", "t", *url).out == shown


def test_control_characters_of_ids_and_values_do_not_reach_the_terminal(durable_store: Store, run: Run) -> None:
    thread = "t\x1b[2J\u202e\nx\ud800"
    with durable_store.open() as saver:
        put(saver, {"text": "\x1b]0;title\x07"}, thread)
    for args in (["ls"], ["show", thread], ["show", thread, "--history"], ["diff", thread], ["doctor"]):
        told = run(*args, "--url", address(durable_store))
        assert told.code in (0, 1), told.err
        assert all(c.isprintable() or c == "\n" for c in told.out), told.out


def test_a_reader_that_goes_away_ends_the_command_quietly(new_store: Callable[[str], Store]) -> None:
    store = new_store("sqlite")
    with store.open() as saver:
        put(saver, {"text": "x" * 3_000_000})
    command = f"{sys.executable} -m langgraph_statekit show t --full --json | head -c 10; echo ${{PIPESTATUS[0]}}"
    env = {**os.environ, "STATEKIT_URL": address(store)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, check=True)
    assert done.stderr == ""
    assert done.stdout.endswith("141\n")


def test_output_that_the_terminal_cannot_encode_is_escaped(new_store: Callable[[str], Store]) -> None:
    store = new_store("sqlite")
    with store.open() as saver:
        put(saver, {"text": "日本"})
    told = process("show", "t", "--url", address(store), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert told.code == 0, told.err
    assert "\\u65e5" in told.out
