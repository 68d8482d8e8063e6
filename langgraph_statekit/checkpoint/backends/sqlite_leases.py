"""Leases in the SQLite file; this host's clock is the server's."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Final

from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery, decide

_COLUMNS: Final = "holder, owner, token, until_us, about, beat_us, progress_us, control"
_ENDED: Final = {None: "", True: "AND until_us <= :now_us", False: "AND until_us > :now_us"}


def held(db: sqlite3.Connection, thread: str) -> Held | None:
    """Return the lease of a thread."""
    found = db.execute(f"SELECT {_COLUMNS} FROM leases WHERE thread = ?", (thread,)).fetchone()
    return None if found is None else Held(*found)


def is_fenced(db: sqlite3.Connection, thread: str, token: int | None) -> bool:
    """Say whether what is saved with this token comes too late, as `is_late` does, by one column in place of all."""
    if token is None:
        return False
    found = db.execute("SELECT token FROM leases WHERE thread = ?", (thread,)).fetchone()
    return found is None or found[0] != token


def claim(db: sqlite3.Connection, wanted: Claim) -> Held | None:
    """Decide a claim and return the lease after it."""
    before = held(db, wanted.thread)
    granted = decide(wanted, before, time.time_ns() // 1000)
    if granted is None:
        return before
    db.execute(
        f"INSERT OR REPLACE INTO leases (thread, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (wanted.thread, *granted),
    )
    return granted


def refused(db: sqlite3.Connection, claims: Sequence[Claim]) -> list[Held | None] | None:
    """Return the leases of threads if none of the claims gets anything, so that nothing is to be written."""
    now_us = time.time_ns() // 1000
    before = [held(db, wanted.thread) for wanted in claims]
    got = (decide(wanted, lease, now_us) for wanted, lease in zip(claims, before, strict=True))
    return before if all(lease is None for lease in got) else None


def listed(db: sqlite3.Connection, query: LeaseQuery) -> LeasePage:
    """Return a page of leases, by their ends."""
    now_us = time.time_ns() // 1000
    until_us, _, thread = query.after.partition(":")
    found = db.execute(
        f"SELECT thread, {_COLUMNS} FROM leases"
        f" WHERE until_us > 0 AND (until_us, thread) > (:until_us, :thread) {_ENDED[query.ended]}"
        " ORDER BY until_us, thread LIMIT :limit",
        {"now_us": now_us, "until_us": int(until_us or 0), "thread": thread, "limit": query.limit},
    )
    leases = [(name, Held(*columns)) for name, *columns in found]
    return LeasePage(leases, now_us, after(leases) if len(leases) == query.limit else "")


def after(leases: list[tuple[str, Held]]) -> str:
    """Return where the page after these leases begins."""
    thread, last = leases[-1]
    return f"{last.until_us}:{thread}"


def drop(db: sqlite3.Connection, thread: str) -> None:
    """Forget the lease of a thread."""
    db.execute("DELETE FROM leases WHERE thread = ?", (thread,))
