"""What is told of one checkpoint: where it stands, what ran before it, what that changed, decided and cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Final

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import TASKS

from langgraph_statekit.checkpoint.forking import NULL_TASK, REASON_KEY, TO_KEY
from langgraph_statekit.checkpoint.order import clock_us
from langgraph_statekit.checkpoint.plain import plain
from langgraph_statekit.readable import clipped
from langgraph_statekit.status import Status, is_control, next_nodes, status_of
from langgraph_statekit.timetravel.decisions import Decision, decisions, tokens_of
from langgraph_statekit.timetravel.diff import Change, diff, is_secret
from langgraph_statekit.timetravel.glance import glance, weight
from langgraph_statekit.topology import BRANCH

MOST_CHANGES: Final = 12
_MOST_DECISIONS: Final = 20
_PREFIX: Final = "statekit_"
_DELTAS: Final = "counters_since_delta_snapshot"
_KNOWN: Final = frozenset({"source", "step", "parents", "writes", "thread_id", _DELTAS})


@dataclass(frozen=True, slots=True)
class Point:
    """One checkpoint without its values.

    Attributes:
        thread_id: Its thread.
        ns: Namespace: empty for the graph, else that of the run of a subgraph.
        id: Checkpoint id.
        parent: Id of the checkpoint that it goes on from; None for a first one.
        step: LangGraph's number of the step; None if it has none.
        source: `input`, `loop`, `update` or `fork`, as LangGraph wrote it.
        at_s: When it was made, in seconds since 1970; None if it does not tell.
        metadata: What else was written on it: texts, numbers and booleans.
        above: For a subgraph, the id of the checkpoint of the graph around it from which it was started.
    """

    thread_id: str
    ns: str
    id: str
    parent: str | None
    step: int | None
    source: str
    at_s: float | None
    metadata: Mapping[str, Any]
    above: str | None

    @property
    def config(self) -> RunnableConfig:
        """The config that names it."""
        return {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": self.ns, "checkpoint_id": self.id}}

    @property
    def rollback(self) -> Mapping[str, Any]:
        """What was written about why somebody went back to here; empty if nobody did.

        The keys are those of a recorded rollback without their prefix: `op`, `reason`, `item`, `attempt`, `from`, `to`.
        """
        if self.source not in ("fork", "update") or REASON_KEY not in self.metadata:
            return {}
        found = {key.removeprefix(_PREFIX): value for key, value in self.metadata.items() if key.startswith(_PREFIX)}
        return {key: value for key, value in found.items() if key != "token"}


def point_of(item: CheckpointTuple) -> Point:
    """Return what a stored checkpoint tells without its values."""
    address, metadata = item.config["configurable"], dict(item.metadata)
    return made_point(
        address["thread_id"],
        address.get("checkpoint_ns", ""),
        item.checkpoint["id"],
        ((item.parent_config or {}).get("configurable") or {}).get("checkpoint_id"),
        metadata,
        item.checkpoint.get("ts"),
    )


def made_point(
    thread_id: str, ns: str, id: str, parent: str | None, metadata: Mapping[str, Any], ts: str | None = None
) -> Point:
    """Return a point of what a store tells."""
    parents = metadata.get("parents") or {}
    source = str(metadata.get("source", "?"))
    return Point(
        thread_id=str(thread_id),
        ns=ns,
        id=id,
        parent=str(metadata[TO_KEY]) if metadata.get(TO_KEY) and source in ("fork", "update") else parent,
        step=metadata["step"] if isinstance(metadata.get("step"), int) else None,
        source=source,
        at_s=_time(id, ts),
        metadata={
            key: value
            for key, value in metadata.items()
            if key not in _KNOWN and not is_secret(key) and isinstance(value, str | int | float | bool)
        },
        above=parents.get(ns.rpartition("|")[0]) if ns and isinstance(parents, Mapping) else None,
    )


def _time(id: str, ts: str | None) -> float | None:
    if ts:
        try:
            return datetime.fromisoformat(ts).timestamp()
        except ValueError:
            pass
    at = clock_us(id)
    return at / 1e6 if at else None


def ran(moment: Moment) -> str:
    """Return the nodes that ran before a checkpoint, or what else made it."""
    return ", ".join(moment.nodes) or {"loop": "start"}.get(moment.point.source, moment.point.source)


@dataclass(frozen=True, slots=True)
class Moment:
    """One checkpoint as a timeline shows it; small, whatever the state weighs.

    Attributes:
        point: Which one it is.
        nodes: What ran since its parent.
        changes: The first differences from its parent; None if that is not stored.
        more: There are more differences.
        decisions: Of the messages that are new in it.
        status: What LangGraph would do next; what tasks ask and what they raised, as short plain data.
        lengths: Of each channel that has a length, that; of each number the number itself.
        channels: Short plain data by channel.
        size_bytes: About how much the whole state takes as JSON.
        tokens: What models told that the new messages used.
        duration_s: Since its parent; None for a first one and for one that a person or a watchdog made.
    """

    point: Point
    nodes: Sequence[str]
    changes: Sequence[Change] | None
    more: bool
    decisions: Sequence[Decision]
    status: Status
    lengths: Mapping[str, float]
    channels: Mapping[str, Any]
    size_bytes: int
    tokens: int
    duration_s: float | None


def open_task(moment: Moment) -> str:
    """Return which node's task is open after a checkpoint, if it can be but one: it raised what was raised."""
    return f"node {clipped(moment.status.next[0], 60)!r}" if len(moment.status.next) == 1 else "a task"


