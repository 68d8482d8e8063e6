"""What a sampled saver may hold back and what it must store at once, and the records of what it holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot

Typed: TypeAlias = tuple[str, bytes]
_LEAST_BYTES: Final = 2048
"""What a held checkpoint takes beside its values, roughly."""
_GOES_ON: Final = ("branch:to:", "join:", "__start__", "__pregel_tasks")
"""Channels whose change makes a further step likely."""
_NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"


class Key(NamedTuple):
    """A lane."""

    thread: str
    ns: str


@dataclass(slots=True)
class Held:
    """A checkpoint that is not stored, with its values as they were when it was put.

    Attributes:
        saver: Stores it; its serializer made the values.
        config: What the saver needs of the config; the parent's id is not that of the lane's stored checkpoint.
        checkpoint: Without values.
        metadata: As given.
        new_versions: Those of all checkpoints since the stored one.
        values: Version and serialized value by channel.
    """

    saver: BaseCheckpointSaver[Any]
    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions
    values: Mapping[str, tuple[Any, Typed]]

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return _LEAST_BYTES + sum(len(data) for _, (_, data) in self.values.values())


@dataclass(frozen=True, slots=True)
class HeldWrites:
    """The writes of one task, serialized."""

    saver: BaseCheckpointSaver[Any]
    config: RunnableConfig
    writes: Sequence[tuple[str, Typed]]
    task_id: str
    task_path: str

    @property
    def size(self) -> int:
        """Bytes that they take."""
        return _LEAST_BYTES + sum(len(data) for _, (_, data) in self.writes)


class Taken(NamedTuple):
    """What a flush has to store: a held checkpoint below `parent`, and writes of the head `id`."""

    id: str
    parent: str
    held: Held | None
    writes: Sequence[HeldWrites]


class Put(NamedTuple):
    """How to store a checkpoint: below which parent, with which versions as new; whether its parent is stored."""

    parent: str | None
    new_versions: ChannelVersions
    after_stored: bool


def special(writes: Sequence[tuple[str, Any]], task_id: str) -> bool:
    """Return whether writes decide how a run goes on: an interrupt, an error, a resume, a command."""
    return task_id == _NULL_TASK or any(channel in WRITES_IDX_MAP for channel, _ in writes)


def stateful(ns: str) -> bool:
    """Return whether a namespace outlives the step that called it: that of a subgraph with `checkpointer=True`."""
    return ns != "" and any(":" not in part and not part.isdigit() for part in ns.split("|"))


def must_store(
    ns: str, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, every: int
) -> bool:
    """Return whether a checkpoint may never be held, whatever came before it."""
    updated = checkpoint.get("updated_channels") or ()
    return (
        stateful(ns)
        or metadata.get("source") != "loop"
        or metadata.get("step", 0) % every == 0
        or at_exit(config)
        or _has_delta(checkpoint, metadata)
        or not any(channel.startswith(_GOES_ON) for channel in updated)  # the run ends with it
    )


def must_store_child(checkpoint: Checkpoint, metadata: CheckpointMetadata, every: int) -> bool:
    """Return whether the next checkpoint may not be held."""
    return (
        metadata.get("source") != "loop"
        or (metadata.get("step", 0) + 1) % every == 0
        or _has_delta(checkpoint, metadata)
    )


def at_exit(config: RunnableConfig) -> bool:
    """Return whether a run saves at its end only."""
    return bool(config["configurable"].get("__pregel_durability") == "exit")


def _has_delta(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> bool:
    values = checkpoint.get("channel_values") or {}
    return bool(metadata.get("counters_since_delta_snapshot")) or any(
        isinstance(value, _DeltaSnapshot) for value in values.values()
    )


def lean(config: RunnableConfig) -> RunnableConfig:
    """Return what savers need of a config: without callbacks, streams and the like, which hold a whole run."""
    plain = {
        key: value
        for key, value in config["configurable"].items()
        if value is None or isinstance(value, str | int | float | bool)
    }
    return {"configurable": plain, "metadata": dict(config.get("metadata") or {})}


def below(config: RunnableConfig, parent: str | None) -> RunnableConfig:
    """Return the config with another parent."""
    return cast(RunnableConfig, {**config, "configurable": {**config["configurable"], "checkpoint_id": parent}})


def bare(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint without values that shares nothing that changes."""
    seen = {node: {**versions} for node, versions in checkpoint["versions_seen"].items()}
    versions = {**checkpoint["channel_versions"]}
    return cast(Checkpoint, {**checkpoint, "channel_values": {}, "channel_versions": versions, "versions_seen": seen})


def channels_of(checkpoint: Checkpoint, wanted: Mapping[str, Any] | None) -> Iterator[tuple[str, Any]]:
    """Yield channel and value: of the wanted channels, of all if None."""
    values = checkpoint["channel_values"]
    for channel, value in values.items():
        if wanted is None or channel in wanted:
            yield channel, value
