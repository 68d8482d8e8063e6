"""Coroutines without a loop, batches, and repeats."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from langgraph_statekit import Misuse, StatekitError, Unavailable
from langgraph_statekit.checkpoint.repeating import retrying, telling_retries
from langgraph_statekit.checkpoint.run import Batcher, Blocking, Threads, run_sync


class Gate:
    """A call that notes its batches and waits until it is let through."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = threading.Event()
        self.entered = threading.Semaphore(0)

    def __call__(self, items: Sequence[int]) -> Sequence[int | Exception]:
        self.batches.append(list(items))
        self.entered.release()
        assert self.open.wait(60)
        return [ValueError(f"{item}") if item < 0 else item * 10 for item in items]


def test_a_coroutine_that_suspends_is_refused() -> None:
    class Waits:
        def __await__(self) -> Any:
            yield

    with pytest.raises(StatekitError, match="suspended"):
        run_sync(Waits())


async def test_what_waits_together_is_one_call_and_a_bad_item_fails_alone() -> None:
    gate, pool = Gate(), Threads(4)
    batcher: Batcher[int, int] = Batcher(gate)
    first = asyncio.create_task(pool.batched(batcher, 1))
    assert await asyncio.to_thread(gate.entered.acquire, timeout=60)
    others = [asyncio.create_task(pool.batched(batcher, item)) for item in (2, -3, 4)]
    await asyncio.sleep(0)
    gate.open.set()
    assert await asyncio.gather(first, *others, return_exceptions=True) == [10, 20, others[1].exception(), 40]
    assert isinstance(others[1].exception(), ValueError)
    assert gate.batches == [[1], [2, -3, 4]]
    pool.close()
    assert not batcher._leaders


def test_a_call_that_finds_nothing_under_way_runs_at_once_in_its_own_thread() -> None:
    seen: list[int] = []

    def call(items: Sequence[int]) -> Sequence[int]:
        seen.append(threading.get_ident())
        return items

    pool = Threads(2)
    batcher: Batcher[int, int] = Batcher(call)
    assert run_sync(Blocking(pool).batched(batcher, 7)) == 7
    assert seen == [threading.get_ident()]
    assert pool._pool is None


