"""Calls of an event loop that need no thread, and what becomes of them when the line does not answer."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from langgraph_statekit.checkpoint.lines import Lines
from langgraph_statekit.checkpoint.run import LANES, Batcher, Blocking, Threads, run_sync
from tests.servers import wait_until


class Pair:
    """A line to this test, which answers with the number of what it got; `b"?"` is no answer."""

    timeout_s = 30.0

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.settimeout(20)
        self.items: Sequence[bytes] = ()
        self.left = b""
        self.answers_itself = True

    def fileno(self) -> int:
        return self.ours.fileno()

    def send(self, items: Sequence[bytes]) -> bool:
        self.items, self.left = items, b"".join(items)
        if self.answers_itself:
            self.theirs.send(b"!")
            return True
        return self.send_more()

    def send_more(self) -> bool:
        try:
            self.left = self.left[self.ours.send(self.left) :]
        except BlockingIOError:
            return False
        return not self.left

    def receive(self) -> Sequence[str] | None:
        answer = self.ours.recv(1)
        if answer == b".":
            return None
        if answer != b"!":
            raise ValueError(answer)
        return ["line"] * len(self.items)

    def close(self) -> None:
        self.ours.close()

    async def got(self, size: int) -> bytes:
        def read() -> bytes:
            found = b""
            while len(found) < size:
                found += self.theirs.recv(size - len(found))
            return found

        return await asyncio.to_thread(read)


class Kit:
    """A batcher with lines to the test."""

    def __init__(self) -> None:
        self.opened: list[Pair] = []
        self.threads = Threads(4)
        self.batcher: Batcher[bytes, str] = Batcher(lambda items: ["thread"] * len(items), lines=Lines(self.open))

    def open(self) -> Pair:
        self.opened.append(Pair())
        return self.opened[-1]

    def call(self, item: bytes) -> asyncio.Task[str]:
        return asyncio.create_task(self.threads.batched(self.batcher, item))

    async def line(self) -> Pair:
        """Make calls until there is a line."""
        while await self.call(b"x") == "thread":
            pass
        self.opened[-1].answers_itself = False
        return self.opened[-1]

    def close(self) -> None:
        assert self.batcher.lines is not None
        self.batcher.lines.close()
        self.threads.close()
        for each in self.opened:
            each.theirs.close()


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    made = Kit()
    yield made
    made.close()
    await asyncio.sleep(0)


async def test_a_loop_that_calls_often_calls_over_a_line_and_one_call_waits_for_the_other(kit: Kit) -> None:
    line = await kit.line()
    first = kit.call(b"a")
    assert await line.got(1) == b"a"
    second, third = kit.call(b"b"), kit.call(b"c")
    await asyncio.sleep(0)
    line.theirs.send(b".")
    line.theirs.send(b"!")
    assert await first == "line"
    assert await line.got(2) == b"bc"
    line.theirs.send(b"!")
    assert await asyncio.gather(second, third) == ["line", "line"]
    assert not kit.batcher._leaders


@pytest.mark.parametrize("how", ["error", "lost", "late"])
async def test_what_a_line_does_not_confirm_is_done_again_by_a_thread_and_a_new_line_opened(kit: Kit, how: str) -> None:
    line = await kit.line()
    if how == "late":
        line.timeout_s = 0.01
    task = kit.call(b"a")
    assert await line.got(1) == b"a"
    if how == "error":
        line.theirs.send(b"?")
    elif how == "lost":
        line.theirs.close()
    assert await task == "thread"
    assert line.ours.fileno() == -1
    assert await kit.line() is not line


async def test_a_line_that_is_lost_while_nothing_is_under_way_is_noticed(kit: Kit) -> None:
    line = await kit.line()
    line.theirs.close()
    while line.ours.fileno() != -1:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await kit.call(b"a") == "thread"


async def test_what_a_socket_does_not_take_at_once_is_sent_in_full(kit: Kit) -> None:
    line = await kit.line()
    big = bytes(8 << 20)
    task = kit.call(big)
    assert await line.got(len(big)) == big
    line.theirs.send(b"!")
    assert await task == "line"


async def test_a_cancelled_caller_does_not_end_the_call_of_others(kit: Kit) -> None:
    line = await kit.line()
    first, second = kit.call(b"a"), kit.call(b"b")
    assert await line.got(2) == b"ab"
    first.cancel()
    line.theirs.send(b"!")
    assert await second == "line"


async def test_closing_waits_for_what_is_under_way(kit: Kit) -> None:
    line = await kit.line()
    task = kit.call(b"a")
    assert await line.got(1) == b"a"
    assert kit.batcher.lines is not None
    await asyncio.to_thread(kit.batcher.lines.close)
    await asyncio.sleep(0)
    line.theirs.send(b"!")
    assert await task == "line"
    assert line.ours.fileno() == -1


async def test_a_line_that_is_being_opened_when_all_are_closed_is_closed_as_well(kit: Kit) -> None:
    lines, asked, go = kit.batcher.lines, threading.Event(), threading.Event()
    assert lines is not None

    def slowly() -> Pair:
        asked.set()
        assert go.wait(60)
        return kit.open()

    lines._open_line = slowly
    while not asked.is_set():
        assert await kit.call(b"x") == "thread"
    lines.close()
    go.set()
    while not kit.opened or kit.opened[0].ours.fileno() != -1:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not lines._senders


async def test_a_line_takes_calls_of_its_own_loop_only(kit: Kit) -> None:
    line = await kit.line()
    kit.batcher.add(b"other", Future())
    task = kit.call(b"a")
    assert await line.got(1) == b"a"
    line.theirs.send(b"!")
    assert await task == "line"


def test_loops_that_stand_still_hold_up_nobody_else() -> None:
    kit = Kit()

    async def stand_still() -> None:
        line = await kit.line()
        kit.call(b"a")
        assert await line.got(1) == b"a"

    async def go_on() -> str:
        return await asyncio.wait_for(kit.call(b"b"), 20)

    loops = [asyncio.new_event_loop() for _ in range(2)]
    for loop in loops:
        loop.run_until_complete(stand_still())
    assert asyncio.run(go_on()) == "thread"
    with ThreadPoolExecutor(1) as pool:
        called = pool.submit(run_sync, Blocking(kit.threads).batched(kit.batcher, b"c"))
        assert called.result(20) == "thread"
    for loop, line in zip(loops, kit.opened, strict=True):
        line.theirs.send(b"!")
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop)))
    kit.close()
    for loop in loops:
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    assert not kit.batcher._leaders


def test_a_loop_that_ended_leaves_its_line_to_the_next_one() -> None:
    kit = Kit()
    line = asyncio.run(kit.line())

    async def again() -> str:
        task = kit.call(b"a")
        assert await line.got(1) == b"a"
        line.theirs.send(b"!")
        return await task

    assert asyncio.run(again()) == "line"
    assert kit.opened == [line]
    kit.close()


def test_a_call_whose_loop_ended_holds_up_nobody_and_is_not_made_again_later() -> None:
    kit = Kit()
    done: list[bytes] = []

    def call(items: Sequence[bytes]) -> Sequence[str]:
        done.extend(items)
        return ["thread"] * len(items)

    kit.batcher._call = call

    async def leave() -> None:
        line = await kit.line()
        kit.call(b"a")
        assert await line.got(1) == b"a"

    async def go_on() -> str:
        return await kit.call(b"b")

    asyncio.run(leave())
    assert run_sync(Blocking(kit.threads).batched(kit.batcher, b"s")) == "thread"
    assert asyncio.run(go_on()) == "thread"
    kit.close()
    assert b"a" not in done
    assert not kit.batcher._leaders


def test_calls_of_one_loop_do_not_wait_for_the_line_of_another_that_ends() -> None:
    kit = Kit()
    under_way, queued, answered, ended = (threading.Event() for _ in range(4))

    async def other() -> str:
        (await kit.line()).answers_itself = True
        under_way.set()
        assert await asyncio.to_thread(queued.wait, 30)
        task = kit.call(b"other")
        await asyncio.sleep(0)
        answered.set()
        await asyncio.to_thread(ended.wait, 30)
        return await asyncio.wait_for(task, 30)

    async def ends() -> None:
        assert await asyncio.to_thread(under_way.wait, 30)
        line = await kit.line()
        # A thread that has answered, but not ended, would take the next call.
        await asyncio.to_thread(wait_until, lambda: not kit.batcher._leaders, "threads to end")
        task = kit.call(b"a")
        assert await line.got(1) == b"a"
        queued.set()
        answered.wait(60)
        line.theirs.send(b"!")
        assert await task == "line"
        await asyncio.sleep(0)

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(asyncio.run, other())
        asyncio.run(ends())
        ended.set()
        assert result.result(60) == "line"
    kit.close()


def test_sync_calls_that_block_loops_do_not_wait_for_the_lines_of_these_loops() -> None:
    kit = Kit()
    under_way = threading.Barrier(2)

    async def blocked() -> str:
        line = await kit.line()
        under_way.wait(60)
        task = kit.call(b"a")
        assert await line.got(1) == b"a"
        under_way.wait(60)
        future: Future[str] = Future()
        kit.batcher.add(b"sync", future)
        me = threading.get_ident()
        if kit.batcher.lead(me, LANES):
            kit.batcher.drain(me)
        assert future.result(30) == "thread"
        line.theirs.send(b"!")
        return await task

    with ThreadPoolExecutor(2) as pool:
        assert [each.result(60) for each in [pool.submit(asyncio.run, blocked()) for _ in range(2)]] == ["line"] * 2
    kit.close()
