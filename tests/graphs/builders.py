"""Graphs that the tests run; their nodes are pure, so a run's result is known."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


def _fold(current: list[Any] | None, writes: list[list[Any]]) -> list[Any]:
    return [*(current or []), *(item for write in writes for item in write)]


class DeltaLog(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(_fold, snapshot_frequency=1000)]


class SnapshotLog(TypedDict, total=False):
    log: Annotated[list[Any], DeltaChannel(_fold, snapshot_frequency=2)]


def chain(state: type = Log, *names: str) -> StateGraph[Any]:
    """Return nodes one after the other; each logs its name."""
    graph = StateGraph(state)
    before = START
    for name in names or ("a", "b"):
        graph.add_node(name, lambda _, name=name: {"log": [name]})
        graph.add_edge(before, name)
        before = name
    return graph.add_edge(before, END)


def question(state: type = Log) -> StateGraph[Any]:
    """Return a node, then a question to a human beside a node that finishes, then a last node."""
    graph = StateGraph(state)
    graph.add_node("start", lambda _: {"log": ["start"]})
    graph.add_node("ask", lambda _: {"log": [interrupt("approve?")]})
    graph.add_node("side", lambda _: {"log": ["side"]})
    graph.add_node("last", lambda _: {"log": ["last"]})
    graph.add_edge(START, "start").add_edge("start", "ask").add_edge("start", "side")
    return graph.add_edge(["ask", "side"], "last").add_edge("last", END)


def fan_out(width: int) -> StateGraph[Any]:
    """Return a node that sends work to many tasks at once, and one that counts the results."""
    graph = StateGraph(Log)
    graph.add_node("work", lambda item: {"log": [item["n"]]})
    graph.add_node("count", lambda state: {"log": [f"counted {len(state['log'])}"]})
    graph.add_conditional_edges(START, lambda _: [Send("work", {"n": n}) for n in range(width)], ["work"])
    return graph.add_edge("work", "count").add_edge("count", END)


def nested(state: type = Log) -> StateGraph[Any]:
    """Return a graph with a subgraph that asks a human."""
    graph = StateGraph(state)
    graph.add_node("pre", lambda _: {"log": ["pre"]})
    graph.add_node("inner", question(state).compile())
    graph.add_node("post", lambda _: {"log": ["post"]})
    return graph.add_edge(START, "pre").add_edge("pre", "inner").add_edge("inner", "post").add_edge("post", END)
