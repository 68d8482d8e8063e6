"""Threads of an older state version go on with the newer one; nothing is lost or mixed, and older workers are refused."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_statekit import DataError, Misuse, SchemaTooNew, copy_threads, migrates, open_saver, state_version
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.events import Saved
from langgraph_statekit.versions import VERSION_KEY
from tests.faces import LONG, config
from tests.graphs.builders import DeltaLog
from tests.stores_under_test import Store
from tests.versions.app import App
from tests.versions.states import First, Second, Third, chain, question

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
DURABILITIES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def app(saver: StatekitSaver, state: type, mode: str, **options: Any) -> App:
    key = "euros" if state is First else "cents"
    return App(chain(state, key, **options).compile(checkpointer=saver.with_state(state)), mode)


def interrupted(saver: StatekitSaver, mode: str, durability: str = "sync") -> None:
    """Leave a thread of the first version before its second node."""
    with pytest.raises(ConnectionError):
        app(saver, First, mode, failing=True).run({"euros": 1, "log": [LONG]}, durability=durability)


@MODES
@DURABILITIES
def test_a_thread_of_an_older_version_goes_on_and_is_stored_with_the_next_checkpoint(
    store: Store, mode: str, durability: str
) -> None:
    with store.open() as saver:
        interrupted(saver, mode, durability)
        newer = app(saver, Third, mode)
        assert newer.state().values == {"cents": 200, "log": [{"text": LONG}]}
        assert newer.state().next == ("b",)
        assert newer.run(None, durability=durability) == {"cents": 201, "log": [{"text": LONG}]}
    with store.open() as saver:
        raw = saver.get_tuple(config())
        assert raw is not None
        assert raw.metadata[VERSION_KEY] == 3
        assert raw.checkpoint["channel_values"] == {"cents": 201, "log": [{"text": LONG}]}
        newer = app(saver, Third, mode)
        assert newer.state().values == {"cents": 201, "log": [{"text": LONG}]}
        assert newer.run({"cents": 7, "log": [{"text": "more"}]}, durability=durability) == {
            "cents": 9,
            "log": [{"text": LONG}, {"text": "more"}],
        }


@MODES
def test_the_history_is_shown_in_the_newest_version_and_kept_in_its_own(store: Store, mode: str) -> None:
    with store.open() as saver:
        interrupted(saver, mode)
        before = list(saver.list(config()))
        newer = app(saver, Third, mode)
        newer.run(None)
        shown = [(each.values, each.next) for each in newer.history()]
        log = [{"text": LONG}]
        assert shown == [
            ({"cents": 201, "log": log}, ()),
            ({"cents": 200, "log": log}, ("b",)),
            ({"cents": 100, "log": log}, ("a",)),
            ({"log": []}, ("__start__",)),
        ]
        after = list(saver.list(config()))[1:]
        assert [each._replace(pending_writes=[]) for each in after] == [
            each._replace(pending_writes=[]) for each in before
        ]


@MODES
def test_each_old_checkpoint_can_be_forked(store: Store, mode: str) -> None:
    with store.open() as saver:
        interrupted(saver, mode)
        newer = app(saver, Third, mode)
        newer.run(None)
        for each, cents in zip(newer.history()[1:], (201, 102, 102), strict=True):
            assert newer.run(None, each.config) == {"cents": cents, "log": [{"text": LONG}]}
            assert newer.state().values == {"cents": cents, "log": [{"text": LONG}]}
        forked = newer.update({"cents": 5}, newer.history()[-2].config, as_node="a")
        assert newer.run(None, forked)["cents"] == 6


@MODES
def test_an_older_worker_reads_older_threads_and_is_refused_newer_ones(store: Store, mode: str) -> None:
    with store.open() as saver:
        interrupted(saver, mode)
        older, newer = app(saver, Second, mode), app(saver, Third, mode)
        assert newer.state().values["log"] == [{"text": LONG}]  # read, not stored
        assert older.state().values == {"cents": 200, "log": [LONG]}
        newer.run(None)
        before = list(saver.list(config()))
        for call in (older.state, older.history, lambda: older.run(None), lambda: older.run({"cents": 1})):
            with pytest.raises(SchemaTooNew, match=r"version 3 of the state Second.* up to 2"):
                call()
        assert list(saver.list(config())) == before


def test_an_older_worker_is_refused_a_step_that_a_newer_one_began(store: Store) -> None:
    with store.open() as saver:
        question(First, "old").compile(checkpointer=saver.with_state(First)).invoke({}, config())
        newer = question(Third, {"text": "new"}).compile(checkpointer=saver.with_state(Third))
        newer.invoke(None, config())  # the question stays open, so no checkpoint of the newer version is stored
        with pytest.raises(SchemaTooNew):
            question(First, "old").compile(checkpointer=saver.with_state(First)).get_state(config())
        assert newer.invoke(Command(resume="yes"), config())["log"] == ["yes", {"text": "new"}, "last"]


@MODES
def test_a_task_that_finished_under_an_older_version_runs_again_where_its_writes_are_concerned(
    store: Store, mode: str
) -> None:
    with store.open() as saver:
        ran: list[str] = []
        old = App(question(First, "old", ran).compile(checkpointer=saver.with_state(First)), mode)
        old.run({})
        assert ran == ["side"]
        middle = App(question(Second, "middle", ran).compile(checkpointer=saver.with_state(Second)), mode)
        assert [each.name for each in middle.state().tasks if each.interrupts] == ["ask"]
        newer = App(question(Third, {"text": "new"}, ran).compile(checkpointer=saver.with_state(Third)), mode)
        assert set(newer.state().next) == {"ask", "side"}
        assert newer.run(Command(resume="yes"))["log"] == ["yes", {"text": "new"}, "last"]
        assert ran == ["side", "side"]


@MODES
def test_a_task_that_no_migration_concerns_does_not_run_again(store: Store, mode: str) -> None:
    with store.open() as saver:
        ran: list[str] = []
        App(question(First, "old", ran).compile(checkpointer=saver.with_state(First)), mode).run({})
        newer = App(question(Second, "new", ran).compile(checkpointer=saver.with_state(Second)), mode)
        assert newer.run(Command(resume="yes"))["log"] == ["yes", "old", "last"]
        assert ran == ["side"]


@MODES
def test_an_update_that_waits_is_migrated(store: Store, mode: str) -> None:
    with store.open() as saver:

        def build(state: type) -> App:
            graph = StateGraph(state)

            def ask(_: Any) -> Any:
                return {"log": [interrupt("one?"), interrupt("two?")]}

            graph.add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END)
            return App(graph.compile(checkpointer=saver.with_state(state)), mode)

        build(First).run({"euros": 1})
        build(First).run(Command(resume="a", update={"euros": 2, "log": ["given"]}))
        done = build(Third).run(Command(resume="b"))
        assert done["cents"] == 200
        assert done["log"] == [{"text": "given"}, "a", "b"]


@MODES
def test_a_value_that_a_migration_changed_is_stored_once(store: Store, mode: str) -> None:
    told: list[Any] = []
    with store.open(hooks=[told.append]) as saver:
        interrupted(saver, mode)
        newer = app(saver, Third, mode)
        told.clear()
        newer.run(None)
        newer.run({"cents": 1})
        sizes = [each.plain_bytes for each in told if isinstance(each, Saved) and each.operation == "put"]
        assert len(sizes) == 5
        assert [size > len(LONG) for size in sizes] == [True, False, False, False, False]
        versions = {each.checkpoint["channel_versions"].get("log") for each in saver.list(config())} - {None}
        assert len(versions) == 2


def test_a_saver_with_hooks_migrates_too(store: Store) -> None:
    with store.open(hooks=[lambda event: None]) as saver:
        interrupted(saver, "sync")
        assert app(saver, Third, "sync").run(None)["cents"] == 201
        assert saver.with_state(Third).get_tuple(config()).metadata[VERSION_KEY] == 3  # type: ignore[union-attr]
        with pytest.raises(SchemaTooNew):
            saver.with_state(Second).get_tuple(config())


def test_a_copy_keeps_versions_as_they_are(store: Store) -> None:
    with store.open() as saver, open_saver("memory://") as back:
        interrupted(saver, "sync")
        middle = App(question(Second, "middle").compile(checkpointer=saver.with_state(Second)), "sync")
        middle.run({"cents": 1}, config("u"))
        between = InMemorySaver()
        copy_threads(saver.with_state(Third), between)
        copy_threads(between, back.with_state(Third))
        assert [each for each in back.list(None) if each.metadata.get(VERSION_KEY) == 2]
        assert app(back, Third, "sync").run(None) == {"cents": 201, "log": [{"text": LONG}]}
        newer = App(question(Third, {"text": "new"}).compile(checkpointer=back.with_state(Third)), "sync")
        assert set(newer.state(config("u")).next) == {"ask", "side"}  # the writes kept the version of who made them
        again = App(question(Second, "new").compile(checkpointer=back.with_state(Second)), "sync")
        assert again.state(config("u")).next == ("ask",)


def test_subgraphs_have_versions_of_their_own(store: Store) -> None:
    def build(saver: StatekitSaver, inner: type, entry: Any) -> Any:
        graph = StateGraph(First)
        graph.add_node("inner", question(inner, entry).compile())
        graph.add_edge(START, "inner").add_edge("inner", END)
        return graph.compile(checkpointer=saver.with_state({"": First, "inner": inner}))

    with store.open() as saver:
        build(saver, First, "old").invoke({"log": ["start"]}, config())
        newer = build(saver, Third, {"text": "new"})
        inner = newer.get_state(config(), subgraphs=True).tasks[0].state
        assert inner.values["log"] == [{"text": "start"}]
        assert newer.get_state(config()).values["log"] == ["start"]
        done = newer.invoke(Command(resume="yes"), config())
        assert done["log"][1:] == [{"text": "start"}, "yes", {"text": "new"}, "last"]


@migrates(from_=1)
def _nothing(state: dict[str, Any]) -> dict[str, Any]:
    assert "log" not in state
    return {**state, "lang": state.get("lang", "en")}


@state_version(2, _nothing)
class NewerDelta(DeltaLog, total=False):
    lang: str


@MODES
@DURABILITIES
def test_a_delta_channel_goes_on_across_versions(store: Store, mode: str, durability: str) -> None:
    def build(state: type, name: str) -> App:
        graph = StateGraph(state)
        graph.add_node("a", lambda _: {"log": [name]}).add_edge(START, "a").add_edge("a", END)
        return App(graph.compile(checkpointer=saver.with_state(state)), mode)

    with store.open() as saver:
        for turn in range(3):
            build(DeltaLog, "old").run({"log": [turn]}, durability=durability)
        newer = build(NewerDelta, "new")
        assert newer.state().values == {"log": [0, "old", 1, "old", 2, "old"], "lang": "en"}
        expected = {"log": [0, "old", 1, "old", 2, "old", 3, "new"], "lang": "en"}
        assert newer.run({"log": [3]}, durability=durability) == expected
        assert newer.state().values == expected


@migrates(from_=1)
def _sets_log(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "log": []}


class Counted(DeltaLog, total=False):
    n: int


@migrates(from_=1)
def _n_as_text(state: dict[str, Any]) -> dict[str, Any]:
    return {**state, "n": str(state["n"])} if "n" in state else state


@state_version(2, _n_as_text)
class CountedAsText(DeltaLog, total=False):
    n: str


def test_a_task_that_wrote_a_delta_channel_is_not_run_again(store: Store) -> None:
    with store.open() as saver:

        def build(state: type, n: Any) -> Any:
            graph = StateGraph(state)
            graph.add_node("ask", lambda _: {"log": [interrupt("ok?")]})
            graph.add_node("side", lambda _: {"log": ["side"], "n": n})
            graph.add_edge(START, "ask").add_edge(START, "side")
            return graph.compile(checkpointer=saver.with_state(state))

        build(Counted, 1).invoke({"log": ["in"]}, config())
        with pytest.raises(DataError, match="wrote the DeltaChannel 'log'"):
            build(CountedAsText, "1").invoke(Command(resume="yes"), config())
        build(Counted, 1).invoke(Command(resume="yes"), config())  # an older worker finishes the step
        assert build(CountedAsText, "1").get_state(config()).values == {"log": ["in", "yes", "side"], "n": "1"}


@state_version(2, _sets_log)
class SetsDelta(DeltaLog):
    pass


@state_version(2, _sets_log)
class PlainAgain(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


@pytest.mark.parametrize("state", [SetsDelta, PlainAgain])
def test_a_migration_that_sets_a_delta_channel_is_refused(store: Store, state: type) -> None:
    with store.open() as saver:
        graph = StateGraph(DeltaLog)
        graph.add_node("a", lambda _: {"log": ["a"]}).add_edge(START, "a").add_edge("a", END)
        graph.compile(checkpointer=saver).invoke({"log": [1]}, config())
        with pytest.raises(Misuse, match="'log', which is a DeltaChannel"):
            saver.with_state(state).get_tuple(config())


def test_a_migration_that_fails_or_is_missing_is_named(store: Store) -> None:
    @migrates(from_=1)
    def broken(state: dict[str, Any]) -> dict[str, Any]:
        return {"cents": state["euros"]}

    @state_version(2, broken)
    class Broken(TypedDict):
        cents: int

    @state_version(2)
    class Missing(TypedDict):
        cents: int

    with store.open() as saver:
        App(chain(First, "euros").compile(checkpointer=saver), "sync").run({"euros": 1})
        with pytest.raises(DataError, match="Broken from version 1 failed with KeyError: 'euros'"):
            list(saver.with_state(Broken).list(config()))
        with pytest.raises(DataError, match=r"add a function with @migrates\(from_=1\)"):
            saver.with_state(Missing).get_tuple(config())


@pytest.mark.parametrize(
    "make",
    [
        lambda: state_version(0),
        lambda: state_version("2"),  # type: ignore[arg-type]
        lambda: state_version(3, migrates(from_=1)(lambda s: s)),
        lambda: state_version(2, dict),
        lambda: state_version(3, migrates(from_=2)(lambda s: s), migrates(from_=2)(lambda s: s)),
        lambda: state_version(1, migrates(from_=0)(lambda s: s)),
    ],
)
def test_versions_that_do_not_lead_to_each_other_are_refused(make: Any) -> None:
    with pytest.raises(Misuse):
        make()
