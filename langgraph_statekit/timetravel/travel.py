"""`TimeTravel`: what a notebook imports."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, overload

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import AnySaver, Side
from langgraph_statekit.errors import Misuse
from langgraph_statekit.extras import load
from langgraph_statekit.timetravel.history import steps_between
from langgraph_statekit.timetravel.html import page
from langgraph_statekit.timetravel.moments import Point
from langgraph_statekit.timetravel.reading import Graph, Predicate, Reading, Where
from langgraph_statekit.timetravel.results import Branches, Comparison, Diff, Pending, Sizes, Snapshot, Why
from langgraph_statekit.timetravel.running import Effects, Ran, Running
from langgraph_statekit.timetravel.view import Timeline

LIMIT: Final = 50
_ASYNC: Final = "This checkpointer is async only"


class TimeTravel:
    """See, compare, replay and branch what a thread has stored; a notebook shows it, `print` writes it.

    Nothing is read before it is asked for, and each call sees what is stored then. A checkpoint is named (`at`) by
    its step on the current branch, where -1 is the latest, -2 the one before it, and so on; by its id, or the beginning
    of it; by a label; by a predicate of the state, which means the newest one that it is true of; or by what these
    methods return. None is the latest.

    Every method has an async version: `adiff`, `areplay`, ... Those are for graphs and savers that are async only;
    then a notebook shows `await tt.atimeline()`.

    Args:
        source: A compiled graph with a checkpointer, or a checkpointer of any kind, which is enough to look.
        config: Names the thread, as for `invoke`; the rest of it goes to the runs that are started here.
        thread_id: The thread, instead of a config.
        pure: Names of nodes that change nothing in the world, and may run again; see `replay`.

    Raises:
        Misuse: There is no thread, or no checkpointer.
    """

    def __init__(
        self,
        source: Graph | AnySaver,
        config: RunnableConfig | None = None,
        *,
        thread_id: str | None = None,
        pure: Collection[str] = (),
    ) -> None:
        graph = source if isinstance(source, Pregel) else None
        saver: Any = source.checkpointer if isinstance(source, Pregel) else source
        if not isinstance(saver, BaseCheckpointSaver):
            has = "a graph without a checkpointer" if graph is not None else type(source).__name__
            raise Misuse(f"a compiled graph with a checkpointer, or a checkpointer, is needed, not {has}")
        given = (config or {}).get("configurable", {}).get("thread_id")
        named = thread_id if thread_id is not None else given
        if named is None:
            raise Misuse("no thread is named: pass config={'configurable': {'thread_id': ...}} or thread_id=...")
        if isinstance(pure, str):
            raise Misuse(f"pure must be a collection of names, not one string: pass [{pure!r}]")
        self.thread_id = str(named)
        self._source, self._pure = source, tuple(pure)
        self._config: RunnableConfig = {
            **(config or {}),
            "configurable": {**(config or {}).get("configurable", {}), "thread_id": self.thread_id},
        }
        self._sync = Reading(Side(saver, False), self.thread_id, graph)
        self._async = Reading(Side(saver, True), self.thread_id, graph)

    def _running(self, reading: Reading) -> Running:
        return Running(reading, self._config, self._pure)

    def timeline(self, *, limit: int = LIMIT, before: Where = None) -> Timeline:
        """Return the newest checkpoints, of the graph and its subgraphs, ready to look at.

        Args:
            limit: At most so many.
            before: Only those older than this one; None: from the latest.

        Raises:
            Misuse: The limit is no positive number.
            CheckpointMissing: There is no checkpoint `before`.
        """
        return run_sync(self._sync.timeline(limit, before))

    async def atimeline(self, *, limit: int = LIMIT, before: Where = None) -> Timeline:
        """Async version of `timeline`."""
        return await self._async.timeline(limit, before)

    def __repr__(self) -> str:
        return repr(self.timeline()) if self._has_sync() else f"{_ASYNC}: print(await tt.atimeline())"

    def _repr_html_(self) -> str:
        return (
            self.timeline()._repr_html_() if self._has_sync() else f"<p>{_ASYNC}: <code>await tt.atimeline()</code></p>"
        )

    def _has_sync(self) -> bool:
        return not any(cls.__module__.endswith(".aio") for cls in type(self._sync.side.saver).__mro__)

    @overload
    def __getitem__(self, where: slice) -> list[Snapshot]: ...
    @overload
    def __getitem__(self, where: Where) -> Snapshot: ...
    def __getitem__(self, where: Where | slice) -> Snapshot | list[Snapshot]:
        if isinstance(where, slice):
            if where.step is not None:
                raise Misuse("a slice of steps has no stride: pass tt[3:6]")
            return [self.at(each) for each in steps_between(run_sync(self._sync.line(None)), where.start, where.stop)]
        return self.at(where)

    def __iter__(self) -> Iterator[Snapshot]:
        """Yield the checkpoints of the current branch, newest first, each read when its turn comes."""
        where: Where = None
        while True:
            found = self.at(where)
            yield found
            if found.point.parent is None:
                return
            where = found.point.parent

    def at(self, at: Where = None) -> Snapshot:
        """Return one checkpoint with its values.

        Raises:
            CheckpointMissing: There is none that is meant.
            Misuse: Several ids begin so.
        """
        return run_sync(self._sync.snapshot(at))

    async def aat(self, at: Where = None) -> Snapshot:
        """Async version of `at`."""
        return await self._async.snapshot(at)

    def inside(self, at: Where = None) -> list[Snapshot]:
        """Return the latest checkpoint of each run of a subgraph that was started from a checkpoint.

        LangGraph cannot go on inside a subgraph: `replay` and `fork` there are refused.
        """
        return run_sync(self._sync.inside(at))

    async def ainside(self, at: Where = None) -> list[Snapshot]:
        """Async version of `inside`."""
        return await self._async.inside(at)

    def diff(self, a: Where = None, b: Where = None) -> Diff:
        """Return what differs from one checkpoint to another: added messages alone, and changed ones by their id.

        Args:
            a: The one; None: what `b` goes on from.
            b: The other; None: the latest.
        """
        return run_sync(self._sync.diff(a, b))

    async def adiff(self, a: Where = None, b: Where = None) -> Diff:
        """Async version of `diff`."""
        return await self._async.diff(a, b)

    def branches(self) -> Branches:
        """Return the branches of the thread, the current one first, and why others were left, if it was recorded."""
        return run_sync(self._sync.branches())

    async def abranches(self) -> Branches:
        """Async version of `branches`."""
        return await self._async.branches()

    def compare(self, x: Where, y: Where = None) -> Comparison:
        """Return where two checkpoints or branches came apart, and what differs from the first to the second."""
        return run_sync(self._sync.compare(x, y))

    async def acompare(self, x: Where, y: Where = None) -> Comparison:
        """Async version of `compare`."""
        return await self._async.compare(x, y)

    def pending(self, at: Where = None) -> list[Pending]:
        """Return the tasks of a checkpoint's step, if it has not ended: what ran, what waits, failed, or is to run."""
        return run_sync(self._sync.pending(at))

    async def apending(self, at: Where = None) -> list[Pending]:
        """Async version of `pending`."""
        return await self._async.pending(at)

    def size(self, at: Where = None) -> Sizes:
        """Return the bytes of each channel as the saver's serializer writes them, and about the tokens of messages."""
        return run_sync(self._sync.size(at))

    async def asize(self, at: Where = None) -> Sizes:
        """Async version of `size`."""
        return await self._async.size(at)

    def why(self, channel: str, at: Where = None) -> Why:
        """Return which checkpoint and which nodes last gave a value what it is, and what these had been given.

        Writes that left it as it was are passed over, 500 at most.

        Args:
            channel: A channel, or a way into it: `"prices.A-17"`, `"orders[0].state"`, `"messages[ai-1].content"`.
            at: The checkpoint whose value it is.

        Raises:
            Misuse: There is no such value.
        """
        return run_sync(self._sync.why(channel, at))

    async def awhy(self, channel: str, at: Where = None) -> Why:
        """Async version of `why`."""
        return await self._async.why(channel, at)

    def find(self, predicate: Predicate) -> Snapshot | None:
        """Return the checkpoint of the current branch at which a predicate of the state became true, and stayed so.

        It is found by bisection: of 10,000 checkpoints about 14 are read. If it became true and false in turns, one of
        the turns is found. None: it is not true of the latest.
        """
        return run_sync(self._sync.find(predicate))

    async def afind(self, predicate: Predicate) -> Snapshot | None:
        """Async version of `find`."""
        return await self._async.find(predicate)

    def replay(
        self,
        at: Where = None,
        *,
        stop_before: str | Collection[str] | None = None,
        effects: Effects = "dry",
    ) -> Replayed:
        """Run on from a checkpoint, and return the result to look at.

        LangGraph does not replay what was recorded: it runs the nodes again. So `"dry"` runs them on a copy in memory,
        which changes nothing that is stored, and refuses before it runs a node that is neither declared `pure` nor
        wrapped in effects; effects hand out what they recorded, and it stops at one that is not recorded. `"replay"`
        raises there. `"live"` really runs: in the thread, as a new branch. It also stops at questions, which are asked
        anew.

        Args:
            at: Where to begin.
            stop_before: Nodes before which to stop.
            effects: `"dry"`, `"replay"` or `"live"`.

        Raises:
            Misuse: A node may not run again, the mode or a node is unknown, there is no graph, or the checkpoint is
                inside a subgraph.
            NotMade: With `"replay"`, an effect is not recorded; it was not made.
        """
        return run_sync(self._replay(self._sync, at, stop_before, effects, None))

    async def areplay(
        self,
        at: Where = None,
        *,
        stop_before: str | Collection[str] | None = None,
        effects: Effects = "dry",
    ) -> Replayed:
        """Async version of `replay`."""
        return await self._replay(self._async, at, stop_before, effects, None)

    async def _replay(
        self, reading: Reading, where: Where, stop_before: Any, effects: Effects, steps: int | None
    ) -> Replayed:
        running = self._running(reading)
        running.require(effects)
        point = await running.root(where, "replay")
        graph: Any = reading.graph if effects == "live" else running.scratch()
        if graph is None:
            raise Misuse("replay needs the graph: make TimeTravel(graph, config), not of the saver alone")
        result = Replayed(graph, self._config, pure=self._pure)
        inner = result._async if reading is self._async else result._sync
        result.ran = await result._running(inner).run(point, stop_before, effects, steps)
        return result

    def step(self, effects: Effects = "dry") -> Replayed:
        """Run one step on from the latest checkpoint, as `replay` does; `"live"` moves the thread on by it."""
        return run_sync(self._replay(self._sync, None, None, effects, 1))

    async def astep(self, effects: Effects = "dry") -> Replayed:
        """Async version of `step`."""
        return await self._replay(self._async, None, None, effects, 1)

    def fork(
        self,
        at: Where = None,
        *,
        edit: Mapping[str, Any] | None = None,
        as_node: str | None = None,
        reason: str = "",
    ) -> Snapshot:
        """Make a checkpoint, with an edit if given, the latest one, and return it; what came after it stays stored.

        Nothing runs. Nodes that were to run at the checkpoint run when the graph is invoked with None, all of them.

        Args:
            at: The checkpoint.
            edit: An update of the state, as a node returns one: reducers apply. It needs the graph.
            as_node: The node that seems to have made the edit; what follows it runs next. None: the one that ran last.
            reason: Why, for those who look at the thread later.

        Raises:
            Misuse: The edit does not fit, it is not clear which node made it, or the checkpoint is in a subgraph, or of
                another thread.
            CheckpointMissing: There is none that is meant, or it is one that a dry replay made.
            Fenced: The config carries the token of a lease that is over; nothing was written.
        """
        return run_sync(self._running(self._sync).fork(at, edit, as_node, _record(reason)))

    async def afork(
        self,
        at: Where = None,
        *,
        edit: Mapping[str, Any] | None = None,
        as_node: str | None = None,
        reason: str = "",
    ) -> Snapshot:
        """Async version of `fork`."""
        return await self._running(self._async).fork(at, edit, as_node, _record(reason))

    def undo(self, n: int = 1) -> Snapshot:
        """Take back the last `n` steps: fork at the checkpoint before them, and return the fork; nothing is deleted."""
        return run_sync(self._running(self._sync).undo(n))

    async def aundo(self, n: int = 1) -> Snapshot:
        """Async version of `undo`."""
        return await self._running(self._async).undo(n)

    def label(self, label: str, at: Where = None) -> Point:
        """Give a checkpoint a label, which keeps it from retention, and return the checkpoint.

        Raises:
            Misuse: The saver is none of this package, or the label is empty.
        """
        return run_sync(self._label(self._sync, label, at))

    async def alabel(self, label: str, at: Where = None) -> Point:
        """Async version of `label`."""
        return await self._label(self._async, label, at)

    async def _label(self, reading: Reading, label: str, where: Where) -> Point:
        if not isinstance(reading.side.saver, StatekitSaver):
            raise Misuse(f"{type(reading.side.saver).__name__} has no labels: use a saver of this package")
        point = await reading.point(where)
        await reading.side.call("label", point.config, label)
        return point

    def to_html(self, path: str | Path, *, limit: int = LIMIT) -> Path:
        """Write the timeline as a page of its own, which loads and runs nothing, and return its path."""
        return _written(self.timeline(limit=limit), path)

    async def ato_html(self, path: str | Path, *, limit: int = LIMIT) -> Path:
        """Async version of `to_html`."""
        return _written(await self.atimeline(limit=limit), path)

    def widget(self, *, limit: int = LIMIT) -> Any:
        """Return a widget with a slider over the newest checkpoints, two side by side, and a form that forks.

        It needs the extra `notebook` and a running kernel; elsewhere, as in an exported page, the timeline shows.

        Raises:
            ModuleNotFoundError: The extra is not installed.
        """
        return load("timetravel.widget", "TimeWidget")(self, limit)

    def to_mermaid(self, *, limit: int = LIMIT) -> str:
        """Return the timeline as a Mermaid flowchart."""
        return self.timeline(limit=limit).mermaid()

    async def ato_mermaid(self, *, limit: int = LIMIT) -> str:
        """Async version of `to_mermaid`."""
        return (await self.atimeline(limit=limit)).mermaid()


class Replayed(TimeTravel):
    """What a replay made, to look at with everything that `TimeTravel` has.

    Of a dry one, the checkpoints that it made are in memory and end with this object.

    Attributes:
        ran: Where it began, what ran, and why it stopped.
    """

    ran: Ran


def _record(reason: str) -> dict[str, Any]:
    return {"statekit_op": "fork", "statekit_reason": reason} if reason else {}


def _written(shown: Timeline, path: str | Path) -> Path:
    target = Path(path)
    target.write_text(page(f"{shown.thread_id}: timeline", shown._repr_html_()), encoding="utf-8", errors="replace")
    return target
