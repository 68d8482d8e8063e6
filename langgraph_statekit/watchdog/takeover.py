"""One thread taken over from a worker that is gone or hangs, and gone on with."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from langgraph_statekit.acquiring import Terms, acquire
from langgraph_statekit.checkpoint.cells import CellChange, CellQuery, CellRef, cell_ref
from langgraph_statekit.checkpoint.claims import DRAIN
from langgraph_statekit.checkpoint.records import to_text
from langgraph_statekit.checkpoint.run import finish
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.compat import Graph, guard
from langgraph_statekit.errors import Conflict, DataError, Fenced, GaveUp, Unavailable
from langgraph_statekit.leases import Lease
from langgraph_statekit.processes import GONE
from langgraph_statekit.watchdog.attempts import FORGET_S, is_dead
from langgraph_statekit.watchdog.beat import listening
from langgraph_statekit.watchdog.leased import Leased
from langgraph_statekit.watchdog.policy import Policy
from langgraph_statekit.watchdog.questions import drop_taken_answer
from langgraph_statekit.watchdog.recovery import recover
from langgraph_statekit.watchdog.standing import EMPTY, FINISHED, UNFINISHED, UNFIT, WAITING, Standing, standing_of
from langgraph_statekit.watchdog.view import Finding
from langgraph_statekit.watchdog.watchdog import Watchdog, going_on

_LOG: Final = logging.getLogger(__name__)

RESUMED: Final = "resumed"
FAILED: Final = "failed"
FENCED: Final = "fenced"
HANDED_OVER: Final = "handed_over"
DRAINING: Final = "draining"
KILLED: Final = "killed"
DEAD: Final = "dead"
LEFT: Final = "left"
UNKNOWN: Final = "unknown"
ALERTS: Final = frozenset({FAILED, KILLED, DEAD, LEFT, UNFIT, UNKNOWN, EMPTY})
_PLACE: Final = "place"


class Told(Protocol):
    """Takes what became of a thread."""

    def __call__(self, outcome: str, **about: Any) -> None:
        """Take it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How to recover; told in `Supervisor`."""

    policy: Policy
    quarantine_s: float
    lease_s: float


class _Beats:
    """Passes heartbeats of nodes on to a lease."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def beat(self, task_id: str | None, item: object = None, note: object = None) -> None:
        """Take one."""
        self._lease.progress(item)


