"""Every checkpointer operation, written once for every store and for sync and async callers."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.changing import ATTEMPTS, changed
from langgraph_statekit.checkpoint.claims import token_of
from langgraph_statekit.checkpoint.codec import Codec, channel_key, config_of, matches, ref_of
from langgraph_statekit.checkpoint.delta_history import assembled
from langgraph_statekit.checkpoint.expiry import Swept
from langgraph_statekit.checkpoint.frames import Frames
from langgraph_statekit.checkpoint.labels import NAMESPACE, label_query, label_row, labels_of, require_label
from langgraph_statekit.checkpoint.options import require_ids
from langgraph_statekit.checkpoint.order import clock_us
from langgraph_statekit.checkpoint.pacing import Pacing
from langgraph_statekit.checkpoint.records import (
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    SaveRow,
    SaveWrites,
    Write,
    from_text,
    to_text,
)
from langgraph_statekit.checkpoint.requests import Requests
from langgraph_statekit.checkpoint.retention import apply_policy, heads, keep_latest, keep_only, walk, without_runs
from langgraph_statekit.checkpoint.retention_policy import Retention
from langgraph_statekit.checkpoint.rewriting import Step, require_revertible, rewritten
from langgraph_statekit.checkpoint.run import Batcher, Runtime
from langgraph_statekit.checkpoint.sweeping import Sweeping, sweep_all
from langgraph_statekit.errors import CheckpointMissing, Conflict, Corrupt, Misuse, StatekitError
from langgraph_statekit.extras import load

PAGE_ROWS = 100
_LOG = logging.getLogger(__name__)


class Engine(Requests):
    """Operations over a backend; the codec comes with each call, since clones of a saver differ only in it."""

    def __init__(self, backend: Backend, runtime: Runtime, frames: Frames, saves: Batcher[Save, int]) -> None:
        super().__init__(backend, runtime)
        self._frames = frames
        self._saves = saves
        self.retention: Retention | None = None
        self.retain: Callable[[str, Retention], Awaitable[int]] = self._retention
        self.pacing = Pacing()
        self.ttl_us: int | None = 0
        self.sweeping: Sweeping | None = None
        self.progressed: Callable[[str, int], None] | None = None

    async def _save(self, save: Save) -> int:
        saved = await self._runtime.batched(self._saves, save)
        if saved and save.token is not None and self.progressed is not None:
            self.progressed(save.thread, save.token)
        return saved

    async def put(
        self,
        codec: Codec,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        token = codec.token(config)
        async with self._runtime.place() as place:
            known = self._frames.settled.get, self._frames.present.get
            row, plains = codec.pack_put(config, checkpoint, metadata, new_versions, *known)
            thread = row.ref.thread

            def others() -> list[tuple[bytes, bytes | None]]:
                return codec.pack_values(row.ref.ns, checkpoint, new_versions)

            rev = await self._save_row(row, plains, clock_us(checkpoint["id"]), token, place.takes, others, self.ttl_us)
        self._frames.note(row, [key for key, plain in plains if plain is not None])
        if (schema := codec.schema(row.ref.ns)) is not None:
            self._frames.settled.put((row.ref, schema.version), True, 0)
        if self.retention is not None and self.pacing.due(thread, rev, self.retention.keep_last):
            await self._retain(thread, rev, self.retention)
        if self.sweeping is not None:
            self.sweeping.now_and_then()
        return config_of(row.ref, token)

    async def _save_row(
        self,
        row: Row,
        plains: Sequence[tuple[bytes, bytes | None]],
        at: int,
        token: int | None,
        takes: Callable[[int], None] = lambda size_bytes: None,
        others: Callable[[], list[tuple[bytes, bytes | None]]] = list,
        ttl_us: int | None = None,
    ) -> int:
        thread = row.ref.thread
        frames, chains = self._frames.pack(thread, plains, whole=not self._backend.deltas)
        takes(len(row.body) + sum([len(frame.data or b"") for frame in frames]))
        await self._store()
        if not (rev := await self._save(SaveRow(row, frames, at, token, ttl_us=ttl_us))):
            # A base is gone, or what the checkpoint goes on from was removed: all values go along.
            frames, chains = self._frames.pack(thread, [*plains, *others()], whole=True)
            if not (rev := await self._save(SaveRow(row, frames, at, token, ttl_us=ttl_us))):
                if row.packed_deltas:
                    raise Conflict(
                        f"checkpoint {from_text(row.parent or '')!r} of thread {from_text(thread)!r}, which a run goes"
                        " on from, was removed meanwhile, and its delta channels cannot be rebuilt without it; nothing"
                        " was saved: run again from the latest checkpoint, and keep more of the thread"
                    )
                rev = await self._save(SaveRow(row, frames, at, token, whole=True, ttl_us=ttl_us))
        self._frames.remember(thread, chains)
        return rev

    async def rewrite(
        self, codec: Codec, thread_id: str, step: Step, token: int | None, *, dry_run: bool = False
    ) -> int:
        """Migrate, revert or commit the states of a thread, and return how many checkpoints changed.

        Each changes in one step, and none if one of them cannot; with `dry_run` none at all.
        """
        store, thread = await self._store(), to_text(thread_id)
        if step == "revert":
            stored = [(row, writes[row.ref]) async for page, _, writes in self._pages(store, thread) for row in page]
            require_revertible(codec, stored)
        elif step == "migrate":
            async for page, frames, _ in self._pages(store, thread):
                for row in page:
                    rewritten(codec, step, row, self._frames.reader(thread, frames))
        places: dict[Ref, int] = {}
        async for page, frames, _ in self._pages(store, thread):
            read = self._frames.reader(thread, frames)
            for row in page:
                found = rewritten(codec, step, row, read)
                if found is not None:
                    places[row.ref] = row.seq
                    if not dry_run:
                        await self._save_row(*found, 0, token)

        def tidy(outline: Outline) -> Change:
            # A row that somebody removed before it was saved came back in another place.
            return keep_only(
                outline,
                {row.ref for row in outline.rows if not row.hidden and places.get(row.ref, row.seq) == row.seq},
            )

        # A batch that was killed may have left values that rows it had changed needed before.
        if not dry_run and (places or step != "migrate"):
            await self._change(thread, tidy)
        return len(places)

    async def _pages(
        self, store: Backend, thread: str
    ) -> AsyncIterator[tuple[Sequence[Row], Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]]:
        below = None
        while rows := await self._io(store.rows, Query(thread, below_seq=below, limit=PAGE_ROWS)):
            below = rows[-1].seq
            frames, writes = await self._io(
                store.fill, thread, {key for row in rows for key in row.keys}, [row.ref for row in rows]
            )
            yield [row for row in rows if row.ref in writes], frames, writes

    async def _retention(self, thread: str, retention: Retention) -> int:
        return await self._change(thread, lambda outline: apply_policy(outline, retention, time.time_ns() // 1000))

    async def _retain(self, thread: str, rev: int, retention: Retention) -> None:
        try:
            left = await self.retain(thread, retention)
        except StatekitError as error:  # the save is done; the next pass removes what stays
            _LOG.warning("retention of thread %r was put off: %s", from_text(thread), error)
        else:
            self.pacing.passed(thread, rev, left)

    async def label(self, codec: Codec, config: RunnableConfig, label: str) -> RunnableConfig:
        """Give a checkpoint a label, and return its config."""
        require_label(label)
        thread, ns, id = ref_of(config)
        token = codec.token(config)
        store = await self._store()
        found = await self._io(store.rows, Query(thread, ns, id, limit=1))
        if not found:
            raise CheckpointMissing(f"thread {from_text(thread)!r} has no checkpoint {from_text(id or '')!r} to label")
        ref = found[0].ref
        await self._save(SaveRow(label_row(ref, to_text(label)), (), token=token))
        if not await self._io(store.rows, Query(ref.thread, ref.ns, ref.id, limit=1)):
            await self.unlabel(thread_id := from_text(thread), label)  # removed since it was read
            raise CheckpointMissing(f"thread {thread_id!r} has no checkpoint {from_text(ref.id)!r} to label any more")
        return config_of(ref, token)

    async def labels(self, thread_id: str) -> dict[str, RunnableConfig]:
        """Return the labelled checkpoints of a thread by label."""
        rows = await self._io((await self._store()).rows, label_query(to_text(thread_id)))
        return {from_text(label): config_of(ref) for label, ref in labels_of(rows).items()}

    async def unlabel(self, thread_id: str, label: str) -> None:
        """Take a label away."""
        gone = Ref(to_text(thread_id), NAMESPACE, to_text(label))

        def plan(outline: Outline) -> Change:
            return Change(drop=[row.ref for row in outline.rows if row.ref == gone])

        await self._change(gone.thread, plan)

    async def put_writes(
        self, codec: Codec, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        token = codec.token(config)
        async with self._runtime.place() as place:
            ref, packed = codec.pack_writes(config, writes, task_id, task_path)
            place.takes(sum([len(write.data) for write in packed]))
            if packed:
                await self._store()
                await self._save(SaveWrites(ref, packed, token))

    async def get_tuple(self, codec: Codec, config: RunnableConfig) -> CheckpointTuple | None:
        store = await self._store()
        stored = await self._io(store.load, *ref_of(config), bool(self.ttl_us))
        if stored is None:
            return None
        row = stored.row
        read = self._frames.reader(row.ref.thread, stored.frames, remember=True)
        self._frames.note(row, stored.frames)
        return codec.unpack(row, read, stored.writes, token_of(config["configurable"]))

    async def list(
        self,
        codec: Codec,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncGenerator[CheckpointTuple]:
        left = limit
        bound = (before or {}).get("configurable", {}).get("checkpoint_id")
        async for query in self._queries(config, to_text(bound) if bound else None):
            async for item in self._list_thread(codec, query, filter or {}, left):
                yield item
                if left is not None:
                    left -= 1
            if left is not None and left <= 0:
                return

    async def _queries(self, config: RunnableConfig | None, before: str | None) -> AsyncIterator[Query]:
        if config is not None:
            thread, ns, id = ref_of(config)
            scope = None if config["configurable"].get("checkpoint_ns") is None else ns
            yield Query(thread, scope, id, before, refresh=bool(self.ttl_us))
            return
        store = await self._store()
        pages = iter(await self._io(store.threads))
        while page := await self._io(next, pages, ()):
            for thread in page:
                yield Query(thread, before=before)  # whoever lists all threads uses none of them

    async def _list_thread(
        self, codec: Codec, query: Query, filter: Mapping[str, Any], limit: int | None
    ) -> AsyncIterator[CheckpointTuple]:
        store = await self._store()
        below = None
        while limit is None or limit > 0:
            size = PAGE_ROWS if limit is None or filter else min(limit, PAGE_ROWS)
            rows = await self._io(store.rows, replace(query, below_seq=below, limit=size))
            matching = [row for row in rows if not filter or matches(codec.metadata(row), filter)]
            wanted = matching[:limit]
            if wanted:
                keys = {key for row in wanted for key in row.keys}
                frames, writes = await self._io(store.fill, query.thread, keys, [row.ref for row in wanted])
                read = self._frames.reader(query.thread, frames)
                for row in wanted:
                    if row.ref not in writes:  # it was removed since
                        continue
                    try:
                        item: CheckpointTuple | None = codec.unpack(row, read, writes[row.ref])
                    except Corrupt:  # or its values went since it was read, as it was hidden or rewritten
                        item = await self._alone(codec, row.ref)
                    if item is not None:
                        yield item
                        if limit is not None:
                            limit -= 1
            if len(matching) == len(wanted) and len(rows) < size:
                return
            below = (rows if len(matching) == len(wanted) else wanted)[-1].seq

    async def _alone(self, codec: Codec, ref: Ref) -> CheckpointTuple | None:
        """Read a checkpoint and its values in one step."""
        stored = await self._io((await self._store()).load, *ref, False)
        if stored is None:
            return None
        return codec.unpack(stored.row, self._frames.reader(ref.thread, stored.frames), stored.writes)

    async def get_delta_channel_history(
        self, codec: Codec, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        if not channels:
            return {}
        thread, ns, id = ref_of(config)
        names = {channel_key(ns, channel): channel for channel in channels}
        store = await self._store()
        for _ in range(ATTEMPTS):
            outline = await self._io(store.outline, thread, ns)
            rows = {row.ref: row for row in outline.rows}
            start = Ref(thread, ns, id) if id else next(iter(heads(outline.rows)), None)
            steps = [] if start not in rows else list(walk(rows, outline.frames, rows[start], names))
            seeds = {name: key for _, found, _ in steps for name, key in found.items()}
            refs = [row.ref for row, _, _ in steps]
            frames, writes = await self._io(store.fill, thread, set(seeds.values()), refs) if refs else ({}, {})
            if all(ref in writes for ref in refs):
                break
        else:
            raise Conflict(
                f"checkpoints of thread {from_text(thread)!r} were being removed while it was read; try again"
            )
        read = self._frames.reader(thread, frames)
        return assembled(codec, names, seeds, steps, writes, read)

    async def delete_thread(self, thread_id: str) -> None:
        if thread_id is None:  # would be the thread "None"
            raise Misuse("no thread is named: thread_id is None")
        store = await self._store()
        if await self._io(store.drop_thread, to_text(thread_id)):
            await load("effects.forgetting", "forget")(self, to_text(thread_id))

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        wanted = {to_text(run_id) for run_id in require_ids(run_ids, "run_ids")}
        if not wanted:
            return
        store = await self._store()
        pages = iter(await self._io(store.threads, wanted))
        while page := await self._io(next, pages, ()):
            for thread in page:
                await self._change(thread, lambda outline: without_runs(outline, wanted))

    async def rotate_keys(self, rotate: Callable[[], int]) -> int:
        await self._store()
        return await self._io(rotate)

    async def copy_thread(self, source: str, target: str) -> None:
        if to_text(source) == to_text(target):
            return
        store = await self._store()
        if not await self._io(store.copy_thread, to_text(source), to_text(target), os.urandom(12).hex()):
            raise Misuse(f"thread {target!r} already has checkpoints: delete it first, or copy to another id")

    async def prune(self, thread_ids: Sequence[str], strategy: str | Retention) -> None:
        if isinstance(strategy, Retention):
            policy = strategy

            def plan(outline: Outline) -> Change:
                return apply_policy(outline, policy, time.time_ns() // 1000)

        elif strategy in ("keep_latest", "delete"):
            plan = keep_latest
        else:
            raise Misuse(f"unknown strategy {strategy!r}: use 'keep_latest', 'delete' or a Retention")
        for thread in require_ids(thread_ids, "thread_ids"):
            if strategy == "delete":
                await self.delete_thread(thread)
            else:
                await self._change(to_text(thread), plan)

    async def sweep(self, orphans_us: int) -> Swept:
        """Remove all that has expired, and writes whose checkpoint never came."""
        return await self._io(sweep_all, await self._store(), orphans_us)

    async def _change(self, thread: str, plan: Callable[[Outline], Change]) -> int:
        """Make a planned change and return how many rows it left."""
        return (await self._io(changed, await self._store(), thread, plan))[0]
