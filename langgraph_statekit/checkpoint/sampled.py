"""A checkpointer before another one that stores only some of the checkpoints of a run."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.run import aside, run_sync
from langgraph_statekit.checkpoint.sampling import Lanes
from langgraph_statekit.checkpoint.sampling_flush import Timer, flush, store, store_writes
from langgraph_statekit.checkpoint.sampling_rules import (
    Held,
    HeldWrites,
    Key,
    bare,
    below,
    channels_of,
    lean,
    special,
    stateful,
)
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import AnySaver, Side
from langgraph_statekit.errors import Fenced, Misuse


class Sampled(BaseCheckpointSaver[Any]):
    """A checkpointer that stores each fifth step, and always what a run needs to go on, on any other checkpointer.

    For graphs whose writes are too many. `Retention(keep_every=5)` keeps as little history and loses nothing: use that
    where the writes can be paid for.

    A checkpoint that is not stored is held in memory, with its values as they were, until the next one of its thread
    takes its place. What is stored is always the beginning of the run: a checkpoint comes with all values that changed
    since the stored one before it, which is its parent. The `put` of a held checkpoint returns before anything is
    stored, in `durability="sync"` too.

    Lost when the process is killed: at most the last `every - 1` finished steps, and only those that came within
    `idle_s` of each other. They run again, so each effect happens at least once. Nothing is lost when a run ends, asks
    a human or fails: that is stored at once, as are inputs, updates, forks, and their first steps. Never sampled are
    `durability="exit"`, threads with a `DeltaChannel`, and threads with a subgraph of `checkpointer=True`. A run that
    stops in silence (`interrupt_before`, `interrupt_after`, a drain, the recursion limit) is stored after `idle_s`, or
    before by a read of its thread in this process, by `flush`, by `close` and at the end of the interpreter.

    Held checkpoints are not in the history, and their ids, which streams may show, cannot be resumed later.

    Args:
        saver: Stores; one of this package or any other. Its own methods stay usable; they do not see what is held. If
            it belongs to an event loop, call `aclose` or `aflush` while that runs.
        every: Steps whose number is a multiple of it are stored; 1 stores all.
        idle_s: Seconds after which a held checkpoint is stored if its thread does not go on. For it the saver's sync
            methods are called, from a thread.
        held_bytes: Bytes to hold in memory at most; beyond that every step is stored.

    Raises:
        Misuse: An option has a wrong value.
    """

    def __init__(self, saver: AnySaver, every: int = 5, *, idle_s: float = 1.0, held_bytes: int = 64 << 20) -> None:
        if not isinstance(saver, BaseCheckpointSaver):
            raise Misuse(f"Sampled stands before a checkpointer, not {saver!r}")
        require_numbers(int, 1, every=every)
        require_numbers(int, 0, held_bytes=held_bytes)
        require_numbers(float, 0, idle_s=idle_s)
        self.saver = saver
        self._lanes = Lanes(every, held_bytes)
        self._timer = Timer(self._lanes, idle_s)

    @property
    def serde(self) -> Any:
        """The serializer of the saver."""
        return self.saver.serde

    @serde.setter
    def serde(self, serde: Any) -> None:
        self.saver.serde = serde

    @property
    def config_specs(self) -> list[Any]:
        """What the saver needs in configs."""
        return self.saver.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the saver's next version."""
        return self.saver.get_next_version(current, channel)

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return a clone with the saver's clone; both share what is held."""
        saver = self.saver.with_allowlist(extra_allowlist)
        if saver is self.saver:
            return self
        clone = copy.copy(self)
        clone.saver = saver
        return clone

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, or hold it, and return its config.

        Raises:
            Exception: Whatever the saver raises; what is held stays so.
        """
        return run_sync(self._put(Side(self.saver, False), config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`."""
        return await self._put(Side(self.saver, True), config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, or hold them until their step ends."""
        run_sync(self._put_writes(Side(self.saver, False), config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async version of `put_writes`."""
        await self._put_writes(Side(self.saver, True), config, writes, task_id, task_path)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Store what is held of the namespace, and return what the saver has."""
        run_sync(self._before_read(Side(self.saver, False), config))
        return self.saver.get_tuple(config)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        await self._before_read(Side(self.saver, True), config)
        return await self.saver.aget_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Store what is held of what is listed, and yield what the saver lists."""
        run_sync(self._before_read(Side(self.saver, False), config))
        yield from self.saver.list(config, filter=filter, before=before, limit=limit)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        side = Side(self.saver, True)
        await self._before_read(side, config)
        async with aclosing(side.list(config, filter=filter, before=before, limit=limit)) as items:
            async for item in items:
                yield item

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Store what is held of the namespace, and return what the saver has."""
        run_sync(self._before_read(Side(self.saver, False), config))
        return self.saver.get_delta_channel_history(config=config, channels=channels)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        await self._before_read(Side(self.saver, True), config)
        return await self.saver.aget_delta_channel_history(config=config, channels=channels)

    def delete_thread(self, thread_id: str) -> None:
        """Drop what is held of a thread, and delete it."""
        self._lanes.forget(str(thread_id))
        self.saver.delete_thread(thread_id)

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        self._lanes.forget(str(thread_id))
        await self.saver.adelete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Store all that is held, and delete runs."""
        self.flush()
        self.saver.delete_for_runs(run_ids)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self.aflush()
        await self.saver.adelete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Store what is held of a thread, and copy it."""
        self.flush(source_thread_id)
        self.saver.copy_thread(source_thread_id, target_thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        await self.aflush(source_thread_id)
        await self.saver.acopy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: Any = "keep_latest") -> None:
        """Store all that is held, and prune threads."""
        self.flush()
        self.saver.prune(thread_ids, strategy=strategy)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: Any = "keep_latest") -> None:
        """Async version of `prune`."""
        await self.aflush()
        await self.saver.aprune(thread_ids, strategy=strategy)

    def flush(self, thread_id: str | None = None) -> None:
        """Store what is held of a thread, or of all; durable when it returns.

        Raises:
            Exception: Whatever the saver raises; what is not stored stays held.
        """
        run_sync(self._flush(Side(self.saver, False), self._lanes.keys(_text(thread_id))))

    async def aflush(self, thread_id: str | None = None) -> None:
        """Async version of `flush`."""
        await self._flush(Side(self.saver, True), self._lanes.keys(_text(thread_id)))

    def close(self) -> None:
        """Store all that is held, and close the saver if it can be closed."""
        self.flush()
        self._timer.look()
        if hasattr(self.saver, "close"):
            self.saver.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await self.aflush()
        self._timer.look()
        if hasattr(self.saver, "aclose"):
            await self.saver.aclose()
        else:
            await aside(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _put(
        self,
        side: Side,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        key, parent = _key(config), config["configurable"].get("checkpoint_id") or None
        if stateful(key.ns):
            self._lanes.keep_whole(key.thread)
        before = self._lanes.last(key, config, checkpoint, metadata)
        held = before and self._freeze(before, config, checkpoint, metadata, new_versions)
        if held and self._lanes.hold(key, parent, held):
            self._timer.start()
            at = {"thread_id": key.thread, "checkpoint_ns": key.ns, "checkpoint_id": checkpoint["id"]}
            return {"configurable": at}
        # Nothing is awaited before it, so that the values are those of now.
        put = self._lanes.begin(key, parent, new_versions)
        done = await side.call("put", below(config, put.parent), checkpoint, metadata, put.new_versions)
        while (writes := self._lanes.stored(key, put, parent, checkpoint, metadata)) is None:
            if taken := self._lanes.foreign(key, parent):
                await store(side.is_async, self._lanes, key, taken)
        for each in writes:
            await store_writes(side.is_async, each)
        return cast(RunnableConfig, done)

    def _freeze(
        self,
        before: Held | bool,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Held | None:
        """Return what to hold; None: something cannot be serialized, and the saver is to say so."""
        known = before.values if isinstance(before, Held) else {}
        wanted = {**known, **new_versions} if isinstance(self.saver, StatekitSaver) else None  # others store all values
        versions = checkpoint["channel_versions"]
        values: dict[str, Any] = {}
        try:
            for channel, value in channels_of(checkpoint, wanted):
                version = versions.get(channel)
                same = version is not None and channel in known and known[channel][0] == version
                values[channel] = known[channel] if same else (version, self.serde.dumps_typed(value))
        except Exception:
            return None
        return Held(self.saver, lean(config), bare(checkpoint), {**metadata}, {**new_versions}, values)

    async def _put_writes(
        self, side: Side, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        key, id = _key(config), str(config["configurable"].get("checkpoint_id") or "")
        stored = None if special(writes, task_id) else self._lanes.wants(key, config, id)
        if stored is False:
            return
        if stored is None:
            held = None if special(writes, task_id) else self._freeze_writes(config, writes, task_id, task_path)
            if held and self._lanes.hold_writes(key, id, held):
                self._timer.start()
                return
            if not self._lanes.announce(key, id):
                return
            await self._flush(side, [key])
        await side.call("put_writes", config, writes, task_id, task_path)
        for each in self._lanes.early(key, id):
            await store_writes(side.is_async, each)

    def _freeze_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> HeldWrites | None:
        try:
            frozen = [(channel, self.serde.dumps_typed(value)) for channel, value in writes]
        except Exception:
            return None
        return HeldWrites(self.saver, lean(config), frozen, task_id, task_path)

    async def _before_read(self, side: Side, config: RunnableConfig | None) -> None:
        if config is None:
            await self._flush(side, self._lanes.keys())
            return
        thread, ns = str(config["configurable"]["thread_id"]), config["configurable"].get("checkpoint_ns")
        if stateful(str(ns or "")):  # a run of the subgraph begins: its caller's step must not run again
            self._lanes.keep_whole(thread)
            ns = None
        with suppress(Fenced):  # it is dropped then, and what is stored is the thread
            await self._flush(side, self._lanes.keys(thread, None if ns is None else str(ns)))

    async def _flush(self, side: Side, keys: Sequence[Key]) -> None:
        for key in keys:
            await flush(side.is_async, self._lanes, key)


def _key(config: RunnableConfig) -> Key:
    at = config["configurable"]
    return Key(str(at["thread_id"]), str(at.get("checkpoint_ns") or ""))


def _text(thread_id: Any) -> str | None:
    return None if thread_id is None else str(thread_id)
