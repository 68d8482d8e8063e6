"""What does it cost to watch a run that is well, and many that wait?"""

from __future__ import annotations

import asyncio  # noqa: TID251
from time import perf_counter, process_time
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks.bench import Bench, Numbers, check
from benchmarks.state import config

FULL = {"steps": 1_000, "rounds": 3, "threads": 100, "idle_s": 10}
QUICK = {"steps": 30, "rounds": 1, "threads": 5, "idle_s": 1}
MODES = ("async",)
ONLY_OURS = True


class _State(TypedDict, total=False):
    count: int


def _graph(saver: Any, steps: int, work: Any) -> Any:
    builder = StateGraph(_State)
    builder.add_node("work", work)
    builder.add_edge(START, "work")
    builder.add_conditional_edges("work", lambda state: "work" if state["count"] < steps else END, ["work", END])
    return builder.compile(checkpointer=saver)


def _watched(bench: Bench, graph: Any) -> Any:
    if bench.of.group != "ours":
        return graph  # no other saver can fence off a run
    from langgraph_statekit import Watchdog

    return Watchdog(graph, checks=_checks())


def _checks() -> list[Any]:
    from langgraph_statekit import Budget, Cycle, Invariant, ItemDeadline, NodeDeadline, NoProgress

    return [
        ItemDeadline(seconds=300, key=lambda values: values["count"]),
        NodeDeadline({"work": 60}, default=600),
        NoProgress(project=lambda values: values["count"]),
        Cycle(project=lambda values: values["count"]),
        Invariant("count rises", lambda before, after: after.get("count", 0) >= before.get("count", 0)),
        Budget(seconds=86_400),
    ]


async def run(bench: Bench) -> Numbers:
    steps, threads, idle_s = bench.size["steps"], bench.size["threads"], bench.size["idle_s"]

    async def advance(state: _State) -> _State:
        return {"count": state["count"] + 1}

    async with bench.open() as saver:
        graph = _graph(saver.saver, steps, advance)
        at: Any = {**config("first"), "recursion_limit": steps + 10}
        await graph.ainvoke({"count": 0}, at, durability="sync")
        latest = await saver.get(config("first"))
        check(latest.checkpoint["channel_values"]["count"] == steps, "the state is not what was counted")
        dog = _watched(bench, graph)
        taken: dict[str, list[float]] = {"plain": [], "watched": []}
        worked: dict[str, list[float]] = {"plain": [], "watched": []}
        for number in range(bench.size["rounds"]):
            for name, app in (("plain", graph), ("watched", dog)):
                at = {**config(f"{name} {number}"), "recursion_limit": steps + 10}
                started, working = perf_counter(), process_time()
                after = await app.ainvoke({"count": 0}, at, durability="sync")
                taken[name].append(perf_counter() - started)
                worked[name].append(process_time() - working)
                check(after == {"count": steps}, f"{name}: wrong state")
        begun, go = 0, asyncio.Event()

        async def wait(state: _State) -> _State:
            nonlocal begun
            begun += 1
            await go.wait()
            return {"count": steps}

        waiting = _watched(bench, _graph(saver.saver, steps, wait))
        runs = [
            asyncio.create_task(waiting.ainvoke({"count": 0}, config(f"idle {number}"))) for number in range(threads)
        ]
        while begun < threads:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)  # what the start left to do is done
        used = process_time()
        await asyncio.sleep(idle_s)
        used = process_time() - used
        go.set()
        await asyncio.gather(*runs)
    plain, watched = min(taken["plain"]), min(taken["watched"])
    return {
        "plain_s": plain,
        "watched_s": watched,
        "ratio": watched / plain,
        "cpu_ratio": min(worked["watched"]) / min(worked["plain"]),
        "idle_core": used / idle_s,
    }
