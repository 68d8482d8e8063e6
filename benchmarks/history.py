"""What does it cost to list a thread's checkpoints: some, all, and those that match a filter?"""

from __future__ import annotations

from typing import Any

from benchmarks.bench import Bench, Numbers, check, p50_ms
from benchmarks.state import PIECES, Thread, config

FULL = {"checkpoints": 1_000, "page": 50, "repeats": 3}
QUICK = {"checkpoints": 40, "page": 10, "repeats": 2}
THREAD = config("history")


def _state(step: int) -> dict[str, Any]:
    return {"count": step, "note": PIECES[step % len(PIECES)][:100]}


async def run(bench: Bench) -> Numbers:
    count, page, repeats = bench.size["checkpoints"], bench.size["page"], bench.size["repeats"]
    async with bench.open() as saver:
        thread = Thread(saver, "history")
        for step in range(count):
            await thread.advance(_state(step))
    async with bench.open() as saver:
        found = await saver.list(THREAD)
        states = [item.checkpoint["channel_values"] for item in found]
        check(states == [_state(step) for step in range(count)][::-1], "the history is not whole, or not in order")
        parents = [item.parent_config["configurable"]["checkpoint_id"] for item in found[:-1]]
        check(parents == [item.checkpoint["id"] for item in found[1:]], "the parents are not the ones before")
        check([len(item.pending_writes or ()) for item in found] == [0, *[2] * (count - 1)], "writes are missing")
        some = await saver.list(THREAD, limit=page)
        check([item.checkpoint["id"] for item in some] == [item.checkpoint["id"] for item in found[:page]], "page")
        matching = await saver.list(THREAD, filter={"step": count // 2})
        check([item.metadata["step"] for item in matching] == [count // 2], "the filter finds something else")
        return {
            "page_ms": await p50_ms(4 * repeats, lambda: saver.list(THREAD, limit=page)),
            "all_ms": await p50_ms(repeats, lambda: saver.list(THREAD)),
            "filter_ms": await p50_ms(repeats, lambda: saver.list(THREAD, filter={"step": count // 2})),
        }
