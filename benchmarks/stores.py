"""Where savers store: a private server of each kind, a fresh store in it for each run, and what the store holds.

A benchmark shares its servers with nobody. They are found as those of the tests are (installed, else wheels), listen on
127.0.0.1 only and end with the benchmark.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from benchmarks.bench import Numbers
from benchmarks.peers import stack_server
from benchmarks.proxy import counting
from tests.servers import postgres_server, redis_server, s3_server


class Store(Protocol):
    """One fresh store."""

    url: str

    def stored(self) -> Numbers:
        """Return the bytes that it takes, and the objects where the store counts them."""

    def own_copy_s(self) -> float | None:
        """Return the seconds in which the store itself copies everything once; None if it cannot."""


class NoStore:
    url = ""

    def stored(self) -> Numbers:
        return {}

    def own_copy_s(self) -> float | None:
        return None


class SqliteStore:
    def __init__(self, directory: str) -> None:
        self._path = Path(directory) / "bench.db"
        self.url = f"sqlite:///{self._path}"

    def stored(self) -> Numbers:
        with closing(sqlite3.connect(self._path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            files = [Path(f"{self._path}{suffix}") for suffix in ("", "-wal")]
            return {"stored_bytes": sum(file.stat().st_size for file in files if file.exists())}

    def own_copy_s(self) -> float | None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            tables = db.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            ).fetchall()
            for name, sql in tables:
                quoted = rf"(?<=TABLE )(IF NOT EXISTS )?[\"'`\[]?{name}[\"'`\]]?"
                db.execute(re.sub(quoted, f'"copy {name}"', sql, count=1))
            started = perf_counter()
            db.execute("BEGIN IMMEDIATE")
            for name, _ in tables:
                db.execute(f'INSERT INTO "copy {name}" SELECT * FROM "{name}"')
            db.execute("COMMIT")
            taken_s = perf_counter() - started
            for name, _ in tables:
                db.execute(f'DROP TABLE "copy {name}"')
            return taken_s


class RedisStore:
    def __init__(self, url: str, client: Any) -> None:
        self.url, self._client = url, client

    def stored(self) -> Numbers:
        keys = list(self._client.scan_iter(count=1000))
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.execute_command("MEMORY", "USAGE", key, "SAMPLES", 0)
        return {"stored_bytes": sum(filter(None, pipe.execute())), "objects": len(keys)}

    def own_copy_s(self) -> float | None:
        keys = list(self._client.scan_iter(count=1000))
        pipe = self._client.pipeline(transaction=False)
        for key in keys:
            pipe.execute_command("COPY", key, b"copy:" + key)
        started = perf_counter()
        pipe.execute()
        taken_s = perf_counter() - started
        self._client.delete(*(b"copy:" + key for key in keys))
        return taken_s


class PostgresStore:
    def __init__(self, url: str) -> None:
        self.url = url

    def stored(self) -> Numbers:
        with self._connect() as db:
            (size_bytes,) = db.execute(
                "SELECT coalesce(sum(pg_total_relation_size(relid)), 0)::bigint FROM pg_stat_user_tables"
            ).fetchone()
            return {"stored_bytes": size_bytes}

    def own_copy_s(self) -> float | None:
        with self._connect() as db:
            tables = [
                f'"{schema}"."{name}"'
                for schema, name in db.execute("SELECT schemaname, relname FROM pg_stat_user_tables").fetchall()
            ]
            for index, table in enumerate(tables):
                db.execute(f"CREATE TABLE public.copy_{index} (LIKE {table} INCLUDING ALL)")
            started = perf_counter()
            with db.transaction():
                for index, table in enumerate(tables):
                    db.execute(f"INSERT INTO public.copy_{index} OVERRIDING SYSTEM VALUE SELECT * FROM {table}")
            taken_s = perf_counter() - started
            for index, _ in enumerate(tables):
                db.execute(f"DROP TABLE public.copy_{index}")
            return taken_s

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)


class S3Store:
    def __init__(self, url: str, client: Any) -> None:
        self.url, self._client = url, client

    def _objects(self) -> list[Any]:
        return [item for page in self._client.list() for item in page]

    def stored(self) -> Numbers:
        objects = self._objects()
        return {"stored_bytes": sum(item["size"] for item in objects), "objects": len(objects)}

    def own_copy_s(self) -> float | None:
        paths = [item["path"] for item in self._objects()]
        started = perf_counter()
        for path in paths:
            self._client.copy(path, f"copy/{path}")
        taken_s = perf_counter() - started
        self.clean("copy/")
        return taken_s

    def clean(self, start: str = "") -> None:
        paths = [item["path"] for item in self._objects() if item["path"].startswith(start)]
        for first in range(0, len(paths), 500):
            self._client.delete(paths[first : first + 500])


class Stores:
    """The servers of one benchmark, each started when it is first needed; `close` ends them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._servers: dict[str, str] = {}
        self.settings: dict[str, str] = {}

    def close(self) -> None:
        """Stop the servers."""
        self._stack.close()

    @contextmanager
    def fresh(self, kind: str) -> Iterator[Store]:
        """Yield an empty store, which is removed afterwards."""
        with _FRESH[kind](self._server(kind) if kind in _SERVERS else "") as store:
            yield store

    def _server(self, kind: str) -> str:
        if kind not in self._servers:
            url: str = self._stack.enter_context(_SERVERS[kind]()).url
            self._servers[kind] = url
            self.settings[kind] = _SETTINGS[kind](url)
        return self._servers[kind]


