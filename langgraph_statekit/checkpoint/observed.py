"""The engine with hooks: each operation runs through a runtime of its own, which sees every verb and its result.

Savers without hooks use the plain engine, so events cost them nothing.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backlog import Place
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed
from langgraph_statekit.checkpoint.codec import Codec
from langgraph_statekit.checkpoint.engine import Engine
from langgraph_statekit.checkpoint.expiry import Swept
from langgraph_statekit.checkpoint.frames import Frames
from langgraph_statekit.checkpoint.records import Frame, Save, SaveRow, Write, from_text
from langgraph_statekit.checkpoint.repeating import telling_retries
from langgraph_statekit.checkpoint.retention_policy import Retention
from langgraph_statekit.checkpoint.run import Batcher, Runtime
from langgraph_statekit.errors import Conflict, Fenced
from langgraph_statekit.events import (
    Conflicted,
    Failed,
    Finished,
    Hook,
    LeaseLost,
    Loaded,
    Pruned,
    Retried,
    Saved,
    ThreadCopied,
)

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
A = TypeVarTuple("A")


def store_of(backend: Backend) -> str:
    """Return the kind of a store as events name it."""
    return type(getattr(backend, "inner", backend)).__name__.removesuffix("Backend").lower()


def observed_save(backend: Backend, hook: Hook) -> Callable[[Sequence[Save]], Sequence[int | Exception]]:
    """Return the backend's `save` that tells when it is repeated."""

    def save(saves: Sequence[Save]) -> Sequence[int | Exception]:
        threads = {save.thread for save in saves}
        thread_id = from_text(threads.pop()) if len(threads) == 1 else None

        def retried(error: BaseException) -> None:
            name = type(error).__name__
            hook(
                Retried(store=store_of(backend), operation="save", thread_id=thread_id, checkpoint_ns=None, error=name)
            )

        return telling_retries(backend.save, retried)(saves)

    return save


