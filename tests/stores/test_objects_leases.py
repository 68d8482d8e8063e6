"""Leases on the object store: requests, a takeover between any two requests of a save, clocks that differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Fenced
from langgraph_statekit.checkpoint.backends.objects import ObjectBackend, ObjectStoreSaver
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.claims import Claim, Held
from langgraph_statekit.checkpoint.records import Change, Frame, Ref, Save, SaveRow, SaveWrites, Write, is_made
from tests.faces import checkpoint, config, metadata
from tests.stores.objects_kit import Rounds, Watched, chain, look
from tests.stores.verbs import key, row, save, save_one, save_writes

LONG_US = 10**12


@pytest.fixture
def opened(place: tuple[Driver, str]) -> Iterator[Callable[[], ObjectBackend]]:
    made: list[ObjectBackend] = []

    def make(driver: Driver | None = None) -> ObjectBackend:
        made.append(ObjectBackend(driver or place[0], prefix=place[1]))
        return made[-1]

    yield make
    for backend in made:
        backend.close()


class Interrupted(Watched):
    """Lets something happen just before a request."""

    def __init__(self, inner: Driver) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[str, str], None] = lambda verb, key: None

    def _do(self, verb: str, *args: Any) -> Any:
        self.meanwhile(verb, str(args[0]))
        return super()._do(verb, *args)


class Skewed(FileDriver):
    """A folder whose clock is told differently."""

    ahead_us = 0

    def now_us(self, key: str) -> int:
        return super().now_us(key) + self.ahead_us


def lease(backend: ObjectBackend, holder: str = "h", thread: str = "a", **fields: Any) -> int:
    (held,) = backend.claim([Claim(thread, holder, holder, LONG_US, **fields)])
    assert isinstance(held, Held)
    assert held.holder == holder
    return held.token


def put_of(id: str, token: int, number: int = 1) -> SaveRow:
    return SaveRow(row("a", id, keys=[key("x", number)]), [Frame(key("x", number), b"v")], token=token)


def writes_of(id: str, token: int, data: bytes, task: str = "task") -> SaveWrites:
    return SaveWrites(Ref("a", "", id), [Write(task, 0, "x", "", data), Write(task, -1, "e", "", data)], token)


def test_a_leased_put_is_two_requests_writes_are_two_and_a_read_stays_at_three_rounds(
    place: tuple[Driver, str],
) -> None:
    watched = Watched(place[0])
    with ObjectStoreSaver(watched, prefix=place[1]) as saver:
        held = saver.lease("t", ttl_s=600)
        at: Any = {"configurable": {"checkpoint_ns": "", **held.config["configurable"]}}
        assert saver.get_tuple(config("other")) is None  # as each run begins: so its head is known

        def spent(call: Callable[[], Any]) -> int:
            watched.requests.clear()
            call()
            return len(watched.requests)

        for step in range(20):
            made = checkpoint({"m": [step]}, {"m": f"{step:032}.0"})
            ends: list[Any] = []
            before = at
            put = spent(lambda: ends.append(saver.put(before, made, metadata(step), made["channel_versions"])))
            assert put == 2, watched.requests
            at = ends[0]
            assert spent(lambda: saver.put_writes(at, [("m", step)], "task")) == 2, watched.requests
            other = config("other", id="1")
            assert spent(lambda: saver.put_writes(other, [("m", step)], f"task {step}")) == 1, watched.requests
    with ObjectStoreSaver(watched, prefix=place[1]) as saver:
        rounds = Rounds(saver.backend._bucket)
        found = saver.get_tuple(config("t"))
        assert found is not None
        assert found.pending_writes == [("task", "m", 19)]
        assert rounds.count <= 3


def test_leased_writes_of_many_tasks_change_the_head_once(opened: Any, place: tuple[Driver, str]) -> None:
    watched = Watched(place[0])
    backend = opened(watched)
    token = lease(backend)
    save_one(backend, put_of("1", token))
    watched.requests.clear()
    assert backend.save([writes_of("1", token, b"w", f"task {number}") for number in range(50)]) == [True] * 50
    assert len(watched.requests) == 51
    stored = backend.load("a", "", "1")
    assert len(stored.writes) == 100


@pytest.mark.parametrize("late", [put_of("2", 0, 2), writes_of("1", 0, b"stale")], ids=["put", "put_writes"])
def test_a_save_that_is_overtaken_between_two_of_its_requests_changes_nothing(
    opened: Any, place: tuple[Driver, str], late: Save
) -> None:
    for number in range(10):
        driver = Interrupted(place[0])
        worker, thief = opened(driver), opened()
        token = lease(worker, f"worker {number}", steal=True)
        save_one(worker, put_of("1", token))
        save_one(worker, writes_of("1", token, b"first", "other"))
        before = look(thief, ["a"])
        left = number
        taken: list[int] = []

        def meanwhile(verb: str, key: str) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                taken.append(lease(thief, "thief", steal=True))

        driver.meanwhile = meanwhile
        args = {name: getattr(late, name) for name in late.__slots__}
        (result,) = worker.save([type(late)(**{**args, "token": token})])
        driver.meanwhile = lambda verb, key: None
        if not taken:
            assert is_made(result)
            assert number > 1
            return
        assert isinstance(result, Fenced), f"request {number}"
        assert look(opened(), ["a"]) == before, f"request {number}"
        assert look(worker, ["a"]) == before
        assert save_one(thief, writes_of("1", taken[0], b"new"))
        for reader in (thief, worker, opened()):
            found = {write.data for write in reader.load("a", "", "1").writes if write.task == "task"}
            assert found == {b"new"}, "what was left by the late worker takes no place"
        thief.drop_thread("a")
    raise AssertionError("the save has no end")


def test_of_many_who_take_the_lease_from_each_other_all_is_stored_that_was_acknowledged_and_nothing_else(
    opened: Any,
) -> None:
    outcomes: list[tuple[Save, int | Exception]] = []

    def steal_and_write(worker: int) -> None:
        backend = opened()
        for number in range(12):
            id = f"{worker}-{number}"
            token = lease(backend, id, steal=True)
            saves: list[Save] = [put_of(id, token, number), writes_of(id, token, id.encode()), put_of(f"{id}b", token)]
            for one in saves:
                outcomes.extend((one, result) for result in backend.save([one]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(steal_and_write, range(4)))
    backend = opened()
    rows = {item.ref for item in backend.outline("a").rows}
    refs = {one.ref for one, _ in outcomes if isinstance(one, SaveWrites)}
    _, writes = backend.fill("a", [], refs)
    for one, result in outcomes:
        assert is_made(result) or isinstance(result, Fenced)
        stored = one.row.ref in rows if isinstance(one, SaveRow) else len(writes.get(one.ref, ())) == len(one.writes)
        assert stored == is_made(result)
    assert len([one for one, result in outcomes if is_made(result)]) >= 3, "nobody takes over from the last one"


def test_stale_writes_stay_invisible_when_the_thread_is_pruned_copied_or_written_without_a_lease(
    opened: Any, place: tuple[Driver, str]
) -> None:
    driver = Interrupted(place[0])
    worker, thief = opened(driver), opened()
    chain(thief, 3)
    token = lease(worker, "worker")

    def steal(verb: str, key: str) -> None:
        if verb == "put" and key.endswith("/head"):
            lease(thief, "thief", steal=True)

    driver.meanwhile = steal
    (result,) = worker.save([writes_of("000002", token, b"stale", "late")])
    driver.meanwhile = lambda verb, key: None
    assert isinstance(result, Fenced)
    thief.copy_thread("a", "b", "copy")
    assert thief.apply("a", thief.outline("a").rev, Change(drop=[Ref("a", "", "000000")]))
    for thread in ("a", "b"):
        assert [write.task for write in thief.load(thread, "", "000002").writes] == ["task"]
        save_writes(thief, Ref(thread, "", "000002"), [Write("late", 1, "x", "", b"unleased")])
        found = {write.data for write in opened().load(thread, "", "000002").writes if write.task == "late"}
        assert found == {b"unleased"}


def test_the_token_never_falls_when_clocks_differ_and_the_thread_is_deleted(tmp_path: Path) -> None:
    fast, slow = Skewed(tmp_path), Skewed(tmp_path)
    fast.ahead_us = 2_000_000
    with closing(ObjectBackend(fast)) as one, closing(ObjectBackend(slow)) as other:
        tokens = []
        for backend in (one, other, one, other, other):
            tokens.append(lease(backend, f"{len(tokens)}"))
            save(backend, row("a", f"{len(tokens)}"))
            backend.drop_thread("a")
            assert other.outline("a").rows == []
            assert backend.claim([Claim("a", "x", "x", 1, token=tokens[-1])]) == [None]
            (result,) = backend.save([put_of("late", tokens[-1])])
            assert isinstance(result, Fenced)
        assert tokens == sorted(set(tokens))


def test_deletion_leaves_nothing_of_a_lease_that_is_not_young(tmp_path: Path) -> None:
    driver = Skewed(tmp_path)
    with closing(ObjectBackend(driver)) as backend:
        token = lease(backend)
        save_one(backend, put_of("1", token))
        save_one(backend, writes_of("1", token, b"w"))
        driver.ahead_us = 11_000_000
        backend.drop_thread("a")
        assert driver.list("t") == []
        lease(backend)
        save(backend, row("a", "1"))
        backend.drop_thread("a")
        assert [name.rpartition("/")[2] for name in driver.list("t")] == ["head"], "the token, for a while"
        assert list(backend.threads()) == []
        driver.ahead_us *= 2
        backend.drop_thread("a")
        assert driver.list("t") == []
