"""What an attempt asked that was left is not asked of the caller."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from langgraph_statekit import Watchdog, open_saver
from langgraph_statekit.watchdog.checks import NodeDeadline
from langgraph_statekit.watchdog.policy import Action, Backoff, Rollback, Skip
from langgraph_statekit.watchdog.view import Finding


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def _retried(finding: Finding, attempt: int) -> Action:
    return Rollback(to="retry_head", backoff=Backoff(first_s=0))(finding, attempt)


def _skipped(finding: Finding, attempt: int) -> Action:
    return Skip("end", {"log": ["skipped"]})


@pytest.mark.parametrize(("policy", "asked"), [(_retried, 1), (_skipped, 0)])
async def test_what_an_attempt_asked_that_was_left_is_asked_no_more(policy: Any, asked: int) -> None:
    hung: list[bool] = []

    async def ask(state: State) -> State:
        return {"log": [interrupt("what now?")]}

    async def slow(state: State) -> State:
        if not hung:
            hung.append(True)
            await asyncio.Event().wait()
        return {"log": ["slow"]}

    async def end(state: State) -> State:
        return {"log": ["end"]}

    graph = StateGraph(State)
    for node in (ask, slow):
        graph.add_node(node)
        graph.add_edge(START, node.__name__)
    graph.add_node("end", end)
    graph.add_edge(["ask", "slow"], "end")
    with open_saver("memory://") as saver:
        app = graph.compile(checkpointer=saver)
        dog = Watchdog(app, checks=[NodeDeadline(default=0.2)], policy=policy, every_s=0.05, grace_s=0.1)
        after = await dog.ainvoke({"log": []}, {"configurable": {"thread_id": "t"}})
    assert len(after.get("__interrupt__", ())) == asked
