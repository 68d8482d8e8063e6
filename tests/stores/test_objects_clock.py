"""Whose clock counts on an object store, and what it costs: hosts whose clocks are wrong expire nothing too early or late.

The hosts are savers of this process, which is told another time; the service is a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import obstore
import pytest
from langgraph.checkpoint.base import id as ids
from obstore import exceptions

from langgraph_statekit.checkpoint.backends.objects import ObjectBackend, ObjectStoreSaver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.objects.obstore_driver import ObstoreDriver
from langgraph_statekit.checkpoint.records import Change, Ref, SaveRow, Write
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse
from tests.faces import checkpoint, config, metadata
from tests.servers import Servers
from tests.stores.objects_kit import bucket_driver, bucket_url, chain
from tests.stores.verbs import frame, key, row, save_one, save_writes
from tests.stores_under_test import Store, unique

HOUR_S = 3600
Host = Callable[[float], Any]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Return what makes this process a host whose clock is ahead."""
    now, now_ns = time.time, time.time_ns

    @contextmanager
    def run(ahead_s: float) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: now() + ahead_s)
            patched.setattr(time, "time_ns", lambda: now_ns() + int(ahead_s * 1e9))
            patched.setattr(ids, "_last_v6_timestamp", ids._last_v6_timestamp)  # later ids must not be ahead too
            yield

    return run


@pytest.fixture(params=["s3", "az", "gs"])
def kind(request: pytest.FixtureRequest, servers: Servers) -> str:
    bucket_url(servers, request.param)
    return str(request.param)


class Told(FileDriver):
    """A folder whose clock the test sets."""

    now_s = 0

    def now_us(self, key: str) -> int:
        return self.now_s * 10**6


