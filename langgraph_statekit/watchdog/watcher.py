"""One thread that looks at all supervised runs of a process now and then: it goes on when an event loop is blocked."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final, Protocol

from langgraph_statekit.checkpoint.fork import renew_in_child

_LOG: Final = logging.getLogger(__name__)


class Watched(Protocol):
    """A run to look at."""

    every_s: float

    def look(self) -> None:
        """Look; called by the one thread, so it must be quick."""


class Watcher:
    """Looks at runs; its thread runs while there are any."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin without runs."""
        self._changed = threading.Condition()
        self._due: dict[Watched, float] = {}
        self._thread: threading.Thread | None = None

    def add(self, run: Watched) -> None:
        """Look at a run from now on."""
        with self._changed:
            self._due[run] = time.monotonic() + run.every_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="statekit-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def remove(self, run: Watched) -> None:
        """Look at a run no more."""
        with self._changed:
            self._due.pop(run, None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self._due:
                    self._thread = None
                    return
                now_s = time.monotonic()
                pause_s = min(self._due.values()) - now_s
                if pause_s > 0:
                    self._changed.wait(pause_s)
                    continue
                # Those that are due soon are taken along: many runs then wake the thread as often as one.
                due = [run for run, at_s in self._due.items() if at_s <= now_s + run.every_s / 4]
                for run in due:
                    self._due[run] = now_s + run.every_s
            for run in due:
                try:
                    run.look()
                except Exception:  # the others must be looked at all the same
                    _LOG.exception("a look at a supervised run failed")


WATCHER: Final = Watcher()
