"""Any checkpointer as one set of coroutines, by its sync or its async methods, and what its own API does not tell."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, Protocol, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    writes_sort_key,
)

from langgraph_statekit.checkpoint.codec import ref_of
from langgraph_statekit.checkpoint.records import Ref, from_text
from langgraph_statekit.checkpoint.saver import StatekitSaver

AnySaver: TypeAlias = BaseCheckpointSaver[Any]
PAGE: Final = 100

_PATHS: Final = (
    "SELECT task_id, task_path, idx FROM {table} WHERE thread_id = {p} AND checkpoint_ns = {p} AND checkpoint_id = {p}"
)
_SQLITE: Final = _PATHS.format(table="writes", p="?")
_POSTGRES: Final = _PATHS.format(table="checkpoint_writes", p="%s")


class Side(Protocol):
    """One of the two savers of a copy; the methods are those of `BaseCheckpointSaver`."""

    saver: AnySaver

    async def get_tuple(self, at: RunnableConfig) -> CheckpointTuple | None: ...  # noqa: D102

    def list(self, at: RunnableConfig | None, **options: Any) -> AsyncGenerator[CheckpointTuple]: ...  # noqa: D102

    async def put(  # noqa: D102
        self, at: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> None: ...

    async def put_writes(  # noqa: D102
        self, at: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None: ...

    async def delete_thread(self, thread: str) -> None: ...  # noqa: D102

    async def history(self, at: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]: ...  # noqa: D102

    async def rows(self, kind: str, address: tuple[Any, ...]) -> Sequence[Any]:
        """Return task id, path and idx of a checkpoint's writes as the saver of this kind stores them."""
        ...


