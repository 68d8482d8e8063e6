"""What does a step cost when only each fifth, or each twenty-fifth, is stored?"""

from __future__ import annotations

from time import perf_counter
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks.bench import Bench, Face, Numbers, check
from benchmarks.state import config, text

FULL = {"steps": 200}
QUICK = {"steps": 12}
ONLY_OURS = True
BASE = False


class State(TypedDict):
    count: int
    note: str


def _loop(steps: int) -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(State)
    builder.add_node("work", lambda state: {"count": state["count"] + 1, "note": text(state["count"] * 400, 4_000)})
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: END if state["count"] == steps else "work", ["work", END])
    return builder


async def run(bench: Bench) -> Numbers:
    from langgraph_statekit import Sampled  # other savers run where this package is not

    numbers: Numbers = {}
    steps = bench.size["steps"]
    async with bench.open() as saver:
        for every in (0, 1, 5, 25):
            face = Face(Sampled(saver.saver, every=every), bench.mode) if every else saver
            thread = f"every {every}" if every else "all"
            at = {**config(thread), "recursion_limit": steps + 10}
            started = perf_counter()
            await face.invoke(_loop(steps).compile(checkpointer=face.saver), {"count": 0, "note": ""}, at)
            name = f"every_{every}" if every else "plain"
            numbers[f"{name}_step_ms"] = (perf_counter() - started) / steps * 1e3
            found = await saver.list(config(thread))
            numbers[f"{name}_checkpoints"] = len(found)
            values = found[0].checkpoint["channel_values"]
            last = {"count": steps, "note": text((steps - 1) * 400, 4_000)}
            check({key: values[key] for key in last} == last, "the last step is not what was made")
    return numbers
