"""What an auditor reads in PostgreSQL: metadata by key, times and sizes of checkpoints, without the values themselves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from psycopg.conninfo import make_conninfo

from langgraph_statekit import Encryption, Misuse, PostgresSaver, TieredSaver, migrate_threads, open_saver
from langgraph_statekit.checkpoint.audit import audit_text
from langgraph_statekit.checkpoint.order import clock_us
from tests.faces import checkpoint, config
from tests.stores.pg import query
from tests.versions.states import First, Second
from tests.versions.states import chain as versioned

Audit = Callable[..., list[Any]]
KEYS = ("source", "step", "user", "odd")
SECRET = Encryption({"k": b"k" * 32}, "k")


@pytest.fixture
def saver(url: str, schema: str) -> Iterator[PostgresSaver]:
    with PostgresSaver.from_url(url, schema=schema, audit_keys=KEYS) as made:
        yield made


@pytest.fixture
def audit(url: str, schema: str) -> Audit:
    return lambda text, *args: query(url, text.replace("audit", f'"{schema}".audit'), *args)


def put(saver: Any, thread: str, values: Any = None, at: Any = None, **metadata: Any) -> Any:
    made = checkpoint(values or {}, id=str(uuid6()))
    made["channel_versions"] = {name: str(uuid4()) for name in values or {}}
    return saver.put(at or config(thread), made, {"source": "loop", "step": 1, **metadata}, made["channel_versions"])


def test_only_chosen_keys_are_readable_and_found_by_an_index(
    saver: PostgresSaver, audit: Audit, url: str, schema: str
) -> None:
    for number in range(300):
        put(saver, "t", user=f"u{number % 100}", private="hunter2", step=number)
    found = audit(
        "SELECT thread_id, source, step, metadata FROM audit WHERE metadata @> %s ORDER BY seq", '{"user": "u7"}'
    )
    assert found == [("t", "loop", n, {"source": "loop", "step": n, "user": "u7"}) for n in (7, 107, 207)]
    stored = json.dumps(query(url, f'SELECT metadata FROM "{schema}".rows'))
    assert "hunter2" not in stored
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f'ANALYZE "{schema}".rows'.encode())
        db.execute("SET enable_seqscan = off")
        plan = db.execute(f"""EXPLAIN SELECT * FROM "{schema}".audit WHERE metadata @> '{{"user": "u7"}}'""".encode())
        assert "rows_metadata" in str(plan.fetchall())


class Mood(Enum):
    GOOD = "good"


@pytest.mark.parametrize(
    "options",
    [{"hooks": [lambda event: None]}, {"encryption": SECRET}, {"hooks": [lambda event: None], "encryption": SECRET}],
)
def test_hooks_and_encryption_take_nothing_from_what_is_readable(
    url: str, schema: str, audit: Audit, options: dict[str, Any]
) -> None:
    with PostgresSaver.from_url(url, schema=schema, audit_keys=KEYS, **options) as saver:
        put(saver, "t", user="ann")
    assert audit("SELECT thread_id, metadata ->> 'user' FROM audit") == [("t", "ann")]


ODD: dict[str, tuple[Any, Any]] = {
    "nul": ("a\0b", "a\\u0000b"),
    "nan": (float("nan"), "nan"),
    "infinity": ([-float("inf"), 1.5], ["-inf", 1.5]),
    "big": (2**64 - 1, 2**64 - 1),
    "uuid": (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "time": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    "enum": (Mood.GOOD, {"$class": f"{__name__}.Mood", "value": "good"}),
    "bytes": (b"ab", "base64:YWI="),
    "nested": ({"a\0": {"password": "x", "b": [None, True]}}, {"a\\u0000": {"password": "***", "b": [None, True]}}),
    "tuple": ((1, (2,)), [1, [2]]),
    "none": (None, None),
}


def test_a_tiered_saver_over_it_stores_what_is_readable_and_brings_it_back(
    url: str, schema: str, audit: Audit, tmp_path: Path
) -> None:
    options = {"schema": schema, "audit_keys": KEYS, "mode": "archive"}
    with open_saver(url, cold=f"file://{tmp_path}", **options) as saver:
        assert isinstance(saver, TieredSaver)
        put(saver, "t", user="ann")
        assert audit("SELECT thread_id, metadata ->> 'user' FROM audit") == [("t", "ann")]
        saver.flush()
        assert saver.archive("t")
        assert audit("SELECT 1 FROM audit") == []
        assert saver.restore(["t"]) == ["t"]
        assert audit("SELECT thread_id, metadata ->> 'user' FROM audit") == [("t", "ann")]


@pytest.mark.parametrize("name", ODD)
def test_values_that_json_lacks_are_shown_and_come_back_as_they_were(
    saver: PostgresSaver, audit: Audit, name: str, url: str, schema: str
) -> None:
    value, shown = ODD[name]
    at = put(saver, "t", odd=value)
    assert audit("SELECT metadata -> 'odd' FROM audit") == [(shown,)]
    found = saver.get_tuple(at)
    assert found is not None
    with PostgresSaver.from_url(url, schema=schema) as silent:
        want = silent.get_tuple(put(silent, "silent", odd=value))
    assert want is not None
    assert repr(found.metadata["odd"]) == repr(want.metadata["odd"])  # type: ignore[typeddict-item]


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


class Hostile:
    def __iter__(self) -> Any:
        raise RuntimeError("no")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a\0\ud800\\u0💥") | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a\0\udfff", max_size=2), inner, max_size=3),
    max_leaves=9,
)


@pytest.fixture(scope="module")
def db(servers: Any) -> Iterator[Any]:
    with psycopg.connect(servers.url("postgres"), autocommit=True) as made:
        yield made


def stored(db: Any, value: Any) -> None:
    text = audit_text(["odd", "absent"], {"odd": value, "other": 1})
    assert set(json.loads(text)) == {"odd"}
    assert db.execute("SELECT %s::text::jsonb ? 'odd'", [text]).fetchone() == (True,)


@given(VALUES)
@example("💥\ud83d")
@example("\ud83d\udca5")
@example(1e308)
def test_no_metadata_makes_a_save_fail(db: Any, value: Any) -> None:
    stored(db, value)


@pytest.mark.parametrize("make", [lambda: 10**5000, lambda: 10**4000, lambda: nested(100_000), Hostile])
def test_no_monster_in_metadata_makes_a_save_fail(db: Any, make: Callable[[], Any]) -> None:
    stored(db, make())


def test_times_and_sizes_are_those_of_what_came_with_the_checkpoint(
    saver: PostgresSaver, audit: Audit, schema: str, url: str
) -> None:
    first = put(saver, "t", {"a": "x" * 10, "b": [1]})
    saver.put_writes(first, [("a", "y"), ("b", 2)], "task")
    last = saver.get_tuple(first)
    assert last is not None
    newer = {
        **last.checkpoint,
        "id": str(uuid6()),
        "channel_values": {**last.checkpoint["channel_values"], "b": [1, 2]},
    }
    newer["channel_versions"] = {**newer["channel_versions"], "b": "new"}
    saver.put(first, newer, {"source": "loop"}, {"b": "new"})
    saver.label(first, "hidden from the view")
    put(saver, "t", at=config("t", ns="sub"))
    rows = audit("SELECT checkpoint_id, parent_id, checkpoint_ns, created_at, frames, writes FROM audit ORDER BY seq")
    one, two = (
        each["configurable"]["checkpoint_id"] for each in (first, {"configurable": {"checkpoint_id": newer["id"]}})
    )
    assert [row[:3] for row in rows[:2]] == [(one, None, ""), (two, one, "")]
    assert rows[2][1:3] == (None, "sub")
    assert [row[4:] for row in rows] == [(2, 2), (1, 0), (0, 0)]
    assert [int(row[3].timestamp() * 1e6 + 0.5) for row in rows] == [clock_us(row[0]) for row in rows]
    [(total,)] = audit("SELECT sum(size_bytes) FROM audit")
    [threads] = audit("SELECT thread_id, checkpoints, runs, first_at, last_at, size_bytes FROM audit_threads")
    assert threads[:5] == ("t", 3, 0, rows[0][3], rows[2][3])
    [(label,)] = query(url, f'SELECT octet_length(body) FROM "{schema}".rows WHERE hidden')
    assert threads[5] == total + label == saver.backend.usage("t").size_bytes
    saver.put(config("other"), {**empty_checkpoint(), "id": "no time"}, {}, {})
    assert audit("SELECT created_at FROM audit WHERE thread_id = 'other'") == [(None,)]


def test_readable_metadata_is_copied_replaced_and_removed_with_its_checkpoint(
    saver: PostgresSaver, audit: Audit, url: str, schema: str
) -> None:
    at = put(saver, "t", user="ann")
    saver.copy_thread("t", "copy")
    saver.put(config("t"), {**empty_checkpoint(), "id": at["configurable"]["checkpoint_id"]}, {"user": "bob"}, {})  # type: ignore[typeddict-unknown-key]
    assert audit("SELECT thread_id, metadata ->> 'user' FROM audit ORDER BY 1") == [("copy", "ann"), ("t", "bob")]
    with PostgresSaver.from_url(url, schema=schema) as silent:
        put(silent, "t", user="eve")
        saver.prune(["t"])
    assert audit("SELECT metadata FROM audit WHERE thread_id = 't'") == [(None,)], "nothing is said without the option"
    saver.delete_thread("t")
    assert audit("SELECT thread_id FROM audit") == [("copy",)]


def test_a_migration_of_the_state_keeps_what_is_readable(
    saver: PostgresSaver, audit: Audit, url: str, schema: str
) -> None:
    versioned(First, "euros").compile(checkpointer=saver).invoke(
        {"euros": 1}, {**config("t"), "metadata": {"user": "ann"}}
    )
    before = audit("SELECT checkpoint_id, metadata FROM audit ORDER BY seq")
    assert {row[1]["user"] for row in before} == {"ann"}
    with PostgresSaver.from_url(url, schema=schema) as silent:
        for step in ("migrate", "revert", "migrate", "commit"):
            assert migrate_threads(silent.with_state(Second), step=step).threads == 1  # type: ignore[arg-type]
            assert audit("SELECT checkpoint_id, metadata FROM audit ORDER BY seq") == before


def test_an_auditor_reads_the_views_and_nothing_else(saver: PostgresSaver, url: str, schema: str) -> None:
    put(saver, "t", {"a": "secret"}, user="ann")
    role = f"auditor_{schema}"
    query(url, f'CREATE ROLE "{role}" LOGIN')
    try:
        query(url, f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"')
        query(url, f'GRANT SELECT ON "{schema}".audit, "{schema}".audit_threads TO "{role}"')
        auditor = make_conninfo(url, user=role)
        assert query(auditor, f'SELECT thread_id, frames, size_bytes > 0 FROM "{schema}".audit') == [("t", 1, True)]
        assert query(auditor, f'SELECT checkpoints FROM "{schema}".audit_threads') == [(1,)]
        for table in ("rows", "frames", "writes", "threads"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                query(auditor, f'SELECT * FROM "{schema}".{table}')
    finally:
        query(url, f'DROP OWNED BY "{role}"')
        query(url, f'DROP ROLE "{role}"')


def test_filters_of_list_mean_the_same_as_without_readable_metadata(saver: PostgresSaver) -> None:
    values = [1, 1.0, True, "1", None, {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, [1], [1, 2], "a\\u0000b"]
    reference = InMemorySaver()
    for value in values:
        for each in (saver, reference):
            put(each, "t", odd=value)
    for value in values:
        want = [item.metadata for item in reference.list(None, filter={"odd": value})]
        assert [item.metadata for item in saver.list(None, filter={"odd": value})] == want


@pytest.mark.parametrize("bad", ["user", 5, [1], None])
def test_audit_keys_are_a_sequence_of_keys(bad: Any) -> None:
    with pytest.raises(Misuse, match="audit_keys must be a sequence of metadata keys"):
        PostgresSaver.from_url("postgresql://h/db", audit_keys=bad)


def test_audit_keys_may_stand_in_the_url(url: str, schema: str, audit: Audit) -> None:
    with PostgresSaver.from_url(f"{url}{'&' if '?' in url else '?'}audit_keys=user,source", schema=schema) as saver:
        put(saver, "t", user="ann", odd=1)
    assert audit("SELECT metadata FROM audit") == [({"user": "ann", "source": "loop"},)]


def test_threads_that_expired_are_out_of_an_auditors_sight_too(url: str, schema: str, audit: Audit) -> None:
    with PostgresSaver.from_url(url, schema=schema, ttl_s=100) as saver:
        for thread in ("gone", "young"):
            put(saver, thread)
        query(url, f'UPDATE "{schema}".threads SET until_us = until_us - 101000000 WHERE thread_id = %s', "gone")
        for view in ("audit", "audit_threads"):
            assert audit(f"SELECT thread_id FROM {view}") == [("young",)]