class Counted(ObstoreDriver):
    """Counts requests, and fails some."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver._store)
        self.asked, self.requests = 0, 0
        self.failing: Callable[[str], Exception | None] = lambda key: None

    def _call(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        clock = len(args) > 1 and str(args[1]).endswith("/clock")
        self.asked += clock
        self.requests += not clock
        if request is obstore.put and (error := self.failing(args[1])):
            raise error
        return super()._call(request, *args, **kwargs)


def _save(saver: StatekitSaver, parent: Any = None, **values: Any) -> Any:
    made = checkpoint(values)
    return saver.put(parent or config(), made, metadata(), made["channel_versions"])


@pytest.mark.without("ttl_s")  # with which a look lets the thread live on
@pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_a_host_whose_clock_is_an_hour_off_expires_threads_neither_early_nor_late(
    kind: str, new_store: Callable[[str], Store], host: Host, ahead_s: float
) -> None:
    store = new_store(kind)
    with store.open(ttl_s=100) as right, store.open(ttl_s=100) as wrong, store.open() as reader:
        at = _save(right, x=1)
        with host(ahead_s):
            assert reader.get_tuple(config()) is not None
            wrong.put_writes(at, [("a", 1)], "task")
            assert reader.backend.sweep(25 * HOUR_S * 10**6) == (0, 0, False)
            assert wrong.get_tuple(config()) is not None
        store.advance(60)
        with host(ahead_s):
            _save(wrong, at, x=2)
        store.advance(60)
        for clock_s in (0, ahead_s):
            with host(clock_s):
                assert len(list(reader.list(config()))) == 2
        store.advance(41)
        for clock_s in (0, ahead_s):
            with host(clock_s):
                assert reader.get_tuple(config()) is None
        with host(ahead_s):
            assert reader.sweep() == (1, 0, False)


def test_a_host_that_is_days_ahead_sweeps_no_writes_or_objects_that_are_young(
    kind: str, servers: Servers, host: Host
) -> None:
    driver, prefix = bucket_driver(servers, kind), unique()
    with closing(ObjectBackend(driver, prefix=prefix)) as backend:
        chain(backend, 3)
        save_writes(backend, Ref("a", "", "to come"), [Write("task", 0, "x", "", b"early")])
        folder = next(item for item in driver.list(prefix) if not item.endswith("head") and "/w/" not in item)
        young = f"{folder.rpartition('/')[0]}/{'0' * 32}"
        driver.put(young, b"about to be named")
        with host(50 * HOUR_S):
            assert backend.sweep(24 * HOUR_S * 10**6) == (0, 0, False)
            outline = backend.outline("a")
            assert backend.apply("a", outline.rev, Change(drop=[outline.rows[0].ref]))
        assert backend.usage("a").orphans == 1
        assert young in driver.list(prefix)


def test_a_time_to_live_costs_no_request_but_those_of_the_clock_once_a_minute(
    kind: str, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = bucket_driver(servers, kind)
    monotonic_ns, later_s = time.monotonic_ns, [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic_ns() + later_s[0] * 10**9)

    def costs(minutes: int, **options: Any) -> tuple[list[int], list[int]]:
        counted, requests, asked = Counted(driver), list[int](), list[int]()
        with ObjectStoreSaver(counted, prefix=unique(), **options) as saver:
            at = _save(saver, x=0)
            for step in range(1, 1 + minutes):
                later_s[0] += 61
                at = _save(saver, at, x=step)
                saver.put_writes(at, [("a", 1)], "task")
                saver.get_tuple(config())
                saver.get_tuple(at)
                list(saver.list(config()))
                requests.append(counted.requests)
                asked.append(counted.asked)
        return requests, asked

    without, asked = costs(3)
    assert asked == [0, 0, 0]
    assert costs(3, ttl_s=1000) == (without, [4, 6, 8])


def test_who_cannot_ask_for_the_time_again_goes_on_from_what_was_told(
    kind: str, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, monotonic_ns = Counted(bucket_driver(servers, kind)), time.monotonic_ns
    with ObjectStoreSaver(counted, prefix=unique(), ttl_s=100, retry_s=0) as saver:
        _save(saver, x=1)
        counted.failing = lambda key: exceptions.GenericError("429") if key.endswith("/clock") else None
        for later_s, there in ((61, True), (99, True), (111, False)):
            monkeypatch.setattr(time, "monotonic_ns", lambda s=later_s: monotonic_ns() + s * 10**9)
            assert (saver.backend.load("t", "", None) is not None) == there


def test_who_may_only_read_sees_threads_by_its_own_clock_and_ends_none(kind: str, servers: Servers, host: Host) -> None:
    driver, prefix = bucket_driver(servers, kind), unique()
    refused = exceptions.PermissionDeniedError("not yours")
    with ObjectStoreSaver(driver, prefix=prefix, ttl_s=100) as saver:
        at = _save(saver, x=1)
        reads, lacks_clock = Counted(driver), Counted(driver)
        reads.failing = lambda key: refused
        lacks_clock.failing = lambda key: refused if key.endswith("/clock") else None
        with ObjectStoreSaver(reads, prefix=prefix) as reader:
            for _ in range(3):
                assert reader.get_tuple(config()) is not None
            assert reads.asked == 1
        with ObjectStoreSaver(lacks_clock, prefix=prefix, ttl_s=100) as wrong, host(HOUR_S):
            assert wrong.get_tuple(config()) is None
            with pytest.raises(Misuse, match="refused"):
                _save(wrong, at, x=2)
            with pytest.raises(Misuse, match="refused"):
                wrong.sweep()
        assert saver.get_tuple(config()) is not None


def test_fill_shows_nothing_of_a_thread_that_has_expired_nor_through_its_next_life(tmp_path: Path) -> None:
    driver = Told(tmp_path)
    ref, kept, new = Ref("t", "", "1"), frame(key("x", 1), b"old"), frame(key("x", 2), b"new")
    with closing(ObjectBackend(driver)) as one, closing(ObjectBackend(driver)) as other:
        save_one(one, SaveRow(row("t", "1", keys=[kept.key]), [kept], ttl_us=100 * 10**6))
        save_writes(one, ref, [Write("task", 0, "x", "", b"old")])
        other.load("t", "", None)
        assert other.fill("t", [kept.key], [ref])[0] == {kept.key: kept}
        driver.now_s = 100
        for backend in (one, other):
            assert backend.fill("t", [kept.key], [ref]) == ({}, {})
        save_one(one, SaveRow(row("t", "1", keys=[new.key]), [new], ttl_us=100 * 10**6))
        for backend in (one, other):
            assert backend.fill("t", [kept.key, new.key], [ref]) == ({new.key: new}, {ref: []})
