"""One save at a time, for tests of the stores themselves."""

from __future__ import annotations

from collections.abc import Sequence

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.order import clock_us
from langgraph_statekit.checkpoint.records import Frame, Ref, Row, Save, SaveRow, SaveWrites, Write


def save(store: Backend, row: Row, frames: Sequence[Frame] = ()) -> bool:
    return save_one(store, SaveRow(row, frames, clock_us(row.ref.id)))


def save_writes(store: Backend, ref: Ref, writes: Sequence[Write]) -> None:
    assert save_one(store, SaveWrites(ref, writes))


def save_one(store: Backend, one: Save) -> bool:
    [result] = store.save([one])
    if isinstance(result, Exception):
        raise result
    return result
