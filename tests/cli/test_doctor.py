"""What doctor finds: what the store promises, who may use it, and what is damaged or left over."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from langgraph_statekit import open_saver
from langgraph_statekit.checkpoint.backends import postgres_facts
from langgraph_statekit.checkpoint.codec import frame_key
from tests.cli.kit import Run, Told, address, chain, fill, named
from tests.faces import checkpoint, config, metadata
from tests.graphs.builders import DeltaLog, nested
from tests.graphs.builders import chain as builder
from tests.servers import Servers
from tests.stores.redis_nodes import ask, node, redis_binary
from tests.stores_table import DURABLE
from tests.stores_under_test import Store


def facts(told: Told) -> dict[str, tuple[str, str]]:
    return {each["name"]: (each["value"], each["verdict"]) for each in told.json["facts"]}


def test_a_healthy_store_is_read_whole_and_left_as_it_was(durable_store: Store, durable_name: str, run: Run) -> None:
    with durable_store.open() as saver:
        fill(saver)
        builder(DeltaLog, "a", "b").compile(checkpointer=saver).invoke({"log": ["x"]}, named("delta"))
        for _ in range(3):
            chain("a", "b", saver=saver).invoke({"log": ["x"]}, named("at exit"), durability="exit")
            nested().compile(checkpointer=saver).invoke({"log": ["x"]}, named("at exit too"), durability="exit")
        saver.label(named("done"), "best")
        saver.prune(["done"])
    before = sorted(durable_store.raw_dump().split(b"\n"))
    told = run("doctor", "--all", "--json", "--url", address(durable_store))
    assert told.json["checked"]["problems"] == []
    assert told.json["checked"]["threads"] == told.json["threads"] == 7
    assert told.json["checked"]["checkpoints"] > 10
    assert told.json["checked"]["frames"] > 10
    assert facts(told)["save and read"][1] == "ok"
    assert {each["verdict"] for each in told.json["facts"]} <= {"ok", "note"}
    assert told.code == 0, told.json
    assert "nothing is wrong" in run("doctor", "--url", address(durable_store)).out
    if durable_name in ("sqlite", "file", "s3"):
        assert sorted(durable_store.raw_dump().split(b"\n")) == before


def damage(store: Store, marker: bytes) -> None:
    """Change a byte in the middle of every stored value that holds the marker."""

    def spoiled(data: bytes) -> bytes:
        at = data.index(marker) + len(marker) // 2
        return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]

    if store.url.startswith("sqlite"):
        with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as db:
            for row, data in db.execute("SELECT rowid, data FROM frames").fetchall():
                if marker in data:
                    db.execute("UPDATE frames SET data = ? WHERE rowid = ?", (spoiled(data), row))
            db.commit()
    elif store.url.startswith("redis"):
        import redis

        with redis.Redis.from_url(store.url) as client:
            for key in client.scan_iter(f"{store.options['prefix']}:*:d:*"):
                for name, data in client.hgetall(key).items():
                    if marker in data:
                        client.hset(key, name, spoiled(data))
    elif store.url.startswith("postgres"):
        import psycopg

        with psycopg.connect(store.url, autocommit=True) as db:
            table = f'"{store.options["schema"]}".frames'
            for key, data in db.execute(f"SELECT key, data FROM {table}").fetchall():
                if marker in data:
                    db.execute(f"UPDATE {table} SET data = %s WHERE key = %s AND data = %s", (spoiled(data), key, data))
    else:
        for path in Path(store.url.removeprefix("file://")).rglob("*"):
            if path.is_file() and marker in path.read_bytes():
                path.write_bytes(spoiled(path.read_bytes()))


def remove(store: Store, channel: str) -> None:
    """Remove the stored value of a channel of thread `bad` from the store's own table or key."""
    key = frame_key("", channel, 1)
    if store.url.startswith("sqlite"):
        with closing(sqlite3.connect(store.url.removeprefix("sqlite:///"))) as db, db:
            bad = "SELECT tid FROM threads WHERE thread = 'bad'"
            assert db.execute(f"DELETE FROM frames WHERE key = ? AND tid = ({bad})", (key,)).rowcount == 1
    elif store.url.startswith("redis"):
        import redis

        with redis.Redis.from_url(store.url) as client:
            for name in client.scan_iter(f"{store.options['prefix']}:*:[dh]:*"):
                if client.hexists(name, frame_key("", "marker", 1)):
                    assert client.hdel(name, key) == 1
    else:
        import psycopg

        with psycopg.connect(store.url, autocommit=True) as db:
            table = f'"{store.options["schema"]}".frames'
            assert db.execute(f"DELETE FROM {table} WHERE key = %s AND thread_id = 'bad'", (key,)).rowcount == 1


