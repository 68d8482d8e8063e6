"""A thread that waits for a node that is gone is reported, refused, and repaired; it never ends without a word."""

from __future__ import annotations

import asyncio
import operator
import sys
from dataclasses import make_dataclass
from types import ModuleType
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_statekit import DataError, Drift, Fenced, Misuse, TopologyDrift, acheck_compat, check_compat, guard
from tests.faces import config
from tests.graphs.builders import DeltaLog
from tests.stores_under_test import Store
from tests.versions.app import App
from tests.versions.states import First, Second, question

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def checked(mode: str, *args: Any) -> list[Drift]:
    return check_compat(*args) if mode == "sync" else asyncio.run(acheck_compat(*args))


def _fails(_: Any) -> Any:
    raise ConnectionError("cut off")


def chain(*names: str, last: Any = None, state: Any = Log) -> StateGraph[Any]:
    graph = StateGraph(state)
    before = START
    for name in names:
        run = last if last and name == names[-1] else lambda _, name=name: {"log": [name]}
        graph.add_node(name, run).add_edge(before, name)
        before = name
    return graph.add_edge(before, END)


def asking(name: str, ran: list[str] | None = None) -> StateGraph[Any]:
    """Return a node that asks twice beside one that finishes, and a last one that needs both."""
    graph = StateGraph(Log)

    def side(_: Any) -> Any:
        if ran is not None:
            ran.append("side")
        return {"log": ["side"]}

    graph.add_node(name, lambda _: {"log": [interrupt("one?"), interrupt("two?")]})
    graph.add_node("side", side)
    graph.add_node("last", lambda _: {"log": ["last"]})
    graph.add_edge(START, name).add_edge(START, "side")
    return graph.add_edge([name, "side"], "last").add_edge("last", END)


def sending(name: str, work: Any) -> StateGraph[Any]:
    graph = StateGraph(Log)
    graph.add_node("plan", lambda _: {"log": ["plan"]})
    graph.add_node(name, work)
    graph.add_edge(START, "plan")
    return graph.add_conditional_edges("plan", lambda _: [Send(name, {"n": n}) for n in range(3)], [name])


@MODES
def test_a_node_that_is_gone_is_reported_and_refused_and_repaired_by_a_fork(store: Store, mode: str) -> None:
    with store.open() as saver:
        with pytest.raises(ConnectionError):
            App(chain("a", "b", last=_fails).compile(checkpointer=saver), mode).run({"log": ["in"]})
        graph = chain("a", "b2").compile(checkpointer=saver)
        assert checked(mode, chain("a", "b").compile(checkpointer=saver), saver) == []
        assert checked(mode, graph, saver) == [Drift("t", "", missing_nodes=("b",))]
        before = list(saver.list(config()))
        with pytest.raises(TopologyDrift, match="'t' waits for 'b', which the graph does not have"):
            App(guard(graph), mode).run(None)
        assert list(saver.list(config())) == before
        app = App(guard(graph, rename_nodes={"b": "b2"}), mode)
        assert app.run(None)["log"] == ["in", "a", "b2"]
        assert app.state().next == ()
        fork = app.history()[1]
        assert fork.metadata["source"] == "fork"
        assert fork.metadata["statekit_renamed_nodes"] == {"b": "b2"}
        assert list(saver.list(config()))[2:] == before
        assert checked(mode, graph, saver) == []


@MODES
def test_an_old_checkpoint_is_checked_where_a_run_begins_at_it(store: Store, mode: str) -> None:
    with store.open() as saver:
        App(chain("a", "b").compile(checkpointer=saver), mode).run({"log": ["in"]})
        graph = chain("a", "b2").compile(checkpointer=saver)
        old = App(graph, mode).history()[1].config
        assert checked(mode, graph, saver) == []
        with pytest.raises(TopologyDrift):
            App(guard(graph), mode).run(None, old)
        assert App(guard(graph, rename_nodes={"b": "b2"}), mode).run(None, old)["log"] == ["in", "a", "b2"]


