"""What a SQLite file tells of itself; nothing here makes or changes one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from langgraph_statekit.checkpoint.backends.local_facts import local_facts
from langgraph_statekit.checkpoint.backends.sqlite_connections import explained
from langgraph_statekit.checkpoint.facts import BAD, NOTE, Fact, Usage, format_fact

_SIZE: Final = """
SELECT (SELECT coalesce(sum(length(body) + length(keys) + length(deltas)), 0) FROM rows WHERE tid = ?1)
    + (SELECT coalesce(sum(length(data)), 0) FROM frames WHERE tid = ?1)
    + (SELECT coalesce(sum(length(data)), 0) FROM writes WHERE tid = ?1),
    (SELECT count(*) FROM (SELECT DISTINCT ns, id FROM writes w WHERE tid = ?1
        AND NOT EXISTS (SELECT 1 FROM rows r WHERE (r.tid, r.ns, r.id) = (w.tid, w.ns, w.id))))
"""


def usage(db: sqlite3.Connection, thread: str) -> Usage:
    """Return what a thread takes up."""
    known = db.execute("SELECT tid FROM threads WHERE thread = ?", (thread,)).fetchone()
    return Usage(0, 0) if known is None else Usage(*db.execute(_SIZE, known).fetchone())


def stored_format(path: Path) -> int | None:
    """Return the format of a file; None if there is none, or nothing of ours in it.

    Raises:
        sqlite3.Error: It is no SQLite file, or cannot be read.
    """
    if not os.path.exists(path):
        return None
    with closing(_opened(path)) as db:
        ours = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'frames'").fetchone()
        version = int(db.execute("PRAGMA user_version").fetchone()[0])
        return version if ours and version else None


def exists(path: Path) -> bool:
    """Say whether there is a file with our tables.

    Raises:
        StatekitError: The file cannot be read.
    """
    try:
        return stored_format(path) is not None
    except sqlite3.Error as error:
        raise explained(path, error) from error


def facts(path: Path, newest: int) -> Iterator[Fact]:
    """Yield the facts of a file."""
    yield Fact("SQLite", sqlite3.sqlite_version)
    yield from local_facts(path)
    try:
        yield format_fact(stored_format(path), newest)
        if os.path.exists(path):
            with closing(_opened(path)) as db:
                mode = str(db.execute("PRAGMA journal_mode").fetchone()[0])
                told = "readers never wait for a writer" if mode == "wal" else "the next save turns to WAL"
                yield Fact("journal_mode", mode, "ok" if mode == "wal" else NOTE, told)
                damage = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
                if damage == "ok":
                    yield Fact("quick_check", "ok")
                else:
                    yield Fact("quick_check", damage, BAD, "the file is damaged: restore it from a copy")
    except sqlite3.Error as error:
        yield Fact("file", f"{type(error).__name__}: {error}", BAD, "the file cannot be read as SQLite")
        return
    yield Fact(
        "synchronous", "FULL", meaning="this package sets it: an acknowledged save survives a crash and loss of power"
    )
    yield Fact("replicas", "none", NOTE, "one file on one disk: the loss of the disk loses it, so back it up")


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)
