"""What fork, prune and label change on every store, and what they leave."""

from __future__ import annotations

from langgraph.types import Command

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.cli.kit import Run, address, asking, chain, named
from tests.graphs.builders import DeltaLog, nested
from tests.graphs.builders import chain as builder
from tests.stores_under_test import Store


def history(saver: StatekitSaver, thread: str) -> list[str]:
    return [item.checkpoint["id"] for item in saver.list(named(thread))]


def test_a_fork_ends_at_its_checkpoint_and_goes_on_from_there(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        graph = chain("a", "b", "c", saver=saver)
        graph.invoke({"log": ["x"]}, named("t"), durability="sync")
        ids = history(saver, "t")
        told = run("fork", "t", "new", "--at", ids[2], "--json", *url)
        made = told.json["checkpoint"]
        assert told.json == {"thread": "new", "checkpoints": 3, "checkpoint": made}
        assert history(saver, "new") == [made, *ids[3:]]
        (found, *_) = saver.list(named("new"), limit=1)
        assert found.metadata["source"] == "fork"
        assert graph.get_state(named("new")).next == ("b",)
        graph.invoke(None, named("new"))
        assert graph.get_state(named("new")).values == graph.get_state(named("t")).values
        assert history(saver, "t") == ids
        assert run("fork", "t", "new", *url).code == 2, "the target has checkpoints"
        assert run("fork", "t", "t", "--at", ids[2], *url).code == 2
        assert history(saver, "t") == ids
        assert run("fork", "t", "whole", *url).code == 0
        assert history(saver, "whole") == ids


def test_a_fork_takes_the_subgraph_that_waits_at_its_checkpoint(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        graph = nested().compile(checkpointer=saver)
        graph.invoke({"log": []}, named("t"), durability="sync")
        waits = graph.get_state(named("t")).config["configurable"]["checkpoint_id"]
        graph.invoke(Command(resume="yes"), named("t"), durability="sync")
        assert run("fork", "t", "new", "--at", waits, "--url", address(durable_store)).code == 0
        graph.invoke(Command(resume="no"), named("new"), durability="sync")
        assert "no" in graph.get_state(named("new")).values["log"]
        assert "yes" in graph.get_state(named("t")).values["log"]


def test_a_fork_of_a_delta_channel_has_its_history(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        graph = builder(DeltaLog, "a", "b", "c").compile(checkpointer=saver)
        graph.invoke({"log": ["x"]}, named("t"), durability="sync")
        ids = history(saver, "t")
        assert run("fork", "t", "new", "--at", ids[1], "--url", address(durable_store)).code == 0
        assert graph.get_state(named("new")).values["log"] == ["x", "a", "b"]


def test_a_dry_run_changes_nothing_and_tells_what_prune_then_does(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        for thread in ("one", "two"):
            chain(*"abcdefgh", saver=saver).invoke({"log": []}, named(thread), durability="sync")
        builder(DeltaLog, *"abcdefgh").compile(checkpointer=saver).invoke({"log": []}, named("delta"))
        before = {thread: history(saver, thread) for thread in ("one", "two", "delta")}
        assert run("label", "one", "keep me", "--at", before["one"][-1], *url).code == 0
        rules = ("--all", "--keep-last", "4", "--json", *url)
        dry = run("prune", "--dry-run", *rules)
        assert {thread: history(saver, thread) for thread in before} == before
        done = run("prune", *rules)
        assert dry.json["dry_run"]
        assert dry.json["threads"] == done.json["threads"]
        left = {each["thread"]: each["after"] for each in done.json["threads"]}
        assert left == {thread: len(history(saver, thread)) for thread in before} == {"one": 5, "two": 4, "delta": 4}
        assert before["one"][-1] in history(saver, "one")
        assert run("prune", "one", "--keep-latest", "--dry-run", "--json", *url).json["removed"] == 3
        assert run("label", "one", "keep me", "--remove", *url).code == 0
        assert run("prune", "one", "--max-age-days", "0", *url).code == 0
        assert len(history(saver, "one")) == 3, "the newest three always stay"


def test_rules_that_do_not_say_what_goes_change_nothing(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        asking(saver).invoke({"log": []}, named("t"), durability="sync")
    before = durable_store.raw_dump()  # when the saver is closed: one on two tiers goes on in the background
    for args in (
        ("--all",),
        ("--keep-latest",),
        ("t", "--all", "--keep-latest"),
        ("t", "--keep-latest", "--keep-last", "3"),
        ("t", "--keep-last", "0"),
        ("t", "--max-age-s", "-1"),
        ("t", "--max-age-s", "1", "--max-age-days", "1"),
    ):
        assert run("prune", *args, "--url", address(durable_store)).code == 2, args
        assert durable_store.raw_dump() == before, args


def test_a_label_moves_and_goes(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        chain("a", saver=saver).invoke({"log": []}, named("t"), durability="sync")
        ids = history(saver, "t")
        assert run("label", "t", "good", *url).code == 0
        assert saver.labels("t")["good"]["configurable"]["checkpoint_id"] == ids[0]
        assert run("label", "t", "good", "--at", ids[1], *url).code == 0
        assert saver.labels("t")["good"]["configurable"]["checkpoint_id"] == ids[1]
        assert run("label", "t", "good", "--remove", *url).code == 0
        assert saver.labels("t") == {}
        assert run("label", "nobody", "good", *url).code == 2
        assert "at least one character" in run("label", "t", "", *url).err
        assert saver.labels("t") == {}


def test_prune_expired_removes_what_nobody_sees_any_more(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open(ttl_s=100) as saver:
        graph = chain("a", saver=saver)
        graph.invoke({"log": ["marked"]}, named("gone"))
        durable_store.advance(101)
        graph.invoke({"log": ["x"]}, named("young"))
        assert [each["thread"] for each in run("ls", "--json", *url).json] == ["young"]
        assert run("prune", "--expired", "--all", *url).code == 2
        told = run("prune", "--expired", "--json", *url).json
        assert not any(told.pop("sessions").values())
        assert told in ({"expired": 1, "orphans": 0}, {"expired": 0, "orphans": 0})
        assert b"gone" not in durable_store.raw_dump()
        assert "0 expired threads" in run("prune", "--expired", *url).out
        assert [item.metadata["step"] for item in saver.list(named("young"))] == [1, 0, -1]


def test_a_fork_keeps_the_time_to_live_and_looking_does_not_let_a_thread_live_on(
    durable_store: Store, run: Run
) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open(ttl_s=100) as saver:
        chain("a", saver=saver).invoke({"log": ["x"]}, named("t"))
        first = history(saver, "t")[-1]
        durable_store.advance(60)
        assert run("fork", "t", "new", "--at", first, *url).code == 0
        assert run("show", "t", *url).code == run("ls", *url).code == 0
        durable_store.advance(60)
        assert [each["thread"] for each in run("ls", "--json", *url).json] == ["new"]
        durable_store.advance(60)
        assert run("ls", "--json", *url).json == []
