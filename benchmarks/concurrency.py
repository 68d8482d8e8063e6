"""How many calls a second are acknowledged when many threads save at the same time?"""

from __future__ import annotations

from functools import partial
from time import perf_counter

from benchmarks.bench import Bench, Numbers, check
from benchmarks.state import PIECES, Thread, config

FULL = {"tasks": 64, "saves": 15}
QUICK = {"tasks": 8, "saves": 3}
FLOOR = True


async def run(bench: Bench) -> Numbers:
    tasks, saves = bench.size["tasks"], bench.size["saves"]
    taken: list[float] = []

    async def work(thread: Thread, number: int) -> None:
        for step in range(saves):
            change = {"count": step, "note": PIECES[(number + step) % len(PIECES)]}
            started = perf_counter()
            await thread.write(change)
            between = perf_counter()
            await thread.put(change)
            taken.extend((between - started, perf_counter() - between))

    async with bench.open() as saver:
        threads = [Thread(saver, f"task {number}") for number in range(tasks)]
        await saver.together([partial(thread.put, {"count": -1}) for thread in threads])
        started = perf_counter()
        await saver.together([partial(work, thread, number) for number, thread in enumerate(threads)])
        wall_s = perf_counter() - started
    async with bench.open() as saver:
        for number, thread in enumerate(threads):
            found = await saver.list(config(f"task {number}"))
            check(len(found) == saves + 1, f"{len(found)} checkpoints of {saves + 1} are listed")
            check(found[0].checkpoint["channel_values"] == thread.values, "a latest state is wrong")
            check([len(item.pending_writes or ()) for item in found] == [0, *[2] * saves], "writes are missing")
    p99 = sorted(taken)[len(taken) * 99 // 100]
    return {"calls_per_s": len(taken) / wall_s, "p99_ms": p99 * 1e3}
