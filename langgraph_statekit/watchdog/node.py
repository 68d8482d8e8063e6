"""Nodes that look for trouble from inside a graph. They see finished steps; what hangs beside them they cannot see."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, TypeAlias

from langgraph.errors import NodeError
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from langgraph_statekit.errors import Misuse
from langgraph_statekit.watchdog.errors import RollbackRequested
from langgraph_statekit.watchdog.policy import PLACES, Place
from langgraph_statekit.watchdog.seen import digest, text_of
from langgraph_statekit.watchdog.view import Check, Finding, Mark, Step, View

Answer: TypeAlias = Literal["rollback", "interrupt"] | Callable[[Any, Finding], Any]
_PREVIOUS = "previous"


def watchdog_node(
    checks: Sequence[Check],
    *,
    on_problem: Answer = "rollback",
    key: str = "watchdog",
    clock: Callable[[], float] = time.time,
) -> Callable[[Any, Runtime[Any]], Any]:
    """Return a node that runs checks on the state each time it is reached, and returns an update or a `Command`.

    It sees what finished steps left in the state, when it is reached, and what it noted there itself: so it finds a run
    that gets nowhere, goes in circles, takes too long for an item, or breaks a rule. It cannot see a node that hangs, a
    process that died, tasks that fail, tokens that are spent or a store that fails; nor can it end anything or take its
    own thread back: for these run the graph under a `Watchdog`, which the node asks when `on_problem` is `"rollback"`.

    Args:
        checks: What to look for: `ItemDeadline`, `NoProgress`, `Cycle`, `Invariant`, `Budget(seconds=...)` or functions
            of a `View`, which here has no tasks.
        on_problem: `"rollback"`: raise `RollbackRequested`. `"interrupt"`: ask a human by `interrupt`, with the finding
            as a dict, and go on when the answer comes. Or a function of the state and the finding that returns what the
            node returns: an update, or a `Command` that leads elsewhere.
        key: The key of the state that is the node's memory; the state must have it, as a dict without a reducer. With
            an `Invariant`, or a check of your own, the memory holds the state before too, which doubles it.
        clock: Seconds that outlive the process.

    Raises:
        Misuse: An argument is wrong.
    """
    if not isinstance(checks, Sequence) or not all(map(callable, checks)):
        raise Misuse(f"checks must be a sequence of functions of a View, not {checks!r}")
    _require_answer(on_problem)
    keeps = any(not hasattr(check, "mark") and type(check).__name__ != "Budget" for check in checks)

    def watchdog(state: Any, runtime: Runtime[Any]) -> Any:
        info = runtime.execution_info
        memory, view = remembered(
            _values(state).get(key) or {},
            _without(state, key),
            checks,
            info.checkpoint_id if info else "",
            clock(),
            keeps,
        )
        found = next((finding for check in checks if (finding := check(view))), None)
        if found is None:
            return {key: memory}
        answer = _answered(on_problem, state, found)
        if isinstance(answer, Command):
            return replace(answer, update={**(answer.update or {}), key: {}})
        return {**(answer or {}), key: {}}

    return watchdog


def remembered(
    memory: Mapping[str, Any], values: Any, checks: Sequence[Check], checkpoint_id: str, now_s: float, keeps: bool
) -> tuple[dict[str, Any], View]:
    """Return what a node remembers from now on, and what its checks are shown. Pure."""
    visits = memory.get("visits", 0) + 1
    step = Step(checkpoint_id, visits, values, (), now_s)
    marks: dict[Any, Sequence[Mark]] = {}
    kept: dict[str, list[list[Any]]] = {}
    for at, check in enumerate(checks):
        if not hasattr(check, "mark"):
            continue
        old = [_mark_of(each) for each in memory.get("marks", {}).get(str(at), ())]
        try:
            value = check.mark(values)
        except (LookupError, AttributeError, TypeError):
            marks[check] = old
        else:
            marks[check] = _marked(old, digest(value), text_of(value), step)[-getattr(check, "window", 1) :]
        kept[str(at)] = [_packed(each) for each in marks[check]]
    started_s = memory.get("started_s", now_s)
    before = memory.get(_PREVIOUS)
    view = View(
        now_s=now_s,
        started_s=started_s,
        step=step,
        previous=None if before is None else Step("", visits - 1, before, (), now_s),
        marks=marks,
        beat_s=now_s,
        moved_s=started_s,
    )
    found: dict[str, Any] = {"visits": visits, "started_s": started_s, "marks": kept}
    return (found | {_PREVIOUS: values} if keeps else found), view


def _marked(marks: list[Mark], found: bytes, text: str, step: Step) -> list[Mark]:
    if marks and marks[-1].digest == found:
        last = marks[-1]
        return [*marks[:-1], last._replace(steps=last.steps + 1, second=last.second or step.id)]
    return [*marks, Mark(found, text, step)]


def _packed(mark: Mark) -> list[Any]:
    return [mark.digest.hex(), mark.text, mark.step.id, mark.step.number, mark.step.at_s, mark.steps, mark.second]


def _mark_of(packed: Sequence[Any]) -> Mark:
    found, text, id, number, at_s, steps, second = packed
    return Mark(bytes.fromhex(found), text, Step(id, number, None, (), at_s), steps, second)


def rollback_node(
    reason: str = "asked", *, target: Place | None = None, item: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """Return a node that has the `Watchdog` around the graph roll the thread back; route to it where all is lost.

    A node cannot take its own thread back: what it writes comes after what it would undo. So it raises
    `RollbackRequested`, which ends the run where there is no `Watchdog`. Give the node no retry policy.

    Args:
        reason: Attempts are counted by it.
        target: Where to roll back to; None: as the policy says. `last_healthy` is the checkpoint before this node,
            so a target such as `item_start` or `parent` is what helps.
        item: Tells the item of the state, by which attempts are counted too.

    Raises:
        Misuse: The target is none.
    """
    if target is not None and target not in PLACES:
        raise Misuse(f"the target is one of {', '.join(PLACES)} or None, not {target!r}")

    def rollback(state: Any) -> Any:
        named = None if item is None else text_of(item(state))
        raise RollbackRequested(Finding(reason, "a node of the graph asks to roll back", item=named), target)

    return rollback


def error_handler(
    on_problem: Answer = "rollback", *, item: Callable[[Any], Any] | None = None
) -> Callable[[Any, NodeError], Any]:
    """Return an error handler for `add_node(..., error_handler=...)`: what failed is dealt with as a finding.

    It sees what a node raised, a timeout too, when its retries are used up. It cannot see a node that hangs without a
    timeout, or a process that died.

    Args:
        on_problem: As in `watchdog_node`; a function gets the finding `node_error`.
        item: Tells the item of the state, by which attempts are counted.

    Raises:
        Misuse: An argument is wrong.
    """
    _require_answer(on_problem)

    def handle(state: Any, error: NodeError) -> Any:
        named = None if item is None else text_of(item(state))
        message = f"node {error.node!r} raised {type(error.error).__name__}: {error.error}"
        return _answered(on_problem, state, Finding("node_error", message, item=named))

    return handle


def _answered(on_problem: Answer, state: Any, finding: Finding) -> Any:
    if on_problem == "rollback":
        raise RollbackRequested(finding)
    if on_problem == "interrupt":
        interrupt(asdict(finding))
        return {}
    return on_problem(state, finding)


def _require_answer(on_problem: object) -> None:
    if on_problem not in ("rollback", "interrupt") and not callable(on_problem):
        raise Misuse(f"on_problem is 'rollback', 'interrupt' or a function of state and finding, not {on_problem!r}")


def _values(state: Any) -> Mapping[str, Any]:
    return state if isinstance(state, Mapping) else vars(state)


def _without(state: Any, key: str) -> Any:
    return {name: value for name, value in state.items() if name != key} if isinstance(state, Mapping) else state
