"""Cells in PostgreSQL: one statement a request; `postgres_sql/002_cells.sql` decides."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from langgraph_statekit.checkpoint.backends.postgres_format import columns
from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellPage, CellQuery, CellRef, Changed
from langgraph_statekit.checkpoint.claims import fenced

Run = Callable[..., Sequence[Sequence[Any]]]

SWEEP: Final = "SELECT {schema}.sweep_cells_1(%b)"
SWEEP_CELLS: Final = 500
# No cell has the rev -1, so a change that comes after its deadline is one that finds another cell than it expects.
_CHANGE: Final = (
    "SELECT n, d.* FROM unnest(%b::text[], %b::text[], %b::text[], %b::bytea[], %b::text[], %b::bigint[],"
    " %b::bigint[], %b::bigint[], %b::text[], %b::bigint[]) WITH ORDINALITY"
    " AS c (kind, thread, key, data, lists, expect, fence, life, asked, deadline, n), {schema}.change_cell_1("
    "thread, kind, key, data, ARRAY(SELECT jsonb_array_elements_text(c.lists::jsonb)),"
    " CASE WHEN deadline <= {schema}.clock_us_1() THEN -1 ELSE expect END, fence, life, asked) d"
)
_COLUMNS: Final = "c.kind, c.thread_id, c.key, c.value, c.lists, c.rev, c.operation"
_NOT_OVER: Final = "(c.until_us IS NULL OR c.until_us > t.now)"
_NAMED: Final = (
    f"SELECT t.now, {_COLUMNS} FROM (SELECT {{schema}}.clock_us_1() AS now) AS t LEFT JOIN LATERAL ("
    "SELECT c.* FROM unnest(%b::text[], %b::text[], %b::text[]) AS r (kind, thread, key), LATERAL ("
    "SELECT * FROM {schema}.cells c WHERE (c.thread_id, c.kind, c.key) = (r.thread, r.kind, r.key)"
    f" AND {_NOT_OVER} LIMIT 1) AS c) AS c ON true"
)
_LISTED: Final = (
    f"SELECT t.now, {_COLUMNS} FROM (SELECT {{schema}}.clock_us_1() AS now) AS t LEFT JOIN LATERAL ("
    "SELECT c.* FROM {schema}.cell_lists l, LATERAL (SELECT * FROM {schema}.cells c"
    " WHERE (c.thread_id, c.kind, c.key, c.rev) = (l.thread_id, l.kind, l.key, l.rev)"
    f" AND {_NOT_OVER} LIMIT 1) AS c"
    " WHERE l.kind = %b AND l.list = %b AND (l.rev, l.thread_id, l.key) < (%b, %b, %b)"
    " ORDER BY l.rev DESC, l.thread_id DESC, l.key DESC LIMIT %b) AS c ON true"
)
_NEWEST: Final = (1 << 62, "", "")
LISTED: Final = "EXISTS (SELECT FROM {schema}.cell_lists l WHERE l.kind = %b AND l.list = %b)"
"""Whether there is something in a list, which `list_of` names."""


def change(run: Run, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
    """See `Backend.change_cells`."""
    order = sorted(range(len(changes)), key=lambda at: (changes[at].thread, changes[at].ref))  # as saves lock them
    wanted = columns((_plain(changes[at]) for at in order), 10)
    results: list[Changed | Exception] = [fenced(each) for each in changes]
    for place, made, now_us, value, lists, rev, operation in run(_CHANGE, *wanted):
        if made is not None:
            at = order[place - 1]
            cell = None if value is None else _cell(changes[at].ref, value, lists, rev, operation)
            results[at] = Changed(made, cell, now_us)
    return results


def read(run: Run, query: CellQuery) -> CellPage:
    """See `Backend.cells`."""
    if query.refs is not None:
        found = run(_NAMED, *columns(query.refs, 3))
    else:
        found = run(_LISTED, *list_of(query), *(query.before or _NEWEST), query.limit)
    cells = [_cell(CellRef(*values[:3]), *values[3:]) for _, *values in found if values[0] is not None]
    return CellPage(cells, found[0][0])


def list_of(query: CellQuery) -> tuple[str, str]:
    """Return kind and name of the list that a query asks for."""
    return query.kind, "" if query.group is None else f"={query.group}"


def _plain(change: CellChange) -> tuple[object, ...]:
    lists = json.dumps(["", *dict.fromkeys(f"={group}" for group in change.groups)])
    limits = change.expect, change.token, change.ttl_us, change.operation, change.deadline_us
    return *change.ref, change.value, lists, *limits


def _cell(ref: CellRef, value: bytes, lists: Sequence[str], rev: int, operation: str) -> Cell:
    return Cell(ref, value, tuple(name[1:] for name in lists if name), rev, operation)
