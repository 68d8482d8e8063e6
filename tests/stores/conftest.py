"""Fixtures that several files share: a Redis server of a file's own, a schema in Postgres, each with a saver or
store, and a place in each object store.

Files about other stores have fixtures of their own under some of these names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import redis

from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend
from langgraph_statekit.checkpoint.backends.redis import RedisSaver
from tests.servers import Server, Servers
from tests.stores.objects_kit import bucket_driver
from tests.stores.pg import backend, query
from tests.stores.redis_nodes import node, port_of, redis_binary, started
from tests.stores.redis_threads import count_trips


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = node(tmp_path_factory.mktemp("redis"), redis_binary(), "--appendonly", "yes", "--appendfsync", "no")
    with started(made):
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=port_of(server)) as made:
        made.flushall()
        yield made


@pytest.fixture
def saver(server: Server, client: redis.Redis) -> Iterator[RedisSaver]:
    with RedisSaver.from_url(server.url) as made:
        yield made


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    return count_trips(monkeypatch)


@pytest.fixture
def url(servers: Servers) -> str:
    return servers.url("postgres")


@pytest.fixture
def schema(url: str) -> Iterator[str]:
    name = f"test_{uuid4().hex}"
    yield name
    query(url, f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.fixture
def store(url: str, schema: str) -> Iterator[PostgresBackend]:
    with backend(url, schema) as made:
        yield made


@pytest.fixture(params=["file", "s3", "az", "gs"])
def place(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> tuple[Driver, str]:
    """Return a driver and a prefix that is not used yet."""
    if request.param == "file":
        return FileDriver(tmp_path), "p"
    return bucket_driver(servers, request.param), os.urandom(6).hex()
