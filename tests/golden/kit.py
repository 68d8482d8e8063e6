"""Stores as files, and back: by what each store offers to everybody, so that the files outlive its releases."""

from __future__ import annotations

import json
import shutil
import sqlite3
from base64 import b64decode, b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

from langgraph_statekit.checkpoint.backends import postgres_schema
from tests.stores_under_test import FileStore, PostgresStore, RedisStore, S3Store, SqliteStore, Store
from tests.tiered_under_test import TieredStore

GOLDEN = Path(__file__).parent
TABLES = ("threads", "rows", "frames", "writes")
KINDS = {"sqlite": "sqlite", "redis": "redis", "postgres": "postgres", "file": "file", "s3": "file", "tiered": "sqlite"}
"""The golden folder of each store; all object stores have the same objects."""
ENCRYPTED = "encrypted"
"""That of an encrypted store in SQLite; what is sealed is the same in each."""


def dump(store: Store, folder: Path) -> None:
    """Write a store to a folder."""
    folder.mkdir(parents=True)
    match store:
        case SqliteStore():
            with closing(sqlite3.connect(store._path)) as db:
                db.execute("VACUUM INTO ?", (str(folder / "store.sqlite"),))
        case RedisStore():
            (folder / "commands.json").write_text(json.dumps(_commands(store), indent=0) + "\n")
        case PostgresStore():
            with store._connect() as db:
                for name in TABLES:
                    with db.cursor().copy(f'COPY "{store._schema}"."{name}" TO STDOUT') as copy:
                        rows = b"".join(copy)
                    (folder / f"{name}.copy").write_bytes(b"".join(sorted(rows.splitlines(keepends=True))))
        case FileStore():
            shutil.copytree(store._directory, folder, dirs_exist_ok=True)
        case _:
            raise AssertionError(store)


def load(store: Store, folder: Path, version: int) -> None:
    """Put what a folder has into an empty store, as the release with this format left it."""
    match store:
        case TieredStore():  # a store that becomes the hot one of two
            load(store._hot, folder, version)
        case SqliteStore():
            shutil.copyfile(folder / "store.sqlite", store._path)
        case RedisStore():
            own = store.options["prefix"].encode()
            with store._client() as client:
                for name, key, *rest in json.loads((folder / "commands.json").read_text()):
                    client.execute_command(name, b64decode(key).replace(b"golden", own, 1), *map(b64decode, rest))
        case PostgresStore():
            _create(store, version)
            with store._connect() as db:
                for name in TABLES:
                    with db.cursor().copy(f'COPY "{store._schema}"."{name}" FROM STDIN') as copy:
                        copy.write((folder / f"{name}.copy").read_bytes())
        case FileStore():
            shutil.copytree(folder, store._directory)
        case S3Store():
            client = store._client()
            for path in folder.rglob("*"):
                if path.is_file():
                    client.put(f"{store._prefix}/{path.relative_to(folder)}", path.read_bytes())
        case _:
            raise AssertionError(store)


def _commands(store: RedisStore) -> list[list[str]]:
    """Return the commands that make the keys of a store, its arguments in base64."""
    found: list[list[Any]] = []
    with store._client() as client:
        for key in sorted(client.scan_iter(store._keys, 1000)):
            match client.type(key).decode():
                case "string":
                    found.append(["SET", key, client.get(key)])
                case "hash":
                    found.append(
                        ["HSET", key, *(part for pair in sorted(client.hgetall(key).items()) for part in pair)]
                    )
                case "zset":
                    pairs = client.zrange(key, 0, -1, withscores=True)
                    found.append(
                        ["ZADD", key, *(part for name, score in pairs for part in (repr(score).encode(), name))]
                    )
                case "set":
                    found.append(["SADD", key, *sorted(client.smembers(key))])
                case "list":
                    found.append(["RPUSH", key, *client.lrange(key, 0, -1)])
                case kind:
                    raise AssertionError(kind)
    own = store.options["prefix"].encode()
    return [
        [name, *(b64encode(part).decode() for part in (key.replace(own, b"golden", 1), *rest))]
        for name, key, *rest in found
    ]


def _create(store: PostgresStore, version: int) -> None:
    """Make the tables as the release with this format made them."""
    from psycopg import sql

    scripts = {number: script for number, script in postgres_schema.migrations().items() if number <= version}
    with store._connect() as db:
        db.execute(f'CREATE SCHEMA "{store._schema}"')
        db.execute(f'CREATE TABLE "{store._schema}".migrations (version integer PRIMARY KEY, applied_at timestamptz)')
        for number, script in sorted(scripts.items()):
            db.execute(sql.SQL(script).format(schema=sql.Identifier(store._schema)))
            db.execute(f'INSERT INTO "{store._schema}".migrations VALUES (%s, now())', [number])
