"""What a saver tells its hooks: how operations went, and what it took. Ids are told, values never."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, Protocol

from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.errors import Misuse

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BYTES: Final = tuple(4.0**power for power in range(4, 15))
"""Bounds of the buckets in which hooks count latencies and sizes."""
_SLOTS: Final = 60
_logger: Final = logging.getLogger("langgraph_statekit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened in a saver.

    Attributes:
        store: Kind of the store: `sqlite`, `redis`, `postgres`, `object`, `memory`.
        operation: The saver's sync method; `save` for a request that several saves share, `retention` after a put.
        thread_id: The thread; None if there is none, or several.
        checkpoint_ns: The namespace; None where the operation is not about one.
    """

    store: str
    operation: str
    thread_id: str | None
    checkpoint_ns: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Event):
    """An operation ended; each tells one of the classes below, unless it was cancelled; `setup`, `cells` and
    `change_cell` (small records beside the threads, such as effects and sessions) tell this one.

    Attributes:
        latency_s: Seconds that the caller waited; for `list` without the time between two items.
    """

    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved(Finished):
    """`put` or `put_writes` is durable.

    Attributes:
        plain_bytes: Serialized bytes before compression and deltas.
        stored_bytes: Bytes sent to the store for them.
    """

    plain_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded(Finished):
    """`get_tuple`, `list` or `get_delta_channel_history` has read.

    Attributes:
        plain_bytes: Serialized bytes of what was returned.
        stored_bytes: Bytes read from the store for it, with the bases of deltas.
    """

    plain_bytes: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned(Finished):
    """`prune`, `delete_for_runs`, `delete_thread`, `sweep` or a pass of a saver's retention is done.

    Attributes:
        thread_ids: Threads that it changed or removed.
        checkpoints: Checkpoints removed, not counting those of threads that were removed whole.
    """

    thread_ids: tuple[str, ...]
    checkpoints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadCopied(Finished):
    """`copy_thread` is done.

    Attributes:
        target_thread_id: The copy.
    """

    target_thread_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted(Finished):
    """A part of a history became a summary; `store` is `context`, `operation` is `summarize` or `condense`.

    Attributes:
        by: `model`, or `extract`: made without one.
        reason: The trigger, such as `turns 20`, or `limit`.
        messages: Messages that the summary stands for.
        tokens_in: Tokens of what was summarized.
        tokens_out: Tokens of the summary.
        attempts: Calls of the summarizer.
        problem: What was wrong with its answers; empty if one was taken.
    """

    by: str
    reason: str
    messages: int
    tokens_in: int
    tokens_out: int
    attempts: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(Finished):
    """An operation raised.

    Attributes:
        error: Name of the exception's class.
    """

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(Event):
    """A request to the store is repeated.

    Attributes:
        error: Name of the class of the driver's exception.
    """

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicted(Event):
    """The thread changed meanwhile, so that the work was begun again or given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLost(Event):
    """A save came too late, or a lease was not renewed: another holder owns the thread, or it was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogTold(Event):
    """The cold store of a `TieredSaver` did not take an upload, or all is well again.

    Attributes:
        threads: Threads that this process has changed and the cold store lacks changes of.
        saves: Saves of these.
        error: What the last upload failed with; None: all is well again.
    """

    threads: int
    saves: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HotStoreBehind(Event):
    """The hot store of a `TieredSaver` came back in an older state than the cold one has of a thread.

    Both have all of the thread again. Others may be behind too: `restore` brings them up before they are used.

    Attributes:
        checkpoints: How many it lacked, or had though they were removed, or had other writes of.
    """

    checkpoints: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTold(Event):
    """A replica of a `TieredSaver` did not take a change, or takes them again.

    Attributes:
        replica: Its name.
        threads: Threads that this process has changed and it lacks changes of.
        error: What it failed with; None: it answers again.
    """

    replica: str
    threads: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpires(Event):
    """Nobody has used a session for long, and it will expire; told at most once for each time it was used last.

    Attributes:
        user_id: Whose it is.
        in_s: Seconds that are left.
    """

    user_id: str
    in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpired(Event):
    """A session has expired, and what its policy says was done.

    Attributes:
        user_id: Whose it was.
        policy: `keep`, `delete` or `summary`.
    """

    user_id: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Event):
    """A check says that something is wrong with a run.

    Attributes:
        reason: The check.
        item: The item that the run was at.
        message: What is wrong.
    """

    reason: str
    item: str | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledBack(Event):
    """A thread was rolled back; `operation` is `rollback`, or `skip`, `dead_letter`, `interrupt` if it was edited too.

    Attributes:
        reason: Why.
        item: The item that the run was at.
        attempt: Which one it is for this thread, item and reason.
        from_id: The newest checkpoint before.
        to_id: The checkpoint that it was rolled back to.
        fork_id: The newest checkpoint now; that of `to_id` if the newest one is tried again as it is.
    """

    reason: str
    item: str | None
    attempt: int
    from_id: str
    to_id: str
    fork_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp(Event):
    """A thread, or an item of it, is not tried again; `operation` is `dead_letter` or `fail`.

    Attributes:
        reason: Why.
        item: The item; None: the thread.
        attempts: How often it was tried again.
    """

    reason: str
    item: str | None
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervised(Event):
    """A supervisor did something about a thread, or leaves it alone.

    Attributes:
        outcome: See `Supervisor`.
        graph: Name of the graph; empty if the holder of the lease did not tell.
        reason: What was wrong: `orphan`, `stuck`, or the word with which the thread was handed over.
        item: The item, or where the thread stands.
        attempt: Which one it is for this thread, item and reason; 0 for none.
        message: What people are told.
        alert: Whether somebody should look at it.
    """

    outcome: str
    graph: str
    reason: str
    item: str | None
    attempt: int
    message: str
    alert: bool


