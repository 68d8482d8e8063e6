"""What does it cost to watch a run that is well, and many that wait?"""

from __future__ import annotations

import asyncio  # noqa: TID251
from statistics import median
from time import perf_counter, process_time
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph

from benchmarks.bench import Bench, Numbers, check
from benchmarks.state import config

FULL = {"steps": 1_000, "rounds": 11, "threads": 100, "idle_s": 10}
QUICK = {"steps": 30, "rounds": 1, "threads": 5, "idle_s": 1}
REPEATS = 1
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
        ours = bench.of.group == "ours"
        numbers = await _compared(bench, saver.saver, "", advance)
        if ours:
            numbers |= await _compared(bench, saver.saver, "effect_", _with_an_effect(saver.saver))
        latest = await saver.get(config(" plain 0"))
        check(latest.checkpoint["channel_values"]["count"] == steps, "the state is not what was counted")
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
    return {**numbers, "idle_core": used / idle_s}


def _with_an_effect(saver: Any) -> Any:
    from langgraph_statekit import EffectLedger

    effects = EffectLedger(saver)

    async def change(state: _State, config: RunnableConfig) -> _State:
        count = await effects.arun(f"count {state['count']}", _next, state["count"], config=config)
        return {"count": count}

    return change


def _next(count: int) -> int:
    return count + 1


async def _compared(bench: Bench, saver: Any, prefix: str, work: Any) -> Numbers:
    """Return what runs take, watched and not; ratios are of a round, so that slow minutes touch both."""
    graph = _graph(saver, bench.size["steps"], work)
    taken: dict[str, list[float]] = {"plain": [], "watched": []}
    worked: dict[str, list[float]] = {"plain": [], "watched": []}
    for number in range(-1, bench.size["rounds"]):
        runs = [("plain", graph), ("watched", _watched(bench, graph))]
        for name, app in reversed(runs) if number % 2 else runs:
            at: Any = {**config(f"{prefix} {name} {number}"), "recursion_limit": bench.size["steps"] + 10}
            started, working = perf_counter(), process_time()
            after = await app.ainvoke({"count": 0}, at, durability="sync")
            if number >= 0:  # the first round warms up
                taken[name].append(perf_counter() - started)
                worked[name].append(process_time() - working)
            check(after == {"count": bench.size["steps"]}, f"{name}: wrong state")

    def ratio(of: dict[str, list[float]]) -> float:
        return median(watched / plain for plain, watched in zip(of["plain"], of["watched"], strict=True))

    return {
        f"{prefix}plain_s": median(taken["plain"]),
        f"{prefix}watched_s": median(taken["watched"]),
        f"{prefix}ratio": ratio(taken),
        f"{prefix}cpu_ratio": ratio(worked),
    }
