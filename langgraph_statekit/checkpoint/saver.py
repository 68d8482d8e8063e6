"""LangGraph's checkpointer interface over the engine: one class for sync and async callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from langgraph_statekit.checkpoint.expiry import ORPHANS_US, Swept
from langgraph_statekit.checkpoint.lifecycle import Lifecycle
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.retention_policy import Retention
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.dice import RANDOM


class StatekitSaver(Lifecycle):
    """A checkpointer over any backend; one object serves `invoke` and `ainvoke`, many threads and event loops.

    A call returns when the store has made the change durable. Async calls run the same blocking calls in a bounded
    pool of threads, so no event loop owns a connection.

    Args:
        backend: Where checkpoints are stored.
        serde: Serializer of values and metadata; None for `StatekitSerializer`.
        secret_keys: Keys that are never stored in metadata, in lower case with `_`.
        workers: Threads that serve async callers.
        max_pending: Async saves of one event loop that may be under way. A further one waits, with its values as
            objects, before they are serialized, so that a slow store does not fill the memory with bytes.
        max_pending_bytes: While they weigh so much, a further one waits too.
        cache_bytes: Recent values to hold in memory as bases of deltas.
        hooks: Told of every operation, see `langgraph_statekit.events`; without any, nothing is measured.
        require_lease: Refuse saves whose config carries no token of a lease, see `lease`. Removals need none.
        retention: Which checkpoints of a thread stay; applied by puts, now and then, after the checkpoint is saved.
            None keeps all.
        ttl_s: Seconds without a read, a write or a lease renewal by a saver with this option after which a thread
            expires as a whole, by the store's clock; reads and writes in the first tenth of the time may leave the end
            as it is. A thread has what its last checkpoint was saved with. None: it stays for ever.
        expire_interrupted: Let threads expire that wait for an answer to an interrupt, too. Leased ones never do.
        tenant: Whose threads these are; the data keys of one tenant's threads are of no use to another's.
        encryption: Keys with which values, metadata and writes are encrypted; None: they are not.
        require_encryption: Refuse what was stored without encryption, which else is read as it is.
    """

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint of `config`, or the latest of its namespace; None if there is none.

        Every object in it is new. `parent_config` is None for a root and where retention removed all ancestors.

        Args:
            config: Thread; namespace (`""`, the root, by default); checkpoint id, or none for the latest.

        Raises:
            Misuse: The config names no thread.
            Corrupt: Stored bytes fail their checksum; the message names the channel.
            SchemaTooNew: A later release, or a worker with a later version of the state, wrote the checkpoint.
            DataError: The state has an older version and cannot be migrated, see `with_state`.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._sync.get_tuple(self._codec, config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Async version of `get_tuple`."""
        return await self._async.get_tuple(self._codec, config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first; no connection is held between two of them.

        Args:
            config: Thread, and namespace or checkpoint if given; None for all threads, one after the other.
            filter: Metadata keys and the exact values that they must have; None also matches a missing key.
            before: Only checkpoints older than this one.
            limit: At most so many; None for all, 0 or less for none.

        Raises:
            Misuse: The config names no thread.
            Corrupt: Stored bytes fail their checksum; the message names the channel.
            SchemaTooNew: A later release, or a worker with a later version of the state, wrote a checkpoint.
            DataError: A state has an older version and cannot be migrated, see `with_state`.
            Unavailable: The store did not answer; list again with `before` the last one.
        """
        items = self._sync.list(self._codec, config, filter, before, limit)
        try:
            while True:
                try:
                    item = run_sync(items.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            run_sync(items.aclose())

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Async version of `list`."""
        items = self._async.list(self._codec, config, filter, before, limit)
        try:
            async for item in items:
                yield item
        finally:
            await items.aclose()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the values of `new_versions`, all or nothing, and return its config.

        Durable when it returns. Values are serialized before anything is sent. The same id again replaces the content
        and keeps the place in the thread's order.

        Args:
            config: Thread and namespace; its checkpoint id is the parent, none for a root.
            checkpoint: The checkpoint with its `channel_values`.
            metadata: Stored with the plain values of `config`; keys that look like credentials are left out.
            new_versions: Channels whose values are new; the others are stored already.

        Raises:
            DataError: A value cannot be stored; the message names channel, path, type and remedy. Nothing was written.
            Misuse: The config names no thread.
            Fenced: The config carries the token of a lease that is over; nothing was written, stop.
            Unavailable: The store did not answer; call again.
            Conflict: Other writers of an object store kept getting in first; call again.
        """
        return run_sync(self._sync.put(self._codec, config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Async version of `put`; values are serialized before the first await, unless too many wait."""
        return await self._async.put(self._codec, config, checkpoint, metadata, new_versions)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, all or nothing; the checkpoint need not be stored yet.

        Of a write that is stored already, the first stays; errors, interrupts, resumes and schedules are replaced.

        Args:
            config: Thread, namespace and id of the checkpoint.
            writes: Channel and value of each write.
            task_id: The task that wrote.
            task_path: Its place in the step; reads are sorted by it.

        Raises:
            DataError: A value cannot be stored; the message names channel, path, type and remedy. Nothing was written.
            Misuse: The config names no thread or no checkpoint.
            Fenced: The config carries the token of a lease that is over; nothing was written, stop.
            Unavailable: The store did not answer; call again.
        """
        run_sync(self._sync.put_writes(self._codec, config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Async version of `put_writes`; values are serialized before the first await, unless too many wait."""
        await self._async.put_writes(self._codec, config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Remove every checkpoint, value and write of a thread; no error if there is none.

        Args:
            thread_id: The thread.

        Raises:
            Misuse: It is None.
            Unavailable: The store did not answer; call again.
        """
        run_sync(self._sync.delete_thread(thread_id))

    async def adelete_thread(self, thread_id: str) -> None:
        """Async version of `delete_thread`."""
        await self._async.delete_thread(thread_id)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints whose `metadata["run_id"]` is given, in all threads; what later ones need stays.

        Each thread changes in one step. Threads are looked up by run on all stores but object stores, which are read
        thread by thread.

        Args:
            run_ids: Runs; unknown ones are passed over.

        Raises:
            Misuse: One string was passed in place of a sequence.
            Conflict: A thread kept changing meanwhile; call again.
            Unavailable: The store did not answer; call again.
        """
        run_sync(self._sync.delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Async version of `delete_for_runs`."""
        await self._async.delete_for_runs(run_ids)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a whole thread, history, writes and all namespaces, to a thread that has no checkpoints.

        The copy is independent of its source. A source that does not exist copies nothing.

        Args:
            source_thread_id: The thread to copy.
            target_thread_id: The thread to make.

        Raises:
            Misuse: The target has checkpoints; nothing was changed. Delete it first, or copy to another id.
            Unavailable: The store did not answer; call again.
        """
        run_sync(self._sync.copy_thread(source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Async version of `copy_thread`."""
        await self._async.copy_thread(source_thread_id, target_thread_id)

    def prune(self, thread_ids: Sequence[str], *, strategy: str | Retention = "keep_latest") -> None:
        """Remove old checkpoints; each thread changes in one step.

        Args:
            thread_ids: Threads; unknown ones are passed over.
            strategy: `"keep_latest"` keeps the latest checkpoint of each namespace and those with a label, with their
                pending writes and, out of sight, what their delta channels need; `"delete"` removes the threads; a
                `Retention` keeps what it says.

        Raises:
            Misuse: The strategy is unknown, or one string was passed in place of a sequence.
            Conflict: A thread kept changing meanwhile; call again.
            Unavailable: The store did not answer; call again.
        """
        run_sync(self._sync.prune(thread_ids, strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str | Retention = "keep_latest") -> None:
        """Async version of `prune`."""
        await self._async.prune(thread_ids, strategy)

    def sweep(self, *, orphans_s: float = ORPHANS_US / 1e6) -> Swept:
        """Remove what expired, and writes whose checkpoint never came; return how many threads, how many checkpoints.

        What has expired is out of sight already. SQLite and Postgres are swept now and then by puts with `ttl_s`, Redis
        removes expired threads by itself; object stores are swept by this call only, which reads every thread there.

        Args:
            orphans_s: Writes that came longer ago than this, in seconds by the store's clock, are orphans if their
                checkpoint is not stored. It must be longer than any put takes.

        Raises:
            Misuse: `orphans_s` is no number of at least 60.
            Unavailable: The store did not answer; call again.
        """
        require_numbers(float, 60, orphans_s=orphans_s)
        return run_sync(self._sync.sweep(int(orphans_s * 1e6)))

    async def asweep(self, *, orphans_s: float = ORPHANS_US / 1e6) -> Swept:
        """Async version of `sweep`."""
        require_numbers(float, 60, orphans_s=orphans_s)
        return await self._async.sweep(int(orphans_s * 1e6))

    def label(self, config: RunnableConfig, label: str) -> RunnableConfig:
        """Give a checkpoint a label that keeps it from `prune` and retention, and return its config.

        A label names one checkpoint of a thread: given again, it moves. `copy_thread` and `copy_threads` copy it.

        Args:
            config: Thread, namespace and checkpoint; the latest one without an id.
            label: Any text that is not empty, such as `"before-release"`.

        Raises:
            Misuse: The label is empty or no text, or the config names no thread.
            CheckpointMissing: There is no such checkpoint.
            Fenced: The config carries the token of a lease that is over; nothing was written, stop.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._sync.label(self._codec, config, label))

    async def alabel(self, config: RunnableConfig, label: str) -> RunnableConfig:
        """Async version of `label`."""
        return await self._async.label(self._codec, config, label)

    def unlabel(self, thread_id: str, label: str) -> None:
        """Take a label away; no error if there is none.

        Raises:
            Conflict: The thread kept changing meanwhile; call again.
            Unavailable: The store did not answer; call again.
        """
        run_sync(self._sync.unlabel(thread_id, label))

    async def aunlabel(self, thread_id: str, label: str) -> None:
        """Async version of `unlabel`."""
        await self._async.unlabel(thread_id, label)

    def labels(self, thread_id: str) -> dict[str, RunnableConfig]:
        """Return the configs of a thread's labelled checkpoints by label, in the order of the labels.

        Raises:
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._sync.labels(thread_id))

    async def alabels(self, thread_id: str) -> dict[str, RunnableConfig]:
        """Async version of `labels`."""
        return await self._async.labels(thread_id)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return, for each channel, its writes since the nearest stored value, and that value as seed.

        Two requests whatever the thread's length; the size of the reply grows with it.

        Args:
            config: The checkpoint to rebuild; its own writes do not count.
            channels: Channel names.

        Raises:
            Misuse: The config names no thread.
            Corrupt: Stored bytes fail their checksum; the message names the channel.
            Unavailable: The store did not answer; call again.

        Source: `BaseCheckpointSaver.get_delta_channel_history` (langgraph-checkpoint 4.3), a beta of LangGraph.
        """
        return run_sync(self._sync.get_delta_channel_history(self._codec, config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Async version of `get_delta_channel_history`."""
        return await self._async.get_delta_channel_history(self._codec, config, channels)

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """Return a version that sorts after `current` and is unique across forks.

        Args:
            current: The version before, also one that another saver made; None for none.
            channel: Not used.
        """
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}.{RANDOM.random():016}"