@contextmanager
def proxied(store: Store) -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield a URL that leads to the store through a counting proxy, and the count."""
    parts = urlsplit(store.url)
    options = dict(parse_qsl(parts.query))
    endpoint = urlsplit(options.get("endpoint", store.url))
    assert endpoint.hostname == "127.0.0.1"
    assert endpoint.port
    with counting(endpoint.port) as counter:
        direct = re.compile(rf"127\.0\.0\.1(:|%3A){endpoint.port}\b")  # encoded where it stands in a query
        yield direct.sub(rf"127.0.0.1\g<1>{counter.port}", store.url), lambda: counter.trips


@contextmanager
def _no_store(server: str) -> Iterator[Store]:
    yield NoStore()


@contextmanager
def _fresh_sqlite(server: str) -> Iterator[Store]:
    with tempfile.TemporaryDirectory(prefix="statekit-bench-") as directory:
        yield SqliteStore(directory)


@contextmanager
def _fresh_redis(server: str) -> Iterator[Store]:
    import redis

    with redis.Redis.from_url(server) as client:
        client.flushall()
        yield RedisStore(server, client)
        client.flushall()


@contextmanager
def _fresh_postgres(server: str) -> Iterator[Store]:
    import psycopg

    name = f"b{os.urandom(6).hex()}"
    with psycopg.connect(server, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        try:
            yield PostgresStore(urlunsplit(urlsplit(server)._replace(path=f"/{name}")))
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _fresh_s3(server: str) -> Iterator[Store]:
    from obstore.store import S3Store as Client

    parts = urlsplit(server)
    prefix = f"b{os.urandom(6).hex()}"
    options: Any = dict(parse_qsl(parts.query))
    client = Client(parts.netloc, prefix=prefix, **options, client_options={"allow_http": True})
    store = S3Store(urlunsplit(parts._replace(path=f"/{prefix}")), client)
    yield store
    store.clean()


@contextmanager
def _redis_without_files() -> Iterator[Any]:
    """A Redis that keeps nothing on disk, as most are run and as other savers are measured."""
    import redis

    with redis_server() as server:
        with redis.Redis.from_url(server.url) as client:
            client.config_set("appendonly", "no")
        yield server


def _redis_settings(url: str) -> str:
    import redis

    with redis.Redis.from_url(url) as client:
        return f"{client.info('server')['redis_version']}, appendonly {client.config_get('appendonly')['appendonly']}"


def _postgres_settings(url: str) -> str:
    import psycopg

    shown = []
    with psycopg.connect(url) as db:
        for name in ("server_version", "fsync", "synchronous_commit"):
            shown += [f"{name} {value}" for (value,) in db.execute(f"SHOW {name}")]
    return ", ".join(shown)


_FRESH: dict[str, Callable[[str], AbstractContextManager[Store]]] = {
    "": _no_store,
    "sqlite": _fresh_sqlite,
    "redis": _fresh_redis,
    "redis-stack": _fresh_redis,
    "postgres": _fresh_postgres,
    "s3": _fresh_s3,
}
_SERVERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "redis": _redis_without_files,
    "redis-stack": stack_server,
    "postgres": postgres_server,
    "s3": s3_server,
}
_SETTINGS: dict[str, Callable[[str], str]] = {
    "redis": _redis_settings,
    "redis-stack": _redis_settings,
    "postgres": _postgres_settings,
    "s3": lambda url: "SeaweedFS",
}
