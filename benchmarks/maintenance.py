"""What does it cost to copy, prune and delete a long thread?"""

from __future__ import annotations

from collections.abc import Awaitable

from benchmarks.bench import Bench, Numbers, check, timed_ms
from benchmarks.state import Thread, config, message, talk

FULL = {"turns": 200}
QUICK = {"turns": 6}


async def run(bench: Bench) -> Numbers:
    turns = bench.size["turns"]
    expected = [message(index) for index in range(2 * turns)]
    numbers: Numbers = {}

    async def attempt(what: str, call: Awaitable[None]) -> bool:
        try:
            numbers[f"{what}_ms"] = await timed_ms(call)
        except (AttributeError, NotImplementedError):
            return False
        return True

    async with bench.open() as saver:
        await talk(Thread(saver, "a"), turns)
        whole = len(await saver.list(config("a"), limit=5 * turns + 1))
        check(whole == 5 * turns, f"{whole} checkpoints of {5 * turns} are listed")
        own_copy_s = bench.own_copy_s()
        if own_copy_s is not None:
            numbers["own_copy_ms"] = own_copy_s * 1e3
        copied = await attempt("copy", saver.copy("a", "b"))
        if copied and own_copy_s:
            numbers["copy_per_own_copy"] = numbers["copy_ms"] / numbers["own_copy_ms"]
        pruned = await attempt("prune", saver.prune("a"))
        if pruned and not copied:
            await talk(Thread(saver, "b"), turns)
    threads = {"a": 1 if pruned else whole, **({"b": whole} if copied or pruned else {})}
    victim = max(threads)
    async with bench.open() as saver:
        for name, count in threads.items():
            found = await saver.list(config(name))
            check(len(found) == count, f"{len(found)} checkpoints of {count} are left of {name}")
            messages = found[0].checkpoint["channel_values"]["messages"]
            check(messages == expected, f"the latest state of {name} is not what was said")
        numbers["delete_ms"] = await timed_ms(saver.delete(victim))
        check(await saver.list(config(victim)) == [], "the deleted thread is still there")
        others = [await saver.get(config(name)) for name in threads if name != victim]
        check(None not in others, "the other thread is gone")
    return numbers
