"""Running one async body for sync and async callers, and repeating what the network broke.

The engine is written once as coroutines that await nothing but `Runtime.io`. Under `Blocking` that never suspends,
so `run_sync` finishes the coroutine with one `send`. Under `Threads` each verb runs in a bounded pool of threads:
one set of connections then serves every event loop, survives loops that end, and cannot run out.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from queue import Empty
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple

from langgraph_statekit.checkpoint.backlog import Backlog, Place
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.lines import Lines, Sender
from langgraph_statekit.checkpoint.repeating import on_retry
from langgraph_statekit.checkpoint.seats import Seat
from langgraph_statekit.errors import Misuse, StatekitError, Unavailable

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
A = TypeVarTuple("A")
Waiting: TypeAlias = Seat[R] | Future[R] | asyncio.Future[R]

LANES: Final = 2
"""Batches under way at most, so that a slow one does not hold up all others."""
HOLD_S: Final = 0.005
"""Seconds for which a save waits for the batch under way, before it goes by itself."""


def run_sync(awaitable: Awaitable[T]) -> T:
    """Finish a coroutine in one step; it may only await what never suspends."""
    step = awaitable.__await__()
    try:
        next(step)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        close = getattr(step, "close", None)
        if close is not None:
            close()
    raise StatekitError("the engine suspended under the blocking runtime")


async def aside(call: Callable[[], T]) -> T:
    """Make a blocking call in a thread of its own, so that the event loop goes on."""
    return await asyncio.to_thread(call)


async def until(future: Future[T], wait_s: float | None, is_async: bool) -> T:
    """Return what comes of a future; raise TimeoutError after so long, None: never."""
    if is_async:
        return await asyncio.wait_for(asyncio.wrap_future(future), wait_s)
    return future.result(wait_s)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine in an event loop of its own; for threads without one."""
    return asyncio.run(work)


class Batcher(Generic[S, R]):
    """Groups calls that wait at the same time into one; a call that finds nothing under way waits for no company.

    Args:
        call: Takes a batch and returns for each item its result or its error; it may raise for all of them.
        most: Items of one batch at most.
        lines: Makes the calls of an event loop where it can.
        crowd: So many that wait on an event loop go at once, while it is still making others; None: all that it makes
            in one turn go together.
    """

    def __init__(
        self,
        call: Callable[[Sequence[S]], Sequence[R | Exception]],
        most: int = 128,
        lines: Lines[S, R | Exception] | None = None,
        crowd: int | None = None,
    ) -> None:
        self._call, self._most = call, most
        self.lines, self._crowd = lines, crowd
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[tuple[S, Waiting[R]]] = []
        self._leaders: set[object] = set()

    def add(self, item: S, future: Waiting[R]) -> bool:
        """Queue an item whose result goes to the future, and say whether a crowd waits; see to it that somebody leads.

        An item whose future is cancelled before its turn is left out.
        """
        with self._lock:
            self._queue.append((item, future))
            return len(self._queue) == self._crowd

    def lead(self, leader: object, lanes: int) -> bool:
        """Say whether to run `drain` or `drain_once` now: something waits and fewer than `lanes` batches are under way.

        Args:
            leader: Names who would lead. One that leads already does so no more: it was interrupted.
            lanes: Batches under way at most, with this one.
        """
        with self._lock:
            self._leaders.discard(leader)
            lead = bool(self._queue) and len(self._leaders) < lanes
            if lead:
                self._leaders.add(leader)
            return lead

    def succeed(self, leader: object) -> object:
        """Return a new name for whoever goes on in a leader's place."""
        with self._lock:
            self._leaders.discard(leader)
            successor = object()
            self._leaders.add(successor)
            return successor

    def take(self, loop: asyncio.AbstractEventLoop | None = None) -> list[tuple[S, Waiting[R]]]:
        """Return the next batch; with a loop, of what waits on it."""
        with self._lock:
            taken: list[tuple[S, Waiting[R]]] = []
            left: list[tuple[S, Waiting[R]]] = []
            for item, future in self._queue:
                mine = loop is None or (isinstance(future, asyncio.Future) and future.get_loop() is loop)
                (taken if mine and len(taken) < self._most else left).append((item, future))
            self._queue = left
            return [(item, future) for item, future in taken if not future.cancelled()]

    def pass_on(self, leader: object) -> bool:
        """Ask a thread that waits to lead in a leader's place; False: others wait, and none of them is a thread."""
        with self._lock:
            seats = (each for _, each in self._queue if isinstance(each, Seat) and not each.asked)
            if (heir := next(seats, None)) is None and self._queue:
                return False
            self._leaders.discard(leader)
            if heir is not None:
                self._leaders.add(heir.thread)
                heir.asked = True
                heir.told.put(None)
            return True

    def leave(self, seat: Seat[R]) -> bool:
        """Ask a thread that waits no more to lead no more, and say whether it was asked in vain."""
        with self._lock:
            asked, seat.asked = seat.asked, True
        return asked

    def more(self, leader: object) -> bool:
        """Say whether something waits and the leader must go on; if not, it leads no more."""
        with self._lock:
            more = bool(self._queue)
            if not more:
                self._leaders.discard(leader)
            return more

    def drain(self, leader: object) -> None:
        """Run batches until none is waiting."""
        while self.drain_once(leader):
            pass

    def drain_once(self, leader: object, batch: list[tuple[S, Waiting[R]]] | None = None) -> bool:
        """Run one batch, this one if given; True says that more is waiting and the leader must go on."""
        results: Sequence[R | Exception] | None = None
        try:
            batch = self.take() if batch is None else batch
            if batch:
                results = self._call([item for item, _ in batch])
        except Exception as error:
            results = [error] * len(batch or ())
        finally:
            interrupted = Unavailable("the saver was interrupted; save again")
            _hand_out([future for _, future in batch or ()], results or [interrupted] * len(batch or ()))
            more = self.more(leader)
        return more


