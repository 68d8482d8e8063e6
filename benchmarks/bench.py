"""What a workload gets: savers on one fresh store in one mode, and questions about that store.

A workload is written once, as a coroutine. In sync mode it only makes blocking calls, so it never suspends and no event
loop runs. Nothing in here needs this project's package: peers run in environments of their own.
"""

from __future__ import annotations

import asyncio  # noqa: TID251
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.savers import Saver

Numbers = dict[str, float]


class Face:
    """A saver's calls under one set of names for both modes."""

    def __init__(self, saver: Any, mode: str) -> None:
        self.saver = saver
        self._sync = mode == "sync"

    async def put(self, *args: Any) -> Any:
        return self.saver.put(*args) if self._sync else await self.saver.aput(*args)

    async def put_writes(self, *args: Any) -> None:
        if self._sync:
            self.saver.put_writes(*args)
        else:
            await self.saver.aput_writes(*args)

    async def get(self, config: Any) -> Any:
        return self.saver.get_tuple(config) if self._sync else await self.saver.aget_tuple(config)

    async def list(self, config: Any, **options: Any) -> Sequence[Any]:
        if self._sync:
            return [*self.saver.list(config, **options)]
        return [item async for item in self.saver.alist(config, **options)]

    async def delete(self, thread: str) -> None:
        if self._sync:
            self.saver.delete_thread(thread)
        else:
            await self.saver.adelete_thread(thread)

    async def prune(self, thread: str) -> None:
        if self._sync:
            self.saver.prune([thread], strategy="keep_latest")
        else:
            await self.saver.aprune([thread], strategy="keep_latest")

    async def copy(self, source: str, target: str) -> None:
        if self._sync:
            self.saver.copy_thread(source, target)
        else:
            await self.saver.acopy_thread(source, target)

    async def invoke(self, app: Any, given: Any, config: Any) -> Any:
        return app.invoke(given, config) if self._sync else await app.ainvoke(given, config)

    async def together(self, jobs: Sequence[Callable[[], Coroutine[Any, Any, Any]]]) -> None:
        """Run all at once: in sync mode a thread each, else a task each."""
        if self._sync:
            with ThreadPoolExecutor(len(jobs)) as pool:
                list(pool.map(lambda job: finish(job()), jobs))
        else:
            await asyncio.gather(*(job() for job in jobs))


class Bench:
    """One run of a workload.

    Args:
        saver: What is measured.
        url: Its fresh store.
        mode: `sync` or `async`.
        size: The workload's own counts.
        ask: Puts a question about the store to the process that keeps it.
        thorough: Whether costly checks are due; once for each saver is enough.
    """

    def __init__(
        self,
        saver: Saver,
        url: str,
        mode: str,
        size: Mapping[str, int],
        ask: Callable[[str], Any],
        *,
        thorough: bool,
    ) -> None:
        self.of, self.mode, self.size, self.thorough = saver, mode, size, thorough
        self._url, self._ask = url, ask

    @asynccontextmanager
    async def open(self, **options: Any) -> AsyncIterator[Face]:
        """Open a new saver on the store, as a new process would; only ours take options."""
        if self.mode == "sync":
            with self.of.open_sync(self._url, **options) as saver:
                yield Face(saver, self.mode)
        else:
            async with self.of.open_async(self._url, **options) as saver:
                yield Face(saver, self.mode)

    def stored(self) -> Numbers:
        """Return what the store holds now, in bytes and objects; nothing for a store inside this process."""
        found: Numbers = self._ask("stored")
        return found

    def trips(self) -> float:
        """Return how often the saver has waited for the store since the run began."""
        return float(self._ask("trips"))

    def own_copy_s(self) -> float | None:
        """Return the seconds in which the store itself copies all that it holds; None if it cannot."""
        seconds: float | None = self._ask("copy")
        return seconds


def finish(job: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends."""
    try:
        job.send(None)
    except StopIteration as done:
        return done.value
    finally:
        job.close()
    raise RuntimeError("a sync workload has suspended")


def run(mode: str, job: Coroutine[Any, Any, Any]) -> Any:
    """Run a workload in its mode."""
    return finish(job) if mode == "sync" else asyncio.run(job)


async def p50_ms(count: int, call: Callable[[], Awaitable[Any]]) -> float:
    """Return the median milliseconds of one call."""
    taken = []
    for _ in range(count):
        started = perf_counter()
        await call()
        taken.append(perf_counter() - started)
    return median(taken) * 1e3


async def timed_ms(call: Awaitable[Any]) -> float:
    """Return the milliseconds of one awaitable."""
    started = perf_counter()
    await call
    return (perf_counter() - started) * 1e3


def check(holds: bool, what: str) -> None:
    """Fail the run unless what the saver gave back is right; unlike `assert` it cannot be switched off."""
    if not holds:
        raise AssertionError(what)
