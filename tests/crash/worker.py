"""A process that works through numbered items, one a step, to be killed at any moment.

python -m tests.crash.worker URL OPTIONS-AS-JSON THREAD ITEMS EFFECTS-FILE
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph

from tests.faces import LONG, config
from tests.graphs.builders import _fold
from tests.stores_under_test import open_here


class State(TypedDict, total=False):
    done: Annotated[list[int], DeltaChannel(_fold, snapshot_frequency=10)]
    last: int
    note: str


def graph(items: int, effects: Path) -> StateGraph[Any]:
    """Return a loop that notes each item in a file, as an effect in the world, and then in the state."""

    def work(state: State) -> dict[str, Any]:
        item = state.get("last", -1) + 1
        with effects.open("a") as file:
            file.write(f"{item}\n")
        return {"done": [item], "last": item, "note": f"{LONG} {item}"}

    built = StateGraph(State)
    built.add_node("work", work)
    built.add_edge(START, "work")
    built.add_conditional_edges("work", lambda state: END if state["last"] >= items - 1 else "work", ["work", END])
    return built


def main(url: str, options: str, thread: str, items: str, effects: str) -> None:
    with open_here(url, json.loads(options)) as saver:
        app = graph(int(items), Path(effects)).compile(checkpointer=saver)
        at: Any = {**config(thread), "recursion_limit": int(items) + 10}
        started = app.get_state(at).created_at is not None
        app.invoke(None if started else {"done": []}, at, durability="sync")


if __name__ == "__main__":
    main(*sys.argv[1:])