def _hand_out(
    futures: Sequence[Waiting[R]],
    results: Sequence[R | Exception],
    here: asyncio.AbstractEventLoop | None = None,
) -> None:
    # Waking a loop costs a system call, so each is woken once.
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[R], R | Exception]]] = {}
    for future, result in zip(futures, results, strict=True):
        if isinstance(future, Seat):
            future.told.put(result)
        elif isinstance(future, asyncio.Future):
            loops.setdefault(future.get_loop(), []).append((future, result))
        else:
            _settle([(future, result)])
    _settle(loops.pop(here, ()) if here is not None else ())
    for loop, settled in loops.items():
        with suppress(RuntimeError):  # the loop has ended, and its tasks with it
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple[Future[R] | asyncio.Future[R], R | Exception]]) -> None:
    for future, result in settled:
        if future.done():  # the caller was cancelled
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)


def _deliver(future: asyncio.Future[T], verb: Callable[[*A], T], *args: *A) -> None:
    try:
        result: T | Exception = verb(*args)
    except Exception as error:
        result = error
    _hand_out([future], [result])


class Runtime(Protocol):
    """How the engine calls blocking verbs."""

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T:
        """Return what the verb returns."""

    async def batched(self, batcher: Batcher[S, R], item: S) -> R:
        """Return the result of one item of a batch."""

    def place(self) -> Place:
        """Return what a save enters first: it waits while too much is under way."""

    async def sleep(self, pause_s: float) -> None:
        """Wait."""


