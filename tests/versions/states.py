"""Three versions of one state and its graph, as three releases of an application have them."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from langgraph_statekit import migrates, state_version


class First(TypedDict, total=False):
    euros: int
    log: Annotated[list[Any], operator.add]


@migrates(from_=1)
def in_cents(state: dict[str, Any]) -> dict[str, Any]:
    if "euros" in state:
        state["cents"] = state.pop("euros") * 100
    return state


@state_version(2, in_cents)
class Second(TypedDict, total=False):
    cents: int
    log: Annotated[list[Any], operator.add]


@migrates(from_=2)
def log_entries(state: dict[str, Any]) -> dict[str, Any]:
    state["log"] = [{"text": each} for each in state.get("log", [])]
    return state


@state_version(3, in_cents, log_entries)
class Third(TypedDict, total=False):
    cents: int
    log: Annotated[list[Any], operator.add]


def chain(state: Any, key: str, *, failing: bool = False) -> StateGraph[Any]:
    """Return two nodes that add 1 to a key; the second fails if asked to."""

    def second(values: Any) -> Any:
        if failing:
            raise ConnectionError("cut off")
        return {key: values[key] + 1}

    graph = StateGraph(state)
    graph.add_node("a", lambda values: {key: values[key] + 1})
    graph.add_node("b", second)
    return graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", END)


def question(state: Any, entry: Any, ran: list[str] | None = None, name: str = "ask") -> StateGraph[Any]:
    """Return a question to a human beside a node that finishes and logs an entry, then a last node."""
    graph = StateGraph(state)

    def side(_: Any) -> Any:
        if ran is not None:
            ran.append("side")
        return {"log": [entry]}

    graph.add_node(name, lambda _: {"log": [interrupt("approve?")]})
    graph.add_node("side", side)
    graph.add_node("last", lambda _: {"log": ["last"]})
    graph.add_edge(START, name).add_edge(START, "side")
    return graph.add_edge([name, "side"], "last").add_edge("last", END)
