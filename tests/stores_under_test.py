"""Stores: how each is opened, looked into, cut off, lost and cleaned up.

Every object is one fresh, empty store; each `open` gives a new saver on it, as a new process would have. This module
and those that tell more of stores import nothing by the name `tests`, because LangGraph's own suite loads them beside
its own `tests` package.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from langgraph_statekit import Encryption, FailureRate, Retention
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.objects.layout import decode_head, encode_head
from langgraph_statekit.checkpoint.opening import open_saver
from langgraph_statekit.checkpoint.saver import StatekitSaver


def unique() -> str:
    """Return a name nobody has used; not from `uuid`, which LangGraph's suite replaces."""
    return f"t{os.urandom(8).hex()}"


FEATURES = "STATEKIT_TEST_FEATURES"
"""Names the features of `pytest --all-features` to the processes that a test starts."""


def all_features() -> dict[str, Any]:
    """Return options that turn on what a saver can do beside saving, without a change of what a test sees."""
    return {
        "encryption": Encryption({"tests": b"k" * 32}, "tests"),
        "ttl_s": 24 * 3600,
        "retention": Retention(keep_last=1_000),
        "max_pending": 64,
        "hooks": [FailureRate()],
    }


DEFAULTS = {name: value for name, value in all_features().items() if name in os.environ.get(FEATURES, "").split(",")}
"""Options of each saver that a test does not give; `pytest --all-features` sets some."""


def open_here(url: str, options: dict[str, Any]) -> StatekitSaver:
    """Return a new saver as the store of a test opens it, for another process of the test."""
    return open_saver(url, **{**DEFAULTS, **options})


class Store:
    """One fresh store: what `open_saver` takes, and what lies behind it. By default one without connections."""

    url: str
    options: dict[str, Any]
    leaves_nothing = True
    """Whether a deleted thread leaves not even a tombstone without content."""

    def open(self, **options: Any) -> StatekitSaver:
        """Return a new saver on this store."""
        return open_saver(self.url, **{**self.options, **DEFAULTS, **options})

    def raw_dump(self) -> bytes:
        """Return everything the store holds, as the store holds it."""
        raise NotImplementedError

    def break_connections(self) -> None:
        """Cut every open connection to the store's database."""

    def advance(self, seconds: float) -> None:
        """Let time pass for threads, leases and (but in object stores) cells, by what is stored of their ends."""
        raise NotImplementedError

    def backup(self) -> Callable[[], None]:
        """Copy all that it holds, and return what puts the copy back."""
        raise NotImplementedError

    def lose(self) -> None:
        """Lose all that it holds, as with its disk or by one command of its server."""
        raise NotImplementedError

    def clean(self) -> None:
        """Remove what does not go with its directory."""


class MemoryStore(Store):
    def __init__(self, url: Callable[[str], str], directory: Path) -> None:
        self._backend = MemoryBackend()

    def open(self, **options: Any) -> StatekitSaver:
        return StatekitSaver(self._backend, **{**DEFAULTS, **options})

    def raw_dump(self) -> bytes:
        return b"\n".join(_flat([self._backend._threads, self._backend._cells]))

    def advance(self, seconds: float) -> None:
        for thread in self._backend._threads.values():
            if thread.until_us is not None:
                thread.until_us -= int(seconds * 1e6)
        for name, lease in self._backend._leases.items():
            if lease.until_us:
                self._backend._leases[name] = lease._replace(until_us=lease.until_us - int(seconds * 1e6))
        for ref, (cell, until_us) in self._backend._cells.items():
            self._backend._cells[ref] = cell, until_us and until_us - int(seconds * 1e6)


class SqliteStore(Store):
    def __init__(self, url: Callable[[str], str], directory: Path) -> None:
        self._path = directory / f"{unique()}.db"
        self.url, self.options = f"sqlite:///{self._path}", {}

    def raw_dump(self) -> bytes:
        if not self._path.exists():
            return b""
        with closing(sqlite3.connect(self._path)) as db:
            tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
            return b"\n".join(_flat([list(db.execute(f'SELECT * FROM "{name}"')) for name in tables]))

    def advance(self, seconds: float) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=30)) as db:
            for table in ("threads", "leases", "cells"):
                db.execute(f"UPDATE {table} SET until_us = until_us - ? WHERE until_us > 0", [int(seconds * 1e6)])

    def backup(self) -> Callable[[], None]:
        copy = sqlite3.connect(":memory:")
        with closing(sqlite3.connect(self._path)) as db:
            db.backup(copy)

        def put_back() -> None:
            with closing(sqlite3.connect(self._path, timeout=30)) as db:
                copy.backup(db)
            copy.close()

        return put_back

    def lose(self) -> None:
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink()


