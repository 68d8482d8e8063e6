"""Any checkpointer as one set of coroutines, by its sync or its async methods, and what its own API does not tell."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, empty_checkpoint, writes_sort_key

from langgraph_statekit.checkpoint.codec import ref_of
from langgraph_statekit.checkpoint.records import Ref, from_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse

AnySaver: TypeAlias = BaseCheckpointSaver[Any]
PAGE: Final = 100

_PATHS: Final = (
    "SELECT task_id, task_path, idx FROM {table} WHERE thread_id = {p} AND checkpoint_ns = {p} AND checkpoint_id = {p}"
)
_SQLITE: Final = _PATHS.format(table="writes", p="?")
_POSTGRES: Final = _PATHS.format(table="checkpoint_writes", p="%s")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two savers of a copy. With `is_async` its async methods are called, else nothing here suspends."""

    saver: AnySaver
    is_async: bool

    def __post_init__(self) -> None:
        if not isinstance(self.saver, BaseCheckpointSaver):
            raise Misuse(f"a checkpointer is needed, not {type(self.saver).__name__}; for a URL use open_saver")

    def as_stored(self) -> Side:
        """Return the saver without a state schema: states of every version as they are."""
        return Side(self.saver.with_state(None), self.is_async) if isinstance(self.saver, StatekitSaver) else self

    @property
    def has_labels(self) -> bool:
        """Whether checkpoints can have labels."""
        return isinstance(self.saver, StatekitSaver)

    async def call(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what the method of this name returns, or its async version."""
        if self.is_async:
            return await getattr(self.saver, f"a{method}")(*args, **options)
        return getattr(self.saver, method)(*args, **options)

    async def list(self, at: RunnableConfig | None, **options: Any) -> AsyncGenerator[CheckpointTuple]:
        """Yield what the saver lists."""
        if not self.is_async:
            with closing(item for item in self.saver.list(at, **options)) as found:
                for item in found:
                    yield item
            return
        items: Any = self.saver.alist(at, **options)
        try:
            async for item in items:
                yield item
        finally:
            if hasattr(items, "aclose"):
                await items.aclose()

    async def threads(self) -> Sequence[str]:
        """Return the ids of all threads: of a saver that cannot tell them, oldest first."""
        if isinstance(self.saver, StatekitSaver):
            await self.call("setup")
            backend = self.saver.backend
            ids: Sequence[str] = await self.io(lambda: [from_text(id) for page in backend.threads() for id in page])
            return ids
        found: dict[str, None] = {}
        async with aclosing(listed(self, None)) as items:
            async for item in items:
                found.setdefault(item.config["configurable"]["thread_id"])
        return [*reversed(found)]

    async def labels(self, thread_id: str) -> Mapping[str, tuple[str, str]]:
        """Return namespace and id of each checkpoint with a label; none of a saver that has no labels."""
        if not self.has_labels:
            return {}
        found = await self.call("labels", thread_id)
        named = {label: at["configurable"] for label, at in found.items()}
        return {label: (at["checkpoint_ns"], at["checkpoint_id"]) for label, at in named.items()}

    async def rows(self, at: RunnableConfig) -> Sequence[tuple[str, str, int]]:
        """Return task id, path and idx of each write of a checkpoint; none where it is not known how to read them."""
        saver: Any = self.saver
        address = tuple(at["configurable"][key] for key in ("thread_id", "checkpoint_ns", "checkpoint_id"))
        match _kind(saver), self.is_async:
            case "StatekitSaver", _:
                found: Sequence[tuple[str, str, int]] = await self.io(lambda: _stored(saver, at))
                return found
            case "InMemorySaver", _:
                return [(task, path, idx) for (_, idx), (task, _, _, path) in saver.writes[address].items()]
            case "SqliteSaver", False:
                with saver.cursor(transaction=False) as cur:
                    return list(cur.execute(_SQLITE, address))
            case "AsyncSqliteSaver", True:
                async with saver.lock, saver.conn.execute(_SQLITE, address) as cur:
                    return [row async for row in cur]
            case "PostgresSaver", False:
                with saver._cursor() as cur:
                    return [tuple(row.values()) for row in cur.execute(_POSTGRES, address)]
            case "AsyncPostgresSaver", True:
                async with saver._cursor() as cur:
                    await cur.execute(_POSTGRES, address)
                    return [tuple(row.values()) async for row in cur]
        return []

    async def io(self, verb: Callable[[], Any]) -> Any:
        """Return what a blocking call to the saver of this package returns."""
        saver: Any = self.saver
        return await saver._threads.io(verb) if self.is_async else verb()


def _stored(saver: StatekitSaver, at: RunnableConfig) -> Sequence[tuple[str, str, int]]:
    thread, ns, id = ref_of(at)
    ref = Ref(thread, ns, id or "")
    _, writes = saver.backend.fill(thread, (), (ref,))
    return [(from_text(write.task), from_text(write.path), write.idx) for write in writes.get(ref, ())]


def _kind(saver: AnySaver) -> str | None:
    """Return the class, of those whose writes can be read, that a saver is or derives from."""
    homes = {
        StatekitSaver.__module__: "StatekitSaver",
        "langgraph.checkpoint.memory": "InMemorySaver",
        "langgraph.checkpoint.sqlite": "SqliteSaver",
        "langgraph.checkpoint.sqlite.aio": "AsyncSqliteSaver",
        "langgraph.checkpoint.postgres": "PostgresSaver",
        "langgraph.checkpoint.postgres.aio": "AsyncPostgresSaver",
    }
    names = (cls.__name__ for cls in type(saver).__mro__ if homes.get(cls.__module__) == cls.__name__)
    return next(names, None)


async def share_store(src: Side, dst: Side) -> bool:
    """Say whether both savers have the same store, whatever their URLs: whether what one puts shows in the other."""
    thread = f"statekit-copy-{os.urandom(12).hex()}"
    at: RunnableConfig = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    try:
        put = await dst.call("put", at, empty_checkpoint(), {"source": "input", "step": -1, "parents": {}}, {})
        return await src.call("get_tuple", put) is not None
    finally:
        await dst.call("delete_thread", thread)


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
    found = await side.rows(at)
    known = sorted(found, key=lambda row: writes_sort_key(row[1], row[0], row[2]))
    if [task for task, _, _ in known] == list(tasks):
        return {task: path for task, path, _ in reversed(known)}
    if order == sorted(order):
        return dict.fromkeys(order, "")
    return {task: f"{place:08}" for place, task in enumerate(order)}


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
