"""What does it cost to read the latest checkpoint, and does that depend on the thread's length?"""

from __future__ import annotations

from functools import partial
from statistics import median

from benchmarks.bench import Bench, Numbers, check, p50_ms, timed_ms
from benchmarks.state import Thread, config, message, talk

FULL = {"turns": 200, "reads": 15, "short": 10, "long": 1_000}
QUICK = {"turns": 6, "reads": 3, "short": 5, "long": 30}
THREAD, NOBODY = config("chat"), config("nobody")


async def run(bench: Bench) -> Numbers:
    turns, reads = bench.size["turns"], bench.size["reads"]
    async with bench.open() as saver:
        await talk(Thread(saver, "chat"), turns)
        for name in ("short", "long"):
            thread = Thread(saver, name)
            for step in range(bench.size[name]):
                await thread.advance({"count": step}, writes=False)
    expected = [message(index) for index in range(2 * turns)]
    cold = []
    for _ in range(reads):
        async with bench.open() as saver:
            await saver.get(NOBODY)  # connects, and holds nothing of the thread
            cold.append(await timed_ms(saver.get(THREAD)))
            latest = await saver.get(THREAD)
            check(latest.checkpoint["channel_values"]["messages"] == expected, "the chat is not what was said")
    numbers = {"cold_ms": median(cold)}
    async with bench.open() as saver:
        numbers["warm_ms"] = await p50_ms(reads, lambda: saver.get(THREAD))
        for name in ("short", "long"):
            latest = await saver.get(config(name))
            check(latest.checkpoint["channel_values"] == {"count": bench.size[name] - 1}, f"{name}: wrong state")
            numbers[f"{name}_ms"] = await p50_ms(10 * reads, partial(saver.get, config(name)))
    return numbers
