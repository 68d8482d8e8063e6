"""Leases in a SQLite file: many that wait hold up nobody who works."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from langgraph_statekit.checkpoint.backends.sqlite import SqliteBackend
from langgraph_statekit.checkpoint.claims import Claim


def _claim(store: SqliteBackend, holder: str) -> str:
    (held,) = store.claim([Claim("thread", holder, f"owner of {holder}", 60_000_000)])
    assert held is not None
    return held.holder


def test_a_claim_that_gets_nothing_takes_no_write_lock(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with closing(SqliteBackend(path, lock_wait_s=0.01)) as store:
        store.setup()
        assert _claim(store, "first") == "first"
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert _claim(store, "second") == "first"
