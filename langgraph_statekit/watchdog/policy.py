"""What to do about a finding: where to roll back to, how often, and what then. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, get_args

from langgraph.types import StateSnapshot

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.errors import Misuse
from langgraph_statekit.watchdog.view import Finding


@dataclass(frozen=True, slots=True)
class Label:
    """The checkpoint with a label as a target, see `StatekitSaver.label`."""

    name: str


Place: TypeAlias = Literal["retry_head", "parent", "last_healthy", "item_start"]
Target: TypeAlias = Place | Label | Callable[[StateSnapshot], bool]
"""Where to go on from.

`retry_head`: the newest checkpoint as it is: tasks that are done are not run again, and nothing is forked. `parent`:
the one before the newest. `last_healthy`: the newest one that the finding does not call into question; if only time
ran out that is the newest. `item_start`: the first one of the item. A label, or the newest one of which a predicate
says True.
"""
PLACES: Final = get_args(Place)


@dataclass(frozen=True, slots=True)
class Retry:
    """Roll back to a target, wait, and go on.

    Attributes:
        target: Where to.
        wait_s: Seconds to wait before the run goes on.
        item_key: Tells the item of a state, for `item_start`; None: the finding tells where the item began.
    """

    target: Target
    wait_s: float = 0.0
    item_key: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave the item out: go on from the last healthy checkpoint as if a node had returned an update there.

    Attributes:
        as_node: The node; what follows it runs next.
        update: What it would have returned: a value, or a function of the state and the finding.
    """

    as_node: str
    update: Any | Callable[[Any, Finding], Any] = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Put the item, or with `as_node` None the thread, on the list of the dead, and tell it as an event.

    Attributes:
        as_node: As in `Skip`, and the run goes on; None: the run ends with `GaveUp`, and no supervisor resumes it.
        update: As in `Skip`.
    """

    as_node: str | None = None
    update: Any | Callable[[Any, Finding], Any] = None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ask a human: go on at a node that calls `interrupt`, so that the run returns with the question.

    Attributes:
        node: The node. It must have no edges but those of the `Command` that it returns.
        update: As in `Skip`.
    """

    node: str
    update: Any | Callable[[Any, Finding], Any] = None


@dataclass(frozen=True, slots=True)
class Fail:
    """End the call with `GaveUp`; the thread stays as it is, and can be resumed."""


Last: TypeAlias = Skip | DeadLetter | Interrupt | Fail
Action: TypeAlias = Retry | Last
Policy: TypeAlias = Callable[[Finding, int], Action]
"""Says what to do about a finding, given which attempt it would be: 1 if the thread, the item and the reason are new.

`Rollback` is one; a plain function can choose between several by `finding.reason`.
"""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait before an attempt: `first_s`, then `factor` times as long each time, at most `most_s`."""

    first_s: float = 1.0
    factor: float = 2.0
    most_s: float = 60.0

    def __post_init__(self) -> None:
        require_numbers(float, 0, first_s=self.first_s, most_s=self.most_s)
        require_numbers(float, 1, factor=self.factor)

    def wait_s(self, attempt: int) -> float:
        """Return the seconds before an attempt, the first of which is 1."""
        if self.first_s == 0:
            return 0.0
        try:
            return min(self.first_s * self.factor ** (attempt - 1), self.most_s)
        except OverflowError:
            return self.most_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Roll back and try again, so many times for each item and reason, and then do something else.

    Args:
        to: The target, or one for each attempt; the last one counts for all further ones.
        max_attempts: Attempts for the same thread, item and reason, counted in the store; 0 for none.
        backoff: How long to wait before each.
        then: What to do when they are used up: an action, or a function of the finding that returns one.
        item_key: Tells the item of a state, for `item_start`; None: what the `Watchdog` was told.

    Raises:
        Misuse: A target is unknown, or a number is too small.
    """

    to: Target | Sequence[Target] = "last_healthy"
    max_attempts: int = 3
    backoff: Backoff = Backoff()
    then: Last | Callable[[Finding], Action] = Fail()
    item_key: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        require_numbers(int, 0, max_attempts=self.max_attempts)
        for target in self.targets:
            require_target(target)
        if not self.targets:
            raise Misuse("the option to needs at least one target")
        if not isinstance(self.then, Skip | DeadLetter | Interrupt | Fail) and not callable(self.then):
            raise Misuse(f"the option then must be Skip, DeadLetter, Interrupt, Fail or a function, not {self.then!r}")

    @property
    def targets(self) -> tuple[Target, ...]:
        """The target of each attempt."""
        if isinstance(self.to, str | Label) or callable(self.to):
            return (self.to,)
        return tuple(self.to)

    def __call__(self, finding: Finding, attempt: int) -> Action:
        """Return what to do about a finding."""
        if attempt <= self.max_attempts and not finding.final:
            target = self.targets[min(attempt, len(self.targets)) - 1]
            return Retry(target, self.backoff.wait_s(attempt), self.item_key)
        return self.then if isinstance(self.then, Skip | DeadLetter | Interrupt | Fail) else self.then(finding)


def require_target(target: object) -> None:
    """Raise `Misuse` for what is no target."""
    if not (isinstance(target, Label) or callable(target) or (isinstance(target, str) and target in PLACES)):
        raise Misuse(f"a target is one of {', '.join(PLACES)}, a Label or a predicate, not {target!r}")


def action_of(policy: Policy, finding: Finding, attempt: int) -> Action:
    """Return what a policy says.

    Raises:
        Misuse: It says something else.
    """
    action = policy(finding, attempt)
    if not isinstance(action, Retry | Skip | DeadLetter | Interrupt | Fail):
        raise Misuse(f"a policy returns Retry, Skip, DeadLetter, Interrupt or Fail, not {action!r}")
    return action
