"""What does one changed key of a large value cost?"""

from __future__ import annotations

from time import perf_counter

from benchmarks.bench import Bench, Numbers, check
from benchmarks.state import Thread, config, text

FULL = {"keys": 5_000, "size_bytes": 1_000, "steps": 20}
QUICK = {"keys": 50, "size_bytes": 1_000, "steps": 3}
FLOOR = True
ONLY_OURS = True
REPEATS = 1


async def run(bench: Bench) -> Numbers:
    keys, size_bytes, steps = bench.size["keys"], bench.size["size_bytes"], bench.size["steps"]
    document = {f"key {index}": text(997 * index, size_bytes) for index in range(keys)}
    async with bench.open() as saver:
        thread = Thread(saver, "big")
        await thread.put({"document": document})
        first = bench.stored()
        started = perf_counter()
        for step in range(steps):
            document = {**document, f"key {(step * 2_357) % keys}": text(step + 1, size_bytes)}
            await thread.put({"document": document})
        wall_s = perf_counter() - started
    stored = bench.stored()
    async with bench.open() as saver:
        found = await saver.list(config("big"), limit=2)
        check(found[0].checkpoint["channel_values"] == {"document": document}, "the latest state is wrong")
        earlier = found[1].checkpoint["channel_values"]["document"]
        check(earlier.keys() == document.keys() and earlier != document, "the state before it is wrong")
    numbers = {"wall_s": wall_s, "step_ms": wall_s / steps * 1e3}
    if stored:
        numbers["bytes_per_step"] = (stored["stored_bytes"] - first["stored_bytes"]) / steps
    return numbers