@pytest.mark.parametrize("name", ["sqlite", "redis", "postgres"])
def test_a_value_that_is_gone_is_found_and_named(new_store: Callable[[str], Store], name: str, run: Run) -> None:
    store = new_store(name)
    with store.open() as saver:
        for thread, other in (("good", "chan"), ("bad", "marker")):
            saver.put(config(thread), checkpoint({"chan": 1, other: 1}), metadata(), {"chan": 1, other: 1})
    remove(store, "chan")
    told = run("doctor", "--json", "--url", address(store))
    assert (told.code, told.json["healthy"]) == (1, False)
    [problem] = told.json["checked"]["problems"]
    assert (problem["thread"], problem["problem"]) == ("bad", "the value of channel chan is gone")
    told = run("show", "bad", "--url", address(store))
    assert (told.code, told.out) == (1, "")
    assert "'chan'" in told.err
    listed = run("ls", "--url", address(store), "--json")
    assert {each["thread"]: each["status"] for each in listed.json} == {"good": "finished", "bad": "damaged"}


@pytest.mark.without("encryption")  # which leaves no byte of the value to be found
@pytest.mark.parametrize("name", [name for name in DURABLE if name != "s3"])
def test_a_damaged_value_is_found_and_named(new_store: Callable[[str], Store], name: str, run: Run) -> None:
    store = new_store(name)
    marker = random.randbytes(40)
    with store.open() as saver:
        for thread, value in (("good", b"x"), ("bad", marker)):
            saver.put(config(thread), checkpoint({"chan": value, "other": 1}), metadata(), {"chan": 1, "other": 1})
    assert run("doctor", "--url", address(store)).code == 0
    damage(store, marker)
    told = run("doctor", "--json", "--url", address(store))
    assert (told.code, told.json["healthy"]) == (1, False)
    problem, *others = told.json["checked"]["problems"]
    assert not others
    assert problem["thread"] == "bad"
    assert "chan" in problem["where"] or name == "file"
    assert "checksum" in problem["problem"]
    told = run("show", "bad", "--url", address(store))
    assert (told.code, told.out) == (1, "")
    assert "checksum" in told.err
    assert run("doctor", "good", "--url", address(store)).code == 0
    listed = run("ls", "--url", address(store), "--json")
    status = {each["thread"]: each["status"] for each in listed.json}
    assert (listed.code, status["bad"]) == ((1, "damaged") if name == "file" else (0, "finished"))
    assert status["good"] == "finished"


def test_writes_without_a_checkpoint_are_told(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        at = saver.put(config(), checkpoint({"x": 1}), metadata(), {"x": 1})
        saver.put_writes(config(id="1f000000-0000-6000-8000-000000000000"), [("x", 1)], "task")
        saver.put_writes(at, [("x", 1)], "task")
    told = run("doctor", "--json", "--url", address(durable_store))
    assert (told.code, told.json["checked"]["orphans"]) == (0, 1)


def redis_facts(tmp_path: Path, run: Run, *options: str | int, user: str = "") -> Told:
    server = node(tmp_path, redis_binary(), *options)
    server.start()
    try:
        if user:
            ask(server, "ACL", "SETUSER", "app", "on", ">pw", "~*", *user.split())
        return run("doctor", "--json", "--url", server.url.replace("://", "://app:pw@" if user else "://"))
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("options", "expected", "code"),
    [
        (("--appendonly", "yes", "--appendfsync", "always"), {"appendfsync": ("always", "ok")}, 0),
        (("--appendonly", "yes", "--appendfsync", "everysec"), {"appendfsync": ("everysec", "note")}, 0),
        (("--appendonly", "yes", "--appendfsync", "no"), {"appendfsync": ("no", "bad")}, 1),
        (("--save", ""), {"appendonly": ("no", "bad"), "maxmemory-policy": ("noeviction", "ok")}, 1),
        (
            ("--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"),
            {"maxmemory-policy": ("allkeys-lru", "bad")},
            1,
        ),
        (
            ("--appendonly", "yes", "--maxmemory-policy", "volatile-ttl"),
            {"maxmemory-policy": ("volatile-ttl", "note")},
            0,
        ),
    ],
)
def test_redis_tells_what_it_promises(
    tmp_path: Path, run: Run, options: tuple[str, ...], expected: dict[str, Any], code: int
) -> None:
    told = redis_facts(tmp_path, run, *options)
    assert facts(told).items() >= expected.items()
    assert told.code == code, told.json


