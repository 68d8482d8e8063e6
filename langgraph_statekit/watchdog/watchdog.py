"""`Watchdog`: a graph that is watched while it runs, stopped when something is wrong, rolled back, and resumed."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Final, Literal, get_args

from langchain_core.runnables import RunnableConfig
from langgraph.pregel import Pregel
from langgraph.runtime import RunControl

from langgraph_statekit.checkpoint.claims import TOKEN_KEY
from langgraph_statekit.checkpoint.options import require_numbers, require_texts
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.effects.ledger import EffectLedger
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import FailureRate
from langgraph_statekit.leases import Lease
from langgraph_statekit.watchdog.checks import Budget, ItemDeadline, SaveFailureRate
from langgraph_statekit.watchdog.concerns import concerns, sync_nodes
from langgraph_statekit.watchdog.errors import WatchdogWarning
from langgraph_statekit.watchdog.parts import Parts
from langgraph_statekit.watchdog.policy import Policy, Rollback
from langgraph_statekit.watchdog.recovery import OnRollback
from langgraph_statekit.watchdog.rollback import saver_of
from langgraph_statekit.watchdog.supervise import Call, Request, Settings
from langgraph_statekit.watchdog.view import Check
from langgraph_statekit.watchdog.wire import graph_of

Graph = Pregel[Any, Any, Any, Any]
_LEAST_S: Final = 0.001
_LAST: Final = "statekit_last"


class Watchdog:
    """A graph under supervision, called as the graph itself; runs are saved with `durability="sync"` by default.

    Each call takes the thread's lease. When a check finds something, the run is asked to stop after its step; if that
    takes more than `grace_s` it is cancelled, and with `isolation="process"` killed. Then the lease is taken anew, so
    that whatever is left of the run can write nothing more, the thread is rolled back as the policy says, and the graph
    is resumed. The input is never given twice, unless nothing of the run has reached the store. Effects on the world
    are not undone: do them by an `EffectLedger`.

    Args:
        graph: The compiled graph, with a saver of this package. With `isolation="process"` a factory of it: a function
            of a module, or its name as `"package.module:function"`; it is called here and in each process.
        checks: What can be wrong, see `langgraph_statekit.watchdog.checks`. A check is a function of a `View`.
        policy: What to do about it.
        every_s: Seconds between two looks at what takes too long; steps are looked at as they come.
        isolation: `"task"`: nodes run in this process, as without a watchdog; what hangs in sync or blocking code is
            noticed and fenced off, but cannot be ended. `"process"`: each attempt runs in a new process.
        item: Tells the item of a state, by which attempts are counted; None: the key of the first `ItemDeadline`.
        name: The graph's name, by which a `Supervisor` knows how to go on if this process dies; see its `graphs`, which
            may have the `Watchdog` too. Empty: none.
        ledger: Has the effects that the nodes make; with `isolation="process"` one on the store of this process.
        effects: What becomes of effects behind the checkpoint that a thread is rolled back to, see
            `EffectLedger.on_rollback`: `"keep"`, `"compensate"`, or `"ask"`, which ends the call with `GaveUp` if there
            are any.
        grace_s: Seconds that a run gets to end its step.
        stop_s: Seconds that a cancelled run gets to end.
        lease_s: Seconds after which another worker may take the thread over if this process dies.
        wait_s: Seconds to wait for another worker that has the thread.
        clock: Monotonic seconds that the checks count.

    Raises:
        Misuse: An argument is wrong; the message says what to change.
    """

    def __init__(
        self,
        graph: Graph | Callable[[], Graph] | str,
        *,
        checks: Sequence[Check] = (),
        policy: Policy | None = None,
        every_s: float = 0.5,
        isolation: Literal["task", "process"] = "task",
        item: Callable[[Any], Any] | None = None,
        name: str = "",
        ledger: EffectLedger | None = None,
        effects: OnRollback = "keep",
        grace_s: float = 5.0,
        stop_s: float = 5.0,
        lease_s: float = 30.0,
        wait_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        require_numbers(float, _LEAST_S, every_s=every_s, lease_s=lease_s)
        require_numbers(float, 0, grace_s=grace_s, stop_s=stop_s, wait_s=wait_s)
        if isolation not in ("task", "process"):
            raise Misuse(f"isolation is 'task' or 'process', not {isolation!r}")
        if not isinstance(checks, Sequence) or not all(map(callable, checks)):
            raise Misuse(f"checks must be a sequence of functions of a View, not {checks!r}")
        require_texts(name=name)
        if effects not in get_args(OnRollback) or (effects != "keep" and ledger is None):
            raise Misuse(f"effects is 'keep', or with a ledger 'compensate' or 'ask', not {effects!r}")
        policy = Rollback() if policy is None else policy
        if not callable(policy):
            raise Misuse(f"a policy is a Rollback, or a function of a finding and the attempt, not {policy!r}")
        factory = _name_of(graph) if isolation == "process" else None
        if factory is not None:
            graph = graph_of(factory)
        saver = saver_of(graph)
        assert isinstance(graph, Pregel)
        rates = [hook for hook in saver.hooks if isinstance(hook, FailureRate)]
        if not rates and any(isinstance(check, SaveFailureRate) for check in checks):
            raise Misuse("SaveFailureRate needs a saver that counts: open it with hooks=[FailureRate()]")
        for concern in concerns(graph, isolation, ledger is not None):
            warnings.warn(concern, WatchdogWarning, stacklevel=2)
        keys = (check.key for check in checks if isinstance(check, ItemDeadline))
        self.graph: Graph = graph
        self._watched = _watched(
            graph,
            Settings(
                checks=tuple(checks),
                policy=policy,
                every_s=every_s,
                isolation=isolation,
                item=item or next((key for key in keys if key), None),
                grace_s=grace_s,
                stop_s=stop_s,
                lease_s=lease_s,
                wait_s=wait_s,
                clock=clock,
                failing=(lambda: max(rate.rate for rate in rates)) if rates else lambda: 0.0,
                name=name,
                factory=factory,
                counts=any(isinstance(check, Budget) and check.counts for check in checks),
                unstoppable=sync_nodes(graph),
                ledger=ledger,
                effects=effects,
            ),
        )

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        """Run the graph and return its output; arguments are those of the graph's `invoke`.

        Raises:
            GaveUp: The policy says not to try again. The thread stays as it is.
            CannotStop: A node hangs in this process and cannot be ended; it can write nothing more to the thread.
            Fenced: Another worker took the thread over; stop.
            Conflict: Another worker has the thread; the message names it.
            ChildError: A node raised in its process; in this process its own exception is raised.
            Misuse: The config names no thread, or has a token, or an argument cannot go to another process.
            Unavailable: The store did not answer; call again with None.
        """
        return self._watched.invoke(input, config, **options)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        """Async version of `invoke`."""
        return await self._watched.ainvoke(input, config, **options)

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:
        """Yield what the graph streams, over all attempts; arguments are those of the graph's `stream`.

        The graph does not wait for who takes the parts. See `invoke` for what it raises.
        """
        return self._watched.stream(input, config, **options)

    def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        return self._watched.astream(input, config, **options)

    def batch(self, inputs: list[Any], config: Any = None, **options: Any) -> list[Any]:
        """Run the graph for each input, several at a time; each needs a thread of its own in its config."""
        return self._watched.batch(inputs, config, **options)

    async def abatch(self, inputs: list[Any], config: Any = None, **options: Any) -> list[Any]:
        """Async version of `batch`."""
        return await self._watched.abatch(inputs, config, **options)


def going_on(dog: Watchdog, lease: Lease, graph: str, control: RunControl) -> Call:
    """Return a call, yet to be made, that goes on with a thread under a lease that somebody took for it.

    Args:
        dog: How to look after it.
        lease: The lease; `call.lease` is the one to give back afterwards.
        graph: By which supervisors know the graph.
        control: Drains the run.
    """
    watched: Any = dog._watched
    call: Call = watched._call(None, {"configurable": {"thread_id": lease.thread_id}}, {"control": control}, True)
    call.lease, call.name = lease, graph
    return call


class _Watched(Pregel[Any, Any, Any, Any]):
    """Every run of a graph goes through `stream` or `astream`."""

    _inner: Graph
    _settings: Settings

    def invoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        return super().invoke(input, config, **_last(options))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Any:
        return await super().ainvoke(input, config, **_last(options))

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:
        parts = self._call(input, config, options, False).parts()
        try:
            while True:
                try:
                    part = run_sync(parts.__anext__())
                except StopAsyncIteration:
                    return
                yield part
        finally:
            run_sync(parts.aclose())

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        async with aclosing(self._call(input, config, options, True).parts()) as parts:
            async for part in parts:
                yield part

    def _call(self, input: Any, config: RunnableConfig | None, options: dict[str, Any], is_async: bool) -> Call:
        own: dict[str, Any] = (self.config or {}).get("configurable", {})
        given: dict[str, Any] = (config or {}).get("configurable", {})
        thread_id = given.get("thread_id", own.get("thread_id"))
        if thread_id is None:
            raise Misuse('the config names no thread: pass {"configurable": {"thread_id": ...}}')
        if TOKEN_KEY in given:
            raise Misuse("a Watchdog takes the lease itself: pass a config without a token, and release the lease")
        control: RunControl | None = options.pop("control", None)
        if options.get("durability") is None:
            options["durability"] = "sync"
        elif options["durability"] != "sync":
            warnings.warn(
                f"with durability={options['durability']!r} steps that are done but not saved run again after a stop",
                WatchdogWarning,
                stacklevel=4,
            )
        mode = options.pop("stream_mode", None)
        mode = self.stream_mode if mode is None else mode
        modes = (mode,) if isinstance(mode, str) else tuple(mode)
        last = bool(options.pop(_LAST, False))
        subgraphs = bool(options.pop("subgraphs", False))
        inner = subgraphs or next(self._inner.get_subgraphs(), None) is not None
        v2 = options.pop("version", "v1") == "v2"
        parts = Parts(modes, isinstance(mode, str), subgraphs, inner, v2, last)
        configurable = {**given, "thread_id": str(thread_id)}
        request = Request(input, {**(config or {}), "configurable": configurable}, options, parts, control)
        return Call(self._inner, self._settings, request, is_async)


def _last(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a call of `invoke`, with a hint for its call of `stream`."""
    return {**options, _LAST: True} if options.get("stream_mode", "values") == "values" else options


def _watched(graph: Graph, settings: Settings) -> Graph:
    watched = copy.copy(graph)
    attributes = {"_inner": graph, "_settings": settings}
    watched.__class__ = type(f"Watched{type(graph).__name__}", (_Watched, type(graph)), attributes)
    return watched


def _name_of(factory: object) -> str:
    """Return the name by which another process finds a factory."""
    if isinstance(factory, str):
        return factory
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", "<locals>")
    if not callable(factory) or isinstance(factory, Pregel) or not module or "<" in name or module == "__main__":
        raise Misuse(
            'isolation="process" needs a factory that a new process can import: a function of a module that is not the '
            f"main program, or its name 'package.module:function', not {factory!r}"
        )
    return f"{module}:{name}"
