"""A graph that other processes make too: where its store is and what its nodes do, the environment says."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from langgraph_statekit import heartbeat, open_saver

PLACE = "STATEKIT_TEST_APP"
HOOKS: list[Any] = []
"""Hooks of the savers that the process of the tests opens."""


class State(TypedDict, total=False):
    i: int
    done: Annotated[list[str], operator.add]


def tell(place: Path, what: str) -> None:
    with (place / "calls").open("a") as file:
        file.write(f"{what}\n")


def calls(place: Path) -> list[str]:
    return (place / "calls").read_text().splitlines() if (place / "calls").exists() else []


def once(place: Path) -> bool:
    """Say whether this is the first time that an item goes wrong."""
    try:
        (place / "went wrong").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def leave(place: Path) -> None:
    """Fork a process that stays, and keeps an end of a pipe of this folder open."""
    begun, begins = os.pipe()
    if os.fork() == 0:
        held = os.open(place / "left", os.O_WRONLY)
        os.write(held, b"here")
        os.write(begins, b"begun")
        while True:
            signal.pause()
    os.read(begun, 5)


def hang() -> None:
    """Make no graph, and never return."""
    threading.Event().wait()


def done(state: State) -> State:
    return {"i": state["i"] + 1, "done": [f"item {state['i']}"]}


def make() -> Any:
    url, options, kind, folder = json.loads(os.environ[PLACE])
    place = Path(folder)
    if kind == "stillborn" and "pytest" not in sys.modules and once(place):
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "detour" and "pytest" not in sys.modules and (place / "detour").exists() and once(place):
        os.kill(os.getpid(), signal.SIGKILL)

    def goes_wrong(state: State, config: RunnableConfig) -> bool:
        thread = config["configurable"]["thread_id"]
        tell(place, f"{thread} {state['i']}")
        heartbeat(item=f"{thread}/{state['i']}")
        return thread == "bad" and state["i"] == 1 and once(place)

    def sync(state: State, config: RunnableConfig) -> State:
        if goes_wrong(state, config):
            if kind == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "bereft":  # what it has forked holds all that it had open
                leave(place)
                os.kill(os.getpid(), signal.SIGKILL)
            if kind == "leaves":
                leave(place)
                return done(state)
            if kind == "raises":
                heartbeat(note="\ud800")
                raise ValueError("no such item \ud800")
            threading.Event().wait()
        return done(state)

    async def blocking(state: State, config: RunnableConfig) -> State:
        if goes_wrong(state, config):
            threading.Event().wait()
        return done(state)

    async def hanging(state: State, config: RunnableConfig) -> State:
        if goes_wrong(state, config):
            await asyncio.Event().wait()
        return done(state)

    graph = StateGraph(State)
    graph.add_node("work", {"blocking": blocking, "hanging": hanging}.get(kind, sync))
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["i"] < 3 else END, ["work", END])
    hooks = HOOKS if "pytest" in sys.modules else []
    return graph.compile(checkpointer=open_saver(url, **options, hooks=hooks))