@pytest.mark.parametrize(
    ("rights", "hidden"),
    [
        ("+@all -config", {"appendfsync"}),
        ("+@all -@admin -@dangerous", {"appendfsync", "maxmemory_policy", "role"}),
    ],
)
def test_what_redis_does_not_tell_is_unknown(tmp_path: Path, run: Run, rights: str, hidden: set[str]) -> None:
    told = redis_facts(tmp_path, run, "--appendonly", "yes", user=rights)
    assert told.code == 0, told
    assert hidden <= {name for name, (value, verdict) in facts(told).items() if (value, verdict) == ("unknown", "note")}
    assert facts(told)["save and read"][1] == "ok"
    assert "app" not in told.json["store"]
    assert "pw" not in told.out


def test_a_redis_that_may_only_be_read_is_told(tmp_path: Path, run: Run) -> None:
    told = redis_facts(tmp_path, run, "--appendonly", "yes", user="+@read +@connection +evalsha +eval")
    assert told.code == 1
    assert facts(told)["save and read"] == ("refused", "bad")


@pytest.mark.parametrize(
    ("settings", "expected", "code"),
    [
        ("", {"synchronous_commit": ("on", "ok"), "replicas": ("0", "note")}, 0),
        ("-c synchronous_commit=off", {"synchronous_commit": ("off", "bad")}, 1),
        ("-c synchronous_commit=local", {"synchronous_commit": ("local", "ok")}, 0),
        ("-c default_transaction_read_only=on", {"default_transaction_read_only": ("on", "bad")}, 1),
    ],
)
def test_postgres_tells_what_it_promises(
    new_store: Callable[[str], Store], run: Run, settings: str, expected: dict[str, Any], code: int
) -> None:
    store = new_store("postgres")
    with store.open() as saver:
        saver.put(config(), checkpoint({"x": 1}), metadata(), {"x": 1})
    url = f"{address(store)}&retry_s=0{f'&options={quote(settings)}' if settings else ''}"
    told = run("doctor", "--json", "--url", url)
    assert facts(told).items() >= expected.items()
    assert told.code == code, told.json


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"recovery": "true"}, {"role": "bad"}),
        ({"fsync": "off", "full_page_writes": "off"}, {"fsync": "bad", "full_page_writes": "note"}),
        ({"synchronous_commit": "remote_apply", "synchronous_standby_names": "*"}, {"synchronous_commit": "ok"}),
        ({"replicas": "2"}, {"replicas": "note", "synchronous_commit": "note"}),
        ({"unlogged": "1", "write": "false"}, {"unlogged tables": "bad", "permissions": "bad"}),
    ],
)
def test_what_postgres_tells_is_judged(told: dict[str, str], expected: dict[str, str]) -> None:
    found = {fact.name: fact.verdict for fact in postgres_facts.facts(told, 1, 1)}
    assert found.items() >= expected.items()


def test_a_postgres_role_without_rights_is_told(servers: Servers, new_store: Callable[[str], Store], run: Run) -> None:
    import psycopg

    store = new_store("postgres")
    role = store.options["schema"]
    with store.open() as saver:
        saver.put(config(), checkpoint({"x": 1}), metadata(), {"x": 1})
    with psycopg.connect(store.url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")
        try:
            db.execute(f"GRANT USAGE ON SCHEMA {role} TO {role}")
            db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {role} TO {role}")
            url = address(store).replace("//" + store.url.split("//")[1].split("@")[0], f"//{role}")
            told = run("doctor", "--json", "--url", url)
            assert told.code == 1
            assert facts(told)["permissions"][1] == facts(told)["save and read"][1] == "bad"
            assert [each["thread"] for each in run("ls", "--json", "--url", url).json] == ["t"]
            assert run("show", "t", "--url", url).code == 0
        finally:
            db.execute(f"DROP OWNED BY {role}")
            db.execute(f"DROP ROLE {role}")


def test_a_file_that_is_no_database_is_told(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "agent.db"
    path.write_bytes(random.randbytes(5000))
    told = run("doctor", "--no-write", "--url", f"sqlite:///{path}")
    assert told.code == 1
    assert run("ls", "--url", f"sqlite:///{path}").code == 1


def test_a_file_of_a_later_release_is_told(tmp_path: Path, run: Run) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    with open_saver(url) as saver:
        saver.put(config(), checkpoint({"x": 1}), metadata(), {"x": 1})
    with closing(sqlite3.connect(tmp_path / "agent.db")) as db:
        db.execute("PRAGMA user_version = 99")
    told = run("doctor", "--json", "--url", url)
    assert told.code == 1
    assert facts(told)["format"] == ("99", "bad")
