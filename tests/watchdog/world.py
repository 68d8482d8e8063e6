"""A graph over some items that dies, fails, asks or hangs where a test says so, and what it did."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from langgraph_statekit import StatekitSaver

LONG_S = 600


class Died(BaseException):
    """As a SIGKILL: nothing is caught, nothing is given back."""


class State(TypedDict, total=False):
    i: int
    done: Annotated[list[int], operator.add]
    answer: str


class World:
    """A graph over some items, what it did, and where it is to die, fail, wait or hang."""

    def __init__(self, items: int = 6) -> None:
        self.items, self.effects = items, list[int]()
        self.dies: dict[int, int] = {}
        self.fails: dict[int, int] = {}
        self.asks: int | None = None
        self.hangs, self.hung, self.let_go = -1, threading.Event(), threading.Event()

    def work(self, state: State) -> State:
        i = state.get("i", 0)
        if self.dies.get(i, 0):
            self.dies[i] -= 1
            raise Died
        if self.fails.get(i, 0):
            self.fails[i] -= 1
            raise RuntimeError(f"item {i} is bad")
        if self.hangs == i:
            self.hangs = -1
            self.hung.set()
            assert self.let_go.wait(60)
        update: State = {"answer": interrupt("go on?")} if self.asks == i else {}
        self.effects.append(i)
        return {**update, "i": i + 1, "done": [i]}

    def builder(self, node: str = "work") -> StateGraph[State]:
        graph = StateGraph(State)
        graph.add_node(node, self.work)
        graph.add_edge(START, node)
        graph.add_conditional_edges(node, lambda state: node if state["i"] < self.items else END, [node, END])
        return graph

    def graph(self, saver: StatekitSaver, **options: Any) -> Any:
        return self.builder().compile(checkpointer=saver, **options)

    def start(self, saver: StatekitSaver, thread: str = "t", given: Any = (), graph: Any = None, **lease: Any) -> None:
        """Run as a worker that is killed where the world says so: its lease is not given back."""
        held = saver.lease(thread, **{"graph": "shop", "ttl_s": LONG_S, "owner": "worker", **lease})
        try:
            (graph or self.graph(saver)).invoke({"i": 0} if given == () else given, held.config, durability="sync")
        except Died:
            held._keeper.forget(held)
            return
        held.release()
