"""What questions to a history are answered with; each prints itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from langgraph_statekit.readable import clipped, printable, size
from langgraph_statekit.timetravel.diff import Change
from langgraph_statekit.timetravel.glance import glance, one_line
from langgraph_statekit.timetravel.html import diff_page, moment_html
from langgraph_statekit.timetravel.lanes import Branch
from langgraph_statekit.timetravel.moments import Moment, Point
from langgraph_statekit.timetravel.text import change_lines, headline, step_name


class Diff(tuple[Change, ...]):
    """Differences in the order of the channels; empty if nothing differs. Printed, one line for each."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(change_lines(self)) or "no value differs"

    def _repr_html_(self) -> str:
        return diff_page(self)


@dataclass(frozen=True)
class Snapshot:
    """One checkpoint with its values.

    Attributes:
        values: The state by channel. Without a graph, a delta channel has what it would be rebuilt from.
        moment: What a timeline tells of it.
    """

    values: Mapping[str, Any]
    moment: Moment

    @property
    def point(self) -> Point:
        """Where it stands."""
        return self.moment.point

    @property
    def id(self) -> str:
        """Its checkpoint id."""
        return self.point.id

    @property
    def step(self) -> int | None:
        """Its step."""
        return self.point.step

    @property
    def next(self) -> Sequence[str]:
        """The nodes that run next."""
        return self.moment.status.next

    @property
    def config(self) -> RunnableConfig:
        """The config that names it."""
        return self.point.config

    def __repr__(self) -> str:
        inside = f" in {clipped(self.point.ns, 60)}" if self.point.ns else ""
        lines = [f"step {step_name(self.point)}{inside} ({self.point.source}, {self.id}): {headline(self.moment)}"]
        lines += [
            f"  {clipped(name, 60)} = {one_line(glance({name: value}, 500)[name], 120)}"
            for name, value in self.values.items()
        ]
        if self.next:
            lines.append(f"  next: {', '.join(self.next)}")
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        return moment_html(self.moment)


class Branches(tuple[Branch, ...]):
    """The branches of a thread, the current one first."""

    __slots__ = ()

    def __repr__(self) -> str:
        lines = []
        for each in self:
            left = f", left at step {step_name(each.fork)}" if each.fork else ""
            why = f": {clipped(each.reason, 80)}" if each.reason else ""
            lines.append(
                f"{each.name}: {each.steps} checkpoints up to step {step_name(each.tip)} ({each.tip.id}){left}{why}"
            )
        return "\n".join(map(printable, lines)) or "no checkpoints"


@dataclass(frozen=True)
class Comparison:
    """How two checkpoints, such as the tips of two branches, came apart.

    Attributes:
        ancestor: The newest checkpoint that both go on from; None if there is none.
        only_x: Checkpoints since then on the first one's way, newest first.
        only_y: The same for the other.
        changes: What differs from the first to the other.
    """

    ancestor: Point | None
    only_x: Sequence[Point]
    only_y: Sequence[Point]
    changes: Diff

    @property
    def _told(self) -> str:
        shared = f"both go on from step {step_name(self.ancestor)}" if self.ancestor else "they share no checkpoint"
        return f"{shared}; {len(self.only_x)} and {len(self.only_y)} checkpoints since"

    def __repr__(self) -> str:
        return f"{self._told}\n{self.changes}"

    def _repr_html_(self) -> str:
        return diff_page(self.changes, self._told)


class Pending(NamedTuple):
    """A task of a checkpoint whose step has not ended.

    Attributes:
        node: Its node; `?` if the checkpoint does not tell.
        task_id: Its id; empty for one that nothing is stored of.
        state: `waits` for an answer, `failed`, `done` and waiting for others, or `to run`.
        told: The question, the error, or the channels that it wrote.
    """

    node: str
    task_id: str
    state: str
    told: Any


class Size(NamedTuple):
    """What a channel takes.

    Attributes:
        size_bytes: As the saver's serializer writes it, before compression.
        tokens: Of messages, about how many a model reads; 0 for anything else.
    """

    size_bytes: int
    tokens: int


class Sizes(dict[str, Size]):
    """Sizes by channel, the largest first."""

    @property
    def total(self) -> Size:
        """Of all channels together."""
        return Size(sum(each.size_bytes for each in self.values()), sum(each.tokens for each in self.values()))

    def __repr__(self) -> str:
        lines = (
            f"{clipped(printable(name), 40)}  {size(each.size_bytes)}{f', {each.tokens:,} tokens' * bool(each.tokens)}"
            for name, each in {**self, "all": self.total}.items()
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class Why:
    """Where a value came from.

    Attributes:
        path: The channel, and the steps into it.
        point: The checkpoint in which it first stood as it is.
        nodes: The nodes whose tasks wrote it; empty for an input, an update by hand or a fork.
        before: The value before; plain data.
        after: The value since then; plain data.
        read: What else had changed just before those nodes ran, and what it was, as plain data by channel.
    """

    path: str
    point: Point
    nodes: Sequence[str]
    before: Any
    after: Any
    read: Mapping[str, Any]

    def __repr__(self) -> str:
        by = f"node {', '.join(map(repr, self.nodes))}" if self.nodes else self.point.source
        lines = [
            f"{clipped(self.path, 80)} was written at step {step_name(self.point)} by {by}",
            f"  {one_line(glance(self.before, 500), 100)} → {one_line(glance(self.after, 500), 100)}",
        ]
        lines += [f"  from {clipped(name, 60)} = {one_line(value, 100)}" for name, value in self.read.items()]
        return "\n".join(map(printable, lines))
