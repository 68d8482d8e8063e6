"""Sweeps beside the puts: in a thread of their own, seldom, and for a short while each time."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.expiry import ORPHANS_US, Swept
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.run import Threads
from langgraph_statekit.dice import RANDOM

_PAUSE_S: Final = 30.0
_BUSY_PAUSE_S: Final = 1.0
_MOST_S: Final = 0.25
_LOG: Final = logging.getLogger(__name__)


class Sweeping:
    """Has a store swept while it is written to; no put waits for it.

    Args:
        backend: The store.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend, self._pool = backend, Threads(1)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew."""
        self._turn = threading.Lock()
        # Processes of few puts each begin at different times, so that some of them sweep.
        self._due_s = time.monotonic() + RANDOM.uniform(0, _PAUSE_S)

    def now_and_then(self) -> None:
        """Start a sweep if one is due and none runs."""
        if time.monotonic() >= self._due_s and self._turn.acquire(blocking=False):
            try:
                self._pool.start(self._sweep)
            except BaseException:
                self._turn.release()
                raise

    def close(self) -> None:
        """Wait for a sweep under way."""
        self._pool.close()

    def _sweep(self) -> None:
        until_s, more = time.monotonic() + _MOST_S, True
        try:
            while more and time.monotonic() < until_s:
                more = self._backend.sweep(ORPHANS_US).more
        except Exception as error:  # what stays is invisible, and the next one removes it
            more = False
            _LOG.warning("expired threads were not swept: %s", error)
        finally:
            self._due_s = time.monotonic() + (_BUSY_PAUSE_S if more else _PAUSE_S)
            self._turn.release()


def sweep_all(backend: Backend, orphans_us: int) -> Swept:
    """Sweep until nothing is left, and return how much went."""
    threads, orphans, more = 0, 0, True
    while more:
        some = backend.sweep(orphans_us)
        threads, orphans, more = threads + some.threads, orphans + some.orphans, some.more
    return Swept(threads, orphans)
