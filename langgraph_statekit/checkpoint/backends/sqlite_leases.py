"""Leases in the SQLite file; this host's clock is the server's."""

from __future__ import annotations

import sqlite3
import time

from langgraph_statekit.checkpoint.claims import Claim, Held, decide


def held(db: sqlite3.Connection, thread: str) -> Held | None:
    """Return the lease of a thread."""
    found = db.execute("SELECT holder, owner, token, until_us FROM leases WHERE thread = ?", (thread,)).fetchone()
    return None if found is None else Held(*found)


def claim(db: sqlite3.Connection, wanted: Claim) -> Held | None:
    """Decide a claim and return the lease after it."""
    before = held(db, wanted.thread)
    granted = decide(wanted, before, time.time_ns() // 1000)
    if granted is None:
        return before
    db.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)", (wanted.thread, *granted))
    return granted


def drop(db: sqlite3.Connection, thread: str) -> None:
    """Forget the lease of a thread."""
    db.execute("DELETE FROM leases WHERE thread = ?", (thread,))
