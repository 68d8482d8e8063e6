"""The checkpoints of a thread, read as far as one looks; never more than a few of them with their values in memory."""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_statekit.checkpoint.labels import OWN_LABELS
from langgraph_statekit.checkpoint.order import clock_us, id_at
from langgraph_statekit.checkpoint.records import Query, from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import PAGE, Side
from langgraph_statekit.errors import CheckpointMissing, DataError
from langgraph_statekit.timetravel.looking import looking
from langgraph_statekit.timetravel.moments import Moment, Point, lengths_of, made_point, moment_of, point_of, state_of

_ROWS: Final = 1000
_PARENTS: Final = 8
_VALUES: Final = 16
_LEAST: Final = 3
_LOST: Final = 2
_MOST_LOSSES: Final = 3
_MOST_STEPS: Final = 48
_SHORT: Final = 4


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a history, newest first.

    Attributes:
        moments: The checkpoints of all namespaces.
        head: Id of the latest checkpoint of the graph, wherever the page begins; None of an empty thread.
        older: There are older ones.
        earlier: Of those, some where something was lost that is missing since: each with the one before it.
        damaged: What is wrong with checkpoints that cannot be read, by id; they are passed over.
    """

    moments: Sequence[Moment]
    head: str | None
    older: bool
    earlier: Sequence[tuple[Moment, Moment]] = ()
    damaged: Mapping[str, str] = field(default_factory=dict)


class _Look(NamedTuple):
    """As much of a checkpoint as it takes to see whether something was lost."""

    point: Point
    lengths: Mapping[str, float]


@dataclass(slots=True)
class History:
    """Reads one thread through one side of its saver. What it remembers is small: points, no values.

    Attributes:
        side: The saver.
        thread_id: The thread.
        damaged: Checkpoints that could not be read, and why.
    """

    side: Side
    thread_id: str
    damaged: dict[str, str] = field(default_factory=dict)

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
            CheckpointMissing: It was removed meanwhile, or made by a dry replay.
        """
        found = await self.load(point.ns, point.id)
        if found is None:
            raise CheckpointMissing(
                f"checkpoint {point.id!r} of thread {self.thread_id!r} is not stored: it was removed meanwhile, or "
                "made by a dry replay"
            )
        return found

    async def labels(self) -> Mapping[str, str]:
        """Return checkpoint ids by label, without those that rollbacks set; none of a saver that has no labels."""
        if not isinstance(self.side.saver, StatekitSaver):
            return {}
        found = await self.side.call("labels", self.thread_id)
        own = ((label, config) for label, config in found.items() if not label.startswith(OWN_LABELS))
        return {label: config["configurable"]["checkpoint_id"] for label, config in own}

    async def tuples(
        self, before: str | None = None, ns: str | None = None, portion: int = PAGE, side: Side | None = None
    ) -> AsyncGenerator[CheckpointTuple]:
        """Yield checkpoints of all namespaces, or of one, newest first.

        The savers of LangGraph would read, or sort, the whole thread before they give the first one, so they are asked
        for a portion; they unpack one checkpoint after the other. Those of this package unpack a portion at once.
        """
        bound: Any = None if before is None else {"configurable": {"checkpoint_id": before}}
        if ns is None and hasattr(self.side.saver, "storage"):
            async for item in self._merged(bound):
                yield item
            return
        side = side or self.side
        size = min(portion, _VALUES) if isinstance(side.saver, StatekitSaver) else portion
        while True:
            count = 0
            try:
                async with aclosing(side.list(self.config(ns), before=bound, limit=size)) as items:
                    async for item in items:
                        yield item
                        count += 1
                        # Ids of two namespaces can be equal only by accident, and then one of them is passed over.
                        bound = {"configurable": {"checkpoint_id": item.checkpoint["id"]}}
            except DataError as error:
                bound = await self._beyond(ns, bound, error)
            else:
                if count < size:
                    return

    async def _beyond(self, ns: str | None, bound: Any, error: DataError) -> Any:
        """Note the next checkpoint, which cannot be read, and return the bound behind it."""
        saver = self.side.saver
        if not isinstance(saver, StatekitSaver):
            raise error
        before = None if bound is None else to_text(bound["configurable"]["checkpoint_id"])
        query = Query(to_text(self.thread_id), None if ns is None else to_text(ns), before=before, limit=1)
        rows = await self.side.io(partial(saver.backend.rows, query))
        if not rows:
            raise error
        id = from_text(rows[0].ref.id)
        self.damaged[id] = str(error)
        return {"configurable": {"checkpoint_id": id}}

    async def _merged(self, bound: Any) -> AsyncIterator[CheckpointTuple]:
        # A saver in memory lists one namespace after the other.
        spaces = list(getattr(self.side.saver, "storage", {}).get(self.thread_id, ()))
        lists = (self.side.saver.list(self.config(ns), before=bound) for ns in spaces)
        for item in heapq.merge(*lists, key=lambda item: item.checkpoint["id"], reverse=True):
            yield item

    async def page(self, limit: int, before: str | None = None) -> Page:
        """Return the newest checkpoints, or the newest before one."""
        self.damaged.clear()
        moments: list[Moment] = []
        waiting: dict[tuple[str, str], list[CheckpointTuple]] = {}
        order: dict[tuple[str, str], int] = {}
        count, older = 0, False
        side = looking(self.side)
        async with aclosing(self.tuples(before, portion=limit + 1, side=side)) as items:
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
            known = at < _PARENTS and id not in self.damaged
            parent = await side.call("get_tuple", self.config(ns, id)) if known else None
            moments += (moment_of(child, parent) for child in children)
        moments.sort(key=lambda moment: order[moment.point.ns, moment.point.id])
        earlier = await self._losses(moments) if older and before is None else ()
        on_page = next((moment.point.id for moment in moments if moment.point.ns == ""), None)
        head = on_page if on_page is not None and before is None else await self._head()
        return Page(moments, head, older, earlier, dict(self.damaged))

    async def _losses(self, moments: Sequence[Moment]) -> list[tuple[Moment, Moment]]:
        """Look back for where channels that are empty on the whole page became so, and return each place.

        Checkpoint ids sort by time, so any time can be looked up. It takes some thirty reads, however long the thread.
        """
        roots = [moment for moment in moments if moment.point.ns == "" and _made(moment.point)]
        if len(roots) < _LEAST:
            return []
        newer = _Look(roots[-1].point, roots[-1].lengths)
        span = max(_made(roots[0].point) - _made(roots[-1].point), 1e-3)
        empty = {name for name, length in newer.lengths.items() if all(each.lengths.get(name) == 0 for each in roots)}
        found: list[tuple[Moment, Moment]] = []
        short = 0
        while empty and len(found) < _MOST_LOSSES and short < _SHORT:
            older = await self._before(_made(newer.point) - span)
            if older is None:
                span, short = span / 2, short + 1
                continue
            lost = sorted(name for name in empty if older.lengths.get(name, 0) >= _LOST)
            if lost and (pair := await self._narrowed(older, newer, lost[0])):
                found.append(pair)
                empty -= {name for name, length in pair[0].lengths.items() if length >= _LOST}
            newer, span = older, span * (0.5 if short else 2)
        return found

    async def _before(self, at_s: float) -> _Look | None:
        """Return the newest checkpoint of the graph from before a time."""
        saver = self.side.saver
        if isinstance(saver, StatekitSaver):
            # Its order is by microseconds, but for hosts whose clock is behind: so it is looked up, not scanned.
            query = Query(to_text(self.thread_id), "", below_seq=int(at_s * 1e6), limit=1)
            for row in await self.side.io(partial(saver.backend.rows, query)):
                found = await self.load("", from_text(row.ref.id))
                return found and _Look(point_of(found), lengths_of(state_of(found)))
            return None
        bound: RunnableConfig = {"configurable": {"checkpoint_id": id_at(at_s)}}
        async with aclosing(self.side.list(self.config(""), before=bound, limit=1)) as items:
            async for item in items:
                return _Look(point_of(item), lengths_of(state_of(item)))
        return None

    async def _narrowed(self, older: _Look, newer: _Look, name: str) -> tuple[Moment, Moment] | None:
        """Return the checkpoint at which a channel became empty, and the one that it goes on from."""
        start = _made(older.point)
        for _ in range(_MOST_STEPS):
            if newer.point.parent == older.point.id:
                item = await self.loaded(newer.point)
                parent = await self.loaded(older.point)
                return moment_of(parent, None), moment_of(item, parent)
            middle = (start + _made(newer.point)) / 2
            found = await self._before(middle)
            if found is None or found.point.id == older.point.id:
                start = middle
            elif found.lengths.get(name, 0) >= _LOST:
                older, start = found, _made(found.point)
            else:
                newer = found
        return None

    async def _head(self) -> str | None:
        async with aclosing(self.tuples(ns="", portion=1)) as items:
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
            rows = await self.side.io(partial(saver.backend.rows, query))
            for row in rows:
                parent = None if row.parent is None else from_text(row.parent)
                metadata = saver._codec.metadata(row)
                found.append(made_point(self.thread_id, ns, from_text(row.ref.id), parent, metadata))
            if len(rows) < _ROWS:
                return found
            below = rows[-1].seq


def _made(point: Point) -> float:
    """Return the time in a checkpoint's id in seconds since 1970; 0 if there is none."""
    return clock_us(point.id) / 1e6


def line(points: Sequence[Point], id: str | None) -> list[Point]:
    """Return a checkpoint and its ancestors, newest first."""
    by_id = {point.id: point for point in points}
    found: list[Point] = []
    while id is not None and id in by_id:
        point = by_id.pop(id)
        found.append(point)
        id = point.parent
    return found


def steps_between(line: Sequence[Point], first: int | None, end: int | None) -> list[Point]:
    """Return the checkpoints of a line whose steps lie in a range, oldest first; None: without a bound."""
    return [
        point
        for point in reversed(line)
        if point.step is not None and (first is None or point.step >= first) and (end is None or point.step < end)
    ]
