"""The checkpoints of a thread, read as far as one looks; never more than a few of them with their values in memory."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_statekit.checkpoint.records import Query, from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.errors import CheckpointMissing
from langgraph_statekit.timetravel.moments import Moment, Point, made_point, moment_of, point_of

_ROWS: Final = 1000
_PARENTS: Final = 8
_CHUNK: Final = 25


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a history, newest first.

    Attributes:
        moments: The checkpoints of all namespaces.
        head: Id of the latest checkpoint of the graph, wherever the page begins; None of an empty thread.
        older: There are older ones.
    """

    moments: Sequence[Moment]
    head: str | None
    older: bool


@dataclass(slots=True)
class History:
    """Reads one thread through one side of its saver. What it remembers is small: points, no values.

    Attributes:
        side: The saver.
        thread_id: The thread.
    """

    side: Side
    thread_id: str

    def config(self, ns: str | None = None, id: str | None = None) -> RunnableConfig:
        """Return the config of the thread, of a namespace, or of a checkpoint."""
        address = {"thread_id": self.thread_id}
        if ns is not None:
            address["checkpoint_ns"] = ns
        if id is not None:
            address["checkpoint_id"] = id
        return {"configurable": address}

    async def load(self, ns: str, id: str | None = None) -> CheckpointTuple | None:
        """Return a checkpoint with its values, or the latest one; None if it is not stored."""
        found: CheckpointTuple | None = await self.side.call("get_tuple", self.config(ns, id))
        return found

    async def loaded(self, point: Point) -> CheckpointTuple:
        """Return a checkpoint with its values.

        Raises:
            CheckpointMissing: It was removed meanwhile.
        """
        found = await self.load(point.ns, point.id)
        if found is None:
            raise CheckpointMissing(f"checkpoint {point.id!r} of thread {self.thread_id!r} was removed meanwhile")
        return found

    async def labels(self) -> Mapping[str, str]:
        """Return checkpoint ids by label; none of a saver that has no labels."""
        if not isinstance(self.side.saver, StatekitSaver):
            return {}
        found = await self.side.call("labels", self.thread_id)
        return {label: config["configurable"]["checkpoint_id"] for label, config in found.items()}

    async def tuples(self, before: str | None = None, ns: str | None = None) -> AsyncGenerator[CheckpointTuple]:
        """Yield checkpoints of all namespaces, or of one, newest first, in small portions."""
        bound: Any = None if before is None else {"configurable": {"checkpoint_id": before}}
        if ns is None and hasattr(self.side.saver, "storage"):
            async for item in self._merged(bound):
                yield item
            return
        if not _eager(self.side.saver):
            async with aclosing(self.side.list(self.config(ns), before=bound)) as items:
                async for item in items:
                    yield item
            return
        while True:
            # Ids of two namespaces can be equal only by accident, and then one of them is passed over.
            portion = [item async for item in self.side.list(self.config(ns), before=bound, limit=_CHUNK)]
            for item in portion:
                yield item
            if len(portion) < _CHUNK:
                return
            bound = {"configurable": {"checkpoint_id": portion[-1].checkpoint["id"]}}

    async def _merged(self, bound: Any) -> AsyncIterator[CheckpointTuple]:
        # A saver in memory lists one namespace after the other.
        spaces = list(getattr(self.side.saver, "storage", {}).get(self.thread_id, ()))
        lists = (self.side.saver.list(self.config(ns), before=bound) for ns in spaces)
        for item in heapq.merge(*lists, key=lambda item: item.checkpoint["id"], reverse=True):
            yield item

    async def page(self, limit: int, before: str | None = None) -> Page:
        """Return the newest checkpoints, or the newest before one."""
        head = await self._head()
        moments: list[Moment] = []
        waiting: dict[tuple[str, str], list[CheckpointTuple]] = {}
        order: dict[tuple[str, str], int] = {}
        count, older = 0, False
        async with aclosing(self.tuples(before)) as items:
            async for item in items:
                point = point_of(item)
                moments += (moment_of(child, item) for child in waiting.pop((point.ns, point.id), ()))
                if count >= limit:
                    older = True
                    break
                order[point.ns, point.id] = count
                count += 1
                if point.parent is None:
                    moments.append(moment_of(item, None))
                else:
                    waiting.setdefault((point.ns, point.parent), []).append(item)
        # Parents on the next page: one for each line that goes on there.
        for at, ((ns, id), children) in enumerate(waiting.items()):
            parent = await self.load(ns, id) if at < _PARENTS else None
            moments += (moment_of(child, parent) for child in children)
        moments.sort(key=lambda moment: order[moment.point.ns, moment.point.id])
        return Page(moments, head, older)

    async def _head(self) -> str | None:
        async with aclosing(self.side.list(self.config(""), limit=1)) as items:
            async for item in items:
                return str(item.checkpoint["id"])
        return None

    async def points(self, ns: str = "") -> list[Point]:
        """Return all checkpoints of a namespace without their values, newest first."""
        saver = self.side.saver
        if not isinstance(saver, StatekitSaver):
            async with aclosing(self.tuples(ns=ns)) as items:
                return [point_of(item) async for item in items]
        await self.side.call("setup")
        found: list[Point] = []
        below = None
        while True:
            query = Query(to_text(self.thread_id), to_text(ns), below_seq=below, limit=_ROWS)
            rows = await self.side.io(lambda query=query: saver.backend.rows(query))
            for row in rows:
                parent = None if row.parent is None else from_text(row.parent)
                metadata = saver._codec.metadata(row)
                found.append(made_point(self.thread_id, ns, from_text(row.ref.id), parent, metadata))
            if len(rows) < _ROWS:
                return found
            below = rows[-1].seq


def _eager(saver: Any) -> bool:
    """Say whether a saver reads all that it lists before it gives the first one."""
    return any(cls.__module__.startswith("langgraph.checkpoint.postgres") for cls in type(saver).__mro__)


def line(points: Sequence[Point], id: str | None) -> list[Point]:
    """Return a checkpoint and its ancestors, newest first."""
    by_id = {point.id: point for point in points}
    found: list[Point] = []
    while id is not None and id in by_id:
        point = by_id.pop(id)
        found.append(point)
        id = point.parent
    return found
