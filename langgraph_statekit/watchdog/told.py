"""The steps of a run as its saver is told of them: for less than LangGraph's stream of checkpoints.

A saver is told before the next step is prepared, and of a stored step only with `durability="sync"`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.channels import (
    AnyValue,
    BinaryOperatorAggregate,
    DeltaChannel,
    EphemeralValue,
    LastValue,
    UntrackedValue,
)
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.config import get_config
from langgraph.constants import TAG_HIDDEN
from langgraph.graph import START
from langgraph.pregel import Pregel
from langgraph.types import Command

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.topology import TASKS
from langgraph_statekit.watchdog.parts import CHECKPOINTS, Parts

Graph: TypeAlias = Pregel[Any, Any, Any, Any]
Hear: TypeAlias = Callable[[str, int, Any, Sequence[str]], None]
"""Takes id, step, state and next nodes of a checkpoint."""

_AS_STORED: Final = frozenset({LastValue, AnyValue, EphemeralValue, BinaryOperatorAggregate})
"""Channels whose value is what a checkpoint has of them."""
_STREAMED: Final = frozenset({CHECKPOINTS, "debug"})
_TOLD_BY: Final = frozenset({"put", "aput", "get_tuple", "aget_tuple"})
_VERSION: Final = 4
"""From this one of a checkpoint on LangGraph changes nothing of it as it is read."""


def is_told(
    graph: Graph, saver: StatekitSaver, given: Any, config: RunnableConfig, options: Mapping[str, Any], parts: Parts
) -> bool:
    """Say whether the saver is told of each step of such a call, with all that the stream tells of it."""
    calls = (graph.config or {}, config)
    at = {name: value for call in calls for name, value in call.get("configurable", {}).items()}
    named = [*at, *(name for call in calls for name in call.get("metadata") or ())]
    hidden: list[Sequence[str]] = [call.get("tags") or () for call in calls]
    hidden += [node.tags or () for name, node in graph.nodes.items() if name != START]
    begin = graph.nodes.get(START)
    return (
        options.get("durability") == "sync"
        and _STREAMED.isdisjoint(parts.modes)
        and not parts.inner  # a subgraph may have another saver
        and not isinstance(given, Command)
        and not (at.get("checkpoint_id") or at.get("checkpoint_ns"))
        and not _within_a_run()
        and _TOLD_BY.isdisjoint(vars(saver))
        # A graph without such a node takes its input in the first step itself, beside the save.
        and begin is not None
        and TAG_HIDDEN in (begin.tags or ())
        and not any(TAG_HIDDEN in tags for tags in hidden)  # no tasks are streamed
        and (given is None or "run_id" not in named)  # an input with the run id of the head is taken for None
        and not (parts.v2 and getattr(graph, "_state_mapper", None))  # the stream has objects of the schema
        and all(type(graph.channels[name]) in _AS_STORED for name in _shown(graph))
        and not any(isinstance(channel, DeltaChannel | UntrackedValue) for channel in graph.channels.values())
    )


def is_plain(graph: Graph, checkpoint: Checkpoint) -> bool:
    """Say whether LangGraph reads a checkpoint as it is stored, and need not convert or rebuild a part of it."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    return (
        checkpoint["v"] >= _VERSION
        and not any(isinstance(value, _DeltaSnapshot) for value in values.values())
        and not any(
            isinstance(channel, BinaryOperatorAggregate) and name in versions and name not in values
            for name, channel in graph.channels.items()
        )
    )


def telling(graph: Graph, saver: StatekitSaver, thread_id: str, hear: Hear, resumes: bool) -> Graph:
    """Return the graph with a saver that tells of each checkpoint of a thread, but of none of an input only.

    The saver shares all with the given one. It tells of the checkpoint that a run goes on from, if it `resumes`.
    """

    shown = graph.stream_channels_asis
    # No checkpoint has a channel that nothing was written to; one with a reducer has a value all the same.
    channels: dict[str, Any] = {name: graph.channels[name] for name in _shown(graph)}
    unwritten = {name: channel.get() for name, channel in channels.items() if channel.is_available()}
    following_of = _Following(graph)

    def told(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> None:
        at = config["configurable"]
        if at.get("checkpoint_ns", "") == "" and str(at["thread_id"]) == thread_id:
            following = following_of(checkpoint)
            if following != (START,):
                values: Mapping[str, Any] = checkpoint["channel_values"]
                if unwritten:
                    values = {**unwritten, **values}
                if isinstance(shown, str):
                    state = values.get(shown)
                else:
                    state = {name: values[name] for name in shown if name in values}
                hear(checkpoint["id"], metadata.get("step", -1), state, following)

    kind = type(f"Telling{type(saver).__name__}", (_Telling, type(saver)), {})
    teller, copied = copy.copy(saver), copy.copy(graph)
    teller.__class__ = kind
    vars(teller).update(_told=told, _begun=not resumes)
    copied.checkpointer = teller
    return copied


class _Telling(StatekitSaver):
    _told: Callable[[RunnableConfig, Checkpoint, CheckpointMetadata], None]
    _begun: bool

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = super().put(config, checkpoint, metadata, new_versions)
        self._told(config, checkpoint, metadata)
        return stored

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        stored = await super().aput(config, checkpoint, metadata, new_versions)
        self._told(config, checkpoint, metadata)
        return stored

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._begins(super().get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._begins(await super().aget_tuple(config))

    def _begins(self, found: CheckpointTuple | None) -> CheckpointTuple | None:
        """Tell of what is read first: that is the run's beginning, all else is read by its nodes."""
        begun, self._begun = self._begun, True
        if found is not None and not begun:
            self._told(found.config, found.checkpoint, found.metadata)
        return found


class _Following:
    """Tells the nodes that run after a checkpoint, as LangGraph finds them: those sent to, then those triggered."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._triggered: dict[tuple[str, ...], list[tuple[str, Sequence[str]]]] = {}

    def __call__(self, checkpoint: Checkpoint) -> tuple[str, ...]:
        graph, values, versions = self._graph, checkpoint["channel_values"], checkpoint["channel_versions"]
        found = [send.node for send in values[TASKS] if send.node in graph.nodes] if TASKS in values else []
        updated = tuple(checkpoint.get("updated_channels") or ())
        candidates = self._triggered.get(updated)
        if candidates is None:
            candidates = self._triggered[updated] = self._candidates(updated)
        for name, triggers in candidates if versions else ():
            seen: ChannelVersions = checkpoint["versions_seen"].get(name, {})
            for channel in triggers:
                if channel in values and (channel not in seen or versions[channel] > seen[channel]):  # type: ignore[operator]
                    known: Any = graph.channels[channel]
                    if type(known) in _AS_STORED or known.from_checkpoint(values[channel]).is_available():
                        found.append(name)
                        break
        return tuple(found)

    def _candidates(self, updated: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
        """Return the nodes that may be triggered, and by what; all of them if it is not told what was updated."""
        nodes, to = self._graph.nodes, self._graph.trigger_to_nodes
        names = sorted({node for channel in updated for node in to.get(channel, ())}) if updated else nodes
        return [(name, nodes[name].triggers) for name in names]


def _shown(graph: Graph) -> Sequence[str]:
    shown = graph.stream_channels_asis
    return [shown] if isinstance(shown, str) else shown


def _within_a_run() -> bool:
    """Say whether a node calls: what runs in a node may save by the saver of that node's graph."""
    try:
        get_config()
    except RuntimeError:
        return False
    return True
