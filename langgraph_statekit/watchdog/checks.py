"""What can be wrong with a run. Pure: each check is told what was seen of it, and says what it finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.errors import Misuse
from langgraph_statekit.watchdog.view import Finding, Mark, View


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ItemDeadline:
    """Finds an item that takes too long, over all of its steps.

    While a running node names items by `heartbeat(item=...)`, these count in place of that of the state.

    Args:
        seconds: For one item.
        key: Tells the item of a state; None: only heartbeats name items.
    """

    timed: ClassVar[bool] = True
    seconds: float
    key: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        require_numbers(float, 0, seconds=self.seconds)
        _require_callable(key=self.key)

    @property
    def mark(self) -> Callable[[Any], Any]:
        """Returns the item of a state."""
        return self.key or _nothing

    def __call__(self, view: View) -> Finding | None:
        """Return what is too late."""
        named = False
        for task in view.running:
            if task.item is not None:
                named = True
                if view.now_s - task.item_s > self.seconds:
                    return self._late(task.item, None)
        if named or self.key is None:
            return None
        mark = _newest(view, self)
        if mark and view.now_s - mark.step.at_s > self.seconds:
            return self._late(mark.text, mark.step.id)
        return None

    def _late(self, item: str, started: str | None) -> Finding:
        return Finding("item_deadline", f"item {item} takes more than {self.seconds:g} s", item=item, started=started)


@dataclass(frozen=True, slots=True, eq=False)
class NodeDeadline:
    """Finds a node's call that takes too long; heartbeats do not prolong it.

    Args:
        seconds: By node.
        default: For all other nodes; None: as long as they like.
    """

    timed: ClassVar[bool] = True
    seconds: Mapping[str, float] = field(default_factory=dict)
    default: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.seconds, Mapping):
            raise Misuse(f"NodeDeadline takes seconds by node, such as {{'crawl': 60}}, not {self.seconds!r}")
        for seconds in self.seconds.values():
            require_numbers(float, 0, seconds=seconds)
        if self.default is not None:
            require_numbers(float, 0, default=self.default)

    def __call__(self, view: View) -> Finding | None:
        """Return what is too late."""
        for task in view.running:
            limit_s = self.seconds.get(task.node, self.default)
            if limit_s is not None and view.now_s - task.since_s > limit_s:
                return Finding(
                    "node_deadline", f"node {task.node!r} takes more than {limit_s:g} s", item=task.item or view.item
                )
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NoProgress:
    """Finds a run that works and gets nowhere, or shows no sign of work.

    Args:
        project: Tells what must change: a few small values of the state. None: the whole state, which costs time when
            it is large, and changes with each message.
        supersteps: Steps in a row that may leave it as it is; None: any number.
        seconds: Seconds for which it may stay as it is; a heartbeat with another item, and a step of a subgraph, count
            as a change. None: any.
    """

    project: Callable[[Any], Any] | None = None
    supersteps: int | None = 20
    seconds: float | None = 600.0

    def __post_init__(self) -> None:
        if self.supersteps is not None:
            require_numbers(int, 1, supersteps=self.supersteps)
        if self.seconds is not None:
            require_numbers(float, 0, seconds=self.seconds)
        _require_callable(project=self.project)

    @property
    def mark(self) -> Callable[[Any], Any]:
        """Returns what of a state must change."""
        return self.project or _whole

    def __call__(self, view: View) -> Finding | None:
        """Return what stands still."""
        mark = _newest(view, self)
        if mark and self.supersteps is not None and mark.steps > self.supersteps:
            return Finding("no_progress", f"{self.supersteps} steps changed nothing", item=view.item, since=mark.second)
        since_s = max(view.moved_s, mark.step.at_s if mark else view.started_s)
        if self.seconds is not None and view.now_s - since_s > self.seconds:
            return Finding(
                "no_progress",
                f"nothing has changed for {self.seconds:g} s",
                item=view.item,
                since=mark.second if mark else None,
            )
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cycle:
    """Finds a run that goes round and round: the same few states, again and again in the same order.

    Args:
        window: Changes to look back; it is a cycle if they are at least two rounds of the same.
        project: As in `NoProgress`; for an agent the last action: tool, arguments and result.
    """

    window: int = 8
    project: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        require_numbers(int, 4, window=self.window)
        _require_callable(project=self.project)

    @property
    def mark(self) -> Callable[[Any], Any]:
        """Returns what of a state must not come round."""
        return self.project or _whole

    def __call__(self, view: View) -> Finding | None:
        """Return the cycle."""
        marks = view.marks.get(self, ())
        if len(marks) < self.window:
            return None
        newest = marks[-1].digest
        for period in range(2, self.window // 2 + 1):
            if marks[-1 - period].digest != newest:
                continue
            digests = [mark.digest for mark in marks[-self.window :]]
            if digests[period:] == digests[:-period]:
                since = marks[period - self.window].step.id
                return Finding("cycle", f"the same {period} states come round", item=view.item, since=since)
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Invariant:
    """Finds a step that broke a rule.

    Args:
        name: Of the rule; attempts are counted by it.
        predicate: Says of the state before a step and the state after it whether all is well.
    """

    name: str
    predicate: Callable[[Any, Any], bool]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise Misuse(f"an Invariant needs a name, not {self.name!r}")
        _require_callable(predicate=self.predicate)

    def __call__(self, view: View) -> Finding | None:
        """Return the breach."""
        if view.previous is None or view.step is None or self.predicate(view.previous.values, view.step.values):
            return None
        return Finding(self.name, f"step {view.step.number} broke {self.name!r}", item=view.item, since=view.step.id)


@dataclass(frozen=True, slots=True, eq=False)
class ErrorRate:
    """Finds a run too many of whose tasks fail; those that a handler or the graph itself deals with count.

    Args:
        rate: Part of the tasks, above 0 up to 1.
        window: Tasks to look back.
        min_tasks: Tasks below which there is no finding.
    """

    rate: float
    window: int = 20
    min_tasks: int = 5

    def __post_init__(self) -> None:
        _require_rate(self.rate)
        require_numbers(int, 1, window=self.window, min_tasks=self.min_tasks)

    def __call__(self, view: View) -> Finding | None:
        """Return the rate if it is too high."""
        ended = view.ended[-self.window :]
        failed = sum(task.error is not None for task in ended)
        if len(ended) < self.min_tasks or failed < self.rate * len(ended):
            return None
        return Finding("error_rate", f"{failed} of the last {len(ended)} tasks failed", item=view.item)


@dataclass(frozen=True, slots=True, eq=False)
class SaveFailureRate:
    """Finds a store that fails too often, as a `FailureRate` among the saver's hooks counts it.

    Args:
        rate: Part of the operations, above 0 up to 1.
    """

    rate: float

    def __post_init__(self) -> None:
        _require_rate(self.rate)

    def __call__(self, view: View) -> Finding | None:
        """Return the rate if it is too high."""
        if view.failing < self.rate:
            return None
        return Finding("save_failures", f"{view.failing:.0%} of the saver's operations fail", item=view.item)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Budget:
    """Finds a call that has spent what it may; it is not tried again.

    Args:
        tokens: Of chat models, as they tell them; None: any number.
        requests: To chat models; None: any number.
        seconds: Of the whole call, with all its attempts; None: any number.
    """

    tokens: int | None = None
    requests: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        counts = {"tokens": self.tokens, "requests": self.requests}
        require_numbers(int, 0, **{name: value for name, value in counts.items() if value is not None})
        if self.seconds is not None:
            require_numbers(float, 0, seconds=self.seconds)

    @property
    def counts(self) -> bool:
        """Whether requests to chat models must be counted."""
        return self.tokens is not None or self.requests is not None

    @property
    def timed(self) -> bool:
        """Whether it waits for nothing but a time."""
        return not self.counts

    def __call__(self, view: View) -> Finding | None:
        """Return what is spent."""
        if self.tokens is not None and view.tokens > self.tokens:
            return self._spent(view, "tokens", self.tokens)
        if self.requests is not None and view.requests > self.requests:
            return self._spent(view, "requests", self.requests)
        if self.seconds is not None and view.now_s - view.started_s > self.seconds:
            return self._spent(view, "seconds", self.seconds)
        return None

    def _spent(self, view: View, name: str, limit: float) -> Finding:
        return Finding("budget", f"the budget of {limit:g} {name} is spent", item=view.item, final=True)


def _nothing(values: Any) -> None:
    return None


def _whole(values: Any) -> Any:
    return values


def _newest(view: View, check: Any) -> Mark | None:
    marks = view.marks.get(check)
    return marks[-1] if marks else None


def _require_callable(**options: object) -> None:
    for name, value in options.items():
        if value is not None and not callable(value):
            raise Misuse(f"the option {name} must be a function, not {value!r}")


def _require_rate(rate: object) -> None:
    require_numbers(float, 1e-9, rate=rate)
    if isinstance(rate, int | float) and rate > 1:
        raise Misuse(f"the option rate is a part of all, at most 1, not {rate!r}")
