"""Steps of which the saver tells are those that LangGraph streams: the same states, and the same nodes that run next."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels import UntrackedValue
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_statekit import StatekitSaver, Watchdog, open_saver
from langgraph_statekit.errors import GaveUp
from langgraph_statekit.watchdog.checks import Invariant
from langgraph_statekit.watchdog.policy import Fail
from langgraph_statekit.watchdog.told import telling
from langgraph_statekit.watchdog.view import Finding, View

# Sync nodes, which a watchdog warns of, are called by sync and async runs alike.
pytestmark = pytest.mark.filterwarnings("ignore::langgraph_statekit.watchdog.errors.WatchdogWarning")

Told = list[tuple[int, Any, tuple[str, ...]]]


class State(TypedDict, total=False):
    count: int
    log: Annotated[list[str], operator.add]
    note: str


def _add(name: str) -> Callable[[State], State]:
    return lambda state: {"count": state.get("count", 0) + 1, "log": [name]}


def _log(name: str) -> Callable[[State], State]:
    return lambda state: {"log": [name]}


def _loop(saver: StatekitSaver, **options: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("work", _add("work"))
    graph.add_node("rest", _log("rest"))
    graph.add_edge(START, "work")
    graph.add_edge("rest", "work")
    graph.add_conditional_edges("work", lambda state: "rest" if state["count"] < 4 else END, ["rest", END])
    return graph.compile(checkpointer=saver, **options)


def _joined(saver: StatekitSaver) -> Any:
    """Two branches of different length, a join of them, and a node that waits for all others."""
    graph = StateGraph(State)
    for name in ("short", "long", "longer", "joined"):
        graph.add_node(name, _log(name))
    graph.add_node("last", _log("last"), defer=True)
    graph.add_edge(START, "short")
    graph.add_edge(START, "long")
    graph.add_edge("long", "longer")
    graph.add_edge(["short", "longer"], "joined")
    graph.add_edge("short", "last")
    graph.add_edge("joined", "last")
    return graph.compile(checkpointer=saver)


def _sent(saver: StatekitSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("split", lambda state: Command(update={"note": "split"}, goto=[Send("one", {"note": "a"}), "two"]))
    graph.add_node("one", lambda state: {"log": [str(state["note"])]})
    graph.add_node("two", _log("two"))
    graph.add_edge(START, "split")
    graph.add_conditional_edges("two", lambda state: [Send("one", {"note": n}) for n in "bcd"], ["one"])
    return graph.compile(checkpointer=saver)


def _asking(saver: StatekitSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"note": interrupt("what now?"), "log": ["ask"]})
    graph.add_node("work", _add("work"))
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "work")
    return graph.compile(checkpointer=saver)


class Listening:
    """A check that finds nothing and remembers each step."""

    def __init__(self) -> None:
        self.told: Told = []
        self._ids: list[str] = []

    def __call__(self, view: View) -> Finding | None:
        if view.step is not None and view.step.id not in self._ids:
            self._ids.append(view.step.id)
            self.told.append((view.step.number, dict(view.step.values), view.step.next))
        return None


_CALLS: dict[str, tuple[Callable[..., Any], list[Any], dict[str, Any]]] = {
    "a loop": (_loop, [{"count": 0}], {}),
    "a loop that is begun again": (_loop, [{"count": 0}, {"count": 2, "note": "again"}], {}),
    "a breakpoint before": (_loop, [{"count": 0}, None, None], {"interrupt_before": ["rest"]}),
    "a breakpoint after": (_loop, [{"count": 0}, None, None, None], {"interrupt_after": ["work"]}),
    "joins": (_joined, [{"note": "x"}], {}),
    "tasks that are sent": (_sent, [{"note": "x"}], {}),
    "a question": (_asking, [{"count": 0}, Command(resume="on", update={"count": 7})], {}),
}


@pytest.fixture
def memory() -> Iterator[StatekitSaver]:
    with open_saver("memory://") as saver:
        yield saver


def _uses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the threads of whose steps a saver tells from now on."""
    used: list[str] = []

    def noted(graph: Any, saver: Any, thread_id: str, hear: Any) -> Any:
        used.append(thread_id)
        return telling(graph, saver, thread_id, hear)

    monkeypatch.setattr("langgraph_statekit.watchdog.supervise.telling", noted)
    return used


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("case", _CALLS)
async def test_steps_told_by_the_saver_are_those_that_the_graph_streams(
    case: str, is_async: bool, memory: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = _uses(monkeypatch)
    build, inputs, options = _CALLS[case]
    seen: dict[str, tuple[Told, Any]] = {}
    for mode in ("told", "streamed"):
        check = Listening()
        dog = Watchdog(build(memory), checks=[check])
        modes = ["values"] if mode == "told" else ["values", "checkpoints"]
        for given in inputs:
            at: Any = {"configurable": {"thread_id": mode}}
            if is_async:
                [_ async for _ in dog.astream(given, at, stream_mode=modes, **options)]
            else:
                list(dog.stream(given, at, stream_mode=modes, **options))
        seen[mode] = check.told, dog.graph.get_state(at).values
    assert seen["told"] == seen["streamed"]
    assert len(seen["told"][0]) >= 3
    assert set(used) == {"told"}


def _untracked(saver: StatekitSaver) -> Any:
    class Private(TypedDict, total=False):
        count: int
        secret: Annotated[int, UntrackedValue]

    graph = StateGraph(Private)
    graph.add_node("work", lambda state: {"count": state.get("count", 0) + 1, "secret": 1})
    graph.add_edge(START, "work")
    return graph.compile(checkpointer=saver)


@pytest.mark.parametrize("case", ["a channel that is not stored", "async", "exit", "a subgraph", "an older checkpoint"])
def test_what_the_saver_cannot_tell_is_streamed(
    case: str, memory: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = _uses(monkeypatch)
    at: Any = {"configurable": {"thread_id": "t"}}
    graph = _untracked(memory) if case.startswith("a channel") else _loop(memory)
    given: Any = {"count": 0}
    if case == "a subgraph":
        outer = StateGraph(State)
        outer.add_node("inner", _loop(None))  # type: ignore[arg-type]
        outer.add_edge(START, "inner")
        graph = outer.compile(checkpointer=memory)
    if case == "an older checkpoint":
        graph.invoke(given, at)
        at, given = list(graph.get_state_history(at))[3].config, None
    check = Listening()
    Watchdog(graph, checks=[check]).invoke(given, at, durability=case if case in ("async", "exit") else "sync")
    assert check.told and not used


def test_a_graph_that_a_node_calls_is_watched_whatever_saver_it_gets(
    memory: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, check = _uses(monkeypatch), Listening()
    dog = Watchdog(_loop(memory), checks=[check])
    outer = StateGraph(State)
    outer.add_node("call", lambda state: dog.invoke({"count": 0}, {"configurable": {"thread_id": "inner"}}))
    outer.add_edge(START, "call")
    with open_saver("memory://") as others:
        outer.compile(checkpointer=others).invoke({"count": 0}, {"configurable": {"thread_id": "outer"}})
    assert check.told and not used


def test_the_last_step_of_a_run_is_checked_too(memory: StatekitSaver) -> None:
    rule = Invariant("count stays below 4", lambda before, after: after.get("count", 0) < 4)
    dog = Watchdog(_loop(memory), checks=[rule], policy=lambda finding, attempt: Fail())
    with pytest.raises(GaveUp, match="count stays below 4"):
        dog.invoke({"count": 0}, {"configurable": {"thread_id": "t"}})


def test_what_a_node_reads_of_its_thread_is_no_step_of_the_run(memory: StatekitSaver) -> None:
    def read(state: State, config: RunnableConfig) -> State:
        if state["count"] == 3:
            older = list(memory.list({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}))[2]
            assert older.checkpoint["channel_values"]["count"] < 3
            config["configurable"]["__pregel_checkpointer"].get_tuple(older.config)
            raise ValueError("it did not work")
        return {"count": state["count"] + 1}

    graph = StateGraph(State)
    graph.add_node("work", read)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["count"] < 9 else END, ["work", END])
    rule = Invariant("count rises", lambda before, after: after.get("count", 0) >= before.get("count", 0))
    with pytest.raises(ValueError, match="it did not work"):
        Watchdog(graph.compile(checkpointer=memory), checks=[rule]).invoke(
            {"count": 0}, {"configurable": {"thread_id": "t"}}
        )
