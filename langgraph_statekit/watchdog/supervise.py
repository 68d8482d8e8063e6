"""One supervised call: run, look, stop, fence, roll back, go on. Written once for sync and async callers."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from langgraph_statekit.checkpoint.claims import TOKEN_KEY
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.effects.ledger import EffectLedger
from langgraph_statekit.errors import CannotStop, Conflict, Fenced, GaveUp, StatekitError, Unavailable
from langgraph_statekit.events import Found
from langgraph_statekit.leases import Lease
from langgraph_statekit.watchdog.attempts import is_dead
from langgraph_statekit.watchdog.errors import Died, RollbackRequested
from langgraph_statekit.watchdog.parts import Parts
from langgraph_statekit.watchdog.policy import Policy
from langgraph_statekit.watchdog.process import ChildRun
from langgraph_statekit.watchdog.questions import drop_taken_answer
from langgraph_statekit.watchdog.recovery import OnRollback, recover
from langgraph_statekit.watchdog.rollback import id_of, origin_of, saver_of
from langgraph_statekit.watchdog.runs import LATE, WAKE, Ended, Job, Run, ThreadRun, Waiting
from langgraph_statekit.watchdog.seen import Seen, pool_of
from langgraph_statekit.watchdog.spending import with_counter
from langgraph_statekit.watchdog.standing import Head, head_of, is_paused, state_of
from langgraph_statekit.watchdog.tasks import LoopMailbox, LoopRun
from langgraph_statekit.watchdog.told import is_told, telling
from langgraph_statekit.watchdog.view import Check, Finding
from langgraph_statekit.watchdog.watcher import WATCHER

Graph: TypeAlias = Pregel[Any, Any, Any, Any]
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to supervise; `Watchdog` documents them."""

    checks: Sequence[Check]
    policy: Policy
    every_s: float
    isolation: Literal["task", "process"]
    item: Callable[[Any], Any] | None
    grace_s: float
    stop_s: float
    lease_s: float
    wait_s: float
    clock: Callable[[], float]
    failing: Callable[[], float]
    name: str
    factory: str | None
    counts: bool
    unstoppable: frozenset[str]
    ledger: EffectLedger | None
    effects: OnRollback


@dataclass(frozen=True, slots=True)
class Request:
    """What the caller asked the graph for.

    Attributes:
        input: The input.
        config: The config.
        options: Of `stream`, but for the modes and the control.
        parts: How to stream.
        control: The caller's.
    """

    input: Any
    config: RunnableConfig
    options: dict[str, Any]
    parts: Parts
    control: RunControl | None


