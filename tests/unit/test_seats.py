"""Threads that wait for a batch lead the next one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from langgraph_statekit.checkpoint.run import Batcher, Blocking, Threads, run_sync


def test_threads_that_wait_make_the_batches_themselves() -> None:
    added, entered, go = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
    callers: set[int] = set()

    class Counted(Batcher[int, int]):
        def add(self, item: int, future: Any) -> bool:
            crowd = super().add(item, future)
            added.release()
            return crowd

    def call(items: Sequence[int]) -> Sequence[int]:
        callers.add(threading.get_ident())
        entered.release()
        assert go.wait(60)
        return items

    pool, batcher = Threads(1), Counted(call, most=2)
    savers: set[int] = set()

    def save(item: int) -> int:
        savers.add(threading.get_ident())
        return run_sync(Blocking(pool).batched(batcher, item))

    with ThreadPoolExecutor(8) as threads:
        saves = [threads.submit(save, item) for item in range(8)]
        for _ in saves:
            assert added.acquire(timeout=60)
        assert entered.acquire(timeout=60)
        go.set()
        assert [each.result(60) for each in saves] == [*range(8)]
    assert len(callers) > 2
    assert callers <= savers
    assert pool._pool is None
    assert not batcher._leaders


def test_a_thread_that_is_interrupted_when_it_is_asked_to_lead_hands_that_on() -> None:
    pool, batcher = Threads(1), Batcher[int, int](lambda items: items)

    class Interrupted(Blocking):
        def _told(self, batcher: Any, seat: Any, wait_s: float | None) -> Any:
            assert batcher.pass_on("leader")
            raise KeyboardInterrupt

    batcher._leaders.add("leader")
    with pytest.raises(KeyboardInterrupt):
        run_sync(Interrupted(pool).batched(batcher, 1))
    pool.close()
    assert not batcher._queue
    assert not batcher._leaders


def test_a_thread_that_is_interrupted_before_it_makes_a_batch_is_not_asked_to_lead_the_next_one() -> None:
    class Interrupted(Batcher[int, int]):
        interrupted = False

        def take(self, loop: Any = None) -> Any:
            if not self.interrupted:
                self.interrupted = True
                raise KeyboardInterrupt
            return super().take(loop)

    pool, batcher = Threads(1), Interrupted(lambda items: items)
    late: Future[int] = Future()
    batcher.add(1, late)
    with pytest.raises(KeyboardInterrupt):
        run_sync(Blocking(pool).batched(batcher, 2))
    assert late.result(10) == 1
    pool.close()
    assert not batcher._leaders
