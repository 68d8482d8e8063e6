"""The least that a store takes for the bytes of a workload: one raw, durable request for each call of a saver.

What LangGraph hands to the saver is recorded first, serialized as its own savers do; then as many random bytes are
sent with the store's client and nothing else. A floor is measured in sync and async mode like the savers.
"""

from __future__ import annotations

import asyncio  # noqa: TID251
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from langgraph.checkpoint.memory import InMemorySaver

from benchmarks.bench import Numbers
from benchmarks.savers import Saver

CONNECTIONS = 16


class Recorder(InMemorySaver):
    """Keeps the size of what each call would store."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        values = checkpoint["channel_values"]
        row = {**checkpoint, "channel_values": {}}
        self._record(row, metadata, *(values[name] for name in new_versions if name in values))
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self._record(*(value for _, value in writes))
        super().put_writes(config, writes, task_id, task_path)

    def _record(self, *values: Any) -> None:
        self.sizes.append(sum(len(self.serde.dumps_typed(value)[1]) for value in values))


def recording(recorder: Recorder) -> Saver:
    """Return the recorder as a saver that a workload can open."""

    @contextmanager
    def open_sync(url: str) -> Iterator[Recorder]:
        yield recorder

    return Saver("recorder", "", "", open_sync, open_sync, group="base")  # type: ignore[arg-type]


def replay(kind: str, url: str, sizes: Sequence[int], mode: str, tasks: int) -> Numbers:
    """Send as many requests of these sizes as there are, by `tasks` at the same time, and return what they took."""
    if mode == "async" and kind in ("redis", "postgres"):
        return asyncio.run(_ASYNC[kind](url, sizes, tasks))
    with _SYNC[kind](url) as send:
        send("warm", b"x")
        datas = [os.urandom(size) for size in sizes]
        started = perf_counter()
        if tasks == 1:
            for index, data in enumerate(datas):
                send(f"{index}", data)
        else:
            with ThreadPoolExecutor(tasks) as pool:
                list(pool.map(send, map(str, count()), datas))
        return _numbers(sizes, perf_counter() - started)


def _numbers(sizes: Sequence[int], wall_s: float) -> Numbers:
    return {
        "wall_s": wall_s,
        "calls": len(sizes),
        "calls_per_s": len(sizes) / wall_s,
        "sent_bytes": sum(sizes),
    }


_TABLE = "CREATE TABLE floor (key text PRIMARY KEY, data {type})"
_INSERT = "INSERT INTO floor VALUES (%s, %b)"


@contextmanager
def _redis(url: str) -> Iterator[Callable[[str, bytes], Any]]:
    import redis

    pool = redis.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS)
    with redis.Redis(connection_pool=pool) as client:

        def send(key: str, data: bytes) -> None:
            client.pipeline(transaction=False).set(key, data).execute()

        yield send
    pool.disconnect()


async def _redis_async(url: str, sizes: Sequence[int], tasks: int) -> Numbers:
    import redis.asyncio

    pool = redis.asyncio.BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS)
    async with redis.asyncio.Redis(connection_pool=pool) as client:

        async def send(key: str, data: bytes) -> None:
            pipe = client.pipeline(transaction=False)
            pipe.set(key, data)
            await pipe.execute()

        numbers = await _gathered(send, sizes, tasks)
    await pool.disconnect()
    return numbers


@contextmanager
def _postgres(url: str) -> Iterator[Callable[[str, bytes], Any]]:
    from psycopg_pool import ConnectionPool

    settings = {"autocommit": True, "prepare_threshold": 0}
    with ConnectionPool(url, min_size=1, max_size=CONNECTIONS, kwargs=settings, open=True) as pool:
        with pool.connection() as db:
            db.execute(_TABLE.format(type="bytea"))
            db.execute("ALTER TABLE floor ALTER data SET STORAGE EXTERNAL")

        def send(key: str, data: bytes) -> None:
            with pool.connection() as db:
                db.execute(_INSERT, (key, data))

        yield send


async def _postgres_async(url: str, sizes: Sequence[int], tasks: int) -> Numbers:
    from psycopg_pool import AsyncConnectionPool

    settings = {"autocommit": True, "prepare_threshold": 0}
    async with AsyncConnectionPool(url, min_size=1, max_size=CONNECTIONS, kwargs=settings, open=False) as pool:
        async with pool.connection() as db:
            await db.execute(_TABLE.format(type="bytea"))
            await db.execute("ALTER TABLE floor ALTER data SET STORAGE EXTERNAL")

        async def send(key: str, data: bytes) -> None:
            async with pool.connection() as db:
                await db.execute(_INSERT, (key, data))

        return await _gathered(send, sizes, tasks)


async def _gathered(send: Callable[[str, bytes], Any], sizes: Sequence[int], tasks: int) -> Numbers:
    datas = iter([(str(index), os.urandom(size)) for index, size in enumerate(sizes)])
    await send("warm", b"x")

    async def work() -> None:
        for key, data in datas:
            await send(key, data)

    started = perf_counter()
    await asyncio.gather(*(work() for _ in range(tasks)))
    return _numbers(sizes, perf_counter() - started)


@contextmanager
def _sqlite(url: str) -> Iterator[Callable[[str, bytes], Any]]:
    lock = threading.Lock()
    db = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(_TABLE.format(type="blob"))

    def send(key: str, data: bytes) -> None:
        with lock:
            db.execute("INSERT INTO floor VALUES (?, ?)", (key, data))

    yield send
    db.close()


@contextmanager
def _s3(url: str) -> Iterator[Callable[[str, bytes], Any]]:
    from obstore.store import S3Store

    parts = urlsplit(url)
    options: Any = dict(parse_qsl(parts.query))
    store = S3Store(parts.netloc, prefix=parts.path.strip("/"), **options, client_options={"allow_http": True})
    yield store.put


_SYNC: dict[str, Callable[[str], Any]] = {"redis": _redis, "postgres": _postgres, "sqlite": _sqlite, "s3": _s3}
_ASYNC: dict[str, Callable[[str, Sequence[int], int], Any]] = {
    "redis": _redis_async,
    "postgres": _postgres_async,
}
