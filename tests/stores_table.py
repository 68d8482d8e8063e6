"""The table of stores, by the names that `--stores` takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from .stores_under_test import (
    AzureStore,
    FileStore,
    GoogleStore,
    MemoryStore,
    PostgresStore,
    RedisStore,
    S3Store,
    SqliteStore,
    Store,
)
from .tiered_under_test import HOT, MODES, TieredStore

Make = Callable[[Callable[[str], str], Path], Store]


def _tiered() -> dict[str, Make]:
    """Return `tiered` and `evicting`, and each with a hot store other than SQLite, and with another mode."""
    return {
        "-".join((kind, *(hot,) * (hot != "sqlite"), *(mode,) * (mode != "behind"))): partial(
            TieredStore, hot=hot, mode=mode, evicts=kind == "evicting"
        )
        for kind in ("tiered", "evicting")
        for hot in HOT
        for mode in MODES
    }


STORES: dict[str, Make] = {
    "memory": MemoryStore,
    "sqlite": SqliteStore,
    "redis": RedisStore,
    "postgres": PostgresStore,
    "file": FileStore,
    "s3": S3Store,
    "tiered": TieredStore,
}

ON_REQUEST: dict[str, Make] = {"az": AzureStore, "gs": GoogleStore, **_tiered()}
"""Stores that are tested when `--stores` names them; what concerns object stores only is tested wherever they are."""
del ON_REQUEST["tiered"]

DURABLE = ("sqlite", "redis", "postgres", "file", "s3", "tiered")
"""Stores that outlive the process."""

SERVED = ("redis", "postgres", "s3")
"""Stores behind a server."""
