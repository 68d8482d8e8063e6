"""What does a step cost that changes one of many large channels?"""

from __future__ import annotations

from time import perf_counter

from benchmarks.bench import Bench, Numbers, check
from benchmarks.state import Thread, config, text

FULL = {"channels": 20, "size_bytes": 50_000, "steps": 100}
QUICK = {"channels": 5, "size_bytes": 5_000, "steps": 10}
FLOOR = True


async def run(bench: Bench) -> Numbers:
    channels, size_bytes, steps = bench.size["channels"], bench.size["size_bytes"], bench.size["steps"]
    changes = [{f"channel {step % channels}": text(7919 * (step + channels), size_bytes)} for step in range(steps)]
    async with bench.open() as saver:
        thread = Thread(saver, "wide")
        started = perf_counter()
        await thread.put({f"channel {index}": text(7919 * index, size_bytes) for index in range(channels)})
        for change in changes:
            await thread.advance(change)
        wall_s = perf_counter() - started
    stored = bench.stored()
    async with bench.open() as saver:
        latest = await saver.get(config("wide"))
    check(latest is not None and latest.checkpoint["channel_values"] == thread.values, "the latest state is wrong")
    return {"wall_s": wall_s, **stored}
