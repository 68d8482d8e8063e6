"""What only the object store promises: requests and rounds, faults, many writers, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore

from langgraph_statekit.checkpoint.backends.objects import ObjectBackend, ObjectStoreSaver
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT, Changed, Driver
from langgraph_statekit.checkpoint.backends.objects.index import HEAD_ROWS
from langgraph_statekit.checkpoint.backends.objects.obstore_driver import ObstoreDriver
from langgraph_statekit.checkpoint.records import Frame, Query, Ref, Write
from langgraph_statekit.checkpoint.retention import keep_latest
from langgraph_statekit.errors import Misuse, Unavailable
from tests.faces import checkpoint, config, listed, metadata, put
from tests.servers import Server, Servers, free_ports, s3_server
from tests.stores.objects_kit import Rounds, Watched, bucket_driver, bucket_url, chain
from tests.stores.verbs import key, row, save, save_writes

HOSTILE = ("a/b", "../up", "", " ", "a:b", "{x}", "\N{PILE OF POO}", "x" * 300, "nul\0", "\\u0000", "%2F", "*", "1")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as found:
        yield found


def settings(server: Server) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(server.url).query))


@pytest.fixture(params=["file", "s3", "az", "gs"])
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    """Return the URL of a fresh store."""
    if request.param == "file":
        return f"file://{tmp_path}/store"
    bucket, query = bucket_url(servers, request.param).split("?")
    return f"{bucket}/{os.urandom(6).hex()}?{query}"


@pytest.fixture(params=["s3", "az", "gs"])
def bucket(request: pytest.FixtureRequest, servers: Servers) -> Driver:
    """Return a driver of a service."""
    return bucket_driver(servers, request.param)


@pytest.fixture
def backend(place: tuple[Driver, str]) -> Iterator[ObjectBackend]:
    made = ObjectBackend(place[0], prefix=place[1])
    yield made
    made.close()


@pytest.mark.parametrize("length", [10, 300])
def test_requests_and_rounds_do_not_depend_on_the_length(bucket: Driver, length: int) -> None:
    watched, prefix = Watched(bucket), os.urandom(6).hex()

    def spent(call: Callable[[], Any]) -> tuple[int, int]:
        watched.requests.clear()
        rounds = Rounds(backend._bucket)
        call()
        backend._bucket.start, backend._bucket._request = rounds._start, rounds._request
        return len(watched.requests), rounds.count

    def opened() -> tuple[ObjectStoreSaver, ObjectBackend]:
        saver = ObjectStoreSaver(watched, prefix=prefix)
        assert isinstance(saver.backend, ObjectBackend)
        return saver, saver.backend

    saver, backend = opened()
    at = config("t")
    for step in range(length):
        version = f"{step:032}.0"
        made = checkpoint({"m": [step], "n": "x"}, {"m": version, "n": f"{0:032}.0"})
        new = made["channel_versions"] if step == 0 else {"m": version}
        before, at_made = at, []
        cost, _ = spent(lambda: at_made.append(saver.put(before, made, metadata(step), new)))
        assert cost <= (3 if step == 0 else 2), f"put {step}"
        at = at_made[0]
        assert spent(lambda: saver.put_writes(at, [("m", step)], "task"))[0] == 1
        if step == length - 1:
            assert spent(lambda: saver.put_writes(at, [("__error__", "x")], "task"))[0] == 1
    saver.close()
    ids = [item.checkpoint["id"] for item in saver.list(config("t"))]
    assert len(ids) == length
    for address in (config("t"), config("t", id=ids[0]), config("t", id=ids[-1])):
        saver, backend = opened()
        assert spent(lambda: saver.get_tuple(address))[1] <= 3
        saver.close()
    saver, backend = opened()
    found: list[Any] = []
    assert spent(lambda: found.extend(saver.list(config("t"), limit=50)))[1] <= 4
    assert [item.checkpoint["channel_values"] for item in found] == [
        {"m": [step], "n": "x"} for step in range(length - 1, max(length - 51, -1), -1)
    ]
    assert all(item.pending_writes for item in found)
    saver.close()


def test_a_head_stays_small_and_the_latest_row_of_each_namespace_stays_near() -> None:
    driver = ObstoreDriver(MemoryStore())
    backend = ObjectBackend(driver)
    save(backend, row("a", "root", keys=[key("m", 1)]), [Frame(key("m", 1), b"m")])
    save_writes(backend, Ref("a", "", "root"), [Write("task", 0, "m", "", b"w")])
    sizes = []
    for number in range(3 * HEAD_ROWS):
        save(backend, row("a", f"{number:05}", "sub", keys=[key("s", number)]), [Frame(key("s", number), b"s")])
        head = driver.get(backend._reader.keys("a").head)
        assert head is not None
        sizes.append(len(head.data))
    assert max(sizes[HEAD_ROWS:]) <= 1.2 * max(sizes[:HEAD_ROWS])
    reader = ObjectBackend(driver)
    rounds = Rounds(reader._bucket)
    stored = reader.load("a", "", None)
    assert stored is not None
    assert (stored.row.ref.id, dict(stored.frames)) == ("root", {key("m", 1): Frame(key("m", 1), b"m")})
    assert len(stored.writes) == 1
    assert rounds.count <= 3
    reader.close()


def test_removed_checkpoints_free_their_space_after_the_grace_period(place: tuple[Driver, str]) -> None:
    driver, prefix = place
    backend = ObjectBackend(driver, prefix=prefix)
    chain(backend, 20)
    outline = backend.outline("a")
    assert backend.apply("a", outline.rev, keep_latest(outline))
    kept = set(driver.list(prefix))
    assert len(kept) > 20
    eager = ObjectBackend(driver, prefix=prefix, grace_s=0)
    chain(eager, 1, start=50)
    left = driver.list(prefix)
    assert len(left) == 6, "a head; the data of each row, and of an older value; the writes of two tasks"
    assert [item.ref.id for item in eager.rows(Query("a"))] == ["000050", "000019"]
    stored = eager.load("a", "", "000019")
    assert stored is not None
    assert len(stored.frames) == 2
    backend.close()
    eager.close()


def test_four_writers_on_one_thread_all_succeed(place: tuple[Driver, str]) -> None:
    driver, prefix = place

    def write(writer: int) -> None:
        own = ObjectBackend(driver, prefix=prefix)
        for number in range(12):
            frame = Frame(key("x", writer), b"v")
            save(own, row("a", f"{writer}-{number}", f"{writer}", keys=[frame.key]), [frame])
            save_writes(own, Ref("a", "", "shared"), [Write("task", writer * 100 + number, "c", "", b"w")])
        own.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    backend = ObjectBackend(driver, prefix=prefix)
    rows = backend.outline("a").rows
    assert [item.seq for item in rows] == list(range(1, 49))
    for writer in range(4):
        assert [item.ref.id for item in rows if item.ref.ns == f"{writer}"] == [f"{writer}-{n}" for n in range(12)]
    save(backend, row("a", "shared"))
    _, writes = backend.fill("a", [], [Ref("a", "", "shared")])
    assert len(writes[Ref("a", "", "shared")]) == 48
    backend.close()


async def test_concurrent_saves_of_one_saver_do_not_fight(url: str) -> None:
    async with ObjectStoreSaver.from_url(url) as saver:
        await asyncio.gather(*(put(saver, config("t", f"ns{n}"), {"v": n}) for n in range(40)))
        found = await listed(saver, {"configurable": {"thread_id": "t"}})
        assert sorted(item.checkpoint["channel_values"]["v"] for item in found) == list(range(40))


def test_hostile_ids_stay_apart_and_deletion_leaves_nothing(place: tuple[Driver, str]) -> None:
    driver, prefix = place
    saver = ObjectStoreSaver(driver, prefix=prefix)
    for thread in HOSTILE:
        for ns in ("", "a/b", "x" * 300):
            at = saver.put(config(thread, ns), checkpoint({"v": [thread, ns]}), metadata(), {"v": 1})
            saver.put_writes(at, [("v", thread)], f"task {thread}")
    for thread in HOSTILE:
        for ns in ("", "a/b", "x" * 300):
            found = saver.get_tuple(config(thread, ns))
            assert found is not None
            assert found.checkpoint["channel_values"] == {"v": [thread, ns]}
            assert [value for _, _, value in found.pending_writes or ()] == [thread]
    assert {item.config["configurable"]["thread_id"] for item in saver.list(None)} == set(HOSTILE)
    left = len(driver.list(prefix))
    for thread in HOSTILE:
        saver.delete_thread(thread)
        assert len(driver.list(prefix)) == left - 7
        left -= 7
    assert left == 0
    saver.close()


def test_a_writer_that_missed_a_deletion_starts_the_next_life(
    backend: ObjectBackend, place: tuple[Driver, str]
) -> None:
    chain(backend, 3)
    late = ObjectBackend(place[0], prefix=place[1])
    late.outline("a")
    backend.drop_thread("a")
    chain(late, 1, start=7)
    assert [(item.ref.id, item.seq) for item in backend.outline("a").rows] == [("000007", 1)]
    late.drop_thread("a")
    assert place[0].list(place[1]) == []
    late.close()


def test_a_change_planned_for_an_earlier_life_is_refused(backend: ObjectBackend) -> None:
    chain(backend, 2)
    old = backend.outline("a")
    backend.drop_thread("a")
    assert backend.outline("a").rev == 0
    chain(backend, 2)
    assert not backend.apply("a", old.rev, keep_latest(old))
    assert len(backend.outline("a").rows) == 2


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_a_clear_error() -> None:
    saver = ObjectStoreSaver(MemoryStore())
    saver.put(config("t"), checkpoint({"v": 1}), metadata(), {"v": 1})
    child = os.fork()
    if child == 0:
        try:
            saver.get_tuple(config("t"))
        except Misuse as error:
            os._exit(0 if "fork" in str(error) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    saver.close()


def test_a_store_that_does_not_answer_is_unavailable_with_the_cause() -> None:
    (port,) = free_ports(1)
    saver = ObjectStoreSaver.from_url(
        "s3://bucket",
        endpoint=f"http://127.0.0.1:{port}",
        region="r",
        access_key_id="k",
        secret_access_key="s",
        retry_s=0,
    )
    with pytest.raises(Unavailable) as caught:
        saver.put(config("t"), checkpoint({"v": 1}), metadata(), {"v": 1})
    assert isinstance(caught.value.__cause__, BaseError)
    assert "Debug source" not in str(caught.value)
    saver.close()


def test_wrong_settings_are_named(server: Server, tmp_path: Path) -> None:
    good = settings(server)
    bucket = urlsplit(server.url).netloc
    for name, changes in ((bucket, {"access_key_id": "nobody"}), ("no-such-bucket", {})):
        with ObjectStoreSaver.from_url(f"s3://{name}", **{**good, **changes}) as saver, pytest.raises(Misuse):
            saver.put(config("t"), checkpoint({"v": 1}), metadata(), {"v": 1})
    for wrong in ("ftp://x/y", "file://relative/x", "s3://", f"s3://{bucket}/a b", f"s3://{bucket}/a/../b"):
        with pytest.raises(Misuse):
            ObjectStoreSaver.from_url(wrong)
    with pytest.raises(Misuse, match="colour"):
        ObjectStoreSaver.from_url(f"s3://{bucket}", colour="blue")
    with pytest.raises(Misuse, match="file:///"):
        ObjectStoreSaver(LocalStore(tmp_path))


def test_conditional_puts_are_exact(place: tuple[Driver, str]) -> None:
    driver, prefix = place
    name = f"{prefix}/t/x/head"
    first = driver.put(name, b"1", ABSENT)
    with pytest.raises(Changed):
        driver.put(name, b"2", ABSENT)
    second = driver.put(name, b"2", first)
    with pytest.raises(Changed):
        driver.put(name, b"3", first)
    found = driver.get(name)
    assert found == (b"2", second)
    driver.delete([name, f"{prefix}/t/x/none"])
    with pytest.raises(Changed):
        driver.put(name, b"3", second)
    assert driver.get(name) is None
    assert driver.list(prefix) == []

    def count(_: int) -> None:
        for _ in range(10):
            while True:
                here = driver.get(name)
                try:
                    driver.put(name, b"%d" % (int(here.data) + 1 if here else 1), here.tag if here else ABSENT)
                    break
                except Changed:
                    continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(4)))
    here = driver.get(name)
    assert here is not None
    assert here.data == b"40"
