"""Cells in the SQLite file; this host's clock is the server's."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from typing import Any, Final

from langgraph_statekit.checkpoint.backends import sqlite_leases as leases
from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellPage, CellQuery, CellRef, Changed, decide, is_news
from langgraph_statekit.checkpoint.claims import fenced
from langgraph_statekit.checkpoint.expiry import is_over

_PART: Final = 1000
_COLUMNS: Final = "c.kind, c.thread, c.key, c.value, c.groups, c.rev, c.operation, c.until_us"
_ADDRESS: Final = "(c.kind, c.thread, c.key) = (?, ?, ?)"
_LISTED: Final = (
    f"SELECT {_COLUMNS} FROM cell_groups g CROSS JOIN cells c"
    " ON (c.kind, c.thread, c.key, c.rev) = (g.kind, g.thread, g.key, g.rev)"
    " WHERE g.kind = ? AND g.name = ? AND (g.rev, g.thread, g.key) < (?, ?, ?)"
    " AND (c.until_us IS NULL OR c.until_us > ?) ORDER BY g.rev DESC, g.thread DESC, g.key DESC LIMIT ?"
)
_NEWEST: Final = (1 << 62, "", "")


def _now_us() -> int:
    return time.time_ns() // 1000


def _names(groups: Sequence[str]) -> list[str]:
    """Return the names under which a cell is listed: the empty one for all of its kind."""
    return ["", *dict.fromkeys(f"={group}" for group in groups)]


def _cell(columns: Sequence[Any]) -> Cell:
    kind, thread, key, value, groups, rev, operation, _ = columns
    return Cell(CellRef(kind, thread, key), value, tuple(json.loads(groups)), rev, operation)


def change(db: sqlite3.Connection, wanted: CellChange) -> Changed | Exception:
    """Decide a change, and make it."""
    if leases.is_fenced(db, wanted.thread, wanted.token):
        return fenced(wanted)
    found = db.execute(f"SELECT {_COLUMNS} FROM cells c WHERE {_ADDRESS}", wanted.ref).fetchone()
    now_us = _now_us()
    before = None if found is None or is_over(found[-1], now_us) else _cell(found)
    changed = decide(wanted, before, now_us)
    if not is_news(changed, before):
        return changed
    if found is not None:
        _remove(db, _cell(found))
    cell = changed.cell
    if cell is not None:
        until_us = None if wanted.ttl_us is None else now_us + wanted.ttl_us
        columns = (*cell.ref, cell.value, json.dumps(cell.groups), cell.rev, cell.operation, until_us)
        db.execute("INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?)", columns)
        db.executemany("INSERT INTO cell_groups VALUES (?, ?, ?, ?, ?)", _listings(cell))
    return changed


def _remove(db: sqlite3.Connection, cell: Cell) -> None:
    db.execute("DELETE FROM cells WHERE (kind, thread, key) = (?, ?, ?)", cell.ref)
    db.executemany("DELETE FROM cell_groups WHERE (kind, name, rev, thread, key) = (?, ?, ?, ?, ?)", _listings(cell))


def _listings(cell: Cell) -> list[tuple[str, str, int, str, str]]:
    kind, thread, key = cell.ref
    return [(kind, name, cell.rev, thread, key) for name in _names(cell.groups)]


def read(db: sqlite3.Connection, query: CellQuery) -> CellPage:
    """Return the cells that a query asks for."""
    now_us = _now_us()
    if query.refs is None:
        name = "" if query.group is None else f"={query.group}"
        found = db.execute(_LISTED, (query.kind, name, *(query.before or _NEWEST), now_us, query.limit)).fetchall()
    else:
        one = f"SELECT {_COLUMNS} FROM cells c WHERE {_ADDRESS}"
        found = [columns for ref in query.refs for columns in db.execute(one, ref)]
    return CellPage([_cell(columns) for columns in found if not is_over(columns[-1], now_us)], now_us)


def sweep(db: sqlite3.Connection) -> bool:
    """Remove some cells that have expired; say whether there may be more."""
    over = f"SELECT {_COLUMNS} FROM cells c WHERE c.until_us <= ? LIMIT {_PART}"
    found = db.execute(over, (_now_us(),)).fetchall()
    for columns in found:
        _remove(db, _cell(columns))
    return len(found) == _PART
