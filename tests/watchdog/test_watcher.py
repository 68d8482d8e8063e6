"""Runs are looked at in time: with what a check finds at the first look after a deadline, a hang is noticed in time."""

from __future__ import annotations

import time

from langgraph_statekit.watchdog.watcher import Watcher
from tests.servers import wait_until


class Looked:
    """A run that notes how far away its next look is, by the watcher's clock."""

    def __init__(self, watcher: Watcher, every_s: float) -> None:
        self.watcher, self.every_s = watcher, every_s
        self.ahead_s: list[float] = []

    def look(self) -> None:
        self.ahead_s.append(self.watcher._due[self] - time.monotonic())
        if len(self.ahead_s) == 2:
            raise RuntimeError("this look fails, and no other one for it")


def test_the_next_look_is_never_further_away_than_every_s() -> None:
    watcher = Watcher()
    runs = [Looked(watcher, every_s) for every_s in (0.005, 0.02, 0.02)]
    for run in runs:
        watcher.add(run)
    wait_until(lambda: all(len(run.ahead_s) > 4 for run in runs), "each is looked at")
    for run in runs:
        watcher.remove(run)
        assert all(ahead_s <= run.every_s for ahead_s in run.ahead_s)
    wait_until(lambda: watcher._thread is None, "the thread ends when there are no runs")
