"""A loop over items to watch, and what goes wrong with it."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_statekit import StatekitSaver
from langgraph_statekit.events import Event, Found, GivenUp, RolledBack
from langgraph_statekit.watchdog.checks import Budget, Invariant, ItemDeadline, NodeDeadline, NoProgress
from langgraph_statekit.watchdog.policy import Backoff

AT: RunnableConfig = {"configurable": {"thread_id": "t"}, "recursion_limit": 3000}
NOW = Backoff(first_s=0)
QUICK: dict[str, Any] = {"every_s": 0.01, "grace_s": 0.01}


class State(TypedDict, total=False):
    i: int
    done: Annotated[list[str], operator.add]
    asked: str


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def ask(state: State) -> Command[Any]:
    return Command(goto=END, update={"asked": interrupt("what now?")})


def looped(saver: StatekitSaver, work: Any, items: int = 4) -> Any:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("ask", ask)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["i"] < items else END, ["work", END])
    return graph.compile(checkpointer=saver)


def step(state: State) -> State:
    return {"i": state["i"] + 1, "done": [f"item {state['i']}"]}


async def astep(state: State) -> State:
    return step(state)


class Hanging:
    """A node that hangs at an item, so many times, and lets the clock run on when it does."""

    def __init__(self, item: int, times: int, clock: Clock) -> None:
        self.item, self.left, self.clock = item, times, clock
        self.calls: list[int] = []

    async def __call__(self, state: State) -> State:
        self.calls.append(state["i"])
        if state["i"] == self.item and self.left:
            self.left -= 1
            self.clock.now_s += 100
            await asyncio.Event().wait()
        return step(state)


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events if isinstance(event, Found | RolledBack | GivenUp)]


def deadline(clock: Clock, **more: Any) -> dict[str, Any]:
    check = ItemDeadline(seconds=50, key=lambda values: values["i"])
    return {"checks": [check], "clock": clock, **QUICK, **more}


def healthy() -> list[Any]:
    """Return checks that a loop that is well passes."""
    return [
        ItemDeadline(seconds=60, key=lambda values: values["i"]),
        NodeDeadline({"work": 60}, default=60),
        NoProgress(project=lambda values: values["i"], supersteps=2, seconds=60),
        Invariant("i_rises", lambda before, after: after.get("i", 0) >= before.get("i", 0)),
        Budget(seconds=600),
    ]
