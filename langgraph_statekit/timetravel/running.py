"""Runs and forks that start at a stored checkpoint, each written once for sync and async callers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from langchain_core.runnables import RunnableConfig
from langgraph.errors import InvalidUpdateError
from langgraph.graph.state import CompiledStateGraph

from langgraph_statekit.checkpoint.forking import FROM_KEY, TO_KEY, save_again
from langgraph_statekit.errors import Misuse, NotMade
from langgraph_statekit.rehearsal import MODE_KEY
from langgraph_statekit.status import is_control
from langgraph_statekit.timetravel.moments import Point, point_of
from langgraph_statekit.timetravel.overlay import Overlay
from langgraph_statekit.timetravel.purity import refused
from langgraph_statekit.timetravel.reading import Graph, Reading, Where
from langgraph_statekit.timetravel.results import Snapshot

Effects: TypeAlias = Literal["dry", "replay", "live"]
_MOST_STEPS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a run.

    Attributes:
        start: The checkpoint that it went on from.
        stopped: `end`; `before NODE`; `waits` for an answer; `steps`, as many as were asked for; or which effect is not
            recorded, and was not made.
        nodes: What ran, in order.
    """

    start: Point
    stopped: str
    nodes: tuple[str, ...]


class Running:
    """Runs the graph of one thread.

    Args:
        reading: The thread.
        config: What the runs get beside the thread's address.
        pure: Names of nodes that may run again.
    """

    def __init__(self, reading: Reading, config: RunnableConfig, pure: Collection[str]) -> None:
        self._reading = reading
        self._config = config
        self._pure = frozenset(pure)

    def _run_config(self, point: Point | None = None, more: Mapping[str, Any] | None = None) -> RunnableConfig:
        given = {key: value for key, value in self._config.get("configurable", {}).items() if key != "checkpoint_id"}
        address = {} if point is None else point.config["configurable"]
        return {**self._config, "configurable": {**given, **address, **(more or {})}}

    async def root(self, where: Where, what: str) -> Point:
        """Return the checkpoint that is meant, of the graph itself.

        Raises:
            Misuse: It is one of a subgraph.
            CheckpointMissing: It is not stored. LangGraph would begin with an empty state there, and tell nobody.
        """
        point = await self._reading.point(where)
        if point.ns:
            raise Misuse(
                f"LangGraph cannot {what} inside a subgraph: the subgraph would start from its beginning; {what} at "
                f"the checkpoint that it was started from, {point.above!r}"
            )
        await self._reading.history.loaded(point)
        return point

    def require(self, effects: object) -> None:
        """Raise `Misuse` for a mode that there is not."""
        if effects not in get_args(Effects):
            raise Misuse(f"effects must be one of {', '.join(map(repr, get_args(Effects)))}, not {effects!r}")

    def scratch(self) -> Graph:
        """Return the graph with a saver that writes to memory."""
        graph = self._graph("replay")
        return graph.copy({"checkpointer": Overlay(self._reading.side.saver)})

    def _graph(self, what: str) -> Graph:
        if self._reading.graph is None:
            raise Misuse(f"{what} needs the graph: make TimeTravel(graph, config), not of the saver alone")
        return self._reading.graph

    async def run(
        self, where: Where, stop_before: str | Collection[str] | None, effects: Effects, steps: int | None = None
    ) -> Ran:
        """Run on from a checkpoint, one superstep after the other."""
        point = await self.root(where, "replay")
        stops = [stop_before] if isinstance(stop_before, str) else list(stop_before or ())
        self._require_nodes(stops)
        more: dict[str, Any] = {} if effects == "live" else {MODE_KEY: effects}
        config = self._run_config(point, more)
        ran: list[str] = []
        for count in range(_MOST_STEPS):
            state = await self._reading.on_graph("get_state", config)
            if not state.next:
                return Ran(point, "end", tuple(ran))
            if count and any(task.interrupts for task in state.tasks):
                return Ran(point, "waits", tuple(ran))
            if stop := next((node for node in state.next if node in stops), None):
                return Ran(point, f"before {stop!r}", tuple(ran))
            if steps is not None and count >= steps:
                return Ran(point, "steps", tuple(ran))
            if effects != "live":
                self._refuse(state.next)
            ran += dict.fromkeys(state.next)
            try:
                await self._reading.on_graph("invoke", None, config, interrupt_after="*", durability="sync")
            except NotMade as error:
                if effects == "replay":
                    raise
                return Ran(point, str(error), tuple(ran))
            config = self._run_config(None, more)
        return Ran(point, "steps", tuple(ran))

    def _require_nodes(self, names: Collection[str]) -> None:
        known = self._graph("replay").nodes
        if odd := next((name for name in names if name not in known), None):
            raise Misuse(f"stop_before names {odd!r}, which is no node of the graph")

    def _require_channels(self, edit: object) -> None:
        """Raise `Misuse` for an edit of a channel that there is not, which LangGraph would pass over in silence."""
        graph = self._graph("a fork with an edit or as_node")
        known = [name for name in graph.channels if not is_control(name)]
        given = edit if isinstance(edit, Mapping) and isinstance(graph, CompiledStateGraph) else {}
        odd = ", ".join(repr(name) for name in given if name not in known)
        if odd and "__root__" not in known:
            raise Misuse(f"edit names {odd}, which the graph does not have: {', '.join(map(repr, known))}")

    def _refuse(self, nodes: Collection[str]) -> None:
        if found := refused(self._graph("replay"), dict.fromkeys(nodes), self._pure):
            raise Misuse(
                f"LangGraph would run {', '.join(map(repr, found))} again, and may repeat what that did: declare it "
                "with @pure or pure=[...], wrap what it does in effects, stop before it with stop_before, or pass "
                "effects='live' to really run it"
            )

    async def fork(
        self, where: Where, edit: Mapping[str, Any] | None, as_node: str | None, metadata: Mapping[str, Any]
    ) -> Snapshot:
        """Make a checkpoint the newest one, with an edit if given."""
        point = await self.root(where, "fork")
        if metadata:
            metadata = {**metadata, FROM_KEY: (await self._reading.point(None)).id}
        if edit is None and as_node is None:
            return await self._reading.snapshot(await self._copy(point, metadata))
        self._require_channels(edit)
        config = self._run_config(point)
        config["metadata"] = {**config.get("metadata", {}), **metadata, TO_KEY: point.id}
        try:
            await self._require_written(config, edit, as_node)
            made = await self._reading.on_graph("update_state", config, edit, as_node=as_node)
        except InvalidUpdateError as error:
            raise Misuse(f"the edit cannot be applied at step {point.step}: {error}; pass as_node=...") from error
        return await self._reading.snapshot(await self._loaded(made))

    async def _called(self, on: Any, method: str, *args: Any, **options: Any) -> Any:
        """Return what a method returns, or its async version."""
        if self._reading.side.is_async:
            return await getattr(on, f"a{method}")(*args, **options)
        return getattr(on, method)(*args, **options)

    async def _require_written(self, config: RunnableConfig, edit: object, as_node: str | None) -> None:
        """Raise `Misuse` for an edit of a channel that is none of the input, where it would be taken as input.

        LangGraph passes over it in silence then. For which node it takes an edit shows when it is applied: to memory.
        """
        graph = self._graph("a fork with an edit")
        if not isinstance(graph, CompiledStateGraph) or not isinstance(edit, Mapping):
            return
        inputs = graph.builder.schemas[graph.builder.input_schema]
        inner = [name for name in edit if name not in inputs]
        if not inner:
            return
        scratch = self.scratch()
        made = await self._called(scratch, "update_state", config, edit, as_node=as_node)
        old, new = [
            (await self._called(scratch.checkpointer, "get_tuple", at)).checkpoint["channel_versions"]
            for at in (config, made)
        ]
        if odd := ", ".join(repr(name) for name in inner if old.get(name) == new.get(name)):
            raise Misuse(
                f"edit names {odd}, which is no part of the graph's input, and would be taken as input there: edit a "
                "later checkpoint, or pass as_node=..., the node that is to have written it"
            )

    async def _loaded(self, config: RunnableConfig) -> Point:
        item = await self._reading.side.call("get_tuple", config)
        return point_of(item)

    async def _copy(self, point: Point, metadata: Mapping[str, Any]) -> Point:
        def at(id: str | None) -> RunnableConfig:
            config = self._run_config()
            address = {"thread_id": point.thread_id, "checkpoint_ns": ""}
            config["configurable"] |= address if id is None else {**address, "checkpoint_id": id}
            return config

        side = self._reading.side
        return await self._loaded(await save_again(side, at, point.id, {**metadata, TO_KEY: point.id}))

    async def undo(self, count: int) -> Snapshot:
        """Fork at the checkpoint so many steps before the latest."""
        if count < 1:
            raise Misuse(f"undo takes back at least 1 step, not {count}")
        return await self.fork(-1 - count, None, None, {})