@MODES
def test_a_renamed_node_keeps_its_questions_and_answers_and_its_finished_neighbours(store: Store, mode: str) -> None:
    with store.open() as saver:
        ran: list[str] = []
        App(asking("ask", ran).compile(checkpointer=saver), mode).run({"log": ["in"]})
        App(asking("ask", ran).compile(checkpointer=saver), mode).run(Command(resume="first"))
        graph = asking("confirm", ran).compile(checkpointer=saver)
        assert checked(mode, graph, saver)[0].missing_nodes == ("ask",)
        app = App(guard(graph, rename_nodes={"ask": "confirm"}), mode)
        done = app.run(Command(resume="second"))
        assert sorted(done["log"][1:4]) == ["first", "second", "side"]
        assert done["log"][-1] == "last"
        assert ran == ["side"]


@MODES
@pytest.mark.parametrize("by_id", [False, True])
def test_a_question_that_a_renamed_node_had_asked_can_be_answered(store: Store, mode: str, by_id: bool) -> None:
    with store.open() as saver:
        ran: list[str] = []
        App(asking("ask", ran).compile(checkpointer=saver), mode).run({"log": ["in"]})
        app = App(guard(asking("confirm", ran).compile(checkpointer=saver), rename_nodes={"ask": "confirm"}), mode)
        if by_id:
            assert [each.value for each in app.run(None)["__interrupt__"]] == ["one?"]
            app.run(Command(resume={app.state().interrupts[0].id: "first"}))
        else:
            app.run(Command(resume="first"))
        assert sorted(app.run(Command(resume="second"))["log"]) == ["first", "in", "last", "second", "side"]
        assert ran == ["side"]


@MODES
def test_work_that_was_sent_to_a_node_that_is_gone_is_not_dropped(store: Store, mode: str) -> None:
    with store.open() as saver:
        with pytest.raises(ConnectionError):
            App(sending("work", _fails).compile(checkpointer=saver), mode).run({"log": []})
        graph = sending("do", lambda item: {"log": [item["n"]]}).compile(checkpointer=saver)
        assert checked(mode, graph, saver) == [Drift("t", "", missing_nodes=("work",))]
        with pytest.raises(TopologyDrift):
            App(guard(graph), mode).run(None)
        assert App(guard(graph, rename_nodes={"work": "do"}), mode).run(None)["log"] == ["plan", 0, 1, 2]


@MODES
def test_a_node_that_is_gone_inside_a_subgraph_is_found(store: Store, mode: str) -> None:
    def build(name: str, work: Any) -> Any:
        graph = StateGraph(Log)
        graph.add_node("inner", chain("x", name, last=work).compile())
        graph.add_node("after", lambda _: {"log": ["after"]})
        return (
            graph.add_edge(START, "inner").add_edge("inner", "after").add_edge("after", END).compile(checkpointer=saver)
        )

    with store.open() as saver:
        App(build("ask", lambda _: {"log": [interrupt("ok?")]}), mode).run({"log": ["in"]})
        graph = build("confirm", lambda _: {"log": [interrupt("ok?")]})
        (drift,) = checked(mode, graph, saver)
        assert drift.checkpoint_ns.startswith("inner:")
        assert drift.missing_nodes == ("ask",)
        with pytest.raises(TopologyDrift, match="waits for 'ask' in 'inner:"):
            App(guard(graph), mode).run(Command(resume="yes"))
        app = App(guard(graph, rename_nodes={"ask": "confirm"}), mode)
        assert app.run(Command(resume="yes"))["log"] == ["in", "in", "x", "yes", "after"]


@MODES
def test_a_rename_is_made_under_the_lease_of_the_run(store: Any, mode: str) -> None:
    with store.open(require_lease=True) as saver:
        lease = saver.lease("t")
        App(asking("ask").compile(checkpointer=saver), mode).run({"log": ["in"]}, lease.config)
        app = App(guard(asking("confirm").compile(checkpointer=saver), rename_nodes={"ask": "confirm"}), mode)
        before = list(saver.list(config()))
        with saver.lease("t", steal=True) as newer:
            with pytest.raises(Fenced):
                app.run(Command(resume="first"), lease.config)
            assert list(saver.list(config())) == before
            app.run(Command(resume="first"), newer.config)
            assert app.run(Command(resume="second"), newer.config)["log"][-1] == "last"