class Blocking:
    """Calls here and now; what other threads queued meanwhile is left to the pool.

    Args:
        pool: Runs the batches that gathered during a call.
    """

    def __init__(self, pool: Threads) -> None:
        self._pool = pool

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T:
        return verb(*args)

    def place(self) -> Place:
        return Place()  # its thread waits already

    async def sleep(self, pause_s: float) -> None:
        time.sleep(pause_s)  # noqa: ASYNC251  (the caller is no coroutine)

    async def batched(self, batcher: Batcher[S, R], item: S) -> R:
        seat: Seat[R] = Seat()
        try:
            batcher.add(item, seat)
            self._lead(batcher, 1)
            told = self._told(batcher, seat, HOLD_S)
            while told is None:
                told = self._told(batcher, seat, None)
        except BaseException:
            if batcher.leave(seat):
                self._hand_on(batcher)
            raise
        if isinstance(told, Exception):
            raise told
        return told

    def _told(self, batcher: Batcher[S, R], seat: Seat[R], wait_s: float | None) -> R | Exception | None:
        """Return what a seat is told; None after its thread has led, or waited for so long."""
        try:
            told = seat.told.get(timeout=wait_s)
        except Empty:
            self._lead(batcher, LANES)
            return None
        if told is None:
            seat.asked = False
            self._drain(batcher)
        return told

    def _lead(self, batcher: Batcher[S, R], lanes: int) -> None:
        if batcher.lead(threading.get_ident(), lanes):
            self._drain(batcher)

    def _drain(self, batcher: Batcher[S, R]) -> None:
        more = True
        try:
            more = batcher.drain_once(threading.get_ident())
        finally:
            if more:
                self._hand_on(batcher)

    def _hand_on(self, batcher: Batcher[S, R]) -> None:
        if not batcher.pass_on(threading.get_ident()):
            self._pool.start(batcher.drain, batcher.succeed(threading.get_ident()))


class Threads:
    """Calls in one of at most `workers` threads; a cancelled caller does not cancel a save.

    Args:
        workers: Threads at most; they start when needed.
        max_pending: Saves of one event loop under way at most.
        max_pending_bytes: And what they may weigh.
    """

    def __init__(self, workers: int, max_pending: int = 256, max_pending_bytes: int = 64 << 20) -> None:
        if workers < 1:
            raise Misuse(f"workers must be at least 1, not {workers}")
        self._workers = workers
        self._bounds = max_pending, max_pending_bytes
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._backlogs: dict[asyncio.AbstractEventLoop, Backlog] = {}
        self._pool: ThreadPoolExecutor | None = None

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.start(_deliver, future, verb, *args)
        return await future

    def place(self) -> Place:
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._backlogs:
                self._backlogs = {each: backlog for each, backlog in self._backlogs.items() if not each.is_closed()}
                self._backlogs[loop] = Backlog(*self._bounds)
            return Place(self._backlogs[loop])

    async def sleep(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)

    async def batched(self, batcher: Batcher[S, R], item: S) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        leader = object()  # not the future: that leads below, if nobody does by then
        if batcher.add(item, future) and batcher.lead(leader, LANES):
            self.start(batcher.drain, leader)
        # A step's writes and its checkpoint come within two turns of the loop: one thread then takes both.
        loop.call_soon(loop.call_soon, self._lead, batcher, future, 1)
        return await future

    def _lead(self, batcher: Batcher[S, R], future: asyncio.Future[R], lanes: int) -> None:
        if future.done():
            return
        loop = future.get_loop()
        sender = None if batcher.lines is None else batcher.lines.of(loop, self.start)
        if sender is not None and not sender.busy:
            self._send(batcher, sender, loop)
        elif (sender is None or lanes == LANES) and batcher.lead(future, lanes):
            self.start(batcher.drain, future)
        elif lanes < LANES:
            loop.call_later(HOLD_S, self._lead, batcher, future, LANES)

    def _send(self, batcher: Batcher[S, R], sender: Sender[S, R | Exception], loop: asyncio.AbstractEventLoop) -> None:
        # Only what waits on the loop, and without leading: nobody else must wait for a loop that may stop or block.
        batch = batcher.take(loop)
        if not batch:
            return

        def done(results: Sequence[R | Exception] | None) -> None:
            if results is not None:
                _hand_out([future for _, future in batch], results, loop)
                self._send(batcher, sender, loop)
            elif not loop.is_closed():  # else nobody waits, and a repeat could undo what was done since
                self.start(batcher.drain_once, object(), batch)

        sender.begin([item for item, _ in batch], done)

    def start(self, verb: Callable[[*A], T], *args: *A) -> Future[T]:
        """Start a call in one of the threads."""
        if on_retry.get() is not None:  # it is a part of a verb
            inner, context = verb, copy_context()

            def verb(*args: *A) -> T:
                return context.run(inner, *args)

        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="statekit")
            return self._pool.submit(verb, *args)

    def close(self) -> None:
        """End the threads when their work is done; a later call starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)
