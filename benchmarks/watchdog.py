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

FULL = {"steps": 1_000, "rounds": 6, "threads": 100, "idle_s": 10}
QUICK = {"steps": 30, "rounds": 1, "threads": 5, "idle_s": 1}
REPEATS = 1
MODES = ("async",)
ONLY_OURS = True
TURN = 20
"""Steps after which the other one of two runs goes on."""


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

    async def advance(state: _State, config: RunnableConfig) -> _State:
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
    """Return what runs take, watched and not; both go on by turns of a few steps, so that slow minutes touch both."""
    steps = bench.size["steps"]
    ratios, cpu_ratios, taken = [], [], []
    for number in range(-1, bench.size["rounds"]):
        turns, watched = _Turns(), number % 2
        plain = 1 - watched  # whose turn is first has a little more to do
        apps = [_graph(saver, steps, turns.of(side, work)) for side in turns.sides]
        apps[watched] = _watched(bench, apps[watched])
        names = ("watched", "plain") if plain else ("plain", "watched")
        results = [
            turns.run(
                side, app.ainvoke({"count": 0}, _at(f"{prefix} {names[side]} {number}", steps), durability="sync")
            )
            for side, app in enumerate(apps)
        ]
        for after in await asyncio.gather(*results):
            check(after == {"count": steps}, "wrong state")
        if number >= 0:  # the first round warms up
            taken.append((turns.taken_s[plain], turns.taken_s[watched]))
            ratios.append(turns.taken_s[watched] / turns.taken_s[plain])
            cpu_ratios.append(turns.worked_s[watched] / turns.worked_s[plain])
    return {
        f"{prefix}plain_s": median(both[0] for both in taken),
        f"{prefix}watched_s": median(both[1] for both in taken),
        f"{prefix}ratio": median(ratios),
        f"{prefix}cpu_ratio": median(cpu_ratios),
    }


def _at(thread: str, steps: int) -> Any:
    return {**config(thread), "recursion_limit": steps + 10}


class _Turns:
    """Two runs, of which one works at a time.

    Attributes:
        taken_s: Seconds of each.
        worked_s: Seconds of the process's CPU of each.
    """

    sides = (0, 1)

    def __init__(self) -> None:
        self.taken_s, self.worked_s = [0.0, 0.0], [0.0, 0.0]
        self._gates = [asyncio.Event(), asyncio.Event()]
        self._gates[0].set()
        self._over = [False, False]
        self._since = perf_counter(), process_time()

    def of(self, side: int, work: Any) -> Any:
        """Return a node that works as the given one, and gives its turn away now and then."""

        async def node(state: _State, config: RunnableConfig) -> _State:
            if state["count"] % TURN == TURN - 1:
                self._end(side)
                await self._begin(side)
            after: _State = await work(state, config)
            return after

        return node

    async def run(self, side: int, running: Any) -> Any:
        """Run one of the two."""
        await self._begin(side)
        result = await running
        self._over[side] = True
        self._end(side)
        return result

    async def _begin(self, side: int) -> None:
        await self._gates[side].wait()
        self._since = perf_counter(), process_time()

    def _end(self, side: int) -> None:
        self.taken_s[side] += perf_counter() - self._since[0]
        self.worked_s[side] += process_time() - self._since[1]
        if not self._over[1 - side]:
            self._gates[side].clear()
            self._gates[1 - side].set()
