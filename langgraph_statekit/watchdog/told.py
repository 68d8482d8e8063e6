"""The steps of a run as its saver is told of them: for less than LangGraph's stream of checkpoints.

A saver is told before the next step is prepared, and of a stored step only with `durability="sync"`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from langgraph.config import get_config
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


def is_told(graph: Graph, given: Any, config: RunnableConfig, options: Mapping[str, Any], parts: Parts) -> bool:
    """Say whether the saver is told of each step of such a call, with all that the stream tells of it."""
    at = {**(graph.config or {}).get("configurable", {}), **config["configurable"]}
    return (
        options.get("durability") == "sync"
        and _STREAMED.isdisjoint(parts.modes)
        and not parts.inner  # a subgraph may have another saver
        and not isinstance(given, Command)
        and not (at.get("checkpoint_id") or at.get("checkpoint_ns"))
        and not _within_a_run()
        and all(type(graph.channels[name]) in _AS_STORED for name in _shown(graph))
        and not any(isinstance(channel, DeltaChannel | UntrackedValue) for channel in graph.channels.values())
    )


def telling(graph: Graph, saver: StatekitSaver, thread_id: str, hear: Hear) -> Graph:
    """Return the graph with a saver that tells of each checkpoint of a thread, and of the one that a run goes on from.

    The saver shares all with the given one.
    """

    shown = graph.stream_channels_asis
    # No checkpoint has a channel that nothing was written to; one with a reducer has a value all the same.
    channels: dict[str, Any] = {name: graph.channels[name] for name in _shown(graph)}
    unwritten = {name: channel.get() for name, channel in channels.items() if channel.is_available()}

    def told(config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> None:
        at = config["configurable"]
        if at.get("checkpoint_ns", "") == "" and str(at["thread_id"]) == thread_id:
            state = _state({**unwritten, **checkpoint["channel_values"]}, shown)
            hear(checkpoint["id"], metadata.get("step", -1), state, tuple(_next(graph, checkpoint)))

    kind = type(f"Telling{type(saver).__name__}", (_Telling, type(saver)), {})
    teller, copied = copy.copy(saver), copy.copy(graph)
    teller.__class__ = kind
    vars(teller).update(_told=told, _begun=False)
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


def _state(values: Mapping[str, Any], shown: str | Sequence[str]) -> Any:
    if isinstance(shown, str):
        return values.get(shown)
    return {name: values[name] for name in shown if name in values}


def _next(graph: Graph, checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the nodes that run after a checkpoint, as LangGraph finds them: those sent to, then those triggered."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    for send in values.get(TASKS, ()):
        if send.node in graph.nodes:
            yield send.node
    updated = checkpoint.get("updated_channels")
    if updated:
        candidates = sorted({node for channel in updated for node in graph.trigger_to_nodes.get(channel, ())})
    else:
        candidates = list(graph.nodes) if versions else []
    for name in candidates:
        seen: ChannelVersions = checkpoint["versions_seen"].get(name, {})
        for channel in graph.nodes[name].triggers:
            if channel in values and (channel not in seen or versions[channel] > seen[channel]):  # type: ignore[operator]
                found: Any = graph.channels[channel]
                if type(found) in _AS_STORED or found.from_checkpoint(values[channel]).is_available():
                    yield name
                    break


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