@MODES
def test_a_subgraph_with_a_history_of_its_own_is_checked(store: Store, mode: str) -> None:
    def build(name: str) -> Any:
        inner = chain("x", name, last=lambda _: {"log": [interrupt("ok?")]}).compile(checkpointer=True)
        return StateGraph(Log).add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=saver)

    with store.open() as saver:
        App(build("ask"), mode).run({"log": ["in"]})
        assert checked(mode, build("confirm"), saver) == [Drift("t", "inner", missing_nodes=("ask",))]
        app = App(guard(build("confirm"), rename_nodes={"ask": "confirm"}), mode)
        assert app.run(Command(resume="yes"))["log"] == ["in", "in", "x", "yes"]


@MODES
def test_a_step_that_wrote_a_delta_channel_is_not_forked(store: Store, mode: str) -> None:
    with store.open() as saver:
        App(question(DeltaLog, "side").compile(checkpointer=saver), mode).run({"log": ["in"]})
        before = list(saver.list(config()))
        graph = question(DeltaLog, "side", name="confirm").compile(checkpointer=saver)
        with pytest.raises(DataError, match="DeltaChannel 'log'"):
            App(guard(graph, rename_nodes={"ask": "confirm"}), mode).run(Command(resume="yes"))
        assert list(saver.list(config())) == before


@MODES
def test_a_delta_channel_outlives_a_rename(store: Store, mode: str) -> None:
    with store.open() as saver:
        App(chain("a", "b", state=DeltaLog).compile(checkpointer=saver), mode).run({"log": ["first"]})
        with pytest.raises(ConnectionError):
            App(chain("a", "b", last=_fails, state=DeltaLog).compile(checkpointer=saver), mode).run({"log": ["in"]})
        app = App(guard(chain("a", "b2", state=DeltaLog).compile(checkpointer=saver), rename_nodes={"b": "b2"}), mode)
        assert app.run(None)["log"] == ["first", "a", "b", "in", "a", "b2"]
        assert app.state().values["log"] == ["first", "a", "b", "in", "a", "b2"]


@MODES
def test_a_subgraph_that_asks_is_not_renamed(store: Store, mode: str) -> None:
    def build(name: str) -> Any:
        graph = StateGraph(Log).add_node(name, asking("ask").compile())
        return graph.add_edge(START, name).add_edge(name, END).compile(checkpointer=saver)

    with store.open() as saver:
        App(build("inner"), mode).run({"log": ["in"]})
        before = list(saver.list(config()))
        with pytest.raises(DataError, match="a subgraph asks"):
            App(guard(build("outer"), rename_nodes={"inner": "outer"}), mode).run(Command(resume="yes"))
        assert list(saver.list(config())) == before


@MODES
def test_a_node_is_renamed_in_a_thread_of_an_older_state_version(store: Store, mode: str) -> None:
    with store.open() as saver:
        App(question(First, "old").compile(checkpointer=saver), mode).run({"euros": 1})
        graph = question(Second, "new", name="confirm").compile(checkpointer=saver.with_state(Second))
        done = App(guard(graph, rename_nodes={"ask": "confirm"}), mode).run(Command(resume="yes"))
        assert done == {"cents": 100, "log": ["yes", "old", "last"]}


@MODES
def test_a_join_whose_node_is_gone_is_found_and_repaired(store: Store, mode: str) -> None:
    with store.open() as saver:

        def build(slow: str, work: Any) -> Any:
            graph = StateGraph(Log)
            graph.add_node("fast", lambda _: {"log": ["fast"]})
            graph.add_node("before", lambda _: {"log": ["before"]})
            graph.add_node(slow, work)
            graph.add_node("end", lambda _: {"log": ["end"]})
            graph.add_edge(START, "fast").add_edge(START, "before").add_edge("before", slow)
            return graph.add_edge(["fast", slow], "end").add_edge("end", END).compile(checkpointer=saver)

        with pytest.raises(ConnectionError):
            App(build("slow", _fails), mode).run({"log": []})
        graph = build("slower", lambda _: {"log": ["slower"]})
        assert checked(mode, graph, saver)[0].missing_nodes == ("slow",)
        saver.copy_thread("t", "u")
        App(graph, mode).run({"log": ["again"]}, config("u"))
        assert checked(mode, graph, saver, ["u"]) == []
        done = App(guard(graph, rename_nodes={"slow": "slower"}), mode).run(None)
        assert done["log"] == ["before", "fast", "slower", "end"]