class Hook(Protocol):
    """Takes events; any callable with one argument is one.

    Called in the thread or event loop of the operation, retries in a thread of the saver: it must be quick and safe in
    many threads. What it raises is logged, once for each hook, and touches no operation.
    """

    def __call__(self, event: Event, /) -> object:
        """Take an event."""


class Hooks:
    """One hook made of many, that never raises."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        if not isinstance(hooks, Sequence) or not all(map(callable, hooks)):
            raise Misuse(f"hooks must be a sequence of callables that take an event, not {hooks!r}")
        self._hooks = tuple(hooks)
        self._logged: set[int] = set()

    def __call__(self, event: Event, /) -> None:
        """Pass an event on to each."""
        for at, hook in enumerate(self._hooks):
            try:
                hook(event)
            except Exception:
                if at not in self._logged:
                    self._logged.add(at)
                    _logger.exception("the hook %r failed; it is logged once", hook)


class FailureRate:
    """A hook that knows which part of the last operations failed, and tells when it is too much.

    Args:
        window_s: Seconds to look back, with a resolution of a sixtieth.
        threshold: Rate from which on to alert, above 0 up to 1.
        alert: Called with the rate when it reaches the threshold, and again only after it was below.
        min_operations: Operations in the window below which there is no alert.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        window_s: float = 60.0,
        threshold: float = 0.1,
        alert: Callable[[float], object] = lambda rate: _logger.warning("%.0f %% of operations fail", rate * 100),
        min_operations: int = 10,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        require_numbers(float, 1e-3, window_s=window_s)
        require_numbers(float, 1e-9, threshold=threshold)
        require_numbers(int, 1, min_operations=min_operations)
        if threshold > 1:
            raise Misuse(f"the option threshold is a part of all operations, at most 1, not {threshold!r}")
        if not callable(alert):
            raise Misuse(f"the option alert must be called with the rate, not {alert!r}")
        self._slot_s = window_s / _SLOTS
        self._threshold, self._alert, self._min_operations = threshold, alert, min_operations
        self._clock = clock
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin to count anew."""
        self._lock = Lock()
        self._counts: deque[tuple[int, list[int]]] = deque()
        self._high = False

    @property
    def rate(self) -> float:
        """Failed operations of the window over all; 0 if there were none."""
        with self._lock:
            return self._rate()[0]

    def __call__(self, event: Event, /) -> None:
        """Count an operation that ended."""
        if not isinstance(event, Finished):
            return
        with self._lock:
            was_high = self._rate()[1] and self._high  # it may have fallen while nothing happened
            slot = int(self._clock() // self._slot_s)
            if not self._counts or self._counts[-1][0] != slot:
                self._counts.append((slot, [0, 0]))
            counts = self._counts[-1][1]
            counts[0] += 1
            counts[1] += isinstance(event, Failed)
            rate, self._high = self._rate()
            rises = self._high and not was_high
        if rises:
            self._alert(rate)

    def _rate(self) -> tuple[float, bool]:
        oldest = self._clock() // self._slot_s - _SLOTS
        while self._counts and self._counts[0][0] <= oldest:
            self._counts.popleft()
        operations = sum(counts[0] for _, counts in self._counts)
        rate = sum(counts[1] for _, counts in self._counts) / max(operations, 1)
        return rate, rate >= self._threshold and operations >= self._min_operations
