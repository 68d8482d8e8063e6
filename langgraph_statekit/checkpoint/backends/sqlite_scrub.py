"""Overwrites what was deleted from a SQLite file, where it still stands in free pages and in the log beside it."""

from __future__ import annotations

from typing import Final

from langgraph_statekit.checkpoint.backends.sqlite_connections import Connections

_MOST_BLOB_BYTES: Final = 64 << 20


def scrubbed(connections: Connections) -> bool:
    """Overwrite all free pages, and cut the log off; False if somebody reads from the log: call it again.

    It costs as much as there is free in the file, and not as `VACUUM` as much as there is in use.
    """
    with connections.writing() as db:
        page_bytes: int = db.execute("PRAGMA page_size").fetchone()[0]
        db.execute("CREATE TABLE statekit_scrub (zeros BLOB)")
        while free := db.execute("PRAGMA freelist_count").fetchone()[0]:  # a blob takes them before the file grows
            db.execute("INSERT INTO statekit_scrub VALUES (zeroblob(?))", [min(free * page_bytes, _MOST_BLOB_BYTES)])
        db.execute("DROP TABLE statekit_scrub")
    return connections.cut_log()