def test_threads_share_calls_and_nobody_is_left_waiting() -> None:
    calls: list[int] = []

    def call(items: Sequence[int]) -> Sequence[int]:
        calls.append(len(items))
        return [item + 1 for item in items]

    pool = Threads(4)
    batcher: Batcher[int, int] = Batcher(call)
    results: list[int] = []

    def work(start: int) -> None:
        results.extend(run_sync(Blocking(pool).batched(batcher, start + n)) for n in range(200))

    workers = [threading.Thread(target=work, args=(n * 1000,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert sorted(results) == sorted(n * 1000 + k + 1 for n in range(8) for k in range(200))
    assert sum(calls) == 1600
    pool.close()
    assert not batcher._leaders


def test_an_interrupt_reaches_its_caller_and_others_are_served() -> None:
    first = True

    def call(items: Sequence[int]) -> Sequence[int]:
        nonlocal first
        if first:
            first = False
            batcher.add(5, late)
            raise KeyboardInterrupt
        return items

    pool = Threads(1)
    late: Future[int] = Future()
    batcher: Batcher[int, int] = Batcher(call)
    with pytest.raises(KeyboardInterrupt):
        run_sync(Blocking(pool).batched(batcher, 1))
    assert late.result(10) == 5
    pool.close()
    assert not batcher._leaders


def fails(times: int, error: type[Exception] = ConnectionError) -> Any:
    left = [times]

    def call() -> str:
        if left[0]:
            left[0] -= 1
            raise error("broken")
        return "done"

    return call


def test_a_broken_call_is_repeated_at_once_and_then_with_growing_pauses() -> None:
    now, pauses = [0.0], []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        now[0] += pause_s

    assert retrying(fails(1), (ConnectionError,), 5, "it", clock=lambda: now[0], sleep=sleep) == "done"
    assert pauses == []
    assert retrying(fails(6), (ConnectionError,), 5, "it", clock=lambda: now[0], sleep=sleep) == "done"
    assert len(pauses) == 5
    assert pauses[-1] > pauses[0]


@pytest.mark.parametrize("retry_s", [0, 1.0])
def test_what_stays_broken_is_unavailable_with_the_drivers_error_as_cause(retry_s: float) -> None:
    now = [0.0]

    def sleep(pause_s: float) -> None:
        now[0] += pause_s

    with pytest.raises(Unavailable, match="did not answer within retry_s") as caught:
        retrying(fails(10**6), (ConnectionError,), retry_s, "the store", clock=lambda: now[0], sleep=sleep)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert now[0] <= retry_s


def test_repeats_of_a_verb_are_told_also_from_threads_that_it_starts_and_those_of_others_are_not() -> None:
    told: list[str] = []
    pool = Threads(2)

    def verb(name: str) -> None:
        answers: list[Exception | None] = [TimeoutError(f"{name} 1"), TimeoutError(f"{name} 2"), None]

        def call() -> None:
            if answer := answers.pop(0):
                raise answer

        retrying(call, (TimeoutError,), 10, "the store", sleep=lambda seconds: None)

    def parallel(name: str) -> None:
        pool.start(verb, name).result()

    for each in (verb, parallel):
        telling_retries(each, lambda error: told.append(str(error)))(each.__name__)
        each("other")
    pool.close()
    assert told == ["verb 1", "verb 2", "parallel 1", "parallel 2"]


def test_an_error_that_a_repeat_cannot_mend_is_raised_at_once() -> None:
    with pytest.raises(TypeError):
        retrying(fails(1, TypeError), (ConnectionError,), 5, "it")


def test_a_child_of_a_fork_saves_though_its_parent_was_busy() -> None:
    gate = Gate()
    batcher: Batcher[int, int] = Batcher(gate)
    pool = Threads(1)
    busy = threading.Thread(target=lambda: run_sync(Blocking(pool).batched(batcher, 1)))
    busy.start()
    assert gate.entered.acquire(timeout=60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        gate.open.set()
        os._exit(0 if run_sync(Blocking(pool).batched(batcher, 2)) == 20 else 1)
    assert os.waitpid(child, 0)[1] == 0
    gate.open.set()
    busy.join(60)


def test_no_workers_are_refused() -> None:
    with pytest.raises(Misuse, match="at least 1"):
        Threads(0)


def test_a_thread_that_was_interrupted_while_it_led_leads_again() -> None:
    batcher: Batcher[int, int] = Batcher(lambda items: items)
    pool = Threads(1)
    lost: Future[int] = Future()
    batcher.add(1, lost)
    assert batcher.lead(threading.get_ident(), 1)  # and an interrupt comes before the batch is run
    assert run_sync(Blocking(pool).batched(batcher, 2)) == 2
    assert lost.result(0) == 1


async def test_saves_of_two_turns_of_the_loop_share_a_call() -> None:
    calls: list[list[int]] = []

    def call(items: Sequence[int]) -> Sequence[int]:
        calls.append([*items])
        return items

    pool, batcher = Threads(2), Batcher(call)
    first = asyncio.create_task(pool.batched(batcher, 1))
    await asyncio.sleep(0)
    assert await asyncio.gather(first, pool.batched(batcher, 2)) == [1, 2]
    assert calls == [[1, 2]]
    pool.close()


async def test_a_slow_batch_does_not_hold_up_a_save() -> None:
    gate, pool = Gate(), Threads(2)

    def call(items: Sequence[int]) -> Sequence[int | Exception]:
        return gate(items) if 1 in items else items

    batcher = Batcher(call)
    slow = asyncio.create_task(pool.batched(batcher, 1))
    assert await asyncio.to_thread(gate.entered.acquire, timeout=60)
    assert await asyncio.wait_for(pool.batched(batcher, 2), 10) == 2
    gate.open.set()
    assert await slow == 10
    pool.close()


def test_a_slow_batch_does_not_hold_up_a_thread_that_saves() -> None:
    gate, pool = Gate(), Threads(2)

    def call(items: Sequence[int]) -> Sequence[int | Exception]:
        return gate(items) if 1 in items else items

    batcher: Batcher[int, int] = Batcher(call)
    slow = threading.Thread(target=lambda: run_sync(Blocking(pool).batched(batcher, 1)))
    slow.start()
    assert gate.entered.acquire(timeout=60)
    assert run_sync(Blocking(pool).batched(batcher, 2)) == 2
    gate.open.set()
    slow.join(60)
    pool.close()


async def test_a_crowd_is_under_way_while_the_loop_makes_further_saves() -> None:
    gate, pool = Gate(), Threads(2)
    batcher: Batcher[int, int] = Batcher(gate, crowd=3)
    saves = [asyncio.create_task(pool.batched(batcher, item)) for item in range(3)]

    async def busy() -> None:  # in the same turn of the loop
        assert gate.entered.acquire(timeout=60)
        saves.append(asyncio.create_task(pool.batched(batcher, 3)))

    await asyncio.create_task(busy())
    gate.open.set()
    assert await asyncio.gather(*saves) == [0, 10, 20, 30]
    assert gate.batches == [[0, 1, 2], [3]]
    pool.close()
    assert not batcher._leaders


async def test_many_crowds_are_two_calls_at_a_time() -> None:
    gate, pool = Gate(), Threads(8)
    batcher: Batcher[int, int] = Batcher(gate, crowd=3)
    saves = [asyncio.create_task(pool.batched(batcher, item)) for item in range(3)]
    assert await asyncio.to_thread(gate.entered.acquire, timeout=60)
    for start in range(3, 30, 3):
        saves += [asyncio.create_task(pool.batched(batcher, item)) for item in range(start, start + 3)]
        for _ in range(5):
            await asyncio.sleep(0)
    assert await asyncio.to_thread(gate.entered.acquire, timeout=60)
    assert len(batcher._leaders) == len(gate.batches) == 2
    gate.open.set()
    assert await asyncio.gather(*saves) == [item * 10 for item in range(30)]
    pool.close()
    assert not batcher._leaders


def test_a_loop_that_ends_between_two_turns_holds_up_nobody() -> None:
    pool, batcher = Threads(2), Batcher(lambda items: items)
    loop = asyncio.new_event_loop()
    lost = loop.create_task(pool.batched(batcher, 1))
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert run_sync(Blocking(pool).batched(batcher, 2)) == 2
    loop.run_until_complete(asyncio.wait_for(lost, 10))
    loop.close()
    pool.close()


async def test_a_save_cancelled_before_its_turn_is_left_out() -> None:
    gate, pool = Gate(), Threads(2)
    batcher: Batcher[int, int] = Batcher(gate)
    first = asyncio.create_task(pool.batched(batcher, 1))
    assert await asyncio.to_thread(gate.entered.acquire, timeout=60)
    waiting = [asyncio.create_task(pool.batched(batcher, item)) for item in (2, 3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    gate.open.set()
    assert await first == 10
    assert await waiting[1] == 30
    assert gate.batches == [[1], [3]]
    pool.close()


async def test_no_more_saves_are_under_way_than_allowed_and_all_are_made() -> None:
    for size_bytes, bounds, most_wanted in ((0, (3, 1), 3), (10, (20, 25), 3), (100, (20, 25), 1)):
        pool = Threads(2, *bounds)
        inside: list[int] = []
        most = 0

        async def save(n: int) -> None:
            nonlocal most
            async with pool.place() as place:
                place.takes(size_bytes)
                inside.append(n)
                most = max(most, len(inside))
                try:
                    await pool.io(int)
                finally:
                    inside.remove(n)
                if n == 3:
                    raise ConnectionError

        saves = [asyncio.create_task(save(n)) for n in range(20)]
        await asyncio.sleep(0)
        saves[10].cancel()
        saves[0].cancel()
        ends = await asyncio.gather(*saves, return_exceptions=True)
        assert [n for n, end in enumerate(ends) if isinstance(end, asyncio.CancelledError)] == [0, 10]
        assert [n for n, end in enumerate(ends) if isinstance(end, ConnectionError)] == [3]
        assert most == most_wanted
        pool.close()


async def test_a_turn_given_to_a_save_that_was_cancelled_passes_on() -> None:
    pool = Threads(1, max_pending=1)
    entered: list[int] = []

    async def save(n: int) -> None:
        async with pool.place():
            entered.append(n)

    async with pool.place():
        waiting = [asyncio.create_task(save(n)) for n in range(3)]
        await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 10)
    assert entered == [1, 2]


async def test_a_save_that_finds_a_place_suspends_nowhere_before_its_values_are_serialized() -> None:
    pool = Threads(1, max_pending=1)
    run_sync(pool.place().__aenter__())
    assert [backlog.saves for backlog in pool._backlogs.values()] == [1]


def test_loops_that_ended_are_forgotten() -> None:
    pool = Threads(1, max_pending=1)

    async def crowd() -> None:
        async def save() -> None:
            async with pool.place():
                await asyncio.sleep(0)

        await asyncio.gather(*(save() for _ in range(5)))

    for _ in range(5):
        asyncio.run(crowd())
    assert len(pool._backlogs) == 1
