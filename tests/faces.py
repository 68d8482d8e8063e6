"""A saver's sync methods under async names, and small makers of what savers store."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, DeltaChannelHistory, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

from langgraph_statekit.checkpoint.saver import StatekitSaver

LONG = random.Random(1).randbytes(1024).hex()
"""A text that makes any value around it long enough to be stored as a delta, and hardly compresses."""

Face: TypeAlias = BaseCheckpointSaver[str]
"""A saver as the tests call it: by its async methods."""


class SyncFace(BaseCheckpointSaver[str]):
    """Shows sync methods as async ones; they run in the thread of the running loop, as in a notebook."""

    def __init__(self, saver: StatekitSaver) -> None:
        super().__init__(serde=saver.serde)
        self.saver = saver

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> RunnableConfig:
        return self.saver.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self.saver.put_writes(config, writes, task_id, task_path)

    async def aget_tuple(self, config: Any) -> CheckpointTuple | None:
        return self.saver.get_tuple(config)

    async def alist(self, config: Any, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for item in self.saver.list(config, **options):
            yield item

    async def adelete_thread(self, thread_id: Any) -> None:
        self.saver.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        self.saver.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self.saver.prune(thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: Any, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    def get_next_version(self, current: Any, channel: None) -> str:
        return self.saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Any) -> SyncFace:
        return SyncFace(self.saver.with_allowlist(extra_allowlist))


def config(thread: Any = "t", ns: str = "", id: str | None = None, **configurable: Any) -> RunnableConfig:
    """Return a config that names a thread, a namespace and maybe a checkpoint."""
    address = {"thread_id": thread, "checkpoint_ns": ns, **configurable}
    return {"configurable": address if id is None else {**address, "checkpoint_id": id}}


def id_of(config: RunnableConfig) -> str:
    """Return the checkpoint id of a config."""
    return str(config["configurable"]["checkpoint_id"])


def checkpoint(
    values: Mapping[str, Any] | None = None,
    versions: Mapping[str, str | int | float] | None = None,
    id: str | None = None,
) -> Any:
    """Return a checkpoint; versions default to 1 for each value."""
    made = empty_checkpoint()
    made["id"] = id or str(uuid6(clock_seq=-2))
    made["channel_values"] = dict(values or {})
    made["channel_versions"] = dict(versions if versions is not None else dict.fromkeys(values or {}, 1))
    return made


def metadata(step: int = 0, **extra: Any) -> Any:
    """Return metadata as the loop makes it."""
    return {"source": "loop", "step": step, "parents": {}, **extra}


async def put(
    saver: Face,
    at: RunnableConfig,
    values: Mapping[str, Any] | None = None,
    versions: Mapping[str, str | int | float] | None = None,
    *,
    id: str | None = None,
    meta: Mapping[str, Any] | None = None,
) -> RunnableConfig:
    """Store one checkpoint below the one that `at` names; every version counts as new."""
    made = checkpoint(values, versions, id)
    return await saver.aput(at, made, {**metadata(), **(meta or {})}, made["channel_versions"])


async def listed(saver: Face, at: RunnableConfig | None, **options: Any) -> list[CheckpointTuple]:
    """Return all that `alist` yields."""
    return [item async for item in saver.alist(at, **options)]


async def ids(saver: Face, at: RunnableConfig | None, **options: Any) -> list[str]:
    """Return the ids that `alist` yields, in its order."""
    return [item.checkpoint["id"] for item in await listed(saver, at, **options)]
