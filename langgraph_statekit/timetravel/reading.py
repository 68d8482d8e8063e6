"""Questions to a thread's history, each written once for sync and async callers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeAlias

from langchain_core.messages import BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS
from langgraph.pregel import Pregel

from langgraph_statekit.checkpoint.forking import NULL_TASK
from langgraph_statekit.checkpoint.plain import plain
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.errors import CheckpointMissing, Misuse
from langgraph_statekit.status import is_control, status_of
from langgraph_statekit.timetravel.diff import diff, id_of, same
from langgraph_statekit.timetravel.glance import glance
from langgraph_statekit.timetravel.history import History, line
from langgraph_statekit.timetravel.lanes import Branch, branches
from langgraph_statekit.timetravel.moments import Point, moment_of, point_of, state_of
from langgraph_statekit.timetravel.results import Branches, Comparison, Diff, Pending, Size, Sizes, Snapshot, Why
from langgraph_statekit.timetravel.view import Timeline

Graph: TypeAlias = Pregel[Any, Any, Any, Any]
Predicate: TypeAlias = Callable[[Mapping[str, Any]], bool]
Where: TypeAlias = int | str | Snapshot | Point | Branch | Predicate | None
_DELTAS: Final = "counters_since_delta_snapshot"
_MISSING: Final = object()
_MOST_WRITES: Final = 500
_MOST_STEPS_BACK: Final = 20
"""So many are walked, one read each; for more the branch is listed without its values."""


class Reading:
    """Reads one thread.

    Args:
        side: Its saver.
        thread_id: The thread.
        graph: The graph; None: delta channels are shown as they are stored.
    """

    def __init__(self, side: Side, thread_id: str, graph: Graph | None) -> None:
        # States of older versions are shown as they were stored, and not migrated, which may be impossible.
        self.history = History(side.as_stored(), thread_id)
        self.side = side
        self.graph = graph

    async def on_graph(self, method: str, *args: Any, **options: Any) -> Any:
        """Return what a method of the graph returns, or its async version."""
        if self.graph is None:
            raise Misuse(f"{method} needs the graph: make TimeTravel(graph, config), not of the saver alone")
        if self.side.is_async:
            return await getattr(self.graph, f"a{method}")(*args, **options)
        return getattr(self.graph, method)(*args, **options)

    async def timeline(self, limit: int, before: Where) -> Timeline:
        if limit < 1:
            raise Misuse(f"limit must be at least 1, not {limit}")
        bound = None if before is None else (await self.point(before)).id
        page = await self.history.page(limit, bound)
        return Timeline(self.history.thread_id, page, await self.history.labels())

    async def point(self, where: Where) -> Point:
        """Return the checkpoint that is meant."""
        if isinstance(where, Snapshot | Branch):
            where = where.point if isinstance(where, Snapshot) else where.tip
        if isinstance(where, Point):
            if where.thread_id != self.history.thread_id:
                raise Misuse(f"this is a checkpoint of thread {where.thread_id!r}, and not of {self._thread}")
            return where
        if isinstance(where, bool):
            raise Misuse(f"{where} names no checkpoint: pass a step, an id, a label or a predicate")
        if isinstance(where, int):
            return await self._by_step(where)
        if isinstance(where, str):
            return await self._by_name(where)
        if callable(where):
            latest = True
            async for item in self._ancestors():
                if _holds(where, await self._values(item), latest):
                    return point_of(item)
                latest = False
            raise CheckpointMissing(f"the predicate is true of no checkpoint of the current branch of {self._thread}")
        if where is not None:
            raise Misuse(f"a {type(where).__name__} names no checkpoint: pass a step, an id, a label or a predicate")
        return point_of(await self._head())

    @property
    def _thread(self) -> str:
        return f"thread {self.history.thread_id!r}"

    async def _head(self) -> CheckpointTuple:
        found = await self.history.load("")
        if found is None:
            raise CheckpointMissing(f"{self._thread} has no checkpoint")
        return found

    async def _by_step(self, step: int) -> Point:
        if step < 0:
            return await self._back(-1 - step)
        async with aclosing(self.history.side.list(self.history.config(""), filter={"step": step})) as items:
            found = [point_of(item) async for item in items]
        if len(found) > 1:
            current = {each.id for each in await self.line(None)}
            found = [each for each in found if each.id in current] or found
        if not found:
            newest = point_of(await self._head()).step
            raise CheckpointMissing(f"{self._thread} has no step {step}; the newest is step {newest}")
        return found[0]

    async def _back(self, count: int) -> Point:
        if count > _MOST_STEPS_BACK:
            points = await self.line(None)
            if count < len(points):
                return points[count]
            raise self._too_short(len(points))
        left = count
        async for item in self._ancestors():
            if left == 0:
                return point_of(item)
            left -= 1
        raise self._too_short(count - left)

    def _too_short(self, count: int) -> CheckpointMissing:
        return CheckpointMissing(f"the current branch of {self._thread} has only {count} checkpoints")

    async def _ancestors(self) -> AsyncIterator[CheckpointTuple]:
        """Yield the latest checkpoint and those that it goes on from, nearest first, one read each."""
        item: CheckpointTuple | None = await self._head()
        while item is not None:
            yield item
            parent = point_of(item).parent
            item = None if parent is None else await self.history.load("", parent)

    async def _by_name(self, name: str) -> Point:
        if not name:  # savers list every checkpoint for an empty id
            raise CheckpointMissing(f"an empty id names no checkpoint of {self._thread}: pass None for the latest")
        config = self.history.config(id=(await self.history.labels()).get(name, name))
        async with aclosing(self.history.side.list(config, limit=1)) as items:
            async for item in items:
                return point_of(item)
        found = [each for each in await self.history.points() if each.id.startswith(name)]
        if len(found) > 1:
            raise Misuse(f"{len(found)} checkpoints of {self._thread} begin with {name!r}: give more of the id")
        if not found:
            raise CheckpointMissing(f"{self._thread} has no checkpoint and no label {name!r}")
        return found[0]

    async def line(self, where: Where) -> list[Point]:
        """Return a checkpoint and all that it goes on from, newest first, without their values."""
        point = await self.point(where)
        return line(await self.history.points(point.ns), point.id)

    async def _values(self, item: CheckpointTuple) -> Mapping[str, Any]:
        """Return the state of a checkpoint, with delta channels rebuilt."""
        state = state_of(item)
        counted: Any = item.metadata.get(_DELTAS) or ()
        missing = [name for name in counted if name in item.checkpoint["channel_versions"] and name not in state]
        if not missing:
            return state
        if self.graph is not None and not item.config["configurable"].get("checkpoint_ns"):
            found = (await self.on_graph("get_state", item.config)).values
            return {**state, **{name: found[name] for name in missing if name in found}}
        stored = await self.history.side.call("get_delta_channel_history", config=item.config, channels=missing)
        for name, parts in stored.items():
            writes = [value for _, _, value in parts["writes"]]
            state[name] = {"$delta": {"seed": parts.get("seed"), "writes": writes}}
        return state

    async def snapshot(self, where: Where) -> Snapshot:
        point = await self.point(where)
        item = await self.history.loaded(point)
        parent = await self.history.load(point.ns, point.parent) if point.parent else None
        return Snapshot(await self._values(item), moment_of(item, parent))

    async def inside(self, where: Where) -> list[Snapshot]:
        """Return the latest checkpoint of each run of a subgraph that was started from a checkpoint."""
        point = await self.point(where)
        found: dict[str, Point] = {}
        async with aclosing(self.history.tuples()) as items:
            async for item in items:
                each = point_of(item)
                if each.ns and each.above == point.id:
                    found.setdefault(each.ns, each)
                if each.ns == point.ns and each.id == point.id:
                    break
        return [await self.snapshot(each) for each in found.values()]

    async def diff(self, a: Where, b: Where) -> Diff:
        newer = await self.history.loaded(await self.point(b))
        if a is None:
            parent = point_of(newer).parent
            older = await self.history.load(point_of(newer).ns, parent) if parent else None
        else:
            older = await self.history.loaded(await self.point(a))
        before: Mapping[str, Any] = {} if older is None else await self._values(older)
        return Diff(diff(before, await self._values(newer)))

    async def branches(self) -> Branches:
        points = await self.history.points()
        return Branches(branches(points, (await self._head()).checkpoint["id"]) if points else ())

    async def compare(self, x: Where, y: Where) -> Comparison:
        one, other = await self.point(x), await self.point(y)
        if one.ns != other.ns:
            raise Misuse(f"{one.ns!r} and {other.ns!r} are different graphs, whose states do not compare: use diff")
        points = await self.history.points(one.ns)
        left, right = line(points, one.id), line(points, other.id)
        shared = {each.id for each in left} & {each.id for each in right}
        return Comparison(
            next((each for each in left if each.id in shared), None),
            [each for each in left if each.id not in shared],
            [each for each in right if each.id not in shared],
            await self.diff(one, other),
        )

    async def pending(self, where: Where) -> list[Pending]:
        item = await self.history.loaded(await self.point(where))
        values = item.checkpoint["channel_values"]
        status = status_of(item.checkpoint, values, item.pending_writes or ())
        if not status.next:
            return []
        names = await self._names(item, status.next)
        written: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in item.pending_writes or ():
            if task != NULL_TASK:
                written.setdefault(task, []).append((channel, value))
        found = [Pending(names.get(task, "?"), task, *_told(writes)) for task, writes in written.items()]
        sends: Any = values.get(TASKS) or ()
        left = [*status.next, *(each.node for each in sends[1:])]
        for each in found:
            if each.node in left:
                left.remove(each.node)
        unknown = sum(1 for each in found if each.node == "?")
        return [*found, *(Pending(node, "", "to run", None) for node in left[unknown:])]

    async def _names(self, item: CheckpointTuple, nodes: Sequence[str]) -> Mapping[str, str]:
        """Return the nodes of tasks by task id, as far as they are known."""
        if self.graph is not None and not item.config["configurable"].get("checkpoint_ns"):
            state = await self.on_graph("get_state", item.config)
            return {task.id: task.name for task in state.tasks}
        tasks = {task for task, _, _ in item.pending_writes or ()} - {NULL_TASK}
        if len(set(nodes)) == 1:
            return dict.fromkeys(tasks, nodes[0])
        sends: Any = item.checkpoint["channel_values"].get(TASKS) or ()
        return {task: _node(path, sends) for task, path, _ in await self.side.rows(item.config)}

    async def size(self, where: Where) -> Sizes:
        item = await self.history.loaded(await self.point(where))
        serde = self.side.saver.serde
        found = {}
        for name, value in (await self._values(item)).items():
            messages = value if isinstance(value, list) else [value]
            is_chat = bool(messages) and all(isinstance(each, BaseMessage) for each in messages)
            tokens = count_tokens_approximately(messages) if is_chat else 0
            found[name] = Size(len(serde.dumps_typed(value)[1]), tokens)
        return Sizes(sorted(found.items(), key=lambda each: -each[1].size_bytes))

    async def why(self, path: str, where: Where) -> Why:
        points = await self.line(where)
        if not points:
            raise CheckpointMissing(f"{self._thread} has no checkpoint")
        channel = path
        newest = await self.history.loaded(points[0])
        values = await self._values(newest)
        if channel not in values:
            channel = next((name for name in sorted(values, key=len, reverse=True) if path.startswith(name)), "")
        wanted = _step_into(values.get(channel), path[len(channel) :]) if channel else _MISSING
        if wanted is _MISSING:
            raise Misuse(f"{path!r} is not in step {points[0].step}; its channels are {', '.join(map(repr, values))}")
        at = 0
        for left in reversed(range(_MOST_WRITES)):
            at = await self._writer(points, at, channel)
            item = await self.history.loaded(points[at])
            parent = await self.history.loaded(points[at + 1]) if at + 1 < len(points) else None
            before = await self._values(parent) if parent else {}
            was = _step_into(before.get(channel, _MISSING), path[len(channel) :])
            if parent is None or not same(was, wanted) or not left:
                break
            at += 1
        moment = moment_of(item, parent)
        shown = {"before": None if was is _MISSING else was, "after": wanted}
        told = plain({path: shown["before"]})[path], plain({path: shown["after"]})[path]
        return Why(path, points[at], moment.nodes, *told, await self._read(points, at, before, channel))

    async def _writer(self, points: Sequence[Point], start: int, channel: str) -> int:
        """Return the place of the oldest checkpoint of a line that has the same version of a channel as the start."""

        async def version(at: int) -> Any:
            return (await self.history.loaded(points[at])).checkpoint["channel_versions"].get(channel)

        wanted = await version(start)
        low, high, step = start, start + 1, 1
        while high < len(points) and await version(high) == wanted:
            low, high, step = high, high + step, step * 2
        high = min(high, len(points)) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if await version(middle) == wanted:
                low = middle
            else:
                high = middle - 1
        return low

    async def _read(self, points: Sequence[Point], at: int, before: Mapping[str, Any], channel: str) -> dict[str, Any]:
        """Return what the nodes that wrote had been given that was new, and the channel itself."""
        if at + 1 >= len(points):
            return {}
        here = await self.history.loaded(points[at + 1])
        old = await self.history.load(points[at + 1].ns, points[at + 1].parent) if points[at + 1].parent else None
        versions = old.checkpoint["channel_versions"] if old else {}
        news = [
            name
            for name, version in here.checkpoint["channel_versions"].items()
            if not is_control(name) and name in before and versions.get(name) != version
        ]
        return {
            name: glance({name: before[name]}, 500)[name] for name in dict.fromkeys([*news, channel]) if name in before
        }

    async def find(self, predicate: Predicate) -> Snapshot | None:
        points = await self.line(None)

        async def holds(at: int) -> bool:
            return _holds(predicate, await self._values(await self.history.loaded(points[at])), at == 0)

        if not points or not await holds(0):
            return None
        low, high = 0, len(points) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if await holds(middle):
                low = middle
            else:
                high = middle - 1
        return await self.snapshot(points[low])


def _holds(predicate: Predicate, values: Mapping[str, Any], latest: bool) -> bool:
    """Say whether a predicate is true; False of an earlier state that lacks what it looks at."""
    try:
        return bool(predicate(values))
    except (LookupError, AttributeError, TypeError):
        if latest:
            raise
        return False


def _told(writes: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
    by_channel = dict(writes)
    for channel, state in (("__error__", "failed"), ("__interrupt__", "waits")):
        if channel in by_channel and not any(not each.startswith("__") for each in by_channel):
            return state, plain(by_channel[channel])
    return "done", [channel for channel, _ in writes if not is_control(channel)]


def _node(path: str, sends: Sequence[Any]) -> str:
    """Return the node of a task from its stored path."""
    parts = path.lstrip("~").split(", ")
    if parts[0] == "__pregel_pull" and len(parts) > 1:
        return ", ".join(parts[1:])
    if parts[0] == "__pregel_push" and len(parts) > 1 and parts[1].isdecimal() and int(parts[1]) < len(sends):
        return str(getattr(sends[int(parts[1])], "node", "?"))
    return "?"


def _step_into(value: Any, path: str) -> Any:
    """Return what stands in a value under a path such as `.prices[3]`; `_MISSING` if nothing does."""
    while path:
        name, path = _first_step(path)
        try:
            if isinstance(value, Mapping):
                value = value[name] if name in value else value[int(name)]
            elif isinstance(value, list | tuple):
                value = value[int(name)] if name.lstrip("-").isdecimal() else _with_id(value, name)
            else:
                value = getattr(value, name)
        except (LookupError, ValueError, AttributeError):
            return _MISSING
    return value


def _first_step(path: str) -> tuple[str, str]:
    if path.startswith("["):
        name, _, rest = path[1:].partition("]")
        return name, rest
    ends = [at for at in (path.find(".", 1), path.find("[", 1)) if at > 0]
    end = min(ends, default=len(path))
    return path[:end].removeprefix("."), path[end:]


def _with_id(items: Sequence[Any], id: str) -> Any:
    found = [item for item in items if id_of(item) == id]
    return found[0]
