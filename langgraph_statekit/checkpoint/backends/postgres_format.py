"""Records as the arguments of the functions in `postgres_sql/`, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from psycopg.rows import TupleRow

from langgraph_statekit.checkpoint.claims import fenced, rekeyed
from langgraph_statekit.checkpoint.order import RACE_US
from langgraph_statekit.checkpoint.records import Ref, Row, Save, SaveRow, SaveWrites, Write

REKEYED: Final = 2
Call = tuple[list[int], tuple[object, ...]]
"""Places of the saves that a call makes, and its arguments."""
SAVE_ROW: Final = (
    "({schema}.save_row_1(%b, %b, %b, %b, %b, %b, %b, %b, %b, %b,"
    " %b::bytea[], %b::bytea[], %b::bytea[], %b::bytea[], %b::bigint, %b::bigint, %b::bigint, %b, %b::text::jsonb,"
    " %b::bigint, %b::bytea))"
)
SAVE_WRITES: Final = (
    "({schema}.save_writes_1(%b, %b, %b, %b::bigint, %b::text[], %b::int[], %b::text[], %b::text[],"
    " %b::bytea[], %b::bytea))"
)


def size_bytes(save: Save) -> int:
    """Return the bytes of a save's values."""
    parts = save.frames if isinstance(save, SaveRow) else save.writes
    return sum(len(part.data or b"") for part in parts)


def row_calls(saves: Sequence[Save]) -> list[Call]:
    """Return the calls that save rows."""
    return [([at], _row_args(save)) for at, save in enumerate(saves) if isinstance(save, SaveRow)]


def _row_args(save: SaveRow) -> tuple[object, ...]:
    row = save.row
    kept = {frame.key: frame for frame in save.frames}  # the last one of a key counts
    stored = [frame for frame in kept.values() if frame.data is not None]
    return (
        *(row.ref.thread, row.ref.ns, row.ref.id, row.parent, row.via, row.hidden, row.run_id),
        *(row.packed_keys, row.packed_deltas, row.body),
        [frame.key for frame in stored],
        [b"".join(frame.base) if frame.base else None for frame in stored],
        [frame.data for frame in stored],
        [frame.key for frame in kept.values() if frame.data is None],
        *(save.at, RACE_US, save.token, save.parent is not None, row.audit, save.ttl_us, save.header or None),
    )


def writes_calls(saves: Sequence[Save]) -> list[Call]:
    """Return a call for the writes of each checkpoint, in an order that is the same in every batch."""
    merged: dict[tuple[Ref, int, bytes], tuple[list[int], dict[tuple[str, int], Write]]] = {}
    for at, save in enumerate(saves):
        if isinstance(save, SaveWrites):
            places, kept = merged.setdefault((save.ref, save.token or 0, save.header), ([], {}))
            places.append(at)
            for write in save.writes:
                if write.idx < 0 or (write.task, write.idx) not in kept:
                    kept[write.task, write.idx] = write
    calls: list[Call] = []
    for (ref, token, header), (places, kept) in sorted(merged.items(), key=lambda one: one[0]):
        writes = ((w.task, w.idx, w.channel, w.path, w.data) for _, w in sorted(kept.items()))
        calls.append((places, (*ref, token or None, *columns(writes, 5), header or None)))
    return calls


def saved(save: Save, result: int | None) -> bool | Exception:
    """Return how a save went."""
    if result == REKEYED:
        return rekeyed(save.thread)
    return fenced(save) if result is None else result == 1


def columns(records: Iterable[tuple[object, ...]], width: int) -> list[list[object]]:
    """Return records as columns of arrays."""
    return [list(column) for column in zip(*records, strict=True)] or [[] for _ in range(width)]


def row_of(thread: str, values: TupleRow) -> Row:
    """Return a row from the columns of its table."""
    seq, ns, id, parent, via, hidden, run_id, keys, deltas, body, *audit = values
    return Row(Ref(thread, ns, id), parent, via, seq, keys, deltas, run_id, hidden, body, *audit)
