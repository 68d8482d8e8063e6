"""What becomes of a thread, told from its latest checkpoint alone, without the graph. Pure.

A checkpoint shows which channels have news that a node has not seen yet. Which node a channel starts is known where
the node ran before, and by name for the channels that LangGraph's `StateGraph` makes (`branch:to:NODE`,
`join:NODES:NODE`, `__start__`, and the queue of `Send`). So for every `StateGraph` and `@entrypoint` it is known
whether tasks are left. What cannot be known: whether a process works on a thread that nobody has leased, a static
breakpoint (`interrupt_before`), which looks like any other thread with tasks left, and tasks of a hand-made `Pregel`
that never ran. A thread that was resumed stays `interrupted` or `failed` until the task that it was about has writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, RESUME, SCHEDULED, TASKS

from langgraph_statekit.checkpoint.foreign import Foreign

FINISHED: Final = "finished"
INTERRUPTED: Final = "interrupted"
FAILED: Final = "failed"
UNFINISHED: Final = "unfinished"
DAMAGED: Final = "damaged"
NAMES: Final = (FINISHED, INTERRUPTED, FAILED, UNFINISHED, DAMAGED)

_SPECIAL: Final = frozenset({ERROR, INTERRUPT, RESUME, SCHEDULED, "__error_source_node__"})
_NO_NODES: Final = frozenset({"__interrupt__", "__input__", "__snapshot_bumps__"})
_START: Final = "__start__"
_BRANCH: Final = "branch:to:"
_JOIN: Final = "join:"

Writes = Iterable[tuple[str, str, Any]]


@dataclass(frozen=True, slots=True)
class Status:
    """What a checkpoint says of its thread.

    Attributes:
        name: `finished`: no task is left. `interrupted`: a task waits for an answer. `failed`: a task raised.
            `unfinished`: tasks are left; somebody works on them, or nobody does. `damaged`: it cannot be read.
        next: Nodes with tasks left, those whose writes are stored too.
        interrupts: Values of the interrupts that wait.
        errors: What tasks raised, as it was stored; of a damaged one what is wrong.
    """

    name: str
    next: Sequence[str]
    interrupts: Sequence[Any] = ()
    errors: Sequence[Any] = ()


def is_control(channel: str) -> bool:
    """Say whether a channel holds no state, but tells LangGraph what to run."""
    return channel in (_START, TASKS) or channel.startswith((_BRANCH, _JOIN))


def status_of(checkpoint: Mapping[str, Any], values: Mapping[str, Any], writes: Writes) -> Status:
    """Return the status that a checkpoint shows.

    Args:
        checkpoint: With its `channel_versions` and `versions_seen`.
        values: The channels that have a value; of those that are not `is_control` the value does not count.
        writes: Task, channel and value of each pending write.
    """
    writes = list(writes)
    done = {task for task, channel, _ in writes if channel not in _SPECIAL}
    open_writes = [(channel, value) for task, channel, value in writes if task not in done]
    errors = [value for channel, value in open_writes if channel == ERROR]
    interrupts = [one for channel, value in open_writes if channel == INTERRUPT for one in _each(value)]
    nodes = list(dict.fromkeys(next_nodes(checkpoint, values)))
    name = FAILED if errors else INTERRUPTED if interrupts else UNFINISHED if nodes else FINISHED
    return Status(name, nodes, interrupts, errors)


def _each(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else [value]


def next_nodes(checkpoint: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the nodes that a checkpoint makes LangGraph run next; one may come more than once."""
    seen = {node: own for node, own in checkpoint["versions_seen"].items() if node not in _NO_NODES}
    for channel, version in checkpoint["channel_versions"].items():
        if channel not in values:
            continue
        if channel == TASKS:
            yield from map(_node_of, _each(values[channel]))
        elif _is_ready(channel, values[channel]):
            known = [node for node, own in seen.items() if channel in own]
            for node in known or _named(channel):
                before = seen.get(node, {}).get(channel)
                if before is None or version > before:
                    yield node


def _node_of(send: Any) -> str:
    if isinstance(send, Foreign):
        content = send.parts[1]
        return str(content[0]) if isinstance(content, list) and content else "?"
    return str(getattr(send, "node", "?"))


def _named(channel: str) -> list[str]:
    if channel == _START:
        return [_START]
    if channel.startswith(_BRANCH):
        return [channel.removeprefix(_BRANCH)]
    return [channel.rpartition(":")[2]] if channel.startswith(_JOIN) else []


def _is_ready(channel: str, value: Any) -> bool:
    if not channel.startswith((_BRANCH, _JOIN)):
        return True
    if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], bool):
        return value[1]  # of a deferred node: with whether all others are through
    if channel.startswith(_BRANCH):
        return True
    awaited = channel.removeprefix(_JOIN).rpartition(":")[0]
    # The names are joined by a plus sign, which a name may hold too; the length tells whether all have come.
    return isinstance(value, set | frozenset | list) and len("+".join(map(str, value))) == len(awaited)