class ObservedEngine(Engine):
    """The same operations, told to a hook."""

    def __init__(
        self, backend: Backend, runtime: Runtime, frames: Frames, saves: Batcher[Save, int], hook: Hook
    ) -> None:
        super().__init__(backend, runtime, frames, saves)
        self._hook = hook

    def _operation(self, kind: type[Finished], name: str, config: RunnableConfig | None = None) -> _Operation:
        configurable = (config or {}).get("configurable") or {}
        thread_id = configurable.get("thread_id")
        ns = None if thread_id is None else str(configurable.get("checkpoint_ns") or "")
        return _Operation(self, kind, name, None if thread_id is None else str(thread_id), ns)

    async def setup(self) -> None:
        with self._operation(Finished, "setup") as op:
            await op.engine.setup()

    async def put(
        self,
        codec: Codec,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        with self._operation(Saved, "put", config) as op:
            op.engine.retain = self._retention
            return await op.engine.put(_Measuring(codec, op), config, checkpoint, metadata, new_versions)

    async def put_writes(
        self, codec: Codec, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        with self._operation(Saved, "put_writes", config) as op:
            await op.engine.put_writes(_Measuring(codec, op), config, writes, task_id, task_path)

    async def get_tuple(self, codec: Codec, config: RunnableConfig) -> CheckpointTuple | None:
        with self._operation(Loaded, "get_tuple", config) as op:
            return await op.engine.get_tuple(_Measuring(codec, op), config)

    async def list(
        self,
        codec: Codec,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncGenerator[CheckpointTuple]:
        with self._operation(Loaded, "list", config) as op:
            async with aclosing(op.engine.list(_Measuring(codec, op), config, filter, before, limit)) as items:
                async for item in items:
                    yielded = time.perf_counter()
                    try:
                        yield item
                    finally:
                        op.begun += time.perf_counter() - yielded

    async def get_delta_channel_history(
        self, codec: Codec, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        with self._operation(Loaded, "get_delta_channel_history", config) as op:
            return await op.engine.get_delta_channel_history(_Measuring(codec, op), config, channels)

    async def change_cell(self, change: CellChange) -> Changed:
        with self._operation(Finished, "change_cell") as op:
            op.thread_id = from_text(change.thread) or None
            return await op.engine.change_cell(change)

    async def cells(self, query: CellQuery) -> CellPage:
        with self._operation(Finished, "cells") as op:
            return await op.engine.cells(query)

    async def delete_thread(self, thread_id: str) -> None:
        with self._operation(Pruned, "delete_thread") as op:
            op.thread_id = str(thread_id)
            await op.engine.delete_thread(thread_id)

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        with self._operation(Pruned, "delete_for_runs") as op:
            await op.engine.delete_for_runs(run_ids)

    async def copy_thread(self, source: str, target: str) -> None:
        with self._operation(ThreadCopied, "copy_thread") as op:
            op.thread_id, op.target_thread_id = str(source), str(target)
            await op.engine.copy_thread(source, target)

    async def prune(self, thread_ids: Sequence[str], strategy: str | Retention) -> None:
        with self._operation(Pruned, "prune") as op:
            await op.engine.prune(thread_ids, strategy)

    async def _retention(self, thread: str, retention: Retention) -> int:
        with self._operation(Pruned, "retention") as op:
            op.thread_id = from_text(thread)
            return await op.engine.retain(thread, retention)

    async def sweep(self, orphans_us: int) -> Swept:
        with self._operation(Pruned, "sweep") as op:
            return await op.engine.sweep(orphans_us)


class _Operation:
    """One operation under way, and the runtime of its engine."""

    def __init__(
        self, owner: ObservedEngine, kind: type[Finished], name: str, thread_id: str | None, ns: str | None
    ) -> None:
        self._owner, self._kind, self._name = owner, kind, name
        self.thread_id, self._ns = thread_id, ns
        self._runtime = owner._runtime
        self.engine = Engine(owner._backend, self, owner._frames, owner._saves)
        self.engine._ready = owner._ready
        self.engine.retention, self.engine.pacing = owner.retention, owner.pacing
        self.engine.ttl_us, self.engine.sweeping = owner.ttl_us, owner.sweeping
        self.engine.progressed = owner.progressed
        self.plain_bytes = self._stored_bytes = self._checkpoints = 0
        self._thread_ids: dict[str, None] = {}
        self.target_thread_id = ""
        self.begun = time.perf_counter()

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T:
        result = await self._runtime.io(telling_retries(verb, self._retried), *args)
        self._count(verb.__name__, args, result)
        return result

    def place(self) -> Place:
        return self._runtime.place()

    async def sleep(self, pause_s: float) -> None:
        await self._runtime.sleep(pause_s)

    async def batched(self, batcher: Batcher[S, R], item: S) -> R:
        if isinstance(item, SaveRow):
            self._stored_bytes = _size(item.frames) + len(item.row.body)
        else:
            self._stored_bytes = _size(getattr(item, "writes", ()))
        return await self._runtime.batched(batcher, item)

    def _count(self, verb: str, args: Sequence[Any], result: Any) -> None:
        match verb:
            case "load" if result is not None:
                self._stored_bytes += len(result.row.body) + _size(result.frames.values()) + _size(result.writes)
            case "rows":
                self._stored_bytes += sum(len(row.body) for row in result)
            case "fill":
                frames, writes = result
                self._stored_bytes += _size(frames.values()) + sum(map(_size, writes.values()))
            case "drop_thread":
                self._thread_ids[from_text(args[0])] = None
            case "changed":
                _, dropped, lost = result
                for _ in range(lost):
                    self._tell(Conflicted, thread_id=from_text(args[1]))
                if dropped is not None:
                    self._thread_ids[from_text(args[1])] = None
                    self._checkpoints += dropped

    def _retried(self, error: BaseException) -> None:
        self._tell(Retried, error=type(error).__name__)

    def _tell(self, kind: Callable[..., Any], **fields: Any) -> None:
        common = {"store": store_of(self._owner._backend), "operation": self._name}
        self._owner._hook(kind(**{**common, "thread_id": self.thread_id, "checkpoint_ns": self._ns, **fields}))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        latency_s = time.perf_counter() - self.begun
        self._owner._ready = self._owner._ready or self.engine._ready
        if isinstance(error, Conflict):
            self._tell(Conflicted)
        elif isinstance(error, Fenced):
            self._tell(LeaseLost)
        if isinstance(error, Exception):
            self._tell(Failed, latency_s=latency_s, error=type(error).__name__)
        elif error is None or isinstance(error, GeneratorExit):  # the reader of a list has enough
            self._tell(self._kind, latency_s=latency_s, **self._result())

    def _result(self) -> dict[str, Any]:
        if self._kind in (Saved, Loaded):
            return {"plain_bytes": self.plain_bytes, "stored_bytes": self._stored_bytes}
        if self._kind is Pruned:
            ids = tuple(self._thread_ids)
            only = {"thread_id": ids[0]} if len(ids) == 1 else {}
            return {"thread_ids": ids, "checkpoints": self._checkpoints, **only}
        return {"target_thread_id": self.target_thread_id} if self._kind is ThreadCopied else {}


class _Measuring(Codec):
    """A codec that adds up the serialized bytes of one operation."""

    def __init__(self, codec: Codec, operation: _Operation) -> None:
        vars(self).update(vars(codec))  # all that it is made of
        self._operation = operation

    def _typed(self, what: str, value: Any) -> tuple[str, bytes]:
        tag, payload = super()._typed(what, value)
        self._operation.plain_bytes += len(payload)
        return tag, payload

    def _load_typed(self, tag: str, payload: bytes) -> Any:
        self._operation.plain_bytes += len(payload)
        return super()._load_typed(tag, payload)


def _size(items: Iterable[Frame | Write]) -> int:
    return sum(len(item.data or b"") for item in items)
