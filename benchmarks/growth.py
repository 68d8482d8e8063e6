"""Do the bytes and the time of a turn stay the same while a chat grows?"""

from __future__ import annotations

from statistics import median
from time import perf_counter

from benchmarks.bench import Bench, Numbers, check, p50_ms
from benchmarks.state import chat, chat_graph, config, message

FULL = {"marks": 3, "window": 20, "mark 1": 200, "mark 2": 1_000, "mark 3": 2_000}
QUICK = {"marks": 3, "window": 2, "mark 1": 4, "mark 2": 8, "mark 3": 12}
MODES = ("sync",)
REPEATS = 1
ONLY_OURS = True
BASE = False


async def run(bench: Bench) -> Numbers:
    numbers: Numbers = {}
    window, done = bench.size["window"], 0
    async with bench.open() as saver:
        app = chat_graph().compile(checkpointer=saver.saver)
        for index in range(bench.size["marks"]):
            turns = bench.size[f"mark {index + 1}"]
            taken = []
            for turn in range(done, turns):
                started = perf_counter()
                await chat(saver, app, range(turn, turn + 1))
                taken.append(perf_counter() - started)
            done = turns
            numbers[f"turn_ms_{turns}"] = median(taken[-window:]) * 1e3
            numbers[f"read_ms_{turns}"] = await p50_ms(5, lambda: saver.get(config("chat")))
            if stored := bench.stored():
                numbers[f"bytes_per_turn_{turns}"] = stored["stored_bytes"] / turns
    async with bench.open() as saver:
        latest = await saver.get(config("chat"))
        expected = [message(index) for index in range(2 * done)]
        check(latest.checkpoint["channel_values"]["messages"] == expected, "the chat is not what was said")
    return numbers
