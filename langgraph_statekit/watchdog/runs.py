"""One attempt at a run: the graph works somewhere, and what it streams comes to a mailbox."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl

from langgraph_statekit.leases import Lease
from langgraph_statekit.watchdog.beat import listening
from langgraph_statekit.watchdog.parts import BEGIN, CHECKPOINTS, NOTHING, STEP, TURN, Parts
from langgraph_statekit.watchdog.seen import Seen
from langgraph_statekit.watchdog.view import Finding

WAKE: Final = object()
"""In a mailbox: the run is to be stopped."""
LATE: Final = object()
"""From a mailbox: nothing came in time."""


class Ended(NamedTuple):
    """In a mailbox, as the last thing: the run is over; None if it ended by itself."""

    error: BaseException | None


class Mailbox(Protocol):
    """Where a run puts what its caller takes."""

    def put(self, item: Any) -> None:
        """Put something, from any thread."""

    async def get(self, timeout_s: float | None) -> Any:
        """Take the next thing; `LATE` if none came in time."""

    async def aside(self, call: Callable[[], None]) -> None:
        """Make a blocking call, so that an event loop goes on."""


class Waiting:
    """A mailbox whose taker waits in its thread."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.put = self._queue.put

    async def get(self, timeout_s: float | None) -> Any:
        """Take the next thing."""
        try:
            return self._queue.get(timeout=None if timeout_s is None else max(timeout_s, 0))
        except Empty:
            return LATE

    async def aside(self, call: Callable[[], None]) -> None:
        """Make the call here."""
        call()


class Control(RunControl):
    """Drains a run when the watchdog or the caller says so."""

    __slots__ = ("_callers",)

    def __init__(self, callers: RunControl | None) -> None:
        super().__init__()
        self._callers = callers

    @property
    def drain_requested(self) -> bool:
        """Whether either said so."""
        return super().drain_requested or (self._callers is not None and self._callers.drain_requested)

    @property
    def drain_reason(self) -> str | None:
        """The reason of whoever said so."""
        own = super().drain_reason
        return own if own is not None or self._callers is None else self._callers.drain_reason


@dataclass(frozen=True, slots=True)
class Job:
    """What a run is to do.

    Attributes:
        graph: The graph.
        input: Its input; None to go on.
        config: With the token of the lease.
        options: Of `stream`, but for the modes.
        parts: How to stream.
        callers: The caller's control.
        told: Whether the saver tells of steps, so that the graph need not stream them.
    """

    graph: Pregel[Any, Any, Any, Any]
    input: Any
    config: RunnableConfig
    options: dict[str, Any]
    parts: Parts
    callers: RunControl | None
    told: bool = False

    def arguments(self, control: RunControl) -> dict[str, Any]:
        """Return all arguments of `stream` or `astream` but input and config."""
        version = {"version": "v2"} if self.parts.v2 else {}
        modes = [mode for mode in self.parts.asked if not (self.told and mode == CHECKPOINTS)]
        asked = {"stream_mode": modes, "subgraphs": self.parts.inner}
        return {**self.options, **asked, **version, "control": control}


