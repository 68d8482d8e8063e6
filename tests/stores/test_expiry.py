"""What a time to live costs on each store, and what happens when threads expire while others work."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import redis

from langgraph_statekit.checkpoint.backends.objects import ObjectStoreSaver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.postgres import PostgresSaver
from langgraph_statekit.checkpoint.expiry import ORPHANS_US
from langgraph_statekit.checkpoint.records import Ref, SaveRow, SaveWrites, Write
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import checkpoint, config, metadata
from tests.servers import wait_until
from tests.stores.objects_kit import Watched
from tests.stores.pg import counting_proxy
from tests.stores.verbs import frame, key, row, save_one
from tests.stores_under_test import Store

pytestmark = pytest.mark.without("ttl_s")

NewStore = Callable[[str], Store]
TTL_US = 100 * 10**6


def _save(saver: StatekitSaver, parent: Any = None, **values: Any) -> Any:
    made = checkpoint(values)
    return saver.put(parent or config(), made, metadata(), made["channel_versions"])


def _calls(saver: StatekitSaver) -> Iterator[Callable[[], Any]]:
    at = _save(saver, x=1)
    yield lambda: _save(saver, at, x=2)
    yield lambda: saver.put_writes(at, [("a", 1)], "task")
    yield lambda: saver.put_writes(at, [("__interrupt__", 1)], "task")
    yield lambda: saver.get_tuple(config())
    yield lambda: saver.get_tuple(at)


@pytest.mark.parametrize("idle_s", [0, 50], ids=["most of the time is left", "the end is set anew"])
def test_on_redis_a_time_to_live_needs_no_further_round_trip(
    new_store: NewStore, trips: Counter[str], idle_s: float
) -> None:
    store = new_store("redis")
    with store.open(ttl_s=100) as saver:
        for call in _calls(saver):
            store.advance(idle_s)
            trips.clear()
            call()
            assert trips["trips"] == 1


@pytest.mark.parametrize("idle_s", [0, 50], ids=["most of the time is left", "the end is set anew"])
def test_on_postgres_a_time_to_live_needs_no_further_round_trip(new_store: NewStore, idle_s: float) -> None:
    store = new_store("postgres")
    with (
        counting_proxy(store.url) as (proxied, trips),
        PostgresSaver.from_url(proxied, **store.options, ttl_s=100) as saver,
    ):
        saver._sync.sweeping = None
        for call in _calls(saver):
            store.advance(idle_s)
            assert trips.of(call) == 1


def test_on_object_stores_a_read_writes_only_when_a_tenth_of_the_time_is_over(new_store: NewStore) -> None:
    store = new_store("file")
    driver = Watched(FileDriver(store.url.removeprefix("file://")))
    with ObjectStoreSaver(driver, ttl_s=1000) as saver:
        at = _save(saver, x=1)

        def puts(call: Callable[[], Any]) -> int:
            driver.requests.clear()
            call()
            return sum(verb == "put" for verb, _ in driver.requests)

        for _ in range(3):
            assert puts(lambda: saver.get_tuple(config())) == 0
            assert puts(lambda: list(saver.list(config()))) == 0
            store.advance(150)
            assert puts(lambda: saver.get_tuple(config())) == 1
        assert puts(lambda: saver.put_writes(at, [("a", 1)], "task")) == 1
        assert puts(lambda: saver.get_tuple(config("missing"))) == 0


def test_all_keys_of_a_thread_on_redis_expire_at_one_moment(new_store: NewStore) -> None:
    store = new_store("redis")
    with store.open(ttl_s=100) as saver, redis.Redis.from_url(store.url) as client:

        def ends(threads: int) -> set[int]:
            keys = [k for k in client.scan_iter(f"{store.options['prefix']}*") if k.split(b":")[2] not in (b"i", b"l")]
            assert len(keys) == 5 * threads
            return {client.pexpiretime(name) for name in keys}

        at = _save(saver, x=1)
        saver.put_writes(at, [("a", 1)], "task")
        later = _save(saver, at, x=2)
        (end,) = ends(1)
        assert end > 0
        saver.put_writes(later, [("__interrupt__", 1)], "task")
        assert ends(1) == {-1}
        with store.open() as other:
            other.prune(["t"])
        assert ends(1) == {-1}
        _save(saver, later, x=3)
        saver.put_writes(later, [("a", 1)], "task")
        with store.open() as other:
            other.prune(["t"])
            _save(saver, x=3)
            saver.put_writes(later, [("b", 1)], "task")
            (end,) = ends(1)
            assert end > 0
            _save(other, later, x=4)
        assert ends(1) == {-1}


@pytest.mark.without("ttl_s", "encryption")  # the key of a thread is one more key there
def test_writes_without_any_checkpoint_expire_on_redis_by_themselves(new_store: NewStore) -> None:
    store = new_store("redis")
    with store.open() as saver, redis.Redis.from_url(store.url) as client:
        saver.put_writes(config(id="1"), [("a", 1)], "task")
        keys = list(client.scan_iter(f"{store.options['prefix']}*"))
        assert len(keys) == 2
        assert all(0 < client.pttl(name) <= ORPHANS_US // 1000 for name in keys)
        saver.put(config(), checkpoint(id="1"), metadata(), {})
        assert {client.pttl(name) for name in client.scan_iter(f"{store.options['prefix']}*")} == {-1}


@pytest.mark.without("ttl_s", "encryption")  # what it looks for must be readable in the store
@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_puts_have_the_store_swept_now_and_then(new_store: NewStore, name: str) -> None:
    store = new_store(name)
    with store.open(ttl_s=100) as saver:
        for number in range(40):
            made = checkpoint({"x": "marked"})
            saver.put(config(f"gone {number}"), made, metadata(), made["channel_versions"])
        store.advance(101)
        assert b"marked" in store.raw_dump()
        assert saver._sync.sweeping is not None
        saver._sync.sweeping._due_s = 0
        _save(saver, x=1)
        wait_until(lambda: b"gone" not in store.raw_dump(), "all that expired is swept")
        assert b"marked" not in store.raw_dump()
        saver._sync.sweeping._backend = None  # type: ignore[assignment]  # a sweep that fails breaks nothing
        saver._sync.sweeping._due_s = 0
        _save(saver, x=2)


def test_a_large_thread_goes_in_pieces_on_sqlite(new_store: NewStore) -> None:
    store = new_store("sqlite")
    with store.open(ttl_s=100) as saver:
        at = config(id="1")
        for task in range(25):
            saver.put_writes(at, [(f"c{n}", 1) for n in range(100)], f"task {task}")
        saver.put(config(), checkpoint(id="1"), metadata(), {})
        store.advance(101)
        assert saver.backend.sweep(ORPHANS_US).more
        store.advance(-101)
        assert saver.get_tuple(config()) is None  # though this host's clock was set back
        assert saver.backend.sweep(ORPHANS_US).more
        saver.put(config(), checkpoint({"x": 1}, id="1"), metadata(), {"x": 1})
        found = saver.get_tuple(config())
        assert found is not None
        assert found.pending_writes == []


def test_an_interrupt_holds_its_thread_however_it_races_with_the_checkpoint(
    store_name: str, new_store: NewStore
) -> None:
    store = new_store(store_name)
    with store.open(ttl_s=100) as one, store.open(ttl_s=100) as two, ThreadPoolExecutor(2) as pool:
        one.setup()
        for number in range(20):
            thread, barrier = f"t{number}", Barrier(2)
            saves = (
                SaveRow(row(thread, "1"), (), ttl_us=TTL_US),
                SaveWrites(Ref(thread, "", "1"), [Write("task", -3, "__interrupt__", "", b"?")]),
            )

            def run(backend: Any, save: Any, barrier: Barrier = barrier) -> bool:
                barrier.wait()
                return save_one(backend, save)

            done = [pool.submit(run, saver.backend, save) for saver, save in zip((one, two), saves, strict=True)]
            assert [each.result() for each in done] == [True, True]
        store.advance(101)
        assert all(one.backend.load(f"t{number}", "", None) for number in range(20))


def test_threads_that_expire_while_they_are_saved_to_and_swept_lose_nothing_new(
    store_name: str, new_store: NewStore
) -> None:
    store = new_store(store_name)
    with (
        store.open() as before,
        store.open(ttl_s=100) as saver,
        store.open() as other,
        ThreadPoolExecutor(4) as pool,
    ):
        before.setup()
        for number, value in itertools.product(range(8), range(3)):
            kept = frame(key("x", value), b"old")
            save_one(before.backend, SaveRow(row(f"t{number}", f"{value}", keys=[kept.key]), [kept], ttl_us=TTL_US))
        store.advance(101)

        def work(backend: Any, first: int) -> None:
            for number in range(first, 8, 2):
                save_one(backend, SaveWrites(Ref(f"t{number}", "", "new"), [Write("task", 0, "a", "", b"new")]))
                new = frame(key("x", 9), b"new")
                assert save_one(backend, SaveRow(row(f"t{number}", "new", keys=[new.key]), [new], ttl_us=TTL_US))

        done = [
            pool.submit(work, saver.backend, 0),
            pool.submit(work, other.backend, 1),
            *[pool.submit(lambda: [other.backend.sweep(ORPHANS_US) for _ in range(8)]) for _ in range(2)],
        ]
        for each in done:
            each.result()
        for number in range(8):
            found = saver.backend.load(f"t{number}", "", None)
            assert found is not None
            assert found.row.ref.id == "new"
            assert [write.data for write in found.writes] == [b"new"]
            assert [each.ref.id for each in saver.backend.outline(f"t{number}").rows] == ["new"]
            assert list(saver.backend.outline(f"t{number}").frames) == [key("x", 9)]