def state_of(item: CheckpointTuple) -> dict[str, Any]:
    """Return the values of a checkpoint without those that tell LangGraph what to run."""
    return {name: value for name, value in item.checkpoint["channel_values"].items() if not is_control(name)}


def moment_of(item: CheckpointTuple, parent: CheckpointTuple | None) -> Moment:
    """Return what is told of a checkpoint, given its parent, None if it has none or it is not stored."""
    point = point_of(item)
    state, before = state_of(item), state_of(parent) if parent else {}
    known = parent is not None or point.parent is None
    names = _touched(item, parent)
    found = list(
        islice(
            diff(
                {name: value for name, value in before.items() if name in names},
                {name: value for name, value in state.items() if name in names},
                lambda value: glance(value, 500),
            ),
            MOST_CHANGES + 1,
        )
    )
    found += [*_sent(item, point), *_deltas(item, parent)]
    nodes = list(dict.fromkeys(_ran(point, item, parent)))
    # A subgraph begins with the messages of the graph around it, which are told there.
    fresh = list(_new_messages(state, before, names)) if known and (nodes or not point.ns) else []
    ended = parent and point.source in ("loop", "input")
    started = point_of(parent).at_s if ended and parent else None
    return Moment(
        point=point,
        nodes=nodes,
        changes=found[:MOST_CHANGES] if known else None,
        more=known and len(found) > MOST_CHANGES,
        decisions=list(islice(decisions(fresh), _MOST_DECISIONS)),
        status=_status(item),
        lengths=lengths_of(state),
        channels={name: glance({name: value}, 1500)[name] for name, value in state.items()},
        size_bytes=weight(state),
        tokens=tokens_of(fresh),
        duration_s=None if started is None or point.at_s is None else point.at_s - started,
    )


def _touched(item: CheckpointTuple, parent: CheckpointTuple | None) -> set[str]:
    """Return the channels whose version is another than in the parent."""
    versions = item.checkpoint["channel_versions"]
    before = parent.checkpoint["channel_versions"] if parent else {}
    both = versions.keys() | before.keys() | item.checkpoint["channel_values"].keys()
    return {name for name in both if name not in before or versions.get(name) != before[name]}


def _sent(item: CheckpointTuple, point: Point) -> Iterator[Change]:
    """Yield what an input brought, and the tasks that nodes sent."""
    values = item.checkpoint["channel_values"]
    if point.source == "input" and "__start__" in values:
        yield Change("input", "added", None, glance(values["__start__"], 500))
    if nodes := [str(getattr(each, "node", "?")) for each in values.get(TASKS) or ()]:
        yield Change("sent to", "added", None, glance(nodes, 200))


def _deltas(item: CheckpointTuple, parent: CheckpointTuple | None) -> Iterator[Change]:
    """Yield what tasks wrote to delta channels, whose values are not in the checkpoint."""
    counted: Any = item.metadata.get(_DELTAS) or {}
    values = item.checkpoint["channel_values"]
    for _, channel, value in (parent.pending_writes if parent else None) or ():
        if channel in counted and channel not in values:
            yield Change(channel, "added", None, glance(value, 500))


def _ran(point: Point, item: CheckpointTuple, parent: CheckpointTuple | None) -> Iterator[str]:
    if parent is None or point.source != "loop":
        return
    before = parent.metadata.get("step")
    if point.step is not None and isinstance(before, int) and point.step > before + 1:
        # A saver left out the steps between: all nodes are told that have seen anything new since.
        seen = parent.checkpoint["versions_seen"]
        ran = (name for name, own in item.checkpoint["versions_seen"].items() if own != seen.get(name))
        yield from (name for name in ran if not name.startswith("__"))
        return
    values = parent.checkpoint["channel_values"]
    yield from (name for name in next_nodes(parent.checkpoint, values) if name != "__start__")
    for task, channel, _ in parent.pending_writes or ():
        if task == NULL_TASK and channel.startswith(BRANCH):  # what a `Command` asked for
            yield channel.removeprefix(BRANCH)


def _status(item: CheckpointTuple) -> Status:
    found = status_of(item.checkpoint, item.checkpoint["channel_values"], item.pending_writes or ())
    told = [glance(plain(getattr(each, "value", each)), 500) for each in found.interrupts]
    return Status(found.name, found.next, told, [glance(each, 1000) for each in found.errors])


def _new_messages(state: Mapping[str, Any], before: Mapping[str, Any], names: set[str]) -> Iterator[BaseMessage]:
    for name in names:
        value = state.get(name)
        if isinstance(value, list) and value and isinstance(value[-1], BaseMessage):
            held = before.get(name)
            if isinstance(held, list):  # a reader may share what both begin with
                both = zip(value, held, strict=False)
                equal = next((at for at, (new, old) in enumerate(both) if new is not old), min(len(value), len(held)))
                value, held = value[equal:], held[equal:]
            ids = {each.id for each in held if isinstance(each, BaseMessage)} if isinstance(held, list) else set()
            fresh = [
                each for each in value if isinstance(each, BaseMessage) and (each.id is None or each.id not in ids)
            ]
            old = len(held) if isinstance(held, list) else 0
            yield from fresh if all(each.id for each in fresh) else value[old:]


def lengths_of(state: Mapping[str, Any]) -> dict[str, float]:
    """Return of each channel that has a length, that; of each number the number itself."""
    return {name: length for name, value in state.items() if (length := _length(value)) is not None}


def _length(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    try:
        return len(value)
    except TypeError:
        return None
