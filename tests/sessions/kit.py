"""A manager's sync methods under async names, and a graph that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from langgraph_statekit import SessionManager
from langgraph_statekit.checkpoint.saver import StatekitSaver


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def echo(state: Chat) -> dict[str, Any]:
    text = str(state["messages"][-1].content)
    if text == "ask":
        text = f"answered {interrupt('sure?')}"
    return {"messages": [AIMessage(f"you said {text}")]}


def chat(saver: StatekitSaver, answer: Callable[[Chat], Any] = echo) -> Any:
    """Return a graph that answers each message with one of its own."""
    return StateGraph(Chat).add_node("answer", answer).add_edge(START, "answer").compile(checkpointer=saver)


async def eventually(holds: Callable[[], Any]) -> None:
    """Let the loop turn until something holds, or an awaited check of it does."""
    while not (holds() if not iscoroutinefunction(holds) else await holds()):  # noqa: ASYNC110  (any condition)
        await asyncio.sleep(0.001)


def says(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


class SyncTurn:
    """A turn through its sync methods, within a coroutine."""

    def __init__(self, turn: Any) -> None:
        self._turn = turn

    async def __aenter__(self) -> Any:
        return self._turn.__enter__()

    async def __aexit__(self, *error: Any) -> None:
        self._turn.__exit__(*error)


class SyncSessions:
    """Shows sync methods as async ones; they run in the thread of the running loop, as in a notebook."""

    def __init__(self, manager: SessionManager) -> None:
        self.manager = manager

    def __getattr__(self, name: str) -> Any:
        sync = getattr(self.manager, name.removeprefix("a"))

        async def call(*args: Any, **options: Any) -> Any:
            return sync(*args, **options)

        return call

    def turn(self, *args: Any, **options: Any) -> SyncTurn:
        return SyncTurn(self.manager.turn(*args, **options))
