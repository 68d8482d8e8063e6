"""A checkpoint of an encrypted thread is sealed with its place in the order: no other place is taken for it, nor refused."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any

import pytest
from langgraph.checkpoint.base.id import uuid6

from langgraph_statekit import Encryption, Retention
from langgraph_statekit.checkpoint.claims import Misplaced
from langgraph_statekit.checkpoint.encrypted import EncryptedBackend
from langgraph_statekit.checkpoint.labels import label_query
from langgraph_statekit.checkpoint.order import clock_us, id_at
from langgraph_statekit.checkpoint.records import Frame, Query, Ref, Row, SaveRow, is_made
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sealing import DataKey
from langgraph_statekit.errors import Corrupt
from tests.crash.faulty import Faulty
from tests.faces import LONG, checkpoint, config, id_of, metadata
from tests.stores_under_test import PostgresStore, RedisStore, SqliteStore, Store

ENCRYPTION = Encryption({"old": b"o" * 32}, "old")
NOTICED = "of thread 't' cannot be decrypted"
HOUR_S = 3600


@pytest.fixture
def opened(store: Store) -> Iterator[Callable[[], StatekitSaver]]:
    """Yield a maker of savers on one store, each as a worker of its own."""
    with ExitStack() as savers:
        yield lambda: savers.enter_context(store.open(encryption=ENCRYPTION, require_encryption=True, retention=None))


def put(saver: StatekitSaver, at: Any, id: str | None = None) -> Any:
    made = checkpoint({"x": "value"}, {"x": "1"}, id)
    return saver.put(at, made, metadata(), made["channel_versions"])


def fill(saver: StatekitSaver) -> list[Row]:
    """Save three checkpoints and a label, and return what is stored of them, in order."""
    at: Any = config()
    for id in "123":
        at = put(saver, at, id)
    saver.label(config(), "here")
    inner = saver.backend.inner
    return sorted([*inner.rows(Query("t")), *inner.rows(label_query("t"))], key=lambda row: row.seq)


def place(saver: StatekitSaver, rows: list[Row], seqs: list[int]) -> None:
    """Put rows into other places, as somebody does who can write to the store."""
    inner = saver.backend.inner
    header, frames = inner.headers(["t"])["t"], list(inner.fill("t", rows[0].keys, ())[0].values())
    inner.drop_thread("t")
    moved = sorted((row._replace(seq=seq) for row, seq in zip(rows, seqs, strict=True)), key=lambda row: row.seq)
    saves = [SaveRow(row, frames, whole=True, header=header) for row in moved]
    assert all(map(is_made, inner.save(saves)))


def is_corrupt(read: Callable[[], object]) -> bool:
    try:
        read()
    except Corrupt as error:
        assert "cannot be decrypted" in str(error)
        return True
    return False


@pytest.mark.parametrize(
    "seqs",
    [[2, 1, 3, 4], [1, 3, 2, 4], [2, 3, 1, 4], [1, 2, 30, 40], [1, 2, 4, 3], [1, 2, 3, 5]],
    ids=["the first two", "the last two", "the last one first", "later", "with a label", "a label"],
)
def test_a_checkpoint_in_another_place_is_corrupt(opened: Callable[[], StatekitSaver], seqs: list[int]) -> None:
    saver = opened()
    rows = fill(saver)
    was = [row.seq for row in rows]
    place(saver, rows, was)
    assert not is_corrupt(lambda: (list(saver.list(config())), saver.labels("t")))
    place(saver, rows, seqs)
    for reader in (saver, opened()):
        for row, before, seq in zip(rows[:3], was, seqs, strict=False):
            assert is_corrupt(lambda id=row.ref.id: reader.get_tuple(config(id=id))) == (before != seq)  # type: ignore[misc]
        latest = max(range(3), key=seqs.__getitem__)
        assert is_corrupt(lambda: reader.get_tuple(config())) == (seqs[latest] != was[latest])
        assert is_corrupt(lambda: list(reader.list(config()))) == (seqs[:3] != was[:3])
        assert is_corrupt(lambda: reader.labels("t")) == (seqs[3] != was[3])
        assert is_corrupt(lambda: reader.prune(["t"]))


def test_a_place_that_is_altered_in_a_table_is_noticed(opened: Callable[[], StatekitSaver], store: Store) -> None:
    fill(saver := opened())
    match store:
        case SqliteStore():
            with closing(sqlite3.connect(store._path, isolation_level=None)) as db:
                db.execute("UPDATE rows SET seq = 5 - seq WHERE id IN ('2', '3')")
        case PostgresStore():
            with store._connect() as db:
                db.execute(f"UPDATE \"{store._schema}\".rows SET seq = 5 - seq WHERE id IN ('2', '3')")
        case RedisStore():
            with store._client() as client:
                [order] = client.keys(f"{store.options['prefix']}*:o:*")
                client.zadd(order, {"\0002": 3, "\0003": 2})
        case _:
            pytest.skip("it has no table")
    for reader in (saver, opened()):
        assert is_corrupt(lambda: reader.get_tuple(config(id="2")))
        assert is_corrupt(lambda: reader.get_tuple(config(id="3")))
        assert not is_corrupt(lambda: reader.get_tuple(config(id="1")))
        # Redis reads a page by places, where each row is still found: in its true order.
        if not is_corrupt(lambda: list(reader.list(config()))):
            assert isinstance(store, RedisStore)
            assert [item.checkpoint["id"] for item in reader.list(config())] == ["3", "2", "1"]


@pytest.mark.parametrize("column", ["base", "head"])
def test_what_is_noted_beside_a_value_gives_no_other_value(
    opened: Callable[[], StatekitSaver], store: Store, column: str
) -> None:
    """Who alters it can have a value that others build on missed, or removed."""
    at: Any = config()
    saver = opened()
    values = {id: {"x": [LONG * 20, id]} for id in "0123"}
    for id, value in values.items():
        at = saver.put(at, checkpoint(value, {"x": id}, id), metadata(), {"x": id})
    match store, column:
        case SqliteStore(), _:
            change = "base = NULL" if column == "base" else "head = zeroblob(26)"
            with closing(sqlite3.connect(store._path, isolation_level=None)) as db:
                assert db.execute(f"UPDATE frames SET {change} WHERE base IS NOT NULL").rowcount
        case PostgresStore(), "base":
            with store._connect() as db:
                table = f'"{store._schema}".frames'
                assert db.execute(f"UPDATE {table} SET base = NULL WHERE base IS NOT NULL").rowcount
        case RedisStore(), "head":
            with store._client() as client:
                [heads] = client.keys(f"{store.options['prefix']}*:h:*")
                for key, head in client.hgetall(heads).items():
                    if len(key) >= 16 and head[1] & 2:
                        client.hset(heads, key, head[:1] + bytes((head[1] & ~2,)) + head[2:6])
        case _:
            pytest.skip("it notes no such thing")

    def read(id: str) -> Any:
        with suppress(Corrupt):
            found = opened().get_tuple(config(id=id))
            assert found is not None
            return found.checkpoint["channel_values"]

    found = {id: read(id) for id in values}
    assert [value in (None, values[id]) for id, value in found.items()] == [True] * 4
    assert found["0"] == values["0"]
    assert found["3"] is None
    opened().prune(["t"], strategy=Retention(keep_last=1))
    assert read("3") is None


def test_a_tag_is_not_taken_for_one_of_before_places_were_sealed(opened: Callable[[], StatekitSaver]) -> None:
    saver = opened()
    rows = fill(saver)
    place(saver, [row._replace(via=(row.via or "").replace("\\@", "\\!")) for row in rows], [1, 2, 3, 4])
    assert is_corrupt(lambda: saver.get_tuple(config()))
    assert is_corrupt(lambda: saver.labels("t"))


def test_a_row_of_before_places_were_sealed_is_read_and_goes_on(opened: Callable[[], StatekitSaver]) -> None:
    saver = opened()
    rows = fill(saver)
    key = saver.backend.key_of("t")  # type: ignore[attr-defined]
    assert isinstance(key, DataKey)
    old = [row._replace(via=key._tagged(key.untag_row(row), "\\!")) for row in rows]
    place(saver, old, [1, 2, 3, 4])
    assert [item.checkpoint["id"] for item in saver.list(config())] == ["3", "2", "1"]
    assert saver.labels("t").keys() == {"here"}
    put(saver, config(id="3"), "4")
    put(saver, config(id="1"), "2")  # what is saved anew is sealed with its place
    saver.copy_thread("t", "u")
    vias = {row.ref.id: (row.via or "")[:2] for row in saver.backend.inner.rows(Query("u"))}
    assert vias == {"4": "\\@", "3": "\\!", "2": "\\@", "1": "\\!"}
    assert [item.checkpoint["id"] for item in opened().list(config("u"))] == ["4", "3", "2", "1"]


def test_a_store_takes_the_wanted_place_of_a_row_or_tells_the_one_that_it_gets(store: Store) -> None:
    with store.open(encryption=None) as saver:
        inner, header = saver.backend, b"8 bytes_" + b"and the rest"

        def save(id: str, seq: int, at: int = 0) -> int:
            row = Row(Ref("t", "", id), seq=seq, body=b"body")
            before = inner.outline("t")
            [result] = inner.save([SaveRow(row, [Frame(b"k" * 16, b"frame")], at=at, whole=True, header=header)])
            if isinstance(result, Misplaced):
                assert inner.outline("t") == before, "nothing is changed"
                return -result.seq
            assert is_made(result)
            return next(row.seq for row in inner.outline("t").rows if row.ref.id == id)

        assert save("a", 7) == 7
        assert save("b", 7) == save("b", 6) == -8
        assert save("b", 20) == 20
        assert [save("a", 8), save("a", 21), save("a", 7)] == [-7, -7, 7]
        assert save("c", 0) == 21
        assert save("c", 20) == -21
        now = time.time_ns() // 1000
        assert save("d", now, at=now) == now
        assert save("e", now - 5, at=now - 5) == now - 5  # it races
        assert save("f", now - 5, at=now - 5) == -(now - 4)
        assert save("f", 5, at=5) == -(now + 1)
        assert [row.ref.id for row in inner.outline("t").rows] == ["a", "b", "c", "e", "d"]
        if (held := inner.outline("t")).rows:
            assert held.rev > 0


@pytest.mark.parametrize("ids", ["with the time", "an hour behind", "without a time"])
def test_workers_that_race_on_a_thread_leave_nothing_unreadable(store: Store, ids: str) -> None:
    workers, count = 6, 5
    start = threading.Barrier(workers)
    places: list[str] = []

    def work(number: int) -> None:
        with store.open(encryption=ENCRYPTION, require_encryption=True, retention=None) as saver:
            saver.setup()
            start.wait()
            ns = "" if number % 2 else f"sub:{number}"
            at: Any = config(ns=ns)
            for step in range(count):
                made = {
                    "with the time": lambda: str(uuid6()),
                    "an hour behind": lambda: (
                        str(uuid6()) if number == 0 else f"{id_at(time.time() - HOUR_S)[:-2]}{number}{step}"
                    ),
                    "without a time": lambda: f"{number} {step}",
                }[ids]()
                at = put(saver, at, made)
                places.append(id_of(at))
                if step == 3:
                    put(saver, config(ns=ns), made)  # once more
                    saver.label(at, f"label of {number}")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    with store.open(encryption=ENCRYPTION, require_encryption=True, retention=None) as saver:
        rows = saver.backend.outline("t").rows
        assert len({row.seq for row in rows}) == len(rows) == workers * count + workers
        assert sorted(item.checkpoint["id"] for item in saver.list(None, limit=1000)) == sorted(places)
        assert len(saver.labels("t")) == workers
        if ids == "with the time" and type(store).__name__ != "S3Store":  # there the oldest rows keep their places
            timed = [clock_us(row.ref.id) for row in rows if clock_us(row.ref.id)]
            assert timed == sorted(timed)


def test_saves_of_one_call_are_all_made_though_others_saved(opened: Callable[[], StatekitSaver]) -> None:
    one, two = opened(), opened()
    put(one, config(), "1")
    [row, *_] = one.backend.rows(Query("t", id="1"))

    def saves(*ids: str) -> list[SaveRow]:
        rows = [row._replace(ref=Ref("t", "", id), run_id=f"{at}") for at, id in enumerate(ids)]
        return [SaveRow(each, (), whole=True) for each in rows]

    assert all(map(is_made, one.backend.save(saves("3", "2", "5", "2", "4"))))
    assert [row.ref.id for row in two.backend.outline("t").rows] == [*"13254"]
    for id in "67":
        put(one, config(id="1"), id)
    assert all(map(is_made, two.backend.save(saves("b", "a", "d", "a", "6", "c"))))
    rows = opened().backend.outline("t").rows
    assert [row.ref.id for row in rows][:7] == [*"1325467"]
    assert sorted(row.ref.id for row in rows[7:]) == [*"abcd"]
    assert {row.ref.id: row.run_id for row in rows}["a"] == "3", "the last one counts"


def test_a_host_whose_clock_is_behind_goes_on_after_what_it_read(opened: Callable[[], StatekitSaver]) -> None:
    one, two = opened(), opened()
    at = put(one, config())
    for behind_s in (HOUR_S, 0.5):
        for saver in (two, one, two):
            found = saver.get_tuple(config())
            assert found is not None
            assert found.config["configurable"]["checkpoint_id"] == id_of(at)
            at = put(saver, found.config, id_at(time.time() - behind_s))
            time_us = clock_us(id_of(at))
            assert time_us
    found = opened().get_tuple(config())
    assert found is not None
    assert found.checkpoint["id"] == id_of(at)


def test_only_a_save_to_an_unknown_thread_without_a_time_or_behind_asks_twice(store: Store) -> None:
    workers = ExitStack()

    def watched() -> tuple[StatekitSaver, Faulty]:
        faulty = Faulty(workers.enter_context(store.open(encryption=None)).backend)
        saver = StatekitSaver(EncryptedBackend(faulty, ENCRYPTION))
        saver.setup()
        return saver, faulty

    def verbs(faulty: Faulty, call: Callable[[], object]) -> list[str]:
        before = len(faulty.begun)
        call()
        return [name for name, _ in faulty.begun[before:]]

    with workers:
        saver, faulty = watched()
        at = put(saver, config())
        stranger, its = watched()
        assert verbs(its, lambda: put(stranger, at)) == ["save", "headers", "save"]  # it learns the thread's key
        assert verbs(its, lambda: put(stranger, at)) == ["save"]
        assert verbs(its, lambda: put(stranger, at, id_at(time.time() - HOUR_S))) == ["save"]
        assert verbs(faulty, lambda: put(saver, at)) == ["save"]
        assert verbs(faulty, lambda: put(saver, at, id_at(time.time() - HOUR_S))) == ["save"]
        put(stranger, at)
        assert verbs(faulty, lambda: put(saver, at, "no time")) == ["save"] * 2
        assert verbs(faulty, lambda: put(saver, at, "no time")) == ["save"]
        assert verbs(faulty, lambda: saver.label(at, "here")).count("save") == 1
        put(saver, at)
        stranger, its = watched()
        assert stranger.get_tuple(config()) is not None
        assert verbs(its, lambda: put(stranger, at, "2")) == ["save"]
