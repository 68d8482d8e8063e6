"""Nodes that look for trouble: what they find, and how a Watchdog around the graph answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy

from langgraph_statekit import Backoff, Cycle, Invariant, ItemDeadline, Misuse, NoProgress, Rollback, Watchdog
from langgraph_statekit.errors import GaveUp
from langgraph_statekit.watchdog.errors import RollbackRequested
from langgraph_statekit.watchdog.node import error_handler, rollback_node, watchdog_node
from tests.stores_under_test import Store

AT: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}
pytestmark = pytest.mark.filterwarnings("ignore::langgraph_statekit.watchdog.errors.WatchdogWarning")
POLICY = Rollback(backoff=Backoff(first_s=0))


class State(TypedDict, total=False):
    i: int
    path: list[str]
    watchdog: dict[str, Any]
    problem: str


def watched(work: Callable[[State], State], look: Any, until: int = 3) -> Any:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("look", look)
    graph.add_edge(START, "work")
    graph.add_edge("work", "look")
    graph.add_conditional_edges(
        "look", lambda s: "work" if s["i"] < until and "problem" not in s else END, ["work", END]
    )
    return graph


def stuck(state: State) -> State:
    return {"path": ["nothing"]}


def leave(state: State, finding: Any) -> Command[Any]:
    return Command(goto=END, update={"problem": finding.reason})


@pytest.mark.parametrize(
    ("check", "work", "reason"),
    [
        (NoProgress(project=lambda s: s["i"], supersteps=3), stuck, "no_progress"),
        (Cycle(window=4, project=lambda s: s["i"]), lambda s: {"i": (s["i"] + 1) % 2}, "cycle"),
        (Invariant("rises", lambda a, b: b["i"] >= a["i"]), lambda s: {"i": s["i"] + 1 if s["i"] < 2 else 0}, "rises"),
        (ItemDeadline(seconds=3, key=lambda s: s["i"]), stuck, "item_deadline"),
    ],
)
async def test_it_routes_a_run_that_goes_wrong(
    check: Any, work: Any, reason: str, new_store: Callable[[str], Store]
) -> None:
    ticks = iter(range(100))
    async with new_store("memory").open() as saver:
        node = watchdog_node([check], on_problem=leave, clock=lambda: next(ticks))
        graph = watched(work, node).compile(checkpointer=saver)
        found = graph.invoke({"i": 0}, AT, interrupt_after=["look"])
        while "problem" not in found:  # its memory is in the state: any process may go on
            found = graph.invoke(None, AT, interrupt_after=["look"])
        assert found["problem"] == reason


async def test_a_healthy_run_passes_it(new_store: Callable[[str], Store]) -> None:
    async with new_store("memory").open() as saver:
        checks = [NoProgress(project=lambda s: s["i"], supersteps=1), Invariant("rises", lambda a, b: b["i"] > a["i"])]
        graph = watched(lambda s: {"i": s["i"] + 1}, watchdog_node(checks), until=50)
        assert graph.compile(checkpointer=saver).invoke({"i": 0}, AT)["i"] == 50


async def test_it_asks_a_human_once(new_store: Callable[[str], Store]) -> None:
    async with new_store("memory").open() as saver:
        check = NoProgress(project=lambda s: s["i"], supersteps=2)
        graph = watched(stuck, watchdog_node([check], on_problem="interrupt")).compile(checkpointer=saver)
        for given in ({"i": 0}, Command(resume="go on")):
            (asked,) = graph.invoke(given, AT)["__interrupt__"]
            assert asked.value["reason"] == "no_progress"


async def test_a_watchdog_around_the_graph_does_what_a_node_asks(new_store: Callable[[str], Store]) -> None:
    tries: list[int] = []

    def work(state: State) -> State:
        tries.append(state["i"])
        return {"i": state["i"] + 1} if len(tries) > 3 else {}

    async with new_store("memory").open() as saver:
        node = watchdog_node([NoProgress(project=lambda s: s["i"], supersteps=2)])
        graph = watched(work, node).compile(checkpointer=saver)
        with pytest.raises(RollbackRequested):
            graph.invoke({"i": 0}, AT)
        assert Watchdog(graph, policy=POLICY).invoke(None, AT)["i"] == 3
        forks = list(graph.get_state_history(AT, filter={"statekit_op": "rollback"}))
        assert [fork.metadata["statekit_reason"] for fork in forks] == ["no_progress"]


async def test_a_rollback_node_names_its_target(new_store: Callable[[str], Store]) -> None:
    asked: list[int] = []

    def work(state: State) -> State:
        return {"i": state["i"] + 1}

    def route(state: State) -> str:
        if state["i"] == 2 and not asked:
            asked.append(2)
            return "back"
        return "work" if state["i"] < 4 else END

    async with new_store("memory").open() as saver:
        graph = StateGraph(State)
        graph.add_node("work", work)
        graph.add_node("back", rollback_node("lost", target="parent", item=lambda state: state["i"]))
        graph.add_edge(START, "work")
        graph.add_conditional_edges("work", route, ["work", "back", END])
        compiled = graph.compile(checkpointer=saver)
        assert Watchdog(compiled, policy=POLICY).invoke({"i": 0}, AT)["i"] == 4
        (fork,) = compiled.get_state_history(AT, filter={"statekit_op": "rollback"})
        assert fork.values["i"] == 1 and fork.metadata["statekit_item"] == "2"


async def test_an_error_handler_has_what_failed_rolled_back(new_store: Callable[[str], Store]) -> None:
    tries: list[int] = []

    def work(state: State) -> State:
        tries.append(state["i"])
        if len(tries) < 5:
            raise ConnectionError("no answer")
        return {"i": state["i"] + 1}

    async with new_store("memory").open() as saver:
        graph = StateGraph(State)
        retry = RetryPolicy(max_attempts=2, initial_interval=0.001)
        graph.add_node("work", work, retry_policy=retry, error_handler=error_handler(item=lambda state: state["i"]))
        graph.add_edge(START, "work")
        graph.add_edge("work", END)
        compiled = graph.compile(checkpointer=saver)
        with pytest.raises(GaveUp, match=r"node 'work' raised ConnectionError: no answer \(attempts made: 1\)"):
            Watchdog(compiled, policy=Rollback(max_attempts=1, backoff=Backoff(first_s=0))).invoke({"i": 0}, AT)
        assert Watchdog(compiled, policy=POLICY).invoke(None, AT)["i"] == 1


def test_wrong_use_says_what_to_do() -> None:
    for wrong, why in (
        (lambda: watchdog_node([3]), "sequence of functions"),  # type: ignore[list-item]
        (lambda: watchdog_node([], on_problem="stop"), "on_problem is"),  # type: ignore[arg-type]
        (lambda: error_handler("stop"), "on_problem is"),  # type: ignore[arg-type]
        (lambda: rollback_node(target="there"), "the target is one of"),  # type: ignore[arg-type]
    ):
        with pytest.raises(Misuse, match=why):
            wrong()
