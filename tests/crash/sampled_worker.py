"""A process that works through numbered items under a sampled saver, to be killed at any moment.

python -m tests.crash.sampled_worker URL OPTIONS-AS-JSON THREAD ITEMS EFFECTS-FILE EVERY BREAK
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from langgraph_statekit import Sampled
from tests.faces import LONG, config
from tests.stores_under_test import open_here


class State(TypedDict, total=False):
    done: list[int]
    note: str


def graph(items: int, effects: Path) -> StateGraph[Any]:
    """Return a loop that notes each item in a file, as an effect in the world, and then in the state."""

    def work(state: State) -> dict[str, Any]:
        item = len(state["done"])
        with effects.open("a") as file:
            file.write(f"{item}\n")
        return {"done": [*state["done"], item], "note": f"{LONG} {item}"}

    built = StateGraph(State)
    built.add_node("work", work)
    built.add_node("last", lambda _: {"note": "done"})
    built.add_edge(START, "work")
    built.add_conditional_edges("work", lambda state: "last" if len(state["done"]) >= items else "work")
    return built.add_edge("last", END)


def main(url: str, options: str, thread: str, items: str, effects: str, every: str, stop: str) -> None:
    """Run until the end or until a breakpoint, and leave without closing anything."""
    saver = Sampled(open_here(url, json.loads(options)), every=int(every), idle_s=600)
    app = graph(int(items), Path(effects)).compile(checkpointer=saver, interrupt_before=[stop] if stop else [])
    at: Any = {**config(thread), "recursion_limit": int(items) + 10}
    started = app.get_state(at).created_at is not None
    app.invoke(None if started else {"done": []}, at, durability="sync")


if __name__ == "__main__":
    main(*sys.argv[1:])
