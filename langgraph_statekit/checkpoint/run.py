"""Running one async body for sync and async callers, and repeating what the network broke.

The engine is written once as coroutines that await nothing but `Runtime.io`. Under `Blocking` that never suspends,
so `run_sync` finishes the coroutine with one `send`. Under `Threads` each verb runs in a bounded pool of threads:
one set of connections then serves every event loop, survives loops that end, and cannot run out.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar, TypeVarTuple

from langgraph_statekit.errors import StatekitError, Unavailable

T = TypeVar("T")
A = TypeVarTuple("A")


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


class Runtime(Protocol):
    """How the engine calls a blocking verb."""

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T: ...


class Blocking:
    """Calls the verb here and now."""

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T:
        return verb(*args)


class Threads:
    """Calls the verb in one of at most `workers` threads; a cancelled caller does not cancel a save."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T:
        call = asyncio.get_running_loop().run_in_executor(self._executor(), verb, *args)
        return await asyncio.shield(call)

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():  # threads do not survive a fork
                self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="statekit")
                self._pid = os.getpid()
            return self._pool

    def close(self) -> None:
        """End the threads when their work is done; a later call starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.shutdown(wait=True)


def retrying(
    call: Callable[[], T],
    transient: tuple[type[BaseException], ...],
    retry_s: float,
    what: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return what `call` returns, repeating it after transient errors: once at once, then with growing pauses.

    Only for calls that may run twice.

    Args:
        call: What to do.
        transient: Errors after which a repeat may help.
        retry_s: Seconds after which no further repeat is started; 0 repeats once, at once.
        what: The store, for the message of the error.
        clock: Monotonic seconds.
        sleep: Waits for the given seconds.

    Raises:
        Unavailable: It still failed; the last error is the cause.
    """
    deadline = clock() + retry_s
    pause_s = 0.0
    while True:
        try:
            return call()
        except transient as error:
            if clock() + pause_s > deadline and pause_s > 0:
                raise Unavailable(
                    f"{what} did not answer within retry_s={retry_s:g}: {type(error).__name__}: {error}"
                ) from error
        if pause_s > 0:
            sleep(pause_s * random.uniform(0.5, 1.0))
        pause_s = min(max(pause_s * 2, 0.02), 1.0)
