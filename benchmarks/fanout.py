"""What does a superstep of many parallel tasks cost?"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.bench import Bench, Numbers, check, p50_ms
from benchmarks.state import PIECES, config

FULL = {"tasks": 100, "runs": 5}
QUICK = {"tasks": 10, "runs": 2}
ON_OBJECTS = True


class State(TypedDict):
    tasks: int
    seen: Annotated[list[tuple[int, str]], operator.add]


def _graph() -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(State)
    builder.add_node("work", lambda task: {"seen": [(task["number"], PIECES[task["number"] % len(PIECES)])]})
    builder.add_conditional_edges(
        START, lambda state: [Send("work", {"number": number}) for number in range(state["tasks"])], ["work"]
    )
    builder.add_edge("work", END)
    return builder


async def run(bench: Bench) -> Numbers:
    tasks, runs = bench.size["tasks"], bench.size["runs"]
    names = iter(range(runs + 1))
    expected = [(number, PIECES[number % len(PIECES)]) for number in range(tasks)]
    async with bench.open() as saver:
        app = _graph().compile(checkpointer=saver.saver)

        async def once() -> None:
            await saver.invoke(app, {"tasks": tasks, "seen": []}, config(f"fanout {next(names)}"))

        await once()  # connections open when they are first needed
        run_ms = await p50_ms(runs, once)
    stored = bench.stored()
    async with bench.open() as saver:
        for name in range(runs + 1):
            latest = await saver.get(config(f"fanout {name}"))
            seen = [tuple(item) for item in latest.checkpoint["channel_values"]["seen"]]
            check(seen == expected, f"{len(seen)} of {tasks} tasks have left their result")
    return {"run_ms": run_ms, **stored}
