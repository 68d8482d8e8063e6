"""Records for the tests of the stores themselves, and one save at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.changing import changed
from langgraph_statekit.checkpoint.order import clock_us
from langgraph_statekit.checkpoint.records import Frame, Ref, Row, Save, SaveRow, SaveWrites, Write, is_made
from langgraph_statekit.checkpoint.retention import keep_latest


def key(channel: object, version: int) -> bytes:
    """Return the key of a frame."""
    return f"{channel}".encode().ljust(8, b"_") + version.to_bytes(8, "big")


def row(thread: str, id: str, ns: str = "", **fields: Any) -> Row:
    """Return a checkpoint; `keys` and `deltas` one by one."""
    packed = {f"packed_{name}": b"".join(fields.pop(name)) for name in ("keys", "deltas") if name in fields}
    return Row(Ref(thread, ns, id), **{"body": f"body {ns} {id}".encode() * 3, **packed, **fields})


def frame(key: bytes, value: bytes, base: Frame | None = None, *, check: bytes | None = None) -> Frame:
    """Return a value in an envelope, as a delta if a base is given."""
    check = check or crc32(value, crc32(base.check if base else b"")).to_bytes(4, "big")
    chain = base.key[:16] + base.check + bytes(9) if base else b""
    return Frame(key, b"\1" + (b"\2" if base else b"\0") + check + chain + value)


def made(store: Backend, saves: Sequence[Save]) -> list[bool]:
    """Make saves, and say for each whether it was made: what a rev is counted from differs by store."""
    return [is_made(result) for result in store.save(saves)]


def save(store: Backend, row: Row, frames: Sequence[Frame] = ()) -> bool:
    """Save a checkpoint alone."""
    return save_one(store, SaveRow(row, frames, clock_us(row.ref.id)))


def save_writes(store: Backend, ref: Ref, writes: Sequence[Write]) -> None:
    """Save writes alone."""
    assert save_one(store, SaveWrites(ref, writes))


def save_one(store: Backend, one: Save) -> bool:
    """Say whether a save was made, or raise its error."""
    [result] = store.save([one])
    if isinstance(result, Exception):
        raise result
    return is_made(result)


def prune(store: Backend, thread: str) -> tuple[int, int | None, int]:
    """Keep the latest checkpoints, as `prune` of a saver does, and return how many rows are left and went."""
    return changed(store, thread, keep_latest)


def ordered(writes: Sequence[Write]) -> list[Write]:
    """Return writes in an order that does not depend on the store."""
    return sorted(writes, key=lambda write: (write.task, write.idx))


def deltas(store: Backend, thread: str) -> int:
    """Return how many values of a thread are stored as deltas."""
    return sum(frame.base is not None for frame in store.outline(thread).frames.values())
