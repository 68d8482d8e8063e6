"""Whether stored threads go on with a graph as it is now, and what to do about those that do not."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.pregel import Pregel
from langgraph.types import Command

from langgraph_statekit.checkpoint import messages
from langgraph_statekit.checkpoint.claims import token_of
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.sides import AnySaver, Side
from langgraph_statekit.errors import Misuse, TopologyDrift
from langgraph_statekit.renaming import rename
from langgraph_statekit.topology import missing_nodes, unknown_channels

Graph = Pregel[Any, Any, Any, Any]
G = TypeVar("G", bound=Graph)


@dataclass(frozen=True, slots=True)
class Drift:
    """What in the latest checkpoint of a thread does not fit the graph.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: Empty for the graph itself, else that of the subgraph that waits.
        missing_nodes: Nodes that it waits for and the graph lacks; resumed, it would end without running them.
        unknown_channels: Keys of its state that the graph lacks; the graph does not see their values.
        missing_classes: Classes of its values that cannot be imported, as `module.Class`; they come back as dicts.
    """

    thread_id: str
    checkpoint_ns: str
    missing_nodes: tuple[str, ...] = ()
    unknown_channels: tuple[str, ...] = ()
    missing_classes: tuple[str, ...] = ()


def check_compat(graph: Graph, saver: AnySaver, thread_ids: Sequence[str] | None = None) -> list[Drift]:
    """Return what of the latest checkpoints of threads, and of subgraphs that wait in them, does not fit a graph.

    Nothing is changed. Run it before a deploy, with the new graph and the saver that it will have.

    Args:
        graph: The compiled graph.
        saver: Any checkpointer.
        thread_ids: Threads; None for all.

    Raises:
        Misuse: The graph is not compiled, the saver is no checkpointer, or one string was passed in place of a
            sequence.
        DataError: A checkpoint cannot be read, or cannot be migrated.
        Unavailable: The store did not answer; call again.
    """
    return run_sync(_check(graph, Side(saver, False), thread_ids))


async def acheck_compat(graph: Graph, saver: AnySaver, thread_ids: Sequence[str] | None = None) -> list[Drift]:
    """Async version of `check_compat`."""
    return await _check(graph, Side(saver, True), thread_ids)


def guard(graph: G, *, rename_nodes: Mapping[str, str] | None = None) -> G:
    """Return the graph, which raises `TopologyDrift` where it would end a thread whose next node it lacks.

    A run without input, or with a `Command`, first reads the thread's latest checkpoint. An input starts the graph
    anew and is not checked.

    Args:
        graph: A compiled graph with a checkpointer; one that is guarded keeps what it knows of renamed nodes.
        rename_nodes: New names of nodes by old ones. A thread that waits for an old one is first given a checkpoint in
            which it waits for the new one: a fork with `statekit_renamed_nodes` in its metadata. What its other tasks
            wrote, what it had asked and what was answered go along.

    Raises:
        Misuse: The graph is not compiled, has no checkpointer, or lacks a new name.
    """
    _require_compiled(graph)
    names = dict(rename_nodes or {})
    if not isinstance(graph.checkpointer, BaseCheckpointSaver):
        raise Misuse("a graph to guard must be compiled with a checkpointer")
    known = {node for _, each in _all_graphs(graph) for node in each.nodes}
    if odd := next((name for name in names.values() if name not in known), None):
        raise Misuse(f"rename_nodes names {odd!r}, which is no node of the graph")
    guarded = copy.copy(graph)
    known_names = {"_renamed_nodes": {**renames_of(graph), **names}}
    if isinstance(graph, _Guarded):
        guarded.__class__ = type(type(graph).__name__, (type(graph),), known_names)
    else:
        guarded.__class__ = type(f"Guarded{type(graph).__name__}", (_Guarded, type(graph)), known_names)
    return guarded


def renames_of(graph: object) -> Mapping[str, str]:
    """Return the new names of nodes by old ones that a guarded graph knows; none for any other."""
    return graph._renamed_nodes if isinstance(graph, _Guarded) else {}


class _Guarded(Pregel[Any, Any, Any, Any]):
    """Every run of a graph goes through one of these two."""

    _renamed_nodes: Mapping[str, str]

    def stream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> Iterator[Any]:
        """Check the thread, then stream."""
        yield from super().stream(input, run_sync(self._checked(input, config, False)), **options)

    async def astream(self, input: Any, config: RunnableConfig | None = None, **options: Any) -> AsyncIterator[Any]:
        """Async version of `stream`."""
        config = await self._checked(input, config, True)
        async with aclosing(super().astream(input, config, **options)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                yield chunk

    async def _checked(self, input: Any, config: RunnableConfig | None, is_async: bool) -> RunnableConfig | None:
        given: dict[str, Any] = {
            **(self.config or {}).get("configurable", {}),
            **(config or {}).get("configurable", {}),
        }
        saver = self.checkpointer
        resumes = input is None or isinstance(input, Command)
        if not resumes or given.get("thread_id") is None or not isinstance(saver, BaseCheckpointSaver):
            return config
        side = Side(saver, is_async)
        at: RunnableConfig = {"configurable": given}
        for drift, item in [found async for found in _drifts(self, side, at) if found[0].missing_nodes]:
            names = {old: new for old, new in self._renamed_nodes.items() if old in drift.missing_nodes}
            if left := [name for name in drift.missing_nodes if name not in names]:
                inside = f" in {drift.checkpoint_ns!r}" if drift.checkpoint_ns else ""
                raise TopologyDrift(
                    f"thread {drift.thread_id!r} waits for {', '.join(map(repr, left))}{inside}, which the graph does "
                    "not have: pass rename_nodes={old: new} to guard, or resume it with the graph that it began with"
                )
            fork = await rename(self, side, item, names, token_of(given))
            if not drift.checkpoint_ns and given.get("checkpoint_id"):
                config = {**(config or {}), "configurable": {**given, **fork["configurable"]}}
        return config


def _require_compiled(graph: object) -> None:
    if not isinstance(graph, Pregel):
        raise Misuse(f"a compiled graph is needed, not {type(graph).__name__}: pass what compile() returns")


async def _check(graph: Graph, side: Side, thread_ids: Sequence[str] | None) -> list[Drift]:
    _require_compiled(graph)
    if isinstance(thread_ids, str | bytes):
        raise Misuse(f"thread_ids must be a sequence of ids, not one string: pass [{thread_ids!r}]")
    found: list[Drift] = []
    for thread in await side.threads() if thread_ids is None else thread_ids:
        async for drift, _ in _drifts(graph, side, {"configurable": {"thread_id": thread}}):
            if drift.missing_nodes or drift.unknown_channels or drift.missing_classes:
                found.append(drift)
    return found


async def _drifts(graph: Graph, side: Side, at: RunnableConfig) -> AsyncGenerator[tuple[Drift, CheckpointTuple]]:
    """Yield what does not fit at a checkpoint and below it, and the checkpoint."""
    graphs = dict(_all_graphs(graph))
    reader = graph.copy({"checkpointer": side.saver})
    configurable = at["configurable"]
    left = [("", _config(configurable["thread_id"], "", configurable.get("checkpoint_id")))]
    while left:
        path, config = left.pop()
        own = graphs[path]
        recorder = _Recorder(side.saver.serde)
        saver = copy.copy(side.saver)
        saver.serde = recorder
        item: CheckpointTuple | None = await Side(saver, side.is_async).call("get_tuple", config)
        if item is None:
            continue
        yield (
            Drift(
                item.config["configurable"]["thread_id"],
                item.config["configurable"].get("checkpoint_ns", ""),
                tuple(missing_nodes(item, own.nodes, own.channels)),
                tuple(unknown_channels(item, own.channels)),
                tuple(sorted(recorder.missing())),
            ),
            item,
        )
        if any(each != path and each.rpartition("|")[0] == path for each in graphs):
            state = await reader.aget_state(config) if side.is_async else reader.get_state(config)
            for task in state.tasks:
                below = f"{path}|{task.name}" if path else task.name
                if below in graphs and isinstance(task.state, dict):
                    inner = task.state["configurable"]
                    ns = inner["checkpoint_ns"]
                    if graphs[below].checkpointer is True:  # one history for all its tasks
                        ns = ns.rpartition(":")[0]
                    left.append((below, _config(inner["thread_id"], ns, None)))


def _all_graphs(graph: Graph) -> Iterator[tuple[str, Graph]]:
    yield "", graph
    for path, each in graph.get_subgraphs(recurse=True):
        if isinstance(each, Pregel):
            yield path, each


def _config(thread_id: str, ns: str, id: str | None) -> RunnableConfig:
    address = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": address if id is None else {**address, "checkpoint_id": id}}


class _Recorder:
    """A serializer that takes note of the classes in what it reads."""

    _CLASSES: Final = range(6)
    """Extension codes of LangGraph's format that begin with module and name."""

    def __init__(self, serde: Any) -> None:
        self._serde = serde
        self._classes: set[tuple[str, str]] = set()

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        result: tuple[str, bytes] = self._serde.dumps_typed(obj)
        return result

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        if data[0] == messages.TAG:
            messages.load(data[1], self._scan)
        elif data[0] == "msgpack":
            self._scan(data[1])
        return self._serde.loads_typed(data)

    def _scan(self, part: bytes) -> Any:
        return ormsgpack.unpackb(part, ext_hook=self._note, option=ormsgpack.OPT_NON_STR_KEYS)

    def _note(self, code: int, data: bytes) -> Any:
        content = self._scan(data)
        if code in self._CLASSES:
            self._classes.add((content[0], content[1]))
        return None

    def missing(self) -> Collection[str]:
        """Return the classes that are not there; in strict mode nothing is imported to find out."""
        strict = getattr(self._serde, "_allowed_msgpack_modules", True) is not True
        return [f"{module}.{name}" for module, name in self._classes if not _exists(module, name, strict)]


def _exists(module: str, name: str, strict: bool) -> bool:
    try:
        found = sys.modules.get(module) if strict else importlib.import_module(module)
    except Exception:  # whatever the module does when it is imported
        return False
    return hasattr(found, name)
