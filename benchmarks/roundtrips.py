"""How often does each call wait for the store? Counted by a proxy between saver and store."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from benchmarks.bench import Bench, Numbers, check
from benchmarks.state import PIECES, Thread, config

FULL = QUICK = {"checkpoints": 100}
MODES = ("sync",)
REPEATS = 1
PROXIED = True


async def run(bench: Bench) -> Numbers:
    count = bench.size["checkpoints"]
    numbers: Numbers = {}

    async def counted(what: str, call: Awaitable[Any]) -> Any:
        before = bench.trips()
        result = await call
        numbers[what] = bench.trips() - before
        return result

    async with bench.open() as saver:
        thread = Thread(saver, "trips")
        for step in range(count - 1):
            await thread.advance({"count": step, "note": PIECES[step]})
        change = {"count": count - 1, "note": PIECES[count - 1]}
        await counted("put_writes", thread.write(change))
        await counted("put", thread.put(change))
        at = config("trips")
        latest = await counted("get", saver.get(at))
        check(latest.checkpoint["channel_values"] == change, "the latest state is wrong")
        found = await counted("list_50", saver.list(at, limit=50))
        check([item.metadata["step"] for item in found] == [*range(count)][:-51:-1], "the history is wrong")
        if hasattr(saver.saver, "lease"):
            with saver.saver.lease("leased", ttl_s=600) as lease:
                leased = Thread(saver, "leased")
                leased.config["configurable"] |= lease.config["configurable"]
                await leased.put({"count": 0})
                await counted("leased_put_writes", leased.write({"count": 1}))
                await counted("leased_put", leased.put({"count": 1}))
        await counted("delete", saver.delete("trips"))
        check(await saver.get(at) is None, "the deleted thread is still there")
    return numbers
