"""When threads are uploaded: at once, or a while after they changed, by a thread of this process."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from langgraph_statekit.checkpoint.backends.tiered.background import Background
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.records import from_text
from langgraph_statekit.errors import StatekitError, Unavailable

_LOG: Final = logging.getLogger(__name__)
_ROUND_S: Final = 30.0
_RETRY_S: Final = 1.0
_MOST_RETRY_S: Final = 60.0
_PAGE: Final = 200


class Lag:
    """What a thread lacks in the cold store.

    Attributes:
        saves: How many saves this process has acknowledged and not uploaded.
        failures: How often that failed.
        soon: Whether one of them came since the last upload began, and is not to wait.
        due_s: When they are uploaded.
    """

    def __init__(self) -> None:
        self.saves = self.failures = 0
        self.soon = False
        self.due_s = 0.0


class Uploading:
    """Brings threads to the cold store in time.

    Args:
        hot: Knows which threads changed, also those of workers that died.
        moving: Uploads them.
        mode: When.
        max_lag_s: Seconds after which a change is in the cold store.
        max_lag_checkpoints: So many saves of a thread are acknowledged without being uploaded at most.
        idle_s: With the mode `archive`, seconds without a change after which the hot store drops a thread.
        max_backlog: Saves that this process acknowledged and the cold store has not; further ones are refused.
        workers: Uploads at once.
        tell: Called with the fields of `BacklogTold` when an upload failed, and when all is well again.
    """

    def __init__(
        self,
        hot: Tier,
        moving: Moving,
        *,
        mode: str,
        max_lag_s: float,
        max_lag_checkpoints: int,
        idle_s: float,
        max_backlog: int,
        workers: int,
        tell: Callable[..., None],
    ) -> None:
        self._hot, self._moving, self._mode = hot, moving, mode
        self._max_lag_s, self._max_lag_checkpoints, self._idle_s = max_lag_s, max_lag_checkpoints, idle_s
        self._max_backlog, self._tell = max_backlog, tell
        self._background = Background("statekit-tiers", workers, self._make_round)
        self.around: Callable[[], None] = lambda: None
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in the child of a fork: what its parent has to upload is the parent's."""
        self._lock = threading.Lock()
        self._lags: dict[str, Lag] = {}
        self._due: list[tuple[float, str]] = []
        self._under_way: set[str] = set()
        self._round_s = time.monotonic() + self._max_lag_s
        self._behind = 0
        self._failing = False

    @property
    def backlog(self) -> tuple[int, int]:
        """How many threads, and saves, of this process the cold store lacks."""
        with self._lock:
            return len(self._lags), self._behind

    def require_room(self) -> None:
        """Raise `Unavailable` while too much is behind."""
        if self._behind >= self._max_backlog:
            raise Unavailable(
                f"the cold store has not taken {self._behind} saves, the most that max_backlog={self._max_backlog}"
                " allows; nothing was saved: see to the cold store"
            )

    def changed(self, threads: Iterable[str], soon: Collection[str] = ()) -> None:
        """Note saves of threads, one for each time that a thread is named.

        Args:
            threads: Their ids.
            soon: Those to upload now.
        """
        with self._lock:
            for thread in threads:
                lag = self._lags.get(thread)
                if lag is None:
                    lag = self._lags[thread] = Lag()
                    self._push(thread, self._max_lag_s)
                lag.saves += 1
                self._behind += 1
                if thread in soon or lag.saves == max(self._max_lag_checkpoints // 2, 1):
                    lag.soon = True
                    self._push(thread, 0.0)
        self.start()

    def catch_up(self, threads: Iterable[str]) -> None:
        """Upload here and now what is too far behind; where the cold store does not answer, that is told elsewhere."""
        for thread in threads:
            lag = self._lags.get(thread)
            if lag is not None and lag.saves >= self._max_lag_checkpoints and not lag.failures:
                with suppress(StatekitError):
                    self._one(thread)

    def start(self) -> None:
        """Begin to look for what workers left that died."""
        self._background.start()

    def flush(self, threads: Iterable[str]) -> None:
        """Upload threads now, and wait for it; raises the first error after all were tried.

        Once a store did not answer, those that were not begun are left, so that nobody waits for it in turn.
        """
        away: list[Unavailable] = []

        def one(thread: str) -> None:
            try:
                if not away:
                    self._one(thread)
            except Unavailable as error:
                away.append(error)
                raise

        futures = [self._background.pool.start(one, thread) for thread in dict.fromkeys(threads)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def upload(self, threads: Collection[str]) -> dict[str, StatekitError]:
        """Upload threads now, side by side; return what failed, by thread: that is tried again."""
        failed: dict[str, StatekitError] = {}
        alone = len(threads) == 1
        futures = (
            {} if alone else {thread: self._background.pool.start(self._moving.upload, thread) for thread in threads}
        )
        for thread in threads:
            try:
                _ = self._moving.upload(thread) if alone else futures[thread].result()
            except StatekitError as error:
                failed[thread] = error
        self.changed(failed)
        return failed

    def flush_all(self) -> None:
        """Upload what this process has changed."""
        with self._lock:
            threads = list(self._lags)
        self.flush(threads)

    def close(self) -> None:
        """Upload what this process has changed, and end the threads; what cannot be uploaded stays noted."""
        self._background.close(self.flush_all, "not all is in the cold store; another worker will upload it")

    def _one(self, thread: str) -> None:
        with self._lock:
            lag = self._lags.get(thread)
            saves = lag.saves if lag else 0  # what is saved from now on may not go along
            if lag is not None:
                lag.soon = False
        begun_s = time.monotonic()
        try:
            self._moving.upload(thread)
        except BaseException as error:
            with self._lock:
                lag = self._lags.setdefault(thread, Lag())
                lag.failures += 1
                self._push(thread, min(_RETRY_S * 2.0 ** min(lag.failures - 1, 8), _MOST_RETRY_S))
                self._failing = True
            self._told(f"{type(error).__name__}: {error}")
            raise
        with self._lock:
            if (lag := self._lags.get(thread)) is not None:
                done = min(saves, lag.saves)
                self._behind -= done
                lag.saves -= done
                lag.failures = 0
                if lag.saves:  # none of them is older than the upload
                    late_s = time.monotonic() - begun_s
                    self._push(thread, 0.0 if lag.soon else max(self._max_lag_s - late_s, 0.0))
                else:
                    del self._lags[thread]
            recovered = self._failing and not any(lag.failures for lag in self._lags.values())
            self._failing = self._failing and not recovered
        if recovered:
            self._told(None)

    def _told(self, error: str | None) -> None:
        threads, saves = self.backlog
        self._tell(threads=threads, saves=saves, error=error)

    def _push(self, thread: str, pause_s: float) -> None:
        due_s = time.monotonic() + pause_s
        if (lag := self._lags.get(thread)) is not None:
            lag.due_s = due_s
        heapq.heappush(self._due, (due_s, thread))
        self._background.wake()

    def _make_round(self) -> float:
        now = time.monotonic()
        with self._lock:
            while self._due and self._due[0][0] <= now:
                _, thread = heapq.heappop(self._due)
                lag = self._lags.get(thread)
                if lag is not None and thread not in self._under_way:
                    self._under_way.add(thread)
                    self._background.pool.start(self._quietly, thread)
            next_s = min(self._due[0][0] if self._due else now + _ROUND_S, self._round_s)
        if now < self._round_s:
            return max(next_s - now, 0.0)
        self._round_s = now + self._pause_s()
        with suppress(StatekitError):  # the next round may find the store
            self._look_around()
        return 0.0

    def _pause_s(self) -> float:
        lag_s = min(max(self._max_lag_s, 1.0), _ROUND_S)  # what a worker left that died is late already
        return min(lag_s, max(self._idle_s / 4, 0.05)) if self._mode == "archive" else lag_s

    def _quietly(self, thread: str) -> None:
        try:
            if not self._background.closing:  # else what is to be uploaded still is by who closes it
                self._one(thread)
        except Exception as error:
            _LOG.warning("thread %r was not uploaded, and will be again: %s", from_text(thread), error)
        finally:
            with self._lock:
                self._under_way.discard(thread)
                if (lag := self._lags.get(thread)) is not None:  # its time may have come meanwhile, and was passed over
                    heapq.heappush(self._due, (lag.due_s, thread))
                    self._background.wake()

    def _look_around(self) -> None:
        """Upload what another worker left, and let go what is idle."""
        now_us = self._hot.now_us()
        left = self._hot.dirty(now_us - int(2e6 * self._max_lag_s) - 1_000_000, _PAGE)
        with self._lock:
            left = [thread for thread in left if thread not in self._lags and thread not in self._under_way]
        idle = self._hot.idle(now_us - int(self._idle_s * 1e6), _PAGE) if self._mode == "archive" else ()
        # Not in this thread, which nobody waits for at the interpreter's end.
        calls: list[Future[None]] = [self._background.pool.start(self.around)]
        calls += [self._background.pool.start(self._quietly, thread) for thread in left]
        calls += [self._background.pool.start(self._let_go, thread) for thread in idle]
        for call in calls:
            call.result()

    def _let_go(self, thread: str) -> None:
        with suppress(StatekitError):  # it stays for now
            if not self._background.closing:
                self._moving.evict(thread)
