"""What do two tiers leave in the cold store and cost on the way there, and how soon is a cold thread back?

Other savers on object storage answer what of it they can. The hot store is a SQLite file.
"""

from __future__ import annotations

from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.bench import Bench, Face, Numbers, check, timed_ms
from benchmarks.savers import SAVERS
from benchmarks.state import PIECES, Thread, chat, chat_graph, check_chat, config

FULL = {"turns": 200, "puts": 400, "checkpoints": 5_000}
QUICK = {"turns": 4, "puts": 6, "checkpoints": 20}
ONLY_STORE = "s3"
MODES = ("sync",)
REPEATS = 3
BASE = False
LONG = config("long")


def _state(step: int) -> dict[str, Any]:
    return {"count": step, "note": PIECES[step % len(PIECES)]}


class _Counting:
    """Counts the requests of a driver and the bytes that it sends."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.puts = self.gets = self.sent_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get(self, key: str) -> Any:
        self.gets += 1
        return self._inner.get(key)

    def put(self, key: str, data: bytes, expect: str | None = None) -> Any:
        self.puts += 1
        self.sent_bytes += len(data)
        return self._inner.put(key, data, expect)


async def run(bench: Bench) -> Numbers:
    two_tiers = bench.of.name.startswith("statekit-tiered")
    numbers = await _chat(bench, two_tiers)
    if two_tiers:
        numbers |= await _beside_the_hot_store(bench)
    return numbers | await _long(bench, two_tiers)


async def _chat(bench: Bench, two_tiers: bool) -> Numbers:
    turns = bench.size["turns"]
    async with bench.open() as saver:
        counted = _Counting(saver.saver.tiers._cold.bucket._driver) if two_tiers else None
        if counted is not None:
            saver.saver.tiers._cold.bucket._driver = counted
        app = chat_graph().compile(checkpointer=saver.saver)
        started = perf_counter()
        await chat(saver, app, range(turns))
        numbers: Numbers = {"chat_s": perf_counter() - started}
    numbers |= {f"chat_{name}": number for name, number in bench.stored().items()}
    if counted is not None:
        checkpoints = 5 * turns
        numbers["puts_per_checkpoint"] = counted.puts / checkpoints
        numbers["gets_per_checkpoint"] = counted.gets / checkpoints
        numbers["sent_bytes_per_checkpoint"] = counted.sent_bytes / checkpoints
    await check_chat(bench, turns)
    return numbers


async def _beside_the_hot_store(bench: Bench) -> Numbers:
    """Put by turns through both tiers and to a store like the hot one alone."""
    taken: dict[str, list[float]] = {"put_ms": [], "hot_put_ms": []}
    with _hot_alone() as alone:
        async with bench.open() as saver:
            threads = {"put_ms": Thread(saver, "beside"), "hot_put_ms": Thread(Face(alone, bench.mode), "beside")}
            for step in range(bench.size["puts"]):
                for name in sorted(threads, reverse=step % 2 == 0):
                    taken[name].append(await timed_ms(threads[name].put(_state(step))))
    return {name: median(all_ms) for name, all_ms in taken.items()}


@contextmanager
def _hot_alone() -> Any:
    from tempfile import TemporaryDirectory

    with (
        TemporaryDirectory(prefix="statekit-bench-") as folder,
        SAVERS["statekit-sqlite"].open_sync(f"sqlite:///{folder}/alone.db") as saver,
    ):
        yield saver


async def _long(bench: Bench, two_tiers: bool) -> Numbers:
    """Read a long thread with a saver that has nothing of it."""
    count = bench.size["checkpoints"]
    async with bench.open(**{"mode": "write_behind"} if two_tiers else {}) as saver:
        thread = Thread(saver, "long")
        for step in range(count):
            await thread.advance(_state(step), writes=False)
    numbers: Numbers = {}
    empty = {"hot": "empty", "mode": "write_behind"} if two_tiers else {}
    async with bench.open(**empty) as saver:
        await saver.get(config("nobody"))  # connects
        numbers["resume_ms"] = await timed_ms(saver.get(LONG))
        latest = await saver.get(LONG)
        check(latest.checkpoint["channel_values"] == _state(count - 1), "the thread is not what was put")
    async with bench.open(**empty) as saver:
        await saver.get(config("nobody"))
        numbers["history_ms"] = await timed_ms(saver.list(LONG))
        found = await saver.list(LONG)
        states = [item.checkpoint["channel_values"] for item in found]
        check(states == [_state(step) for step in reversed(range(count))], "the history is not whole, or not in order")
    if two_tiers:
        numbers |= await _thaw(bench, empty)
    return numbers


async def _thaw(bench: Bench, empty: dict[str, Any]) -> Numbers:
    """Bring the thread back, and read the same objects with nothing else."""
    async with bench.open(**empty) as saver:
        await saver.get(config("nobody"))
        tiers = saver.saver.tiers
        started = perf_counter()
        check(tiers.moving.thaw("long"), "there was no thread to thaw")
        thawed_s = perf_counter() - started
        keys = tiers._cold.objects("long")
        started = perf_counter()
        read = tiers._cold.bucket.get_many(keys)
        floor_s = perf_counter() - started
    size_bytes = sum(len(found.data) for found in read.values())
    return {"thaw_ms": thawed_s * 1e3, "plain_get_ms": floor_s * 1e3, "long_bytes": float(size_bytes)}