class SyncSide:
    """Calls the sync methods; never suspends."""

    def __init__(self, saver: AnySaver) -> None:
        self.saver = saver

    async def get_tuple(self, at: RunnableConfig) -> CheckpointTuple | None:  # noqa: D102
        return self.saver.get_tuple(at)

    async def list(self, at: RunnableConfig | None, **options: Any) -> AsyncGenerator[CheckpointTuple]:  # noqa: D102
        items: Any = self.saver.list(at, **options)
        with closing(items if hasattr(items, "close") else (item for item in items)) as found:
            for item in found:
                yield item

    async def put(  # noqa: D102
        self, at: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> None:
        self.saver.put(at, checkpoint, metadata, versions)

    async def put_writes(  # noqa: D102
        self, at: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        self.saver.put_writes(at, writes, task_id, task_path)

    async def delete_thread(self, thread: str) -> None:  # noqa: D102
        self.saver.delete_thread(thread)

    async def history(self, at: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:  # noqa: D102
        return self.saver.get_delta_channel_history(config=at, channels=channels)

    async def rows(self, kind: str, address: tuple[Any, ...]) -> Sequence[Any]:  # noqa: D102
        saver: Any = self.saver
        if kind == "statekit":
            return _stored(saver.backend.fill, address)
        if kind == "SqliteSaver":
            with saver.cursor(transaction=False) as cur:
                return list(cur.execute(_SQLITE, address))
        with saver._cursor() as cur:
            return [tuple(row.values()) for row in cur.execute(_POSTGRES, address)]


class AsyncSide:
    """Calls the async methods."""

    def __init__(self, saver: AnySaver) -> None:
        self.saver = saver

    async def get_tuple(self, at: RunnableConfig) -> CheckpointTuple | None:  # noqa: D102
        return await self.saver.aget_tuple(at)

    async def list(self, at: RunnableConfig | None, **options: Any) -> AsyncGenerator[CheckpointTuple]:  # noqa: D102
        items: Any = self.saver.alist(at, **options)
        try:
            async for item in items:
                yield item
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()

    async def put(  # noqa: D102
        self, at: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> None:
        await self.saver.aput(at, checkpoint, metadata, versions)

    async def put_writes(  # noqa: D102
        self, at: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        await self.saver.aput_writes(at, writes, task_id, task_path)

    async def delete_thread(self, thread: str) -> None:  # noqa: D102
        await self.saver.adelete_thread(thread)

    async def history(self, at: RunnableConfig, channels: Sequence[str]) -> Mapping[str, DeltaChannelHistory]:  # noqa: D102
        return await self.saver.aget_delta_channel_history(config=at, channels=channels)

    async def rows(self, kind: str, address: tuple[Any, ...]) -> Sequence[Any]:  # noqa: D102
        saver: Any = self.saver
        if kind == "statekit":
            found: Sequence[Any] = await saver._threads.io(_stored, saver.backend.fill, address)
            return found
        if kind == "AsyncSqliteSaver":
            async with saver.lock, saver.conn.execute(_SQLITE, address) as cur:
                return [row async for row in cur]
        async with saver._cursor() as cur:
            await cur.execute(_POSTGRES, address)
            return [tuple(row.values()) async for row in cur]


def _stored(fill: Callable[..., Any], address: tuple[Any, ...]) -> Sequence[Any]:
    thread, ns, id = ref_of(_config(*address))
    ref = Ref(thread, ns, id or "")
    _, writes = fill(thread, (), (ref,))
    return [(from_text(w.task), from_text(w.path), w.idx) for w in writes.get(ref, ())]


def _config(thread: str, ns: str, id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


async def task_paths(side: Side, at: RunnableConfig, tasks: Sequence[str]) -> Mapping[str, str]:
    """Return a path for each task of a checkpoint: the stored one where it can be read, else one that keeps the order.

    No method of a checkpointer tells it. It is read from the stores of this package and of LangGraph's own savers.

    Args:
        side: The saver that has the checkpoint.
        at: Its address.
        tasks: Task id of each of its writes, in their order.
    """
    order = list(dict.fromkeys(tasks))
    if not order:
        return {}
    address = tuple(at["configurable"][key] for key in ("thread_id", "checkpoint_ns", "checkpoint_id"))
    kind = _kind(side)
    if kind == "InMemorySaver":
        saver: Any = side.saver
        found = [(task, path, idx) for (_, idx), (task, _, _, path) in saver.writes[address].items()]
    else:
        found = [tuple(row) for row in await side.rows(kind, address)] if kind else []
    known = sorted(found, key=lambda row: writes_sort_key(row[1], row[0], row[2]))
    if [task for task, _, _ in known] == list(tasks):
        return {task: path for task, path, _ in reversed(known)}
    if order == sorted(order):
        return dict.fromkeys(order, "")
    return {task: f"{place:08}" for place, task in enumerate(order)}


def _kind(side: Side) -> str | None:
    """Return how the saver's writes can be read; None: not at all."""
    if isinstance(side.saver, StatekitSaver):
        return "statekit"
    known = {
        "langgraph.checkpoint.memory": ("InMemorySaver",),
        "langgraph.checkpoint.sqlite": ("SqliteSaver",) if isinstance(side, SyncSide) else (),
        "langgraph.checkpoint.sqlite.aio": ("AsyncSqliteSaver",) if isinstance(side, AsyncSide) else (),
        "langgraph.checkpoint.postgres": ("PostgresSaver",) if isinstance(side, SyncSide) else (),
        "langgraph.checkpoint.postgres.aio": ("AsyncPostgresSaver",) if isinstance(side, AsyncSide) else (),
    }
    for cls in type(side.saver).__mro__:
        if cls.__name__ in known.get(cls.__module__, ()):
            return cls.__name__
    return None


async def listed(side: Side, at: RunnableConfig | None) -> AsyncGenerator[CheckpointTuple]:
    """Yield what a saver lists, without more than a page of it in memory."""
    if not any(cls.__module__.startswith("langgraph.checkpoint.postgres") for cls in type(side.saver).__mro__):
        async for item in side.list(at):
            yield item
        return
    # It fetches all that it lists at once. It sorts by id, over all threads and namespaces, which may share ids.
    bound: RunnableConfig | None = None
    size = PAGE
    while True:
        page = [item async for item in side.list(at, before=bound, limit=size)]
        last = page[-1].checkpoint["id"] if len(page) == size else None
        whole = [item for item in page if item.checkpoint["id"] != last]
        for item in whole:
            yield item
        if last is None:
            return
        if whole:
            bound, size = {"configurable": {"checkpoint_id": whole[-1].checkpoint["id"]}}, PAGE
        else:
            size *= 2
