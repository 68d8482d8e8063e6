"""What retention looks at of a thread in PostgreSQL: the statements that read it, and the outline that they give."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from psycopg.rows import TupleRow

from langgraph_statekit.checkpoint.backends.postgres_format import row_of
from langgraph_statekit.checkpoint.labels import NAMESPACE
from langgraph_statekit.checkpoint.records import HEAD_BYTES, Frame, Outline, Row

ROW: Final = "seq, ns, id, parent, via, hidden, run_id, keys, deltas"
ALIVE: Final = "(SELECT {schema}.alive_1(%b, %b))"

_REST: Final = "NULL::bytea[], NULL::bytea[], NULL::bigint, NULL::bigint"
_REV: Final = "rev, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"
WHOLE: Final = (
    f"SELECT {ROW}, {_REST} FROM {{schema}}.rows"
    f" WHERE {ALIVE} AND thread_id = %b AND (%b::text IS NULL OR ns = %b)"
    f" UNION ALL SELECT {_REV}, f.*, 0, 0 FROM {{schema}}.threads,"
    " (SELECT array_agg(key), array_agg(substring(data FOR %b)) FROM {schema}.frames WHERE thread_id = %b) AS f"
    f" WHERE {ALIVE} AND seq > 0 AND thread_id = %b"
)
_OF: Final = "FROM {schema}.rows WHERE thread_id = %b"
_TOP: Final = "ORDER BY ns DESC, seq DESC LIMIT 1"
"""In this order the planner reads one entry of an index, whatever it believes of the thread."""
HEADS: Final = (
    f"WITH RECURSIVE tops AS ((SELECT {ROW} {_OF} AND NOT hidden {_TOP}) UNION ALL SELECT next.* FROM tops,"
    f" LATERAL (SELECT {ROW} {_OF} AND NOT hidden AND ns < tops.ns {_TOP}) AS next),"
    f" found AS MATERIALIZED (SELECT * FROM tops UNION ALL (SELECT {ROW} {_OF} AND ns = %b LIMIT 1))"
    f" SELECT {ROW}, {_REST} FROM found WHERE {ALIVE}"
    f" UNION ALL SELECT {_REV}, f.*, (SELECT count(*) {_OF}),"
    " (SELECT count(*) FROM {schema}.frames WHERE thread_id = %b) FROM {schema}.threads,"
    " (SELECT array_agg(frame_key), array_agg(substring(frame_data FOR %b)) FROM {schema}.frames_1(%b, ARRAY("
    "SELECT substring(keys FROM start FOR 16) FROM found, generate_series(1, length(keys), 16) AS start ORDER BY 1))"
    f") AS f WHERE {ALIVE} AND seq > 0 AND thread_id = %b"
)


def whole_arguments(thread: str, ns: str | None) -> tuple[object, ...]:
    """Return those of `WHOLE`."""
    return thread, False, thread, ns, ns, HEAD_BYTES, thread, thread, False, thread


def heads_arguments(thread: str) -> tuple[object, ...]:
    """Return those of `HEADS`."""
    return thread, thread, thread, NAMESPACE, thread, False, thread, thread, HEAD_BYTES, thread, thread, False, thread


def outlined(thread: str, found: Iterable[TupleRow]) -> Outline:
    """Return the outline that a statement gave."""
    rev = all_rows = all_frames = 0
    rows: list[Row] = []
    frames: dict[bytes, Frame] = {}
    for *values, keys, heads, rows_count, frames_count in found:
        if values[2] is None:
            rev, all_rows, all_frames = values[0], rows_count, frames_count
            frames = {key: Frame(key, head) for key, head in zip(keys or (), heads or (), strict=True)}
        else:
            rows.append(row_of(thread, (*values, b"")))
    rows.sort(key=lambda row: row.seq)
    return Outline(rev, rows, frames, max(all_rows - len(rows), 0), max(all_frames - len(frames), 0))