class Call:
    """One call of a graph, with all of its attempts.

    Attributes:
        lease: That of the thread; taken anew for each attempt.
        name: By which supervisors know the graph.
    """

    def __init__(self, graph: Graph, settings: Settings, request: Request, is_async: bool) -> None:
        self._graph, self._settings, self._request, self._is_async = graph, settings, request, is_async
        self._saver = saver_of(graph)
        self._side = Side(self._saver, is_async)
        self._thread_id = str(request.config["configurable"]["thread_id"])
        pool = pool_of(request.config.get("max_concurrency"), is_async)
        self._seen = Seen(settings.checks, settings.item, settings.clock, settings.failing, pool)
        self.lease: Lease | None = None
        self.name = settings.name
        self._fencing = Lock()
        self._fenced: Run | None = None
        self._current: Run | None = None

    async def parts(self) -> AsyncGenerator[Any]:
        """Yield what the graph streams, over all attempts.

        Raises:
            GaveUp: The policy says so.
            CannotStop: Something hangs that cannot be ended here.
            Fenced: Another worker took the thread over.
            Conflict: Another worker has the thread.
        """
        if await is_dead(self._saver.async_cells if self._is_async else self._saver.cells, self._thread_id):
            raise GaveUp(f"thread {self._thread_id!r} is on the list of the dead: revive it to go on")
        self.lease = await self._side.call("lease", self._thread_id, wait_s=self._settings.wait_s, **self._terms())
        why = ""
        try:
            async with aclosing(self.attempts()) as parts:
                async for part in parts:
                    yield part
        except GraphDrained:
            why = self.lease.control  # whoever asked for it goes on with the thread
            raise
        finally:
            await self._release(why)

    async def attempts(self) -> AsyncGenerator[Any]:
        """Do what `parts` does, under a lease that is there, and leave the one of the last attempt as it is."""
        given, config = self._request.input, self._request.config
        # A run that was asked for more than to go on is asked for it again until something of it is stored.
        anew = given is not None or bool(config["configurable"].get("checkpoint_id"))
        before = head = await self._head()
        passed: set[str] = set()
        """Checkpoints at which runs were resumed: LangGraph passes a breakpoint there, and nowhere else."""
        if before.stored and _resumes(given):
            passed.add(str(config["configurable"].get("checkpoint_id") or before.stored[0]))
        while True:
            self._seen.restart(() if anew else head.done)
            run = self._current = self._run(given, config, head)
            run.start()
            try:
                WATCHER.add(run)
                async for part in self._taken(run):
                    yield part
            finally:
                WATCHER.remove(run)
                await self._leave(run)
            finding = self._judged(run)
            if finding is None and not isinstance(run.end and run.end.error, GraphDrained):
                for part in run.questions:
                    yield part
                return
            await self._fence(run)
            head = await self._head()
            if _resumes(given) and self._seen.first:  # a copy, if it was resumed at an older one
                passed.add(self._seen.first)
            if anew and head.stored != before.stored:
                given, anew = None, False
                at = {key: value for key, value in config["configurable"].items() if key != "checkpoint_id"}
                config = {**config, "configurable": at}
            if finding is not None:
                error = run.end and run.end.error
                target = error.target if isinstance(error, RollbackRequested) else None
                await self._recover(finding, target, not anew)
            if anew:
                head = await self._head()
                continue
            state = await state_of(self._graph, self._is_async, self._at, subgraphs=True)
            if head.stored and id_of(state.config) == head.stored[0] and run.end is not None and run.end.error is None:
                for part in run.questions:
                    yield part
                return  # it is done, or waits, where it stopped by itself: to go on would pass a breakpoint
            if origin_of(state) not in passed and await self._is_paused(state):
                for part in self._request.parts.state(self._output(state.values)):
                    yield part
                return
            passed.add(id_of(state.config))
            await drop_taken_answer(self._side, self._leased.config)
            head = await self._head()

    def _run(self, given: Any, config: RunnableConfig, head: Head) -> Run:
        settings, request = self._settings, self._request
        leased: RunnableConfig = {**config, "configurable": {**config["configurable"], TOKEN_KEY: self._leased.token}}
        in_child = settings.isolation == "process"
        if settings.counts and not in_child:
            leased = with_counter(leased, self._seen)
        called = self._graph, self._saver, given, config, request.options, request.parts
        told = not in_child and head.plain and is_told(*called)

        def hear(id: str, number: int, values: Any, next: Sequence[str]) -> None:
            if self._current is run and not run.over:  # else it was left behind, and its last save came through late
                self._seen.saved(id, number, values, next)

        graph = telling(self._graph, self._saver, self._thread_id, hear, given is None) if told else self._graph
        job = Job(graph, given, leased, request.options, request.parts, request.control, told)
        mailbox: Any = LoopMailbox() if self._is_async else Waiting()
        kind: type[Run] = ChildRun if in_child else LoopRun if self._is_async else ThreadRun

        def fence() -> None:
            try:
                self._fence_now(run)
            except StatekitError:
                _LOG.exception("thread %r could not be fenced off; it is tried again", self._thread_id)

        run = kind(job, self._seen, mailbox, self._leased, settings.every_s, settings.grace_s, fence, self._tell)
        if isinstance(run, ChildRun):
            run.factory, run.is_async, run.counts = str(settings.factory), self._is_async, settings.counts
        return run

    def _terms(self) -> dict[str, Any]:
        """Return the terms of each lease: who asks for it by its `control` has the run drained."""

        def asked(lease: Lease) -> None:
            if self._current is not None and lease.control:
                self._current.drain(lease.control)

        return {"ttl_s": self._settings.lease_s, "graph": self.name, "on_control": asked}

    def _tell(self, finding: Finding) -> None:
        note = self._seen.view().note
        _LOG.warning("thread %r: %s%s", self._thread_id, finding.message, f" (last note: {note})" if note else "")
        self._saver.tell(
            Found,
            operation="watch",
            thread_id=self._thread_id,
            checkpoint_ns="",
            reason=finding.reason,
            item=finding.item,
            message=finding.message,
        )

    async def _taken(self, run: Run) -> AsyncGenerator[Any]:
        """Yield what a run streams until it has ended, or cannot be ended."""
        stages = list(run.stages)
        until_s: float | None = None
        while True:
            item = await run.mailbox.get(None if until_s is None else until_s - time.monotonic())
            if isinstance(item, Ended):
                run.end = item
                return
            if item is WAKE:
                run.noticed = True
                until_s = until_s or time.monotonic() + self._settings.grace_s
            elif item is not LATE:
                yield item
            elif stages:
                run.cancelled = True
                stages.pop(0)()
                until_s = time.monotonic() + self._settings.stop_s
            else:
                run.alive = True
                return

    async def _leave(self, run: Run) -> None:
        """End a run whose caller takes no more of it, as far as it can be ended."""
        if run.end is not None or run.alive:
            return
        run.drain("the caller has gone")
        try:
            for stage in (None, *run.stages):
                if stage is not None:
                    stage()
                until_s = time.monotonic() + self._settings.stop_s
                while (left_s := until_s - time.monotonic()) > 0:
                    item = await run.mailbox.get(left_s)
                    if isinstance(item, Ended):
                        run.end = item
                        return
        except BaseException:  # the caller does not even wait for that
            for each in run.stages:
                each()
            raise
        finally:
            if run.end is None:
                await run.mailbox.aside(lambda: self._fence_now(run))  # it goes on, but not in the thread

    def _judged(self, run: Run) -> Finding | None:
        """Return what must be dealt with; None if the run is done, or drained and well.

        Raises:
            BaseException: What the graph raised, if that is not ours to deal with.
        """
        error = None if run.end is None else run.end.error
        if (isinstance(error, Fenced) and run.rescue is None) or run.lost:
            raise error or Fenced(f"the lease of thread {self._thread_id!r} was lost; stop working on it")
        if isinstance(error, RollbackRequested) and run.finding is None:
            self._tell(error.finding)
            run.finding = error.finding
        if isinstance(error, Died) and run.finding is None:
            run.finding = Finding("process", str(error), item=self._seen.view().item)
            self._tell(run.finding)
        finding = run.finding
        if finding is None:
            if error is not None:
                raise error
            return None
        if isinstance(error, Exception) and not isinstance(error, GraphDrained | RollbackRequested | Died):
            _LOG.warning("thread %r: the run ended with an error too", self._thread_id, exc_info=error)
        if not run.cancelled and finding.since is None and not finding.final:
            if run.end is not None and error is None:
                return None  # it is done after all
            if isinstance(error, GraphDrained) and self._seen.find() is None:
                _LOG.warning("thread %r: the step ended after all, the run goes on", self._thread_id)
                return None
        return finding

    async def _fence(self, run: Run) -> None:
        """Take a new lease, so that nothing of the run can write any more."""
        if run.rescue is not None:
            await run.mailbox.aside(run.rescued)
        if self._fenced is not run:
            await run.mailbox.aside(lambda: self._fence_now(run))
        if self._fenced is not run:
            raise Fenced(f"thread {self._thread_id!r} was taken over; stop working on it")
        left = [task for task in self._seen.view().running if task.node in self._settings.unstoppable]
        if run.finding is not None and (run.alive or (run.cancelled and isinstance(run, LoopRun) and left)):
            raise CannotStop(
                f"thread {self._thread_id!r}: {run.finding.message}, and its code still runs in this process. It can "
                'write nothing more to the thread: end the process, and run such nodes with isolation="process"'
            )

    def _fence_now(self, run: Run) -> None:
        with self._fencing:
            lease = self.lease
            if self._fenced is run or lease is None:
                return
            wait_s = 0.0
            try:
                # Given back and taken anew, never stolen: whoever else took the thread keeps it.
                lease.release()
            except Unavailable:
                wait_s = self._settings.lease_s  # it ends by itself
            try:
                self.lease = self._saver.lease(self._thread_id, wait_s=wait_s, **self._terms())
            except Conflict:
                return
            self._fenced = run

    async def _recover(self, finding: Finding, target: Any, saved: bool) -> None:
        await recover(
            self._graph,
            self._is_async,
            self._leased.config,
            finding,
            self._settings.policy,
            target=target,
            item_key=self._settings.item,
            saved=saved,
            ledger=self._settings.ledger,
            effects=self._settings.effects,
        )

    async def _head(self) -> Head:
        return head_of(self._graph, await self._side.call("get_tuple", self._at))

    async def _is_paused(self, state: StateSnapshot) -> bool:
        before, after = (self._request.options.get(name) or () for name in ("interrupt_before", "interrupt_after"))
        return await is_paused(self._graph, self._is_async, state, before=before, after=after)

    def _output(self, values: Any) -> Any:
        """Return of a state what the graph streams as its values."""
        keys = self._request.options.get("output_keys") or self._graph.output_channels
        if isinstance(keys, str) or not isinstance(values, dict):
            return values
        return {key: values[key] for key in keys if key in values}

    @property
    def _at(self) -> RunnableConfig:
        return {"configurable": {"thread_id": self._thread_id, "checkpoint_ns": ""}}

    @property
    def _leased(self) -> Lease:
        assert self.lease is not None
        return self.lease

    async def _release(self, why: str) -> None:
        lease, self.lease = self.lease, None
        try:
            if lease is not None and why:
                await (lease.ahand_over(why) if self._is_async else _at_once(lease.hand_over, why))
            elif lease is not None:
                await (lease.arelease() if self._is_async else _at_once(lease.release))
        except Unavailable as error:
            _LOG.warning("the lease of thread %r was not given back and ends by itself: %s", self._thread_id, error)


async def _at_once(call: Callable[..., None], *args: Any) -> None:
    call(*args)


def _resumes(given: Any) -> bool:
    return given is None or isinstance(given, Command)
