"""What does a chat cost in time, and how many bytes does it leave behind?"""

from __future__ import annotations

from time import perf_counter

from benchmarks.bench import Bench, Numbers
from benchmarks.state import chat, chat_graph, check_chat

FULL = {"turns": 200}
QUICK = {"turns": 6}
FLOOR = True


async def run(bench: Bench) -> Numbers:
    turns = bench.size["turns"]
    async with bench.open() as saver:
        app = chat_graph().compile(checkpointer=saver.saver)
        started = perf_counter()
        await chat(saver, app, range(turns))
        wall_s = perf_counter() - started
    stored = bench.stored()
    await check_chat(bench, turns)
    return {"wall_s": wall_s, **stored}
