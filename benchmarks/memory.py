"""How much memory does a saver take in the process that uses it?"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from benchmarks.bench import Bench, Numbers
from benchmarks.state import chat, chat_graph, check_chat

FULL = {"turns": 200, "threads": 40, "short": 10}
QUICK = {"turns": 3, "threads": 2, "short": 1}
MODES = ("sync",)
ONLY_OURS = True


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run(bench: Bench) -> Numbers:
    turns, threads, short = bench.size["turns"], bench.size["threads"], bench.size["short"]
    async with bench.open() as saver:
        app = chat_graph().compile(checkpointer=saver.saver)
        await chat(saver, app, range(2), "first")
        before = _resident_bytes()
        await chat(saver, app, range(turns))
        after = _resident_bytes()
        for index in range(threads):
            await chat(saver, app, range(short), f"chat {index}")
        end = _resident_bytes()
    await check_chat(bench, turns)
    for index in range(threads):
        await check_chat(bench, short, f"chat {index}")
    return {"chat_bytes": after - before, "more_threads_bytes": end - after, "rss_bytes": end}