class Takeover:
    """One thread, in a thread and an event loop of its own, so that nodes may be sync or async.

    Args:
        saver: The store.
        graph: The graph, or what looks after it while it runs.
        case: What the lease tells.
        rules: How to recover.
        told: Takes what was done.
        leave: Takes why the thread is left as it is.
        unblock: Called when the store does not answer; says whether to try again.
    """

    def __init__(
        self,
        saver: StatekitSaver,
        graph: Graph | Watchdog,
        case: Leased,
        rules: Rules,
        told: Told,
        leave: Callable[[str, str], None],
        unblock: Callable[[], bool],
    ) -> None:
        self._saver, self._case, self._rules = saver, case, rules
        self._dog = graph if isinstance(graph, Watchdog) else None
        self._graph = guard(graph.graph if isinstance(graph, Watchdog) else graph)
        self._told, self._leave, self._unblock = told, leave, unblock
        self._side = Side(saver, True)
        self._control = RunControl()
        self._lease: Lease | None = None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let the graph stop after its running step, and hand the thread over."""
        self._stopping.set()
        self._control.request_drain("the supervisor ends")

    def run(self) -> None:
        """Recover the thread; errors are told, not raised."""
        try:
            finish(self._recover())
        except Unavailable as error:
            _LOG.warning("thread %r is left to a later look: %s", self._case.thread_id, error)
        except BaseException as error:  # also what a node raised to end its process: it ends only its run
            _LOG.exception("thread %r could not be recovered", self._case.thread_id)
            self._told(FAILED, message=f"{type(error).__name__}: {error}")

    async def _recover(self) -> None:
        try:
            before = await standing_of(self._graph, self._side, self._case.thread_id)
        except DataError as error:  # a later release wrote it, or it is damaged
            self._leave(UNFIT, str(error))
            return
        if before.kind == UNFIT:
            self._leave(UNFIT, f"it waits for {before.about}, which the graph lacks")
            return
        self._lease = await self._taken()
        if self._lease is None:
            return
        try:
            await self._deal(self._lease)
        except Fenced as error:
            self._told(FENCED, message=str(error))
        finally:
            if not self._lease.ended:  # whatever went wrong, it is no reason to forget the thread
                await self._lease.ahand_over(FAILED)

    async def _taken(self) -> Lease | None:
        case = self._case
        terms = Terms(
            graph=case.graph,
            item=case.item or "",
            ttl_s=self._rules.lease_s,
            steal=case.held,
            instead_of=case.token,
            on_lost=lambda lease: self._control.request_drain("the lease was lost"),
            on_control=lambda lease: self._control.request_drain(lease.control),
        )
        while True:
            try:
                return await acquire(self._saver._keeper, self._saver._async, case.thread_id, terms)
            except Conflict:  # another supervisor was first, or the holder is back
                return None
            except Unavailable:
                if not self._unblock():
                    raise

    async def _deal(self, lease: Lease) -> None:
        case, cells = self._case, self._saver.async_cells
        standing = await standing_of(self._graph, self._side, case.thread_id)
        if standing.kind == UNFIT:  # it has moved since
            self._leave(UNFIT, f"it waits for {standing.about}, which the graph lacks")
            return
        if standing.kind != UNFINISHED:
            await self._close(lease, standing)
            return
        if await is_dead(cells, case.thread_id):
            await lease.arelease()
            self._told(DEAD, message="it is on the list of the dead")
            return
        finding = case.finding("" if case.item else await self._place(standing.step, lease.token))
        await self._pause(0.0 if case.process.state == GONE else self._rules.quarantine_s)
        if self._stopping.is_set():
            await lease.ahand_over(case.problem)
            self._told(HANDED_OVER, message="the supervisor ends", item=finding.item)
            return
        attempt = 0
        if case.problem != DRAIN:  # nothing is wrong with what was handed over so
            try:
                attempt = await recover(self._graph, True, lease.config, finding, self._rules.policy)
                await self._shift_place(standing, lease.token)
            except GaveUp as error:
                await self._given_up(lease, error, item=finding.item)
                return
            now = await standing_of(self._graph, self._side, case.thread_id)
            if now.kind == WAITING:  # the policy took it to a breakpoint, which to go on would pass
                await self._close(lease, now, item=finding.item, attempt=attempt)
                return
        await drop_taken_answer(self._side, lease.config)
        told = f"{finding.message}; it waits for {standing.about}"
        self._told(RESUMED, item=finding.item, attempt=attempt, message=told)
        await self._go_on(lease, finding, attempt)

    async def _place(self, step: int, token: int) -> str:
        """Return a name for where a thread stands, the same as before if it has not come further since."""
        first, last = await self._known_place() or (step, step)
        if step > last:
            first = step
        await self._keep_place(first, step, token)
        return f"step {first}"

    async def _shift_place(self, before: Standing, token: int) -> None:
        """Take note that after a rollback a thread comes to the same place one step later."""
        at: RunnableConfig = {"configurable": {"thread_id": self._case.thread_id, "checkpoint_ns": ""}}
        head = await self._side.call("get_tuple", at)
        known = await self._known_place()
        if known is not None and head is not None and head.checkpoint["id"] != before.id:
            await self._keep_place(known[0], before.step + 1, token)

    async def _known_place(self) -> tuple[int, int] | None:
        ref = self._place_ref
        found = (await self._saver.async_cells.cells(CellQuery(kind=_PLACE, refs=[ref]))).cells
        return tuple(json.loads(found[0].value)) if found else None

    async def _keep_place(self, first: int, last: int, token: int) -> None:
        value, group = json.dumps([first, last]).encode(), to_text(self._case.thread_id)
        await self._saver.async_cells.change_cell(
            CellChange(ref=self._place_ref, value=value, groups=(group,), token=token, ttl_us=int(FORGET_S * 1e6))
        )

    @property
    def _place_ref(self) -> CellRef:
        return cell_ref(_PLACE, "", self._case.thread_id)

    async def _pause(self, pause_s: float) -> None:
        while pause_s > 0 and not self._stopping.is_set():
            await self._saver._async.sleep(min(pause_s, 0.1))
            pause_s -= 0.1

    async def _go_on(self, lease: Lease, finding: Finding, attempt: int) -> None:
        about = {"item": finding.item, "attempt": attempt}
        try:
            try:
                await self._run(lease)
            finally:
                lease = self._lease or lease
        except GraphDrained:
            if lease.lost:
                self._told(FENCED, message="somebody else took it over", **about)
                return
            await lease.ahand_over(lease.control or DRAIN)
            self._told(HANDED_OVER, message=self._control.drain_reason or "", **about)
        except GaveUp as error:
            await self._given_up(lease, error, **about)
        except Fenced:
            raise
        except Exception as error:
            if lease.lost:
                self._told(FENCED, message=f"somebody else took it over: {error}", **about)
                return
            await lease.ahand_over(FAILED)
            self._told(FAILED, message=f"{type(error).__name__}: {error}", **about)
        else:
            await self._close(lease, await standing_of(self._graph, self._side, lease.thread_id), **about)

    async def _run(self, lease: Lease) -> None:
        if self._dog is None:
            with listening(_Beats(lease)):
                await self._graph.ainvoke(None, lease.config, durability="sync", control=self._control)
            return
        call = going_on(self._dog, lease, self._case.graph, self._control)
        try:
            async with aclosing(call.attempts()) as parts:
                async for _ in parts:
                    pass
        finally:
            self._lease = call.lease  # each attempt has its own

    async def _given_up(self, lease: Lease, error: GaveUp, **about: Any) -> None:
        dead = await is_dead(self._saver.async_cells, self._case.thread_id)
        await lease.arelease()
        self._told(DEAD if dead else LEFT, message=str(error), **about)

    async def _close(self, lease: Lease, standing: Standing, **about: Any) -> None:
        """Give the lease of a thread back that does not go on by itself."""
        if standing.kind == UNFINISHED:  # the graph returned and left something to do
            await lease.ahand_over(FAILED)
            self._told(FAILED, message=f"it still waits for {standing.about}", **about)
            return
        await lease.arelease()
        messages = {
            FINISHED: "nothing is left to do",
            WAITING: f"it waits for a human at {standing.about}",
            EMPTY: "its worker died before a checkpoint was stored: start it anew with its input",
        }
        self._told(standing.kind, message=messages[standing.kind], **about)
