"""What does a run cost whose subgraphs have many namespaces of their own?"""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from benchmarks.bench import Bench, Numbers, check, p50_ms, timed_ms
from benchmarks.state import PIECES

FULL = {"namespaces": 50, "reads": 10}
QUICK = {"namespaces": 5, "reads": 2}
THREAD = {"configurable": {"thread_id": "namespaces"}}


class State(TypedDict):
    count: int
    seen: Annotated[list[int], operator.add]


class Part(TypedDict):
    number: int
    note: str
    seen: list[int]


def _graph() -> StateGraph[Any, Any, Any, Any]:
    part = StateGraph(Part)
    part.add_node("read", lambda state: {"note": PIECES[state["number"] % len(PIECES)]})
    part.add_node("tell", lambda state: {"seen": [state["number"]]})
    part.add_edge(START, "read")
    part.add_edge("read", "tell")
    part.add_edge("tell", END)
    builder = StateGraph(State)
    builder.add_node("part", part.compile())
    builder.add_conditional_edges(
        START, lambda state: [Send("part", {"number": number}) for number in range(state["count"])], ["part"]
    )
    builder.add_edge("part", END)
    return builder


async def run(bench: Bench) -> Numbers:
    count = bench.size["namespaces"]
    async with bench.open() as saver:
        app = _graph().compile(checkpointer=saver.saver)
        run_ms = await timed_ms(saver.invoke(app, {"count": count, "seen": []}, THREAD))
    stored = bench.stored()
    async with bench.open() as saver:
        latest = await saver.get(THREAD)
        check(latest.checkpoint["channel_values"]["seen"] == [*range(count)], "a subgraph's result is missing")
        found = await saver.list(THREAD)
        names = {item.config["configurable"]["checkpoint_ns"] for item in found}
        check(len(names) == count + 1, f"{len(names)} namespaces of {count + 1} are listed")
        for name in sorted(names - {""})[:5]:
            at = {"configurable": {**THREAD["configurable"], "checkpoint_ns": name}}
            values = (await saver.get(at)).checkpoint["channel_values"]
            check(values["note"] == PIECES[values["number"] % len(PIECES)], "a subgraph's state is wrong")
        return {
            "run_ms": run_ms,
            "list_ms": await p50_ms(bench.size["reads"], lambda: saver.list(THREAD)),
            **stored,
        }
