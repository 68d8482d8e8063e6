"""What a process does beside its calls: a thread makes rounds, others do what these find, and all end together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.run import Threads
from langgraph_statekit.errors import StatekitError

_LOG: Final = logging.getLogger(__name__)


class Background:
    """Makes rounds until it is closed, and begins anew when it is started again.

    Args:
        name: Of the thread that makes rounds. It asks no store, as nobody waits for it at the interpreter's end.
        workers: Calls to the stores at once.
        make_round: Makes one, and returns for how many seconds to rest then, if nothing wakes it.

    Attributes:
        pool: Where the calls are made.
        closing: Whether it ends.
    """

    def __init__(self, name: str, workers: int, make_round: Callable[[], float]) -> None:
        self._name, self._make_round = name, make_round
        self.pool = Threads(workers)
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in the child of a fork."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self.closing = False

    def start(self) -> None:
        """Begin to make rounds, if it does not yet."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            return
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self.closing = False
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def wake(self) -> None:
        """Have it make a round now."""
        self._wake.set()

    def close(self, flush: Callable[[], None], left: str) -> None:
        """End all threads.

        Args:
            flush: Called when no more rounds are made.
            left: What the log tells of it if that fails.
        """
        with self._lock:
            thread, self._thread, self.closing = self._thread, None, True
        self._wake.set()
        if thread is not None:
            thread.join()
        try:
            flush()
        except StatekitError as error:
            _LOG.warning("%s: %s", left, error)
        finally:
            self.pool.close()

    def _work(self) -> None:
        with suppress(RuntimeError):  # the interpreter ends, and takes no more calls
            while not self.closing:
                self._wake.clear()  # what is to wake it from here on, does
                pause_s = self._make_round()
                if not self.closing:
                    self._wake.wait(pause_s)
