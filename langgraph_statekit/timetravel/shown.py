"""A part of a history with what is to be told of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from langgraph_statekit.readable import clipped, duration, size
from langgraph_statekit.timetravel.findings import BAD, Finding, findings, losses, ranked
from langgraph_statekit.timetravel.history import Page
from langgraph_statekit.timetravel.lanes import Lane, lanes
from langgraph_statekit.timetravel.moments import Moment, Point


@dataclass(frozen=True)
class Shown:
    """Some checkpoints of a thread, newest first.

    Attributes:
        thread_id: The thread.
        page: What was read.
        labels: Checkpoint ids by label.
    """

    thread_id: str
    page: Page
    labels: Mapping[str, str]

    @cached_property
    def lanes(self) -> Sequence[Lane]:
        """The branches, the current one first, each with its subgraphs below it."""
        return lanes([moment.point for moment in self.page.moments], self.page.head)

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """What stands out on the branches; in subgraphs only the worst. The worst first."""
        by_id = {moment.point.id: moment for moment in self.page.moments}
        found: list[Finding] = []
        for lane in self.lanes:
            told = findings([by_id[point.id] for point in lane.points], by_id.get(lane.parent or ""))
            if lane.name != "current":
                told = [_inside(lane, each) for each in told if each.level == BAD or not lane.depth]
            found += told
        for pair in self.page.earlier:
            found += losses(pair)
        return ranked(found)

    def labels_at(self, point: Point) -> list[str]:
        """Return the labels of a checkpoint."""
        return [label for label, id in self.labels.items() if id == point.id]

    @cached_property
    def latest(self) -> Moment | None:
        """The newest checkpoint of the current branch on this page."""
        roots = [moment for moment in self.page.moments if moment.point.ns == ""]
        here = [moment for moment in roots if moment.point.id == self.page.head]
        return next(iter(here or roots or self.page.moments), None)

    @property
    def summary(self) -> str:
        """How the thread stands, on one line."""
        latest = self.latest
        if latest is None:
            return "it has no checkpoints"
        moments = self.page.moments
        told = [latest.status.name if latest.point.id == self.page.head else "an earlier part"]
        if latest.status.next:
            told.append(f"next {clipped(', '.join(latest.status.next), 60)}")
        count = f"{len(moments)} checkpoint{'s' * (len(moments) != 1)}"
        told.append(f"the newest {count}" if self.page.older else count)
        others = sum(1 for lane in self.lanes if lane.name.startswith("branch "))
        told += [f"{others} branch{'es' * (others > 1)} left"] if others else []
        told.append(f"state about {size(latest.size_bytes)}")
        if self.page.damaged:
            told.append(f"{len(self.page.damaged)} that cannot be read")
        if tokens := sum(moment.tokens for moment in moments):
            told.append(f"{tokens:,} tokens")
        times = [moment.point.at_s for moment in moments if moment.point.at_s is not None]
        if times and max(times) > min(times):
            told.append(f"over {duration(max(times) - min(times))}")
        return ", ".join(told)


def _inside(lane: Lane, found: Finding) -> Finding:
    return Finding(found.level, f"{clipped(lane.name, 60)}: {found.text}", found.point)