class Run(ABC):
    """One attempt.

    Attributes:
        finding: What is wrong with it; None until something is.
        lost: Whether its lease was lost.
        end: How it ended; None while it runs.
        rescue: The thread that fences it off while its caller is blocked.
        cancelled: Whether more was needed than to ask it to stop.
        over: Whether it has ended, maybe unknown to who takes from the mailbox.
        alive: Whether it could not be ended.
        noticed: Whether its caller knows that it is to be stopped.
        questions: What it asked, as the caller gets it if the run stays; of a run that was left they are asked again.
    """

    stages: Sequence[Callable[[], None]] = ()
    """What to do one after the other to end it, when to ask it did not help."""

    def __init__(
        self,
        job: Job,
        seen: Seen,
        mailbox: Mailbox,
        lease: Lease,
        every_s: float,
        grace_s: float,
        fence: Callable[[], None],
        found: Callable[[Finding], None],
    ) -> None:
        self.job, self.seen, self.mailbox, self.every_s = job, seen, mailbox, every_s
        self.control = Control(job.callers)
        self.finding: Finding | None = None
        self.lost = self.noticed = self.cancelled = self.over = self.alive = False
        self.end: Ended | None = None
        self.rescue: threading.Thread | None = None
        self._lease, self._grace_s, self._fence, self._found = lease, grace_s, fence, found
        self._lock = threading.Lock()
        self._stop_s = 0.0
        self._between = False
        self.questions: list[Any] = []
        self._state: Any = NOTHING
        self._place = seen.place()

    @abstractmethod
    def start(self) -> None:
        """Begin; whatever happens, `Ended` comes to the mailbox at last."""

    def drain(self, reason: str) -> None:
        """Ask the graph to end after its running step."""
        self.control.request_drain(reason)

    def look(self) -> None:
        """Look for what is wrong; if that is known and the caller does not act, fence the run off."""
        if self.over:
            return
        place = self.seen.place()
        if place != self._place:  # a save tells it too, but not one that another process makes
            self._place = place
            self._lease.progress(place[1])
        if self._lease.lost and not self.lost and self.finding is None:
            self.lost = True
            self._stop("lease lost")
        elif self.finding is None and not self.lost:
            self.note(self.seen.find())
        elif (
            self.finding
            and not self.noticed
            and self.rescue is None
            and time.monotonic() > self._stop_s + self._grace_s
        ):
            # The event loop is blocked, or the caller is slow to take what was streamed.
            with self._lock:  # it fences nothing off before it is known, and is joined by nobody before it has begun
                self.rescue = threading.Thread(target=self._fence, name="statekit-fence", daemon=True)
                self.rescue.start()

    def note(self, finding: Finding | None) -> bool:
        """Take note of a finding, if it is one and the first, and have the run stopped."""
        if finding is None:
            return False
        with self._lock:
            if self.finding is not None or self.over:
                return False
            self.finding = finding
        self._found(finding)
        self._stop(finding.reason)
        return True

    def rescued(self) -> None:
        """Wait for the thread that fences it off, if there is one."""
        with self._lock:
            rescue = self.rescue
        if rescue is not None:
            rescue.join()

    def finish(self, error: BaseException | None) -> None:
        """Take note of the end."""
        try:
            if self.seen.settle():
                self.note(self.seen.find())
        except BaseException as raised:  # whoever waits for the end must learn of it
            error = error or raised
        with self._lock:
            self.over = True
        if self._state is not NOTHING:
            self.mailbox.put(self._state)
        self.mailbox.put(Ended(error))

    def _stop(self, reason: str) -> None:
        self._stop_s = time.monotonic()
        self.drain(reason)
        self.mailbox.put(WAKE)

    def take(self, part: Any) -> bool:
        """Take what the graph streamed; say whether the next step begins though something is wrong with the last."""
        parts = self.job.parts
        shown, place = parts.take(part, self.seen)
        if shown is not NOTHING:
            if not parts.last:
                self.mailbox.put(shown)
            elif parts.is_state(shown):
                self._state = shown
                if (asked := parts.questions(shown)) is not NOTHING:
                    self.questions.append(asked)
            else:
                self.questions.append(shown)
        if place in (STEP, TURN):
            self.note(self.seen.find(at_step=True))
            self._between = True
        if place in (BEGIN, TURN):  # not before: the graph may be done, or wait at a breakpoint
            begins, self._between = self._between, False
            return begins and self.finding is not None  # whoever noted it, the graph may have looked just before
        return False

    def halted(self) -> GraphDrained:
        """Return what ends a run that must not begin its next step, as if it had been asked in time to drain."""
        return GraphDrained(self.finding.reason if self.finding else "")


class ThreadRun(Run):
    """The sync graph in a thread of this process; it can only be asked to stop."""

    def start(self) -> None:
        """Begin."""
        context = copy_context()
        threading.Thread(target=lambda: context.run(self._work), name="statekit-run", daemon=True).start()

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            with listening(self.seen):
                parts = self.job.graph.stream(self.job.input, self.job.config, **self.job.arguments(self.control))
                with closing(parts):  # type: ignore[type-var]
                    for part in parts:
                        if self.take(part):
                            error = self.halted()
                            break
        except BaseException as raised:
            error = raised
        self.finish(error)
