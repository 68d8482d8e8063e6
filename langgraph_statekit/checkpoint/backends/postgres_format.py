"""Records as the arguments of the functions in `postgres_sql/`, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from psycopg.rows import TupleRow

from langgraph_statekit.checkpoint.backends.postgres_arrays import Blobs, Numbers, Texts
from langgraph_statekit.checkpoint.claims import Misplaced, fenced, rekeyed
from langgraph_statekit.checkpoint.order import RACE_US
from langgraph_statekit.checkpoint.records import Ref, Row, Save, SaveRow, SaveWrites, Write

REKEYED: Final = 2
Call = tuple[list[int], tuple[object, ...]]
"""Places of the saves that a call makes, and its arguments."""
_SAVE_ROW: Final = f"({{schema}}.save_row_2({'$%d, ' * 18}$%d::jsonb, $%d, $%d, $%d))"
_SAVE_WRITES: Final = f"({{schema}}.save_writes_1({'$%d, ' * 9}$%d))"


def size_bytes(save: Save) -> int:
    """Return the bytes of a save's values."""
    parts = save.frames if isinstance(save, SaveRow) else save.writes
    return sum(len(part.data or b"") for part in parts)


def save_calls(saves: Sequence[Save]) -> tuple[str, list[Call]]:
    """Return the statement that makes all saves, its arguments numbered, and its calls in their order."""
    calls = [(_SAVE_ROW, *call) for call in _row_calls(saves)] + [
        (_SAVE_WRITES, *call) for call in _writes_calls(saves)
    ]
    calls.sort(key=lambda call: saves[call[1][0]].thread)  # every batch locks threads in this order
    numbered = ",".join(text for text, _, _ in calls) % tuple(range(1, 1 + sum(len(args) for _, _, args in calls)))
    return f"VALUES {numbered}", [(places, args) for _, places, args in calls]


def _row_calls(saves: Sequence[Save]) -> list[Call]:
    return [([at], _row_args(save)) for at, save in enumerate(saves) if isinstance(save, SaveRow)]


def _row_args(save: SaveRow) -> tuple[object, ...]:
    row = save.row
    kept = {frame.key: frame for frame in save.frames}  # the last one of a key counts
    stored = [frame for frame in kept.values() if frame.data is not None]
    return (
        *(row.ref.thread, row.ref.ns, row.ref.id, row.parent, row.via, row.hidden, row.run_id),
        *(row.packed_keys, row.packed_deltas, row.body),
        Blobs(frame.key for frame in stored),
        Blobs(b"".join(frame.base) if frame.base else None for frame in stored),
        Blobs(frame.data for frame in stored),
        Blobs(frame.key for frame in kept.values() if frame.data is None),
        *(save.at, RACE_US, save.token, save.parent is not None, row.audit, save.ttl_us, save.header or None, save.seq),
    )


def _writes_calls(saves: Sequence[Save]) -> list[Call]:
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
        writes = [write for _, write in sorted(kept.items())]
        arrays = (
            Texts(write.task for write in writes),
            Numbers(write.idx for write in writes),
            Texts(write.channel for write in writes),
            Texts(write.path for write in writes),
            Blobs(write.data for write in writes),
        )
        calls.append((places, (*ref, token or None, *arrays, header or None)))
    return calls


def saved(save: Save, result: int | None) -> int | Exception:
    """Return how a save went."""
    if result == REKEYED:
        return rekeyed(save.thread)
    if result is not None and result < 0:
        return Misplaced(save.thread, -result)
    return fenced(save) if result is None else result


def columns(records: Iterable[tuple[object, ...]], width: int) -> list[list[object]]:
    """Return records as columns of arrays."""
    return [list(column) for column in zip(*records, strict=True)] or [[] for _ in range(width)]


def row_of(thread: str, values: TupleRow) -> Row:
    """Return a row from the columns of its table."""
    seq, ns, id, parent, via, hidden, run_id, keys, deltas, body, *audit = values
    return Row(Ref(thread, ns, id), parent, via, seq, keys, deltas, run_id, hidden, body, *audit)
