"""A checkpointer that reads a stored thread and keeps in memory what is written, so that nothing stored can change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_statekit.checkpoint.sides import AnySaver


class Overlay(BaseCheckpointSaver[Any]):
    """Reads another saver, and writes to memory only.

    Args:
        base: The saver to read.
    """

    def __init__(self, base: AnySaver) -> None:
        super().__init__(serde=base.serde)
        self._base = base
        self._memory = InMemorySaver(serde=base.serde)

    def with_allowlist(self, extra_allowlist: Any) -> Overlay:
        """Return the same checkpoints, with more classes that may be read."""
        clone = Overlay(self._base.with_allowlist(extra_allowlist))
        clone._memory = self._memory
        return clone

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the base's next version."""
        return self._base.get_next_version(current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint of the memory, or else of the base."""
        return self._own(config) or self._with_writes(self._base.get_tuple(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        return self._own(config) or self._with_writes(await self._base.aget_tuple(config))

    def _own(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._memory.get_tuple(_with_ns(config))

    def _with_writes(self, item: CheckpointTuple | None) -> CheckpointTuple | None:
        """Add what tasks wrote to a checkpoint of the base."""
        if item is None:
            return None
        address = item.config["configurable"]
        key = (address["thread_id"], address.get("checkpoint_ns", ""), address["checkpoint_id"])
        written = self._memory.writes.get(key, {}).values()
        added = [(task, channel, self.serde.loads_typed(value)) for task, channel, value, _ in written]
        own = {(task, channel) for task, channel, _ in added}
        kept = [each for each in item.pending_writes or () if each[:2] not in own]
        return item._replace(pending_writes=[*kept, *added])

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of the memory, newest first, then those of the base."""
        own = self._listed(config, filter, before)[:limit]
        yield from own
        left = None if limit is None else limit - len(own)
        if left is None or left > 0:
            yield from self._base.list(config, filter=filter, before=before, limit=left)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        own = self._listed(config, filter, before)[:limit]
        for item in own:
            yield item
        left = None if limit is None else limit - len(own)
        if left is None or left > 0:
            async for item in self._base.alist(config, filter=filter, before=before, limit=left):
                yield item

    def _listed(self, config: Any, filter: Any, before: Any) -> Sequence[CheckpointTuple]:
        found = self._memory.list(config, filter=filter, before=before)
        return sorted(found, key=lambda item: item.checkpoint["id"], reverse=True)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint with all its values."""
        return self._memory.put(_with_ns(config), checkpoint, metadata, checkpoint["channel_versions"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        return self.put(config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep the writes of a task."""
        self._memory.put_writes(_with_ns(config), writes, task_id, task_path)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async version of `put_writes`."""
        self.put_writes(config, writes, task_id, task_path)


def _with_ns(config: RunnableConfig) -> RunnableConfig:
    address = config["configurable"]
    address = {**address, "thread_id": str(address["thread_id"]), "checkpoint_ns": address.get("checkpoint_ns") or ""}
    return {**config, "configurable": address}
