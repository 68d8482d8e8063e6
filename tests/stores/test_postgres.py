"""PostgreSQL: round trips, atomicity under concurrency, ids, setup, and the same answers as the reference store."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from psycopg.conninfo import make_conninfo

from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend, PostgresSaver
from langgraph_statekit.checkpoint.backends.postgres_schema import _WARMED, migrations, statement
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX
from langgraph_statekit.checkpoint.records import (
    HEAD_BYTES,
    Change,
    Frame,
    Query,
    Ref,
    Row,
    SaveRow,
    Write,
    to_text,
)
from langgraph_statekit.errors import DataError, Misuse, SchemaTooNew
from tests.servers import wait_until
from tests.stores.pg import backend, counting_proxy, frames, numbered, query, together, write
from tests.stores.verbs import frame, key, row, save, save_one, save_writes

TABLES = ("threads", "rows", "frames", "writes")


def put(saver: PostgresSaver, thread: Any, number: int) -> None:
    checkpoint = empty_checkpoint()
    checkpoint["id"] = f"{number:06}"
    checkpoint["channel_versions"] = {"a": f"{number:032}.1", "b": f"{number:032}.1"}
    checkpoint["channel_values"] = {"a": f"value {number}", "b": [number]}
    parent = {"checkpoint_id": f"{number - 1:06}"} if number else {}
    saver.put(
        {"configurable": {"thread_id": thread, "checkpoint_ns": "", **parent}},
        checkpoint,
        {"step": number, "run_id": f"run {number}"},
        checkpoint["channel_versions"],
    )


@pytest.mark.parametrize("length", [10, 500])
def test_round_trips_do_not_grow_with_the_thread(url: str, schema: str, length: int) -> None:
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    exact: Any = {"configurable": {**at["configurable"], "checkpoint_id": "000005"}}
    with counting_proxy(url) as (proxied, trips), PostgresSaver.from_url(proxied, schema=schema) as saver:
        for number in range(length):
            put(saver, "t", number)
        assert trips.of(lambda: put(saver, "t", length)) == 1
        assert trips.of(lambda: saver.put_writes(exact, [("a", 1), ("b", 2)], "task")) == 1
        assert trips.of(lambda: saver.get_tuple(at)) == 1
        assert trips.of(lambda: saver.get_tuple(exact)) == 1
        assert trips.of(lambda: list(saver.list(at, limit=50))) <= 2
        assert trips.of(lambda: list(saver.list(at, before=exact, limit=3))) <= 2
        assert trips.of(lambda: saver.get_delta_channel_history(config=at, channels=["a", "b"])) <= 2
        assert trips.of(lambda: saver.copy_thread("t", "copy")) <= 2
        assert trips.of(lambda: saver.delete_for_runs(["run 1"])) <= 1 + 2 * 2, "a page, then two threads with the run"
        assert [len(list(saver.list({"configurable": {"thread_id": name}}))) for name in ("t", "copy")] == [length] * 2
        assert trips.of(lambda: saver.prune(["copy"])) <= 2
        assert [item.config["configurable"]["checkpoint_id"] for item in saver.list(at, limit=2)] == [
            f"{length:06}",
            f"{length - 1:06}",
        ]
        assert len(list(saver.list({"configurable": {"thread_id": "copy"}}))) == 1
        assert trips.of(lambda: saver.delete_thread("t")) == 1
        assert saver.get_tuple(at) is None


@pytest.mark.parametrize("analyzed", [False, True])
def test_a_page_of_a_long_thread_reads_that_page_and_not_the_thread(
    url: str, schema: str, store: PostgresBackend, analyzed: bool
) -> None:
    for thread in range(200):  # by these the planner guesses the length of a thread
        save(store, numbered(f"short {thread}", 0), frames(0))
    if analyzed:
        query(url, f'ANALYZE "{schema}".rows')
    columns = "'t', n %% 2, to_char(n, 'FM000000'), n, NULL, NULL, false, NULL, '', '', '', NULL"
    query(url, f"INSERT INTO \"{schema}\".threads VALUES ('t', 8000, 1)")
    query(url, f'INSERT INTO "{schema}".rows SELECT {columns} FROM generate_series(1, 8000) AS n')
    pages = {
        Query("t", limit=50): [*range(8000, 7950, -1)],
        Query("t", "1", limit=50): [*range(7999, 7900, -2)],
        Query("t", below_seq=4000, limit=50): [*range(3999, 3949, -1)],
        Query("t", "1", before="004001", limit=50): [*range(3999, 3900, -2)],
    }
    asked = f'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM "{schema}".rows_1(%s, %s, %s, %s, 50)'.encode()
    with psycopg.connect(url) as db:
        for page, seqs in pages.items():
            assert [row.seq for row in store.rows(page)] == seqs
            bounds = (page.thread, page.ns, page.before, page.below_seq)
            _, plan = (db.execute(asked, bounds).fetchall()[0][0][0]["Plan"] for _ in range(2))  # one reads the catalog
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 30, page


async def test_async_calls_make_no_more_round_trips(url: str, schema: str) -> None:
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "000009"}}
    with counting_proxy(url) as (proxied, trips):
        async with PostgresSaver.from_url(proxied, schema=schema) as saver:
            for number in range(10):
                put(saver, "t", number)
            found = await saver.aget_tuple(at)
            assert found is not None
            calls: list[Callable[[], Any]] = [
                lambda: saver.aput(at, {**found.checkpoint, "id": "000010"}, {"step": 10}, {"a": f"{9:032}.1"}),
                lambda: saver.aput_writes(at, [("a", 1), ("b", 2)], "task"),
                lambda: saver.aget_tuple(at),
                lambda: saver.aget_tuple({"configurable": {"thread_id": "t"}}),
            ]
            for call in calls:
                before = trips.count
                await call()
                assert trips.count - before == 1


def test_setup_with_nothing_to_do_is_one_round_trip(url: str, schema: str, store: PostgresBackend) -> None:
    with counting_proxy(url) as (proxied, trips), backend(proxied, schema) as other:
        assert trips.of(other.setup) == 1


def test_many_workers_may_set_up_an_empty_database_at_once(url: str, schema: str) -> None:
    def start(number: int) -> None:
        with backend(url, schema) as store:
            save(store, numbered(f"t{number}", 0), frames(0))

    together(16, start)
    assert query(url, f'SELECT count(*) FROM "{schema}".threads') == [(16,)]
    assert query(url, f'SELECT version FROM "{schema}".migrations ORDER BY 1') == [(n,) for n in sorted(migrations())]


def test_a_role_without_the_right_to_create_works_once_the_schema_exists(url: str, schema: str) -> None:
    role = f"role_{schema}"
    query(url, f'CREATE ROLE "{role}" LOGIN')
    try:
        limited = make_conninfo(url, user=role)
        with pytest.raises(Misuse, match="lacks a right"), backend(limited, schema):
            pass
        with backend(url, schema):
            query(url, f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"')
            query(url, f'GRANT ALL ON ALL TABLES IN SCHEMA "{schema}" TO "{role}"')
        with backend(limited, schema) as store:
            save(store, numbered("t", 0), frames(0))
            assert store.load("t", "", None) is not None
    finally:
        query(url, f'DROP OWNED BY "{role}"')
        query(url, f'DROP ROLE "{role}"')


def test_a_schema_of_a_later_release_is_refused(url: str, schema: str, store: PostgresBackend) -> None:
    query(url, f'INSERT INTO "{schema}".migrations VALUES (999)')
    with pytest.raises(SchemaTooNew, match="999"):
        store.setup()


def test_missing_tables_are_named_at_once(store: PostgresBackend, url: str, schema: str) -> None:
    query(url, f'DROP SCHEMA "{schema}" CASCADE')
    with pytest.raises(Misuse, match="call setup"):
        save(store, numbered("t", 0), frames(0))


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a%b", "a.b", "1a", "a" * 64, "a\0", "$$"])
def test_a_schema_name_that_would_need_care_is_refused(url: str, name: str) -> None:
    with pytest.raises(Misuse, match="schema must be"):
        PostgresSaver.from_url(url, schema=name)


def test_a_schema_name_is_quoted(url: str) -> None:
    name = f"Order-{uuid4().hex}"
    try:
        with backend(url, name) as store:
            save(store, numbered("t", 0), frames(0))
            assert store.load("t", "", None) is not None
            assert list(store.threads()) == [["t"]]
    finally:
        query(url, f'DROP SCHEMA "{name}" CASCADE')


HOSTILE = [
    *("user*1", "user%1", "user_1", "user?1", "user1", "a:b", "a", "", " ", "a ", "A", "é", "e\u0301", "💥"),
    *("a\0b", "a\\0b", "a\\u0000b", "\\", "\ud800", "x" * 300, "x" * 299, "💥" * 300, "'; DROP TABLE rows; --"),
]


def test_hostile_ids_stay_apart_and_deleting_one_leaves_its_neighbours(url: str, schema: str) -> None:
    stored = " UNION ALL ".join(f'SELECT thread_id FROM "{schema}".{table}' for table in TABLES)
    with PostgresSaver.from_url(url, schema=schema) as saver:
        for number, thread in enumerate(HOSTILE):
            put(saver, thread, number)
            at: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": f"{number:06}"}}
            saver.put_writes(at, [("a", "value")], "task")
        for number, thread in enumerate(HOSTILE):
            items = list(saver.list({"configurable": {"thread_id": thread}}))
            assert [item.checkpoint["channel_values"]["b"] for item in items] == [[number]]
            assert [item.config["configurable"]["thread_id"] for item in items] == [thread]
        for gone, thread in enumerate(HOSTILE, 1):
            saver.delete_thread(thread)
            left = Counter(name for (name,) in query(url, stored))
            assert left == {to_text(other): 5 for other in HOSTILE[gone:]}


def test_hostile_namespaces_and_checkpoint_ids_stay_apart(store: PostgresBackend) -> None:
    names = [to_text(name) for name in HOSTILE]
    for number, name in enumerate(names):
        save(store, numbered("t", 0, ns=name, body=b"%d" % number), [])
        save(store, Row(Ref("u", "", name), body=b"%d" % number), [])
    for number, name in enumerate(names):
        in_ns, by_id = store.load("t", name, None), store.load("u", "", name)
        assert in_ns is not None
        assert by_id is not None
        assert in_ns.row.body == by_id.row.body == b"%d" % number
    for bound in names:
        older = {each.ref.id for each in store.rows(Query("u", before=bound + "0"))}
        assert older == {name for name in names if name < bound + "0"}


def test_an_id_too_long_for_an_index_is_refused_at_once(store: PostgresBackend) -> None:
    long = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=9000))
    with pytest.raises(DataError, match="ProgramLimitExceeded"):
        save(store, numbered(long, 0), frames(0))
    assert list(store.threads()) == []


def test_values_are_opaque_bytes(store: PostgresBackend) -> None:
    values = [b"", b"\0", bytes(range(256)), b"\xff" * 100_000, b"\\x00", b"nan"]
    kept = [frame(key(number, 0), data) for number, data in enumerate(values)]
    save(store, numbered("t", 0, keys=tuple(each.key for each in kept), deltas=(b"\0" * 8, b"\xff" * 8)), kept)
    save_writes(store, Ref("t", "", "000000"), [write("task", number, data) for number, data in enumerate(values)])
    stored = store.load("t", "", None)
    assert stored is not None
    assert stored.frames == {each.key: each for each in kept}
    assert store.outline("t").frames == {each.key: Frame(each.key, each.stored[:HEAD_BYTES]) for each in kept}
    assert stored.row.deltas == (b"\0" * 8, b"\xff" * 8)
    assert sorted(stored.writes, key=lambda each: each.idx) == [write("task", n, data) for n, data in enumerate(values)]


def test_concurrent_saves_of_a_thread_each_get_their_own_place(store: PostgresBackend) -> None:
    together(
        8, lambda number: [save(store, numbered("t", 10 * number + n), frames(10 * number + n)) for n in range(10)]
    )
    found = store.outline("t")
    assert [each.seq for each in found.rows] == list(range(1, 81))
    assert len(found.frames) == 160


def test_the_same_checkpoint_saved_many_times_at_once_has_one_place(store: PostgresBackend) -> None:
    together(8, lambda _: save(store, numbered("t", 0), frames(0)))
    save(store, numbered("t", 1), frames(1))
    assert [each.seq for each in store.outline("t").rows] == [1, 2]


def test_concurrent_writes_on_one_checkpoint_lose_nothing(store: PostgresBackend) -> None:
    ref = Ref("t", "", "000000")

    def work(number: int) -> None:
        for n in range(10):
            save_writes(
                store, ref, [write(f"task {number}", n), write("shared", n, b"%d" % number), write("shared", -1)]
            )

    together(8, work)
    save(store, numbered("t", 0), frames(0))
    stored = store.load("t", "", None)
    assert stored is not None
    found = sorted((each.task, each.idx) for each in stored.writes)
    assert found == sorted(
        [("shared", -1), *itertools.product(["shared", *(f"task {n}" for n in range(8))], range(10))]
    )


def test_a_special_write_replaces_and_another_keeps_the_first(store: PostgresBackend) -> None:
    save(store, numbered("t", 0), [])
    ref = Ref("t", "", "000000")
    save_writes(store, ref, [write("task", 0, b"first"), write("task", -1, b"first"), write("task", -1, b"last")])
    save_writes(store, ref, [write("task", -1, b"new"), write("task", 0, b"new"), write("task", 1, b"new")])
    stored = store.load("t", "", None)
    assert stored is not None
    assert {each.idx: each.data for each in stored.writes} == {0: b"first", -1: b"new", 1: b"new"}


def test_no_reader_and_no_race_leaves_or_sees_a_part_of_a_thread(store: PostgresBackend) -> None:
    def check(thread: str) -> None:
        stored = store.load(thread, "", None)
        assert stored is None or set(stored.frames) == set(stored.row.keys)
        found = store.outline(thread)
        assert set(found.frames) == {one for each in found.rows for one in each.keys}
        assert (found.rev > 0) == bool(found.rows)

    def work(number: int) -> None:
        pick = random.Random(number)
        for step in range(40):
            thread, other = pick.sample(["a", "b"], 2)
            match pick.randrange(6):
                case 0:
                    store.drop_thread(thread)
                case 1:
                    store.copy_thread(thread, other, uuid4().hex)
                case 2:
                    found = store.outline(thread)
                    if len(found.rows) > 1:
                        first = found.rows[0]
                        store.apply(thread, found.rev, Change(drop=[first.ref], drop_frames=first.keys))
                case 3:
                    save_writes(store, Ref(thread, "", f"{pick.randrange(9):06}"), [write("t", n) for n in (2, -1, 1)])
                case _:
                    number_ = 1000 * number + step
                    save(store, numbered(thread, number_), frames(number_))
            check(thread)

    together(8, work)
    for thread in ("a", "b"):
        check(thread)


def test_a_change_planned_for_an_earlier_life_of_a_thread_does_not_hit_the_next(store: PostgresBackend) -> None:
    save(store, numbered("t", 0), frames(0))
    before = store.outline("t")
    store.drop_thread("t")
    save(store, numbered("t", 0), frames(0))
    assert store.apply("t", before.rev, Change(drop=[each.ref for each in before.rows])) is False
    assert store.load("t", "", None) is not None


def test_threads_come_in_pages_and_no_connection_is_held_between_them(
    url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("langgraph_statekit.checkpoint.backends.postgres.PAGE_THREADS", 3)
    with backend(url, schema, max_size=1) as store:
        names = [*(f"t{number}" for number in range(7)), "ä"]
        for name in ["", *names]:
            save(store, numbered(name, 0, run_id="r" if name in names[:4] else None), frames(0))
        pages: list[Sequence[str]] = []
        for page in store.threads():
            pages.append(page)
            store.outline("t1")
        assert pages == [["", *names[:2]], names[2:5], names[5:]]
        assert list(store.threads({"r", "other"})) == [names[:3], names[3:4]]
        assert list(store.threads({"none"})) == []


def test_loading_uses_an_index_even_when_the_tables_grew_since_it_was_planned(
    url: str, schema: str, store: PostgresBackend
) -> None:
    save(store, numbered("t", 0), frames(0))
    load = f"SELECT * FROM \"{schema}\".load_1('t', '', NULL, false)"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f'ANALYZE "{schema}".rows, "{schema}".frames, "{schema}".writes'.encode())
        for _ in range(10):
            db.execute(load.encode())
        for number in range(300):
            save(store, numbered(f"t{number}", 0), frames(0))
        with db.transaction():
            assert len(db.execute(load.encode()).fetchall()) == 3
            read = db.execute(
                "SELECT sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE schemaname = %s", [schema]
            ).fetchone()
        assert read == (0,)


def test_a_write_that_overlaps_with_an_interrupt_does_not_let_the_thread_expire(
    store: PostgresBackend, url: str, schema: str
) -> None:
    assert save_one(store, SaveRow(row("t", "1"), (), ttl_us=10**8))
    at = Ref("t", "", "1")
    with psycopg.connect(url) as other, ThreadPoolExecutor(1) as pool:
        # It keeps the write waiting in the middle.
        other.execute(f"INSERT INTO \"{schema}\".writes VALUES ('t', '', '1', 'task', 0, 'c', '', '')")
        writing = pool.submit(save_writes, store, at, [write("task", 0)])
        waits = f"SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, '{schema}') > 0"
        wait_until(lambda: bool(query(url, waits)), "the write waits")
        save_writes(store, at, [Write("asks", INTERRUPT_IDX, "__interrupt__", "", b"?")])
        other.rollback()
        writing.result()
    assert query(url, f'SELECT ttl_us, until_us FROM "{schema}".threads') == [(10**8, None)]


def test_the_first_statement_of_a_saver_fits_the_functions_that_it_warms(
    url: str, schema: str, store: PostgresBackend
) -> None:
    assert query(url, statement(schema, _WARMED).decode()) == [(max(migrations()), 0)]
    save(store, row("t", "1", keys=[key("c", 1)]), [frame(key("c", 1), b"x")])
    save_writes(store, Ref("t", "", "1"), [write("task", 0)])
    # The checkpoint, its value and its write: so no statement of a read is left for the first one to plan.
    assert query(url, statement(schema, _WARMED).decode()) == [(max(migrations()), 3)]