class RedisStore(Store):
    def __init__(self, url: Callable[[str], str], directory: Path) -> None:
        self.url, self.options = url("redis"), {"prefix": unique()}
        self._keys = f"{self.options['prefix']}*"

    def raw_dump(self) -> bytes:
        reads = {"string": "GET", "hash": "HGETALL", "set": "SMEMBERS", "zset": "ZRANGE", "list": "LRANGE"}
        with self._client() as client:
            keys = sorted(client.scan_iter(self._keys, 1000))
            kinds = [kind.decode() for kind in self._ask(client, [("TYPE", key) for key in keys])]
            there = [(key, kind) for key, kind in zip(keys, kinds, strict=True) if kind in reads]  # and not gone since
            found = self._ask(
                client, [(reads[kind], key, *((0, -1) if kind in ("zset", "list") else ())) for key, kind in there]
            )
            # A hash that is being made larger tells its fields in another order each time.
            told = [dict(sorted(held.items())) if isinstance(held, dict) else held for held in found]
            return b"\n".join(_flat([[key, held] for (key, _), held in zip(there, told, strict=True)]))

    def break_connections(self) -> None:
        with self._client() as client:
            own = client.client_info()
            for each in client.client_list():
                if each["db"] == str(own["db"]) and each["id"] != str(own["id"]):
                    client.client_kill_filter(_id=each["id"])

    def advance(self, seconds: float) -> None:
        ms = int(seconds * 1000)
        with self._client() as client:
            keys = [key for key in client.scan_iter(self._keys, 1000) if key.split(b":")[2] != b"y"]
            for key in keys:
                part = key.split(b":")[2]
                for unit in {b"i": [1], b"j": [1000]}.get(part, []):
                    for name, end in client.zrange(key, 0, -1, withscores=True):
                        client.zadd(key, {name: max(end - ms * unit, 1) if end else 0})
                for name, unit in {b"m": [("u", 1)], b"l": [("until", 1000)]}.get(part, []):
                    if int(end := client.hget(key, name) or 0):
                        client.hset(key, name, int(end) - ms * unit)
                if (end := client.pexpiretime(key)) > 0:
                    client.pexpireat(key, end - ms)

    def backup(self) -> Callable[[], None]:
        with self._client() as client:
            copy = {key: client.dump(key) for key in client.scan_iter(self._keys, 1000)}

        def put_back() -> None:
            self.clean()
            with self._client() as client:
                self._ask(client, [("RESTORE", key, 0, data) for key, data in copy.items() if data is not None])

        return put_back

    def lose(self) -> None:
        all_at_once = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end"
        with self._client() as client:
            client.eval(all_at_once, 0, self._keys)  # as others save meanwhile

    def clean(self) -> None:
        with self._client() as client:
            self._ask(client, [("DEL", key) for key in client.scan_iter(self._keys, 1000)])

    @staticmethod
    def _ask(client: Any, commands: list[Any]) -> list[Any]:
        with client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            answers: list[Any] = pipe.execute()
            return answers

    def _client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url)


