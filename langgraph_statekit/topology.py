"""Which nodes and channels a stored checkpoint names, and the same checkpoint with nodes renamed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, PendingWrite
from langgraph.types import Send

from langgraph_statekit.checkpoint.migrations import is_state

BRANCH: Final = "branch:to:"
JOIN: Final = "join:"
TASKS: Final = "__pregel_tasks"
_INPUT: Final = "__start__"


def missing_nodes(item: CheckpointTuple, nodes: Collection[str], channels: Collection[str]) -> list[str]:
    """Return the nodes that a checkpoint waits for and the graph lacks, in order of their names."""
    return sorted({name for name in _waiting(item, channels) if name not in nodes})


def unknown_channels(item: CheckpointTuple, channels: Collection[str]) -> list[str]:
    """Return the keys of a checkpoint's state that the graph lacks, in order of their names."""
    found = {*item.checkpoint["channel_values"], *(channel for _, channel, _ in item.pending_writes or ())}
    return sorted(name for name in found if is_state(name) and name not in channels)


def _seen(value: Any) -> Any:
    """Return the nodes that a join has heard of; one that is deferred keeps beside them whether it may go on."""
    return value[0] if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], bool) else value


def _waiting(item: CheckpointTuple, channels: Collection[str]) -> Iterator[str]:
    checkpoint = item.checkpoint
    for channel, value in _open(checkpoint):
        if channel.startswith(BRANCH):
            node = channel.removeprefix(BRANCH)
            if checkpoint["channel_versions"].get(channel) != checkpoint["versions_seen"].get(node, {}).get(channel):
                yield node
        else:
            yield from _named(channel, value, channels)
    for _, channel, value in item.pending_writes or ():
        yield from _named(channel, value, channels)


def _open(checkpoint: Checkpoint) -> Iterator[tuple[str, Any]]:
    """Yield the channels whose values have not been used.

    LangGraph clears no channel that the graph lacks, so the value of one stays in the store when the thread went on
    without it. A branch counts for the step after it was written, where the checkpoint tells, and else until the next
    input, as a join does.
    """
    versions = checkpoint["channel_versions"]
    updated = checkpoint.get("updated_channels")
    begun = _place(versions.get(_INPUT, ""))
    for channel, value in checkpoint["channel_values"].items():
        at = _place(versions.get(channel, ""))
        if channel.startswith(BRANCH):
            if at >= begun if updated is None else channel in updated:
                yield channel, value
        elif not channel.startswith(JOIN) or (_seen(value) and at > begun):
            yield channel, value


def _place(version: Any) -> str:
    """Return the number of the step that made a version, so that numbers sort as texts do."""
    return str(version).partition(".")[0].rjust(32, "0")


def _named(channel: str, value: Any, channels: Collection[str]) -> Iterator[str]:
    if channel.startswith(BRANCH):
        yield channel.removeprefix(BRANCH)
    elif channel.startswith(JOIN) and channel not in channels:
        yield from _ends(channel)
    elif channel == TASKS:
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, Send):
                yield each.node


def _ends(channel: str) -> list[str]:
    """Return the nodes that a join leads from and to."""
    starts, _, end = channel.removeprefix(JOIN).rpartition(":")
    return [*starts.split("+"), end]


def renamed_checkpoint(checkpoint: Checkpoint, names: Mapping[str, str], next_version: Any) -> tuple[Checkpoint, Any]:
    """Return a copy of a checkpoint in which nodes have other names, and the versions that are new in it.

    Args:
        checkpoint: The stored one.
        names: New names by old ones.
        next_version: Gives a version after another one.
    """
    values, versions = dict(checkpoint["channel_values"]), dict(checkpoint["channel_versions"])
    seen = {names.get(node, node): dict(each) for node, each in checkpoint["versions_seen"].items()}
    new: dict[str, Any] = {}
    for channel in checkpoint["channel_versions"]:
        target, value = _renamed(channel, values.get(channel), names)
        if is_state(channel) or (target == channel and value == values.get(channel)):
            continue
        old = versions.pop(channel)
        held = channel in values
        values.pop(channel, None)
        version = next_version(max(checkpoint["channel_versions"].values()), None)
        versions[target] = new[target] = version
        if held:
            values[target] = value
        for each in seen.values():
            if channel in each:
                was = each.pop(channel)
                each[target] = version if was == old else was
    result: Checkpoint = {**checkpoint, "channel_values": values, "channel_versions": versions, "versions_seen": seen}
    if (updated := checkpoint.get("updated_channels")) is not None:
        result["updated_channels"] = sorted(_renamed(channel, None, names)[0] for channel in updated)
    return result, new


def renamed_write(write: PendingWrite, names: Mapping[str, str]) -> PendingWrite:
    """Return a pending write in which nodes have other names."""
    task, channel, value = write
    return task, *_renamed(channel, value, names)


def _renamed(channel: str, value: Any, names: Mapping[str, str]) -> tuple[str, Any]:
    if channel.startswith(BRANCH):
        node = channel.removeprefix(BRANCH)
        return BRANCH + names.get(node, node), value
    if channel.startswith(JOIN):
        *starts, end = (names.get(node, node) for node in _ends(channel))
        target = f"{JOIN}{'+'.join(starts)}:{end}"
        if isinstance(value, str):
            return target, names.get(value, value)
        heard = {names.get(node, node) for node in _seen(value) or ()}
        return target, heard if value is _seen(value) else [heard, value[1]]
    if channel == TASKS:
        if isinstance(value, Send):
            return channel, _send(value, names)
        if isinstance(value, list | tuple):
            return channel, [_send(each, names) if isinstance(each, Send) else each for each in value]
    return channel, value


def _send(send: Send, names: Mapping[str, str]) -> Send:
    return send if send.node not in names else Send(names[send.node], send.arg, timeout=send.timeout)
