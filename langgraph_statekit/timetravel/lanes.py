"""Which checkpoints make a branch, and which lane each gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langgraph_statekit.timetravel.moments import Point


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of checkpoints that nothing else goes on from.

    Attributes:
        name: `current`, or `branch 1` for the one that was left last, and so on.
        tip: Its newest checkpoint.
        fork: The checkpoint where it left another branch; None for the current one, and if that is not stored.
        steps: How many checkpoints it has of its own.
        reason: Why the thread went back and left it, if that was recorded.
    """

    name: str
    tip: Point
    fork: Point | None
    steps: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One line of a timeline.

    Attributes:
        name: Of the branch; of a subgraph its node.
        ns: Its namespace.
        points: Its checkpoints, oldest first.
        parent: The checkpoint that its first one goes on from, in another lane; None without.
        depth: How deep the subgraph is; 0 for the graph itself.
    """

    name: str
    ns: str
    points: Sequence[Point]
    parent: str | None
    depth: int


def lanes(points: Sequence[Point], head: str | None) -> list[Lane]:
    """Return the lanes of some checkpoints, given newest first: the current branch, others, and subgraphs below them.

    Args:
        points: Of any namespaces.
        head: The latest checkpoint of the graph.
    """
    spaces: dict[str, list[Point]] = {}
    for point in points:
        spaces.setdefault(point.ns, []).append(point)
    roots = _split(spaces.pop("", []), head)
    found = [_lane("current" if at == 0 else f"branch {at}", each, 0) for at, each in enumerate(roots)]
    home = {point.id: at for at, each in enumerate(roots) for point in each}
    nested: list[tuple[int, float, Lane]] = []
    for ns, own in spaces.items():
        for each in _split(own, None):
            above = next((home[id] for id in _above(each, spaces) if id in home), 0)
            lane = _lane(_node(ns), each, ns.count("|") + 1)
            nested.append((above, each[-1].at_s or 0, lane))
    result: list[Lane] = []
    for at, lane in enumerate(found):
        result.append(lane)
        result += [each for above, _, each in sorted(nested, key=lambda x: (x[2].ns.count("|"), x[1])) if above == at]
    return result or [lane for _, _, lane in nested]


def _above(own: Sequence[Point], spaces: dict[str, list[Point]]) -> list[str]:
    ids = [point.above for point in own if point.above]
    for ns in spaces:
        ids += [each.above for each in spaces[ns] if each.id in ids and each.above]
    return ids


def _lane(name: str, own: Sequence[Point], depth: int) -> Lane:
    oldest = [*reversed(own)]
    return Lane(name, oldest[0].ns, oldest, oldest[0].parent, depth)


def _node(ns: str) -> str:
    """Return the path of nodes of a namespace without the ids of their tasks."""
    parts = [part.partition(":")[0] for part in ns.split("|")]
    return " > ".join(part for part in parts if not part.isdigit())


def _split(points: Sequence[Point], head: str | None) -> list[list[Point]]:
    """Return lines of checkpoints, each newest first: the one of the head first, then those whose tips are newest."""
    left = {point.id: point for point in points}
    tips = sorted(points, key=lambda point: point.id != head)
    found = []
    for tip in tips:
        own: list[Point] = []
        id: str | None = tip.id
        while id is not None and id in left:
            own.append(left.pop(id))
            id = own[-1].parent
        if own:
            found.append(own)
    return found


def branches(points: Sequence[Point], head: str | None) -> list[Branch]:
    """Return the branches of one namespace, given all its checkpoints, newest first."""
    by_id = {point.id: point for point in points}
    left_for = {str(point.rollback["from"]): point.rollback for point in points if "from" in point.rollback}
    found = []
    for at, own in enumerate(_split(points, head)):
        fork = own[-1].parent
        reason = str(left_for.get(own[0].id, {}).get("reason", ""))
        name = f"branch {at}" if at else "current"
        found.append(Branch(name, own[0], by_id.get(fork) if fork else None, len(own), reason))
    return found
