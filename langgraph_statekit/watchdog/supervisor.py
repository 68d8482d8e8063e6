"""Finds threads whose worker died or hangs, in any process of any host, and goes on with them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any, Final

from langgraph_statekit.checkpoint.claims import Claim, LeaseQuery
from langgraph_statekit.checkpoint.observed import store_of
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.checkpoint.run import Threads, aside, run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.compat import Graph
from langgraph_statekit.errors import Misuse, Unavailable
from langgraph_statekit.events import Supervised
from langgraph_statekit.processes import GONE, STOPPED, Process
from langgraph_statekit.watchdog.leased import ORPHAN, STUCK, Leased, leased
from langgraph_statekit.watchdog.policy import Backoff, DeadLetter, Policy, Rollback
from langgraph_statekit.watchdog.standing import UNFIT
from langgraph_statekit.watchdog.takeover import ALERTS, DRAINING, KILLED, UNKNOWN, Rules, Takeover
from langgraph_statekit.watchdog.watchdog import Watchdog

_LOG: Final = logging.getLogger(__name__)
_AGAIN_S: Final = 60.0
"""Seconds after which a thread that is left alone is looked at, and told of, again."""
_PAGE: Final = 200

Factory = Callable[[StatekitSaver], Graph | Watchdog]
"""Makes a compiled graph with this saver as its checkpointer, or a `Watchdog` around one."""

POLICY: Final = Rollback(to="retry_head", max_attempts=3, backoff=Backoff(), then=DeadLetter())
"""Goes on from the newest checkpoint, three times for each item and reason; then the thread is dead."""


class Supervisor:
    """Goes on with threads whose lease ended without being given back, or whose work stands still under one.

    A worker takes part by its lease: `saver.lease(thread_id, graph="shop")` tells under which name supervisors know
    the graph that it runs, and a lease that names none is of the graph `""`. Any number of supervisors, of any hosts,
    may look after one store: each takeover is made by one of them. It takes the thread's token, so that the worker
    before can write no more, checks that the graph has the nodes that the thread waits for, and runs the graph
    without input from the newest checkpoint, or from another one as the policy says. What it runs is under a lease
    too, so that another supervisor goes on if this one dies.

    What it did is told to the saver's hooks as `Supervised` events, by their `outcome`:

    - `resumed`: the graph runs again; then `finished`, `waiting` (it asked a human), `failed` (it raised, and is tried
      again), `fenced` (somebody else took it over meanwhile) or `handed_over` (this supervisor was stopped).
    - `finished` or `waiting` without `resumed`: there was nothing to do, or the thread waits for a human.
    - `draining`: the holder of a thread that is stuck was asked to stop after its step.
    - `killed`: a stopped process of this host held up the whole SQLite file.
    - `dead`, `left`: the policy says that it is not tried again; of a dead thread that all supervisors are to know it.
    - `unfit`: it waits for nodes that the graph lacks, it cannot be read, or the graph cannot be made; a supervisor
      with the right code goes on with it.
    - `unknown`: its graph is none of `graphs`. `empty`: its worker died before the first checkpoint was stored.

    Args:
        saver: The store.
        graphs: By name, what makes the compiled graph, or a `Watchdog` around it: then its checks and its policy hold
            while the thread runs here, and a thread that it gives up is `left` or `dead`. It is called with the saver
            once for each name.
        policy: What to do about an orphan or a stuck thread; see `Rollback`. The item of the finding is that of the
            lease, or else where the thread stands.
        every_s: Seconds between two looks at the store.
        stuck_s: Seconds without a save or `Lease.progress` after which a thread under a lease is stuck.
        drain_s: Seconds that its holder gets to stop after its step, before the lease is taken from it.
        quarantine_s: Seconds between the taking of a lease and the first step, for an effect that the worker before may
            have under way; not where its process is known to be gone.
        lease_s: Seconds for which leases of this supervisor outlive it.
        workers: Threads that run at once at most; what is more is left to other supervisors, or to a later look.
        told: Called with each event too.
        alert: Called with events that somebody should look at; None logs them as warnings.

    Raises:
        Misuse: An option has a wrong value.
    """

    def __init__(
        self,
        saver: StatekitSaver,
        graphs: Mapping[str, Factory],
        *,
        policy: Policy = POLICY,
        every_s: float = 5.0,
        stuck_s: float = 600.0,
        drain_s: float = 30.0,
        quarantine_s: float = 5.0,
        lease_s: float = 30.0,
        workers: int = 4,
        told: Callable[[Supervised], object] = lambda event: None,
        alert: Callable[[Supervised], object] | None = None,
    ) -> None:
        require_numbers(float, 0.01, every_s=every_s, stuck_s=stuck_s)
        require_numbers(float, 0, drain_s=drain_s, quarantine_s=quarantine_s)
        require_numbers(int, 1, workers=workers)
        if not isinstance(saver, StatekitSaver):
            raise Misuse(f"a supervisor needs a saver of this package, not {type(saver).__name__}")
        if not isinstance(graphs, Mapping) or not all(map(callable, graphs.values())):
            raise Misuse(
                "graphs must map names to functions that take the saver and return a compiled graph or a Watchdog"
            )
        if not callable(policy):
            raise Misuse(f"the option policy must be a Rollback or a function, not {policy!r}")
        self._saver, self._factories = saver, dict(graphs)
        self._graphs: dict[str, Graph | Watchdog] = {}
        self._every_s, self._stuck_s, self._drain_s = every_s, stuck_s, drain_s
        self._workers = workers
        self._rules = Rules(policy, quarantine_s, lease_s)
        self._listener, self._alert = told, alert or _warn
        self._lock = threading.Lock()
        self._under_way: dict[str, tuple[Takeover, Future[None]]] = {}
        self._asked: dict[tuple[str, int], float] = {}
        self._told: dict[tuple[str, int], float] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        """Look after the store until `stop` is called; what is under way is handed over to other supervisors then.

        A store that does not answer is tried again.
        """
        pool = Threads(self._workers)
        try:
            while not self._stopping.is_set():
                try:
                    self._look(pool)
                except Unavailable as error:
                    _LOG.warning("the store does not answer, and is asked again: %s", error)
                self._stopping.wait(self._every_s)
        finally:
            for takeover, _ in self._running():
                takeover.stop()
            pool.close()
            self._stopping.clear()

    async def arun(self) -> None:
        """Async version of `run`: the event loop stays free, and the graphs run in loops of their own."""
        await aside(self.run)

    def stop(self) -> None:
        """Let `run` end after the running steps of what it resumed; may be called from a signal handler."""
        self._stopping.set()

    def once(self) -> list[Supervised]:
        """Look once, wait until what was resumed has ended, and return what was done.

        Raises:
            Unavailable: The store did not answer; call again.
        """
        events: list[Supervised] = []
        pool = Threads(self._workers)
        try:
            full = True
            while full:
                full = self._look(pool, events.append)
                wait([future for _, future in self._running()])
        finally:
            pool.close()
        return events

    async def aonce(self) -> list[Supervised]:
        """Async version of `once`."""
        events: list[Supervised] = []
        await aside(lambda: events.extend(self.once()))
        return events

    def leases(self) -> Iterator[Leased]:
        """Yield all threads that are leased, or whose lease ended without being given back; read-only."""
        for ended in (True, False):
            yield from self._leased(ended)

    def unknown(self) -> Iterator[str]:
        """Yield the threads that no lease tells about; whether somebody works on them is not known. Reads all ids."""
        run_sync(self._saver._sync.setup())
        known = {to_text(each.thread_id) for each in self.leases()}
        for page in self._saver.backend.threads():
            yield from (from_text(thread) for thread in page if thread not in known)

    def _leased(self, ended: bool) -> Iterator[Leased]:
        after = ""
        while True:
            page = run_sync(self._saver._sync.leases(LeaseQuery(ended, after, _PAGE)))
            for thread, held in page.leases:
                yield leased(thread, held, page.now_us, self._stuck_s)
            after = page.after
            if not after:
                return

    def _running(self) -> list[tuple[Takeover, Future[None]]]:
        with self._lock:
            return [*self._under_way.values()]

    def _look(self, pool: Threads, also: Callable[[Supervised], object] = lambda event: None) -> bool:
        """Begin what there is to do, and say whether there were too few workers for all of it."""

        def tell(thread_id: str, outcome: str, about: Mapping[str, Any]) -> None:
            self._tell(also, thread_id, outcome, about)

        over, held = list(self._leased(True)), list(self._leased(False))
        gone = [replace(each, problem=ORPHAN) for each in held if each.process.state == GONE]
        stuck = {(each.thread_id, each.token) for each in held if each.problem == STUCK}
        self._asked = {key: asked_s for key, asked_s in self._asked.items() if key in stuck}
        late = (each for each in held if each.problem == STUCK and self._is_late(each, tell))
        begun = [self._recover(pool, each, over, tell) for each in (*over, *gone, *late)]
        return not all(begun)

    def _is_late(self, each: Leased, tell: Any) -> bool:
        """Ask the holder of a stuck thread to stop, and say whether it had its time to do so."""
        key = each.thread_id, each.token
        if each.thread_id in self._under_way or each.process.state == GONE:
            return False
        if each.graph not in self._factories:
            self._leave(each, UNKNOWN, f"no graph {each.graph!r} is given here", tell)
            return False
        asked_s = self._asked.setdefault(key, time.monotonic())
        if not each.control:
            claim = Claim(to_text(each.thread_id), "", "", 0, each.token, control=STUCK)
            run_sync(self._saver._sync.claim(claim))
            tell(each.thread_id, DRAINING, _about(each, each.finding("").message))
        if time.monotonic() < asked_s + self._drain_s:
            return False
        self._asked = {k: at for k, at in self._asked.items() if k != key}
        return True

    def _leave(self, each: Leased, outcome: str, message: str, tell: Any) -> None:
        """Tell of a thread that is left alone, now and then."""
        key, now_s = (each.thread_id, each.token), time.monotonic()
        if self._told.get(key, 0.0) <= now_s:
            self._told = {k: at for k, at in self._told.items() if at > now_s - _AGAIN_S}
            self._told[key] = now_s + _AGAIN_S
            tell(each.thread_id, outcome, _about(each, message))

    def _recover(self, pool: Threads, each: Leased, over: Sequence[Leased], tell: Any) -> bool:
        """Begin to recover a thread, unless it is left alone; False if all workers are busy."""
        if each.graph not in self._factories:
            self._leave(each, UNKNOWN, f"no graph {each.graph!r} is given here", tell)
            return True

        def leave(outcome: str, message: str) -> None:
            self._leave(each, outcome, message, tell)

        def told(outcome: str, **about: Any) -> None:
            tell(each.thread_id, outcome, {**_about(each, ""), **about})

        def unblock() -> bool:
            return self._kill_stopped([each, *over], tell)

        try:
            graph = self._graph(each.graph)
            takeover = Takeover(self._saver, graph, each, self._rules, told, leave, unblock)
        except Exception as error:  # whatever the factory does
            self._leave(each, UNFIT, f"its graph cannot be made: {type(error).__name__}: {error}", tell)
            return True
        with self._lock:
            if each.thread_id in self._under_way:
                return True
            if len(self._under_way) >= self._workers:
                return False
            future = pool.start(takeover.run)
            self._under_way[each.thread_id] = takeover, future
        future.add_done_callback(lambda _: self._ended(each.thread_id))
        return True

    def _ended(self, thread_id: str) -> None:
        with self._lock:
            self._under_way.pop(thread_id, None)

    def _graph(self, name: str) -> Graph | Watchdog:
        if name not in self._graphs:
            self._graphs[name] = self._factories[name](self._saver)
        return self._graphs[name]

    def _kill_stopped(self, over: Sequence[Leased], tell: Any) -> bool:
        """Kill the stopped processes of this host whose leases are over: one of them may hold the lock of the file."""
        killed: set[Process] = set()
        for each in over:
            if each.process not in killed and not each.held and each.process.state == STOPPED and each.process.kill():
                killed.add(each.process)
                told = f"process {each.process.pid} is stopped and holds up the store for all others: it was killed"
                tell(each.thread_id, KILLED, _about(each, told))
        return bool(killed)

    def _tell(
        self, also: Callable[[Supervised], object], thread_id: str, outcome: str, about: Mapping[str, Any]
    ) -> None:
        fields = {
            "operation": "supervise",
            "thread_id": thread_id,
            "checkpoint_ns": "",
            "outcome": outcome,
            "alert": outcome in ALERTS,
            **about,
        }
        self._saver.tell(Supervised, **fields)
        event = Supervised(store=store_of(self._saver.backend), **fields)
        also(event)
        for call in (self._listener, *([self._alert] if event.alert else [])):
            try:
                call(event)
            except Exception:
                _LOG.exception("what is told of thread %r failed", thread_id)


def _about(each: Leased, message: str) -> dict[str, Any]:
    return {"graph": each.graph, "reason": each.problem, "item": each.item, "attempt": 0, "message": message}


def _warn(event: Supervised) -> None:
    _LOG.warning("thread %r is %s: %s", event.thread_id, event.outcome, event.message)
