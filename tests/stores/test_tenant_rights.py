"""Tenants behind users of the server: a user who has the rights of one tenant gets at no other, whatever the code asks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
from langgraph.checkpoint.base import empty_checkpoint
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from langgraph_statekit import Misuse, PostgresSaver, RedisSaver, StatekitSaver
from tests.servers import Server
from tests.stores.pg import query
from tests.stores.redis_nodes import port_of

AT: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


def use(saver: StatekitSaver) -> None:
    """Call what a run and its upkeep call."""
    at = saver.put(AT, empty_checkpoint(), {"run_id": "r"}, {})  # type: ignore[typeddict-unknown-key]
    saver.put_writes(at, [("a", 1)], "task")
    with saver.lease("t") as lease:
        saver.put(lease.config, empty_checkpoint(), {}, {})
    saver.label(AT, "kept")
    assert len(list(saver.list(None))) == 2
    saver.copy_thread("t", "copy")
    saver.prune(["copy"])
    saver.delete_for_runs(["r"])
    saver.delete_thread("copy")
    assert len(list(saver.list(None))) == 1


@pytest.fixture
def role(url: str, schema: str) -> Iterator[str]:
    name = f"acme_{uuid4().hex}"
    query(url, f'CREATE ROLE "{name}" LOGIN')
    yield name
    query(url, f'DROP OWNED BY "{name}" CASCADE')
    query(url, f'DROP ROLE "{name}"')
    query(url, f'DROP SCHEMA IF EXISTS "{schema}@globex" CASCADE')


def test_a_postgres_role_that_owns_the_schema_of_one_tenant_gets_at_no_other(url: str, schema: str, role: str) -> None:
    query(url, f'CREATE SCHEMA "{schema}@acme" AUTHORIZATION "{role}"')
    with PostgresSaver.from_url(url, schema=schema, tenant="globex") as theirs:
        use(theirs)
        limited = make_conninfo(url, user=role)
        with PostgresSaver.from_url(limited, schema=schema, tenant="acme") as saver:
            use(saver)
        for tenant in ("globex", None, "new"):
            other = PostgresSaver.from_url(limited, schema=schema, tenant=tenant)
            for call in (lambda o=other: o.get_tuple(AT), lambda o=other: list(o.list(None)), other.setup):
                with pytest.raises(Misuse, match="lacks a right"):
                    call()  # type: ignore[operator]
            other.close()
        assert len(list(theirs.list(None))) == 1


def test_tenants_share_a_pool(url: str, schema: str) -> None:
    with ConnectionPool(url, min_size=1, max_size=1, kwargs={"autocommit": True}) as pool:
        savers = [PostgresSaver(pool, schema=schema, tenant=tenant) for tenant in ("acme", "globex")]
        for saver in savers:
            use(saver)
        savers[0].delete_thread("t")
        assert [len(list(saver.list(None))) for saver in savers] == [0, 1]
        for saver in savers:
            saver.close()
    for tenant in ("acme", "globex"):
        query(url, f'DROP SCHEMA "{schema}@{tenant}" CASCADE')


def test_a_redis_user_of_one_tenant_gets_at_no_other(server: Server, client: redis.Redis) -> None:
    client.acl_setuser(
        "acme",
        enabled=True,
        reset=True,
        passwords=["+pw"],
        keys=["statekit@acme:*"],
        categories=["+@all", "-@admin", "-@dangerous"],
        commands=["-scan", "-randomkey"],
    )
    url = f"redis://acme:pw@127.0.0.1:{port_of(server)}/0"
    with RedisSaver(client, tenant="acme2") as theirs:
        use(theirs)
        with RedisSaver.from_url(url, tenant="acme") as saver:
            use(saver)
        with redis.Redis.from_url(url) as plain:
            for command in ("SCAN 0", "RANDOMKEY", "KEYS *", "FLUSHDB"):
                with pytest.raises(redis.exceptions.NoPermissionError):
                    plain.execute_command(*command.split())
        for tenant in ("acme2", "Acme", "acme:", None):
            with RedisSaver.from_url(url, tenant=tenant) as other:
                for call in (lambda o=other: o.get_tuple(AT), lambda o=other: list(o.list(None))):
                    with pytest.raises(Misuse, match="Redis refused the user"):
                        call()
                with pytest.raises(Misuse, match="Redis refused the user"):
                    other.delete_thread("t")
        assert len(list(theirs.list(None))) == 1
