"""A loaded checkpoint of an older state version, as one of the newest. Pure.

A channel whose value changed gets a version of its own, made of the old one and a digest of the new value. So the old
value stays what older checkpoints read, equal values share one key, and a save sees which values may not be stored yet.
LangGraph's own versions follow: whoever had seen the old version has seen the new one, so a migration triggers no node.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from langgraph_statekit.errors import DataError, Misuse
from langgraph_statekit.versions import Schema, migrated, migrated_update

Dump = Callable[[str, Any], bytes]
"""Gives the plain bytes of a channel's value."""

_MARK: Final = "~"
_STAMP: Final = "\x01"
_INPUT: Final = "__start__"
_NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"
_BUMPS: Final = "__snapshot_bumps__"
_INTERNAL: Final = ("__", "branch:to:", "join:")
_ANSWERS: Final = ("__interrupt__", "__resume__")
_LOG = logging.getLogger(__name__)


class Pending(NamedTuple):
    """A pending write, and the version of the worker that made it."""

    version: int
    task: str
    channel: str
    value: Any


def is_state(channel: str) -> bool:
    """Say whether a channel is a key of the state, not one of LangGraph's own."""
    return not channel.startswith(_INTERNAL)


def is_marked(version: Any) -> bool:
    """Say whether a migration made this version of a channel."""
    return isinstance(version, str) and _MARK in version


def stamped(path: str, version: int) -> str:
    """Return a task's path with the version of the worker that writes; it sorts as it did."""
    return path if version == 1 else f"{path}{_STAMP}{version}"


def stamp_of(path: str) -> int:
    """Return the version in a task's path."""
    version = path.rpartition(_STAMP)[2]
    return int(version) if _STAMP in path and version.isdecimal() else 1


def migrate(schema: Schema, version: int, checkpoint: Checkpoint, deltas: Iterable[str], dump: Dump) -> None:
    """Bring a checkpoint in memory from an older version to the newest.

    Args:
        schema: The newest.
        version: That of the checkpoint.
        checkpoint: It is changed in place.
        deltas: Its delta channels. Their values are made of older checkpoints, so no migration sees them.
        dump: Tells values apart.

    Raises:
        DataError: No migration leads from this version, or one of them failed.
        Misuse: A migration sets a delta channel.
    """
    values = checkpoint["channel_values"]
    kept = {*deltas, *schema.deltas, *(name for name, value in values.items() if isinstance(value, _DeltaSnapshot))}
    own = {name: value for name, value in values.items() if is_state(name) and name not in kept}
    before = {name: dump(name, value) for name, value in own.items()}
    after = migrated(schema, version, own)
    if odd := kept & after.keys():
        raise Misuse(f"a migration of {schema.name} sets {min(odd)!r}, which is a DeltaChannel: leave it out")
    if isinstance(given := values.get(_INPUT), dict):
        before[_INPUT] = dump(_INPUT, given)
        after = {**after, _INPUT: migrated_update(schema, version, given)}
    for name in before.keys() - after.keys():
        del values[name]
        checkpoint["channel_versions"].pop(name, None)
    for name, value in after.items():
        values[name] = value
        plain = dump(name, value)
        if before.get(name) != plain:
            _bump(checkpoint, name, plain)


def _bump(checkpoint: Checkpoint, name: str, plain: bytes) -> None:
    versions = checkpoint["channel_versions"]
    old = versions.get(name)
    base = str(max(versions.values(), key=str, default=f"{0:032}.0") if old is None else old).partition(_MARK)[0]
    new = versions[name] = f"{base}{_MARK}{blake2b(plain, digest_size=8).hexdigest()}"
    for node, seen in checkpoint["versions_seen"].items():
        if node != _BUMPS and (old is None or seen.get(name) == old):
            seen[name] = new


def migrate_writes(
    schema: Schema, checkpoint: Checkpoint, writes: Iterable[Pending], deltas: Iterable[str], dump: Dump
) -> list[tuple[str, str, Any]]:
    """Return the pending writes of a migrated checkpoint as (task, channel, value).

    What a user gave is migrated. The writes of a task that finished under an older version are left out where a
    migration concerns them, and so the task runs again: only it knows what it would have written now.

    Raises:
        DataError: That cannot be, as a delta channel has stored such a write.
    """
    writes = list(writes)
    old: dict[str, list[Pending]] = defaultdict(list)
    for write in writes:
        if write.version < schema.version and is_state(write.channel):
            old[write.task].append(write)
    given = old.pop(_NULL_TASK, ())
    again = {task for task, found in old.items() if any(_concerns(schema, checkpoint, each, dump) for each in found)}
    kept = {*deltas, *schema.deltas}
    if odd := next((each for task in again for each in old[task] if each.channel in kept), None):
        raise DataError(
            f"task {odd.task} finished under version {odd.version} of {schema.name} in a step that has not ended, and "
            f"wrote the DeltaChannel {odd.channel!r}: let a worker of that version finish the step"
        )
    if again:
        _LOG.info("%d tasks that finished under an older version of %s run again", len(again), schema.name)
    left = [write for write in writes if write.task not in again or write.channel in _ANSWERS]
    result: list[tuple[str, str, Any]] = []
    for write in left:
        if any(write is each for each in given):
            update = migrated_update(schema, write.version, {write.channel: write.value})
            result += [(write.task, name, value) for name, value in update.items()]
        else:
            result.append((write.task, write.channel, write.value))
    return result


def _concerns(schema: Schema, checkpoint: Checkpoint, write: Pending, dump: Dump) -> bool:
    name, value = write.channel, write.value
    if name in schema.deltas:
        return False
    if name not in schema.channels or is_marked(checkpoint["channel_versions"].get(name)):
        return True
    before = dump(name, value)
    try:
        after = migrated_update(schema, write.version, {name: value})
    except DataError:
        return True
    return after.keys() != {name} or dump(name, after[name]) != before


def with_migrated(checkpoint: Checkpoint, new_versions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channels that a save must store: what LangGraph lists as new, and what a migration changed."""
    values = checkpoint["channel_values"]
    marked = {name: at for name, at in checkpoint["channel_versions"].items() if name in values and is_marked(at)}
    return {**marked, **new_versions}
