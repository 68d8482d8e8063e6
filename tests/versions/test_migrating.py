"""A batch brings every checkpoint to the newest version, may be interrupted and repeated, and is undone exactly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from langgraph_statekit import (
    Fenced,
    Misuse,
    Sampled,
    SchemaTooNew,
    amigrate_threads,
    migrate_threads,
    migrates,
    state_version,
)
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.migrating import Migrated
from langgraph_statekit.versions import VERSION_KEY
from tests.faces import LONG, config
from tests.graphs.builders import DeltaLog
from tests.graphs.builders import chain as delta_chain
from tests.stores_under_test import Store
from tests.versions.states import First, Second, Third, chain, question
from tests.versions.test_state_versions import NewerDelta

Batch = Callable[..., Migrated]


@pytest.fixture(params=["sync", "async"])
def batch(request: pytest.FixtureRequest) -> Batch:
    def run_async(*args: Any, **options: Any) -> Migrated:
        return asyncio.run(amigrate_threads(*args, **options))

    return migrate_threads if request.param == "sync" else run_async


def filled(saver: StatekitSaver, *threads: str) -> None:
    """Leave threads of the first version that were asked something, after a run."""
    for thread in threads:
        chain(First, "euros").compile(checkpointer=saver).invoke({"euros": 1, "log": [LONG, 1]}, config(thread))
        question(First, "old").compile(checkpointer=saver).invoke({"log": ["ask"]}, config(thread))


def stored(saver: StatekitSaver, thread: str = "t") -> list[Any]:
    return list(saver.list({"configurable": {"thread_id": thread}}))


def test_all_checkpoints_get_the_newest_version_and_questions_stay_open(store: Store, batch: Batch) -> None:
    with store.open() as saver:
        filled(saver, "t", "u")
        newer = saver.with_state(Third)
        shown = [(each.config, each.checkpoint["channel_values"], each.metadata) for each in stored(newer)]
        done = batch(newer)
        assert done.threads == 2
        assert done.checkpoints == 2 * len(shown)
        assert not done.left
        raw = stored(saver)
        assert [(each.config, each.checkpoint["channel_values"], each.metadata) for each in raw] == shown
        assert {each.metadata[VERSION_KEY] for each in raw} == {3}
        assert batch(newer) == Migrated(0, 0, {})
        with pytest.raises(SchemaTooNew):
            saver.with_state(Second).get_tuple(config())
        graph = question(Third, {"text": "new"}).compile(checkpointer=newer)
        assert [each.value for each in graph.get_state(config()).interrupts] == ["approve?"]
        done = graph.invoke(Command(resume="yes"), config())
        assert done["log"] == [{"text": LONG}, {"text": 1}, {"text": "ask"}, "yes", {"text": "new"}, "last"]


@pytest.mark.parametrize("first", [First, Second])
def test_a_revert_brings_back_what_was_there_exactly(store: Store, batch: Batch, first: type) -> None:
    with store.open() as saver:
        filled(saver, "t")
        if first is Second:
            assert batch(saver.with_state(Second)).threads == 1
        before = stored(saver)
        newer = saver.with_state(Third)
        batch(newer)
        assert stored(saver) != before
        saver.prune(["t"])  # keeps what a revert needs of what it keeps
        assert batch(newer, step="revert").threads == 1
        after = stored(saver)
        assert [each._replace(parent_config=None) for each in after] == [before[0]._replace(parent_config=None)]
        assert saver.with_state(first).get_tuple(config()) is not None


def test_a_revert_without_a_removal_shows_no_difference(store: Store, batch: Batch) -> None:
    with store.open() as saver:
        filled(saver, "t")
        before = stored(saver)
        batch(saver.with_state(Third))
        batch(saver.with_state(Third), step="revert")
        assert stored(saver) == before
        assert batch(saver.with_state(Third), step="commit") == Migrated(0, 0, {})
        done = (
            question(First, "old").compile(checkpointer=saver.with_state(First)).invoke(Command(resume="y"), config())
        )
        assert done["log"][-4:] == ["ask", "y", "old", "last"]


class Note(TypedDict, total=False):
    note: str


@migrates(from_=1)
def _renamed(state: dict[str, Any]) -> dict[str, Any]:
    return {"text": state["note"]} if "note" in state else state


@state_version(2, _renamed)
class Text(TypedDict, total=False):
    text: str
    turn: int


def test_a_thread_that_was_reverted_or_restored_is_stored_whole_by_the_same_saver(store: Store) -> None:
    with store.open() as saver:
        graph = StateGraph(Note).add_node("a", lambda _: {}).add_edge(START, "a").add_edge("a", END)
        graph.compile(checkpointer=saver).invoke({"note": LONG}, config())
        saver.copy_thread("t", "backup")
        newer = saver.with_state(Text)
        graph = StateGraph(Text).add_node("a", lambda state: {"turn": state["turn"] + 1})
        newest = graph.add_edge(START, "a").add_edge("a", END).compile(checkpointer=newer)

        def go_on() -> None:
            for turn in range(3):
                newest.invoke({"turn": turn}, config())
            with store.open() as other:
                assert newest.copy({"checkpointer": other}).get_state(config()).values == {"text": LONG, "turn": 3}
            versions = {each.checkpoint["channel_versions"].get("text") for each in stored(saver)} - {None}
            assert len(versions) == 1

        migrate_threads(newer)
        assert newest.get_state(config()).values == {"text": LONG}
        migrate_threads(newer, step="revert")
        go_on()
        saver.delete_thread("t")
        saver.copy_thread("backup", "t")
        go_on()


def test_a_thread_that_went_on_is_not_reverted(store: Store, batch: Batch) -> None:
    with store.open() as saver:
        filled(saver, "t", "u", "v")
        newer = saver.with_state(Third)
        batch(newer)
        graph = question(Third, {"text": "new"}).compile(checkpointer=newer)
        graph.invoke(Command(resume="yes"), config("t"))
        graph.invoke(None, config("u"))  # only writes of a task are new
        before = stored(saver, "t"), stored(saver, "u")
        done = batch(newer, step="revert")
        assert set(done.left) == {"t", "u"}
        assert "went on with version 3" in str(done.left["t"])
        assert (stored(saver, "t"), stored(saver, "u")) == before
        assert VERSION_KEY not in stored(saver, "v")[0].metadata


def test_after_a_commit_the_old_values_are_gone_and_nothing_else(store: Store, batch: Batch) -> None:
    with store.open() as saver:
        filled(saver, "t")
        newer = saver.with_state(Third)
        batch(newer)
        shown, kept = stored(saver), len(saver.backend.outline("t").frames)
        assert batch(newer, step="commit").threads == 1
        assert stored(saver) == shown
        assert len(saver.backend.outline("t").frames) < kept
        assert batch(newer, step="revert") == Migrated(0, 0, {})
        assert stored(saver) == shown


def test_a_thread_that_is_in_use_or_cannot_be_migrated_is_left_as_it_is(store: Store, batch: Batch) -> None:
    @migrates(from_=1)
    def broken(state: dict[str, Any]) -> dict[str, Any]:
        if state.get("log") == ["bad"]:  # in an older checkpoint only
            raise ValueError("bad log")
        return {}

    @state_version(2, broken)
    class Broken(First):
        pass

    with store.open() as saver:
        filled(saver, "good", "used")
        chain(First, "euros").compile(checkpointer=saver).invoke({"euros": 1, "log": ["bad"]}, config("bad"))
        filled(saver, "bad")
        before = stored(saver, "bad"), stored(saver, "used")
        with saver.lease("used", owner="somebody"):
            done = batch(saver.with_state(Broken))
        assert done.threads == 1
        assert set(done.left) == {"bad", "used"}
        assert "ValueError: bad log" in str(done.left["bad"])
        assert "leased by 'somebody'" in str(done.left["used"])
        assert (stored(saver, "bad"), stored(saver, "used")) == before


def test_a_worker_that_was_taken_over_migrates_nothing(store: Store) -> None:
    with store.open() as saver:
        filled(saver, "t")
        before = stored(saver)
        newer = saver.with_state(Third)
        late = saver.lease("t")
        with saver.lease("t", steal=True), pytest.raises(Fenced):
            run_sync(newer._sync.rewrite(newer._codec, "t", "migrate", late.token))
        assert stored(saver) == before


def test_older_checkpoints_of_a_thread_that_went_on_are_migrated(store: Store, batch: Batch) -> None:
    with store.open() as saver:
        filled(saver, "t")
        newer = saver.with_state(Third)
        question(Third, {"text": "new"}).compile(checkpointer=newer).invoke(Command(resume="yes"), config())
        shown = [each.checkpoint["channel_values"] for each in stored(newer)]
        done = batch(newer)
        assert 0 < done.checkpoints < len(shown)
        assert [each.checkpoint["channel_values"] for each in stored(saver)] == shown
        assert set(batch(newer, step="revert").left) == {"t"}


def test_a_delta_channel_and_subgraphs_outlive_a_batch(store: Store, batch: Batch) -> None:
    with store.open() as saver:
        for turn in range(3):
            delta_chain(DeltaLog).compile(checkpointer=saver).invoke({"log": [turn]}, config())
        saver.prune(["t"])
        newer = saver.with_state({"": NewerDelta, "inner": Third})
        expected = [0, "a", "b", 1, "a", "b", 2, "a", "b"]
        for step in ("migrate", "revert", "migrate", "commit"):
            assert batch(newer, step=step).threads == 1
            graph = delta_chain(NewerDelta).compile(checkpointer=newer)
            assert graph.get_state(config()).values == {"log": expected, "lang": "en"}
        assert graph.invoke({"log": [3]}, config())["log"] == [*expected, 3, "a", "b"]


def test_what_a_batch_cannot_do_is_refused(store: Store, batch: Batch) -> None:
    with store.open() as saver:
        with pytest.raises(Misuse, match="with_state"):
            batch(saver)
        with pytest.raises(Misuse, match="unknown step 'undo'"):
            batch(saver.with_state(Third), step="undo")
        with pytest.raises(Misuse, match="not one string"):
            batch(saver.with_state(Third), "t")
        with pytest.raises(Misuse, match="attribute saver"):
            batch(Sampled(saver.with_state(Third)))