@MODES
def test_a_new_input_is_not_refused_and_what_was_dropped_by_it_is_no_longer_missed(store: Store, mode: str) -> None:
    with store.open() as saver:
        with pytest.raises(ConnectionError):
            App(chain("a", "b", last=_fails).compile(checkpointer=saver), mode).run({"log": ["in"]})
        graph = chain("a", "c", last=lambda _: {"log": [interrupt("ok?")]}).compile(checkpointer=saver)
        app = App(guard(graph), mode)
        app.run({"log": ["again"]})
        assert checked(mode, graph, saver) == []
        assert app.run(Command(resume="yes"))["log"] == ["in", "a", "again", "a", "yes"]
        assert checked(mode, graph, saver) == []
        assert App(app.graph.with_config({"tags": ["x"]}), mode).state().next == ()
        forked = app.update({"log": ["edit"]}, as_node="a")
        assert app.run(None, forked)["__interrupt__"]


@MODES
def test_a_branch_that_update_state_made_is_checked(store: Store, mode: str) -> None:
    with store.open() as saver:
        old = App(chain("a", "b").compile(checkpointer=saver), mode)
        old.run({"log": ["in"]})
        old.update({"log": ["edit"]}, as_node="a")
        graph = chain("a", "b2").compile(checkpointer=saver)
        assert checked(mode, graph, saver) == [Drift("t", "", missing_nodes=("b",))]
        done = App(guard(graph, rename_nodes={"b": "b2"}), mode).run(None)
        assert done["log"] == ["in", "a", "b", "edit", "b2"]


@MODES
def test_keys_and_classes_that_are_gone_are_reported(store: Store, mode: str) -> None:
    module = ModuleType("statekit_test_gone")
    module.Item = make_dataclass("Item", ["name"])  # type: ignore[attr-defined]
    module.Item.__module__ = module.__name__
    sys.modules[module.__name__] = module
    try:

        class Wide(Log, total=False):
            extra: Any

        with store.open() as saver:
            wide = chain("a", state=Wide).compile(checkpointer=saver)
            App(wide, mode).run({"log": [module.Item("x")], "extra": 1})
            assert checked(mode, wide, saver) == []
            graph = chain("a").compile(checkpointer=saver)
            assert checked(mode, graph, saver) == [Drift("t", "", unknown_channels=("extra",))]
            del sys.modules[module.__name__]
            (found,) = checked(mode, graph, saver, ["t", "unknown"])
            assert found == Drift("t", "", unknown_channels=("extra",), missing_classes=("statekit_test_gone.Item",))
    finally:
        sys.modules.pop(module.__name__, None)


def test_another_projects_saver_can_be_checked_and_guarded() -> None:
    saver = InMemorySaver()
    with pytest.raises(ConnectionError):
        chain("a", "b", last=_fails).compile(checkpointer=saver).invoke({"log": ["in"]}, config())
    graph = chain("a", "b2").compile(checkpointer=saver)
    assert check_compat(graph, saver) == [Drift("t", "", missing_nodes=("b",))]
    assert guard(graph, rename_nodes={"b": "b2"}).invoke(None, config())["log"] == ["in", "a", "b2"]


def test_what_cannot_be_guarded_is_refused() -> None:
    graph = chain("a").compile(checkpointer=InMemorySaver())
    with pytest.raises(Misuse, match="'c', which is no node"):
        guard(graph, rename_nodes={"b": "c"})
    with pytest.raises(Misuse, match="with a checkpointer"):
        guard(chain("a").compile())
    with pytest.raises(Misuse, match="not one string"):
        check_compat(graph, InMemorySaver(), "t")
    for refused in (lambda: guard(chain("a")), lambda: check_compat(chain("a"), InMemorySaver())):  # type: ignore[arg-type]
        with pytest.raises(Misuse, match="compiled graph is needed, not StateGraph"):
            refused()
    with pytest.raises(Misuse, match="checkpointer is needed, not NoneType"):
        check_compat(graph, None)  # type: ignore[arg-type]
