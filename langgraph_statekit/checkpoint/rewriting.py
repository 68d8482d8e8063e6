"""Stored checkpoints rewritten in place for a newer state version, and back. Pure.

A rewritten row keeps its id, its place, its links and its writes, so tasks and questions that wait stay what they are.
Until the change is committed it also holds what it was: the old body, and the keys of the old values, which retention
keeps for them. So a revert is exact, and needs no way back for the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import ormsgpack

from langgraph_statekit.checkpoint.codec import Codec, Read, frame_key
from langgraph_statekit.checkpoint.frames import seal, unseal
from langgraph_statekit.checkpoint.migrations import is_marked, stamp_of
from langgraph_statekit.checkpoint.records import Row, Write, from_text
from langgraph_statekit.errors import Conflict
from langgraph_statekit.versions import version_in

Step: TypeAlias = Literal["migrate", "revert", "commit"]
Plains: TypeAlias = Sequence[tuple[bytes, bytes | None]]
_PARTS = 4


def rewritten(codec: Codec, step: Step, row: Row, read: Read) -> tuple[Row, Plains] | None:
    """Return a row after a step, and the values to store with it; None if the step changes nothing.

    Args:
        codec: That of a saver with the state's schemas.
        step: What to do.
        row: As it is stored.
        read: Gives the values of its keys.

    Raises:
        DataError: The state cannot be migrated.
        SchemaTooNew: It has a later version than the schema.
    """
    if codec.schema(row.ref.ns) is None:
        return None
    if step == "migrate":
        return _migrated(codec, row, read)
    parts = _parts(row)
    if len(parts) == _PARTS:
        return None
    if step == "revert":
        body, keys = parts[_PARTS:]
        return row._replace(body=body, packed_keys=keys), ()
    keys = _keys(row, codec.checkpoint(row)["channel_versions"])
    return row._replace(body=seal(ormsgpack.packb(parts[:_PARTS])), packed_keys=b"".join(keys)), ()


def _migrated(codec: Codec, row: Row, read: Read) -> tuple[Row, Plains] | None:
    before = version_in(codec.metadata(row))
    item = codec.unpack(row, read, ())
    if version_in(item.metadata) == before:
        return None
    plain: dict[str, Any] = dict(item.checkpoint)
    values, versions = plain.pop("channel_values"), item.checkpoint["channel_versions"]
    keys = _keys(row, versions)
    plains = [
        (key, codec.dump(f"channel {name!r}", values[name]))
        for key, (name, version) in zip(keys, versions.items(), strict=True)
        if is_marked(version) and name in values and key not in row.keys
    ]
    old = [key for key in row.keys if key not in set(keys)]
    body = codec.pack_body(plain, values, item.metadata, (row.body, row.packed_keys))
    return row._replace(body=body, packed_keys=b"".join((*keys, *old))), plains


def require_revertible(codec: Codec, rows: Iterable[tuple[Row, Sequence[Write]]]) -> None:
    """Return if a revert loses nothing that was done since the migration.

    Raises:
        Conflict: A worker of the newer version went on with the thread.
    """
    newest, reverts, worked = 0, False, False
    for row, writes in rows:
        if (schema := codec.schema(row.ref.ns)) is None:
            continue
        newest = schema.version
        if len(_parts(row)) > _PARTS:
            reverts = True
            worked |= any(stamp_of(from_text(write.path)) == newest for write in writes)
        else:
            worked |= version_in(codec.metadata(row)) == newest
    if reverts and worked:
        raise Conflict(f"the thread went on with version {newest} after it was migrated; commit it instead")


def _keys(row: Row, versions: Any) -> list[bytes]:
    return [frame_key(row.ref.ns, name, version) for name, version in versions.items()]


def _parts(row: Row) -> tuple[Any, ...]:
    return tuple(ormsgpack.unpackb(unseal(row.body)))
