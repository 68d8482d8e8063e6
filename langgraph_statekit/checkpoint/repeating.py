"""Repeating what the network broke, and telling who asked to be told."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, TypeVar, TypeVarTuple

from langgraph_statekit.dice import RANDOM
from langgraph_statekit.errors import Unavailable

T = TypeVar("T")
A = TypeVarTuple("A")

on_retry: Final[ContextVar[Callable[[BaseException], None] | None]] = ContextVar("on_retry", default=None)


def telling_retries(verb: Callable[[*A], T], tell: Callable[[BaseException], None]) -> Callable[[*A], T]:
    """Return the verb that calls `tell` with the error before each repeat in it."""

    def told(*args: *A) -> T:
        token = on_retry.set(tell)
        try:
            return verb(*args)
        finally:
            on_retry.reset(token)

    return told


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
                told = str(error).partition("\n\n")[0]  # obstore adds its insides
                raise Unavailable(
                    f"{what} did not answer within retry_s={retry_s:g}: {type(error).__name__}: {told}"
                ) from error
            if (tell := on_retry.get()) is not None:
                tell(error)
        if pause_s > 0:
            sleep(pause_s * RANDOM.uniform(0.5, 1.0))
        pause_s = min(max(pause_s * 2, 0.02), 1.0)