class PostgresStore(Store):
    def __init__(self, url: Callable[[str], str], directory: Path) -> None:
        self.url, self.options = url("postgres"), {"schema": unique()}
        self._schema = self.options["schema"]

    def raw_dump(self) -> bytes:
        with self._connect() as db:
            tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", [self._schema])
            rows = [db.execute(f'SELECT * FROM "{self._schema}"."{name}"').fetchall() for (name,) in tables.fetchall()]
            return b"\n".join(_flat(rows))

    def break_connections(self) -> None:
        with self._connect() as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    def advance(self, seconds: float) -> None:
        with self._connect() as db:
            for table in ("threads", "leases", "cells"):
                earlier = "SET until_us = until_us - %s WHERE until_us > 0"
                db.execute(f'UPDATE "{self._schema}".{table} {earlier}', [int(seconds * 1e6)])

    def backup(self) -> Callable[[], None]:
        named = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'migrations'"
        with self._connect() as db:
            tables = [name for (name,) in db.execute(named, [self._schema]).fetchall()]
            db.execute(f'CREATE SCHEMA "{self._schema}@backup"')
            for name in tables:
                db.execute(f'CREATE TABLE "{self._schema}@backup"."{name}" AS TABLE "{self._schema}"."{name}"')

        def put_back() -> None:
            with self._connect() as db, db.transaction():
                db.execute("SET LOCAL session_replication_role = replica")  # so that no trigger runs
                db.execute("TRUNCATE " + ", ".join(f'"{self._schema}"."{name}"' for name in tables))
                for name in tables:
                    db.execute(
                        f'INSERT INTO "{self._schema}"."{name}" OVERRIDING SYSTEM VALUE'
                        f' SELECT * FROM "{self._schema}@backup"."{name}"'
                    )

        return put_back

    def lose(self) -> None:
        import psycopg

        with self._connect() as db:
            named = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'migrations'"
            tables = [f'"{self._schema}"."{name}"' for (name,) in db.execute(named, [self._schema]).fetchall()]
            while tables:
                with suppress(psycopg.errors.DeadlockDetected):  # somebody saves meanwhile
                    db.execute(f"TRUNCATE {', '.join(tables)}")
                    break

    def clean(self) -> None:
        with self._connect() as db:
            named = "SELECT nspname FROM pg_namespace WHERE nspname = %s OR starts_with(nspname, %s)"
            for (name,) in db.execute(named, [self._schema, f"{self._schema}@"]).fetchall():  # and those of tenants
                db.execute(f'DROP SCHEMA "{name}" CASCADE')

    def _connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)


class FileStore(Store):
    def __init__(self, url: Callable[[str], str], directory: Path) -> None:
        self._directory = directory / unique()
        self.url, self.options = f"file://{self._directory}", {}

    def raw_dump(self) -> bytes:
        paths = sorted(path for path in self._directory.rglob("*") if path.is_file())
        return b"\n".join(_flat([[str(path.relative_to(self._directory)), path.read_bytes()] for path in paths]))

    def advance(self, seconds: float) -> None:
        for path in self._directory.rglob("head"):
            path.write_bytes(_older(path.read_bytes(), seconds))


class BucketStore(Store):
    kind: str

    def __init__(self, url: Callable[[str], str], directory: Path) -> None:
        given = urlsplit(url(self.kind))
        self._settings = dict(parse_qsl(given.query))
        self._bucket, self._prefix = given.netloc, f"{given.path}/{unique()}".lstrip("/")
        self.url, self.options = f"{self.kind}://{self._bucket}/{self._prefix}?{given.query}", {}

    def raw_dump(self) -> bytes:
        store = self._client()
        return b"\n".join(_flat([[path, bytes(store.get(path).bytes())] for path in self._paths(store)]))

    def advance(self, seconds: float) -> None:
        store = self._client()
        for path in self._paths(store):
            if path.endswith("/head"):
                store.put(path, _older(bytes(store.get(path).bytes()), seconds))

    def clean(self) -> None:
        store = self._client()
        if paths := self._paths(store):
            store.delete(paths)

    def _paths(self, store: Any) -> list[str]:
        return sorted(item["path"] for page in store.list(f"{self._prefix}/") for item in page)

    def _client(self) -> Any:
        from obstore.store import from_url

        settings = {
            ("base_url" if (self.kind, name) == ("gs", "endpoint") else name): v for name, v in self._settings.items()
        }
        return from_url(f"{self.kind}://{self._bucket}", **settings, client_options={"allow_http": True})


class S3Store(BucketStore):
    kind = "s3"

    def __init__(self, url: Callable[[str], str], directory: Path) -> None:
        super().__init__(url, directory)
        self.url, self.options = self.url.partition("?")[0], self._settings


class AzureStore(BucketStore):
    kind = "az"


class GoogleStore(BucketStore):
    kind = "gs"


def _older(data: bytes, seconds: float) -> bytes:
    """Return the head of an object store's thread as it would be so much later."""
    head, us = decode_head(data), int(seconds * 1e6)
    lease = head.lease and head.lease._replace(until_us=head.lease.until_us and head.lease.until_us - us)
    return encode_head(replace(head, until_us=head.until_us and head.until_us - us, lease=lease))


def _flat(value: Any) -> Iterator[bytes]:
    """Yield every leaf of nested data as bytes."""
    if isinstance(value, bytes | bytearray | memoryview):
        yield bytes(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(key)
            yield from _flat(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _flat(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _flat(getattr(value, each.name))
    else:
        yield str(value).encode()
