"""What do the guards of a long-lived thread cost a put: its lease, and the retention that keeps it short?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.bench import Bench, Numbers, check
from benchmarks.state import Thread, config, message

FULL = {"puts": 1_000, "keep_last": 100}
QUICK = {"puts": 60, "keep_last": 5}
ONLY_OURS = True
BASE = False


async def run(bench: Bench) -> Numbers:
    return {**await _lease(bench), **await _retention(bench)}


async def _lease(bench: Bench) -> Numbers:
    """Return the milliseconds of a put without and with a lease, made in turns."""
    async with bench.open() as saver:
        held: Any = saver.saver.lease("leased", ttl_s=600) if hasattr(saver.saver, "lease") else nullcontext()
        with held as lease:
            threads = {"put_ms": Thread(saver, "free"), "leased_put_ms": Thread(saver, "leased")}
            if lease is not None:
                threads["leased_put_ms"].config["configurable"] |= lease.config["configurable"]
            taken = await _puts(threads, bench.size["puts"])
        await _check(saver, threads)
    return {name: median(times) * 1e3 for name, times in taken.items()}


async def _retention(bench: Bench) -> Numbers:
    """Return the mean milliseconds of a put without and with retention, passes included, made in turns."""
    keep_last = bench.size["keep_last"]
    options: dict[str, Any] = {}
    if bench.of.group == "ours":
        from langgraph_statekit import Retention  # other savers run where this package is not

        options["retention"] = Retention(keep_last=keep_last)
    async with bench.open() as plain, bench.open(**options) as keeping:
        threads = {"growing_put_ms": Thread(plain, "growing"), "retained_put_ms": Thread(keeping, "kept short")}
        taken = await _puts(threads, bench.size["puts"])
        await _check(plain, threads)
        left = len(await plain.list(config("kept short")))
    check(not options or keep_last <= left <= 5 / 3 * keep_last + 16, f"{left} checkpoints are left of {keep_last}")
    return {name: sum(times) / len(times) * 1e3 for name, times in taken.items()}


async def _puts(threads: dict[str, Thread], count: int) -> dict[str, list[float]]:
    """Store a chat on each thread, one put after the other, and return the seconds of each put."""
    taken: dict[str, list[float]] = {name: [] for name in threads}
    changes = {name: _chat() for name in threads}
    for _ in range(count):
        for name, thread in threads.items():
            change = next(changes[name])
            started = perf_counter()
            await thread.put(change)
            taken[name].append(perf_counter() - started)
    return taken


def _chat() -> Iterator[dict[str, Any]]:
    """Yield what the checkpoints of a chat change: five a turn, of which two have a new message."""
    said: list[Any] = []
    while True:
        yield {"turn": len(said)}
        for _ in range(2):
            said = [*said, message(len(said))]
            yield {"messages": said}
            yield {"turn": len(said)}


async def _check(saver: Any, threads: dict[str, Thread]) -> None:
    for thread in threads.values():
        name = thread.config["configurable"]["thread_id"]
        latest = await saver.get(config(name))
        check(latest is not None and latest.checkpoint["channel_values"] == thread.values, f"{name} is wrong")
