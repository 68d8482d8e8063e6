"""The object store against the in-process one: the same after every step of random histories, and at every crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.objects import ObjectBackend
from langgraph_statekit.checkpoint.backends.objects import index as index_module
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.objects.obstore_driver import ObstoreDriver
from langgraph_statekit.checkpoint.records import Change, Frame, Ref, Row, Write
from langgraph_statekit.checkpoint.retention import keep_latest, without_runs
from tests.stores.objects_kit import Died, Leased, Watched, chain, look
from tests.stores.verbs import key, row, save, save_one, save_writes

THREADS = ("a", "b")
Step = Callable[[Backend], object]


@pytest.fixture(params=["memory", "file"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    return ObstoreDriver(MemoryStore()) if request.param == "memory" else FileDriver(tmp_path / "store")


@pytest.fixture
def short_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make heads give rows away early, so that short histories have segments."""
    monkeypatch.setattr(index_module, "HEAD_ROWS", 8)
    monkeypatch.setattr(index_module, "HEAD_PINNED", 2)


class History:
    """Random steps; with `fresh` the frames of a new row are always new, as those of a LangGraph run are."""

    def __init__(self, seed: int, *, fresh: bool) -> None:
        self._random = random.Random(seed)
        self._fresh = fresh
        self._count = 0
        self._rows: dict[Ref, tuple[Row, list[bytes]]] = {}

    def steps(self, count: int) -> Iterator[Step]:
        kinds = [self._new] * 8 + [
            self._again,
            self._writes,
            self._writes,
            self._prune,
            self._runs,
            self._copy,
            self._drop,
        ]
        if not self._fresh:
            kinds.append(self._remove)
        for _ in range(count):
            yield self._random.choice(kinds)()

    def _new(self) -> Step:
        self._count += 1
        thread = self._random.choice("aaab")
        ns = self._random.choice(["", "", "", "sub", f"call:{self._count}"])
        known = [item for ref, (item, _) in self._rows.items() if (ref.thread, ref.ns) == (thread, ns)]
        parent = self._random.choice([None, *known[-3:], *self._random.sample(known, min(1, len(known)))])
        number = self._random.randrange(10**6) if self._random.random() < 0.3 else 10**6 + self._count
        versions = {k[:8]: k for k in (parent.keys if parent else ())}
        put = []
        for channel in self._random.sample("xyz", self._random.randrange(3)):
            made = key(channel, self._count if self._fresh else self._random.randrange(8))
            versions[made[:8]] = made
            put.append(made)
        item = row(
            thread,
            f"{number:08}",
            ns,
            keys=tuple(versions.values()),
            parent=parent.ref.id if parent else None,
            run_id=self._random.choice([None, "r1", "r2"]),
            deltas=(b"x_______",) if b"x_______" in versions and self._random.random() < 0.3 else (),
        )
        self._rows[item.ref] = item, put
        frames = [Frame(k, None if self._random.random() < 0.2 else f"{k!r}{self._count}".encode()) for k in put]
        return lambda backend: save(backend, item, frames)

    def _again(self) -> Step:
        if not self._rows:
            return self._new()
        item, put = self._random.choice(list(self._rows.values()))
        self._count += 1
        frames = [Frame(k, f"again {self._count}".encode()) for k in put if self._random.random() < 0.7]
        return lambda backend: save(backend, item, frames)

    def _writes(self) -> Step:
        refs = [*self._rows, Ref("a", "", "unknown")]
        ref = self._random.choice(refs[-6:])
        task = self._random.choice(["t1", "t2"])
        self._count += 1
        writes = [
            Write(task, i, "c", "p", f"{self._count}".encode()) for i in self._random.sample([-3, -1, 0, 1, 2], 2)
        ]
        return lambda backend: save_writes(backend, ref, writes)

    def _prune(self) -> Step:
        return change(self._random.choice(THREADS), keep_latest) if self._random.random() < 0.3 else self._new()

    def _runs(self) -> Step:
        runs = {self._random.choice(["r1", "r2"])}
        return change(self._random.choice(THREADS), lambda outline: without_runs(outline, runs))

    def _remove(self) -> Step:
        refs = list(self._rows)
        drop = self._random.sample(refs, min(len(refs), 2))
        keys = [k for ref in drop for k in self._rows[ref][1] if self._random.random() < 0.5]
        hide = [ref for ref in self._random.sample(refs, min(len(refs), 1)) if ref not in drop]
        thread = self._random.choice(THREADS)

        def plan(outline: Any) -> Change:
            there = {item.ref for item in outline.rows}
            relink = [Row(ref, via="up", hidden=True) for ref in hide if ref in there]
            return Change(drop=drop, drop_frames=keys, relink=relink)

        return change(thread, plan)

    def _copy(self) -> Step:
        operation = f"{self._random.random()}"
        return lambda backend: backend.copy_thread("a", "b", operation)

    def _drop(self) -> Step:
        if self._random.random() < 0.7:
            return self._new()
        thread = self._random.choice(THREADS)
        for ref in [ref for ref in self._rows if ref.thread == thread]:
            del self._rows[ref]
        return lambda backend: backend.drop_thread(thread)


def change(thread: str, plan: Callable[[Any], Change]) -> Step:
    def step(backend: Backend) -> None:
        outline = backend.outline(thread)
        if outline.rows:
            assert backend.apply(thread, outline.rev, plan(outline))

    return step


def compare(driver: Driver, history: History, count: int, share: int) -> None:
    """Compare after each step; one of `share` saves is made under a lease."""
    model = Leased(MemoryBackend(), share)
    backend, other = (Leased(ObjectBackend(driver, grace_s=0), share) for _ in range(2))
    every = 1 if isinstance(driver, ObstoreDriver) else 5
    try:
        for number, step in enumerate(history.steps(count)):
            found = step(backend)
            assert found == step(model)
            if number % every == 0:
                assert look(other, THREADS) == look(model, THREADS)
            backend, other = other, backend
    finally:
        backend.close()
        other.close()


SOME_LEASED = pytest.mark.parametrize("share", [0, 1, 2], ids=["unleased", "leased", "mixed"])


@pytest.mark.parametrize("seed", range(4))
@SOME_LEASED
def test_equals_memory_after_each_step(driver: Driver, seed: int, share: int) -> None:
    compare(driver, History(seed, fresh=False), 40, share)


@pytest.mark.parametrize("seed", range(4))
@SOME_LEASED
@pytest.mark.usefixtures("short_heads")
def test_equals_memory_after_each_step_with_rows_in_segments(driver: Driver, seed: int, share: int) -> None:
    compare(driver, History(seed, fresh=True), 60, share)


@pytest.mark.usefixtures("short_heads")
def test_a_version_stored_again_with_its_old_row_is_new_for_all_rows(driver: Driver) -> None:
    model, backend = MemoryBackend(), ObjectBackend(driver)
    for each in (model, backend):
        first = chain(each, 20)[0]
        save(each, first, [Frame(first.keys[0], b"x again"), Frame(first.keys[1], b"y again")])
        chain(each, 10, start=30)
    assert look(backend, THREADS) == look(model, THREADS)
    assert backend.fill("a", [first.keys[1]], [])[0] == {first.keys[1]: Frame(first.keys[1], b"y again")}
    for each in (model, backend):
        save(each, first, [Frame(first.keys[1], None)])
    assert look(backend, THREADS) == look(model, THREADS)
    backend.close()


@pytest.mark.usefixtures("short_heads")
def test_an_old_row_stored_again_does_not_become_the_latest(driver: Driver) -> None:
    model, backend = MemoryBackend(), ObjectBackend(driver)
    for each in (model, backend):
        old = chain(each, 3, ns="old")
        for number in range(30):
            save(each, row("a", f"{number}", f"call:{number}"), [])
        save(each, old[0], [])
    latest = backend.load("a", "old", None)
    assert latest is not None
    assert latest.row.ref == old[2].ref
    assert look(backend, THREADS) == look(model, THREADS)
    backend.close()


def scripted() -> list[Step]:
    """Return a history that uses every verb, with rows in segments."""
    made: list[Step] = []

    class Recorder(MemoryBackend):
        def save(self, saves: Any) -> Any:
            made.extend(lambda backend, one=one: save_one(backend, one) for one in saves)
            return [True] * len(saves)

    lines = Recorder()
    first = chain(lines, 7)
    chain(lines, 2, ns="sub")
    chain(lines, 4, start=7)
    save_writes(lines, first[2].ref, [Write("task", 0, "x", "", b"late"), Write("task", -1, "e", "", b"replaces")])
    save(lines, first[1], [Frame(first[1].keys[0], b"again")])
    made.append(lambda backend: backend.copy_thread("a", "b", "copy 1"))
    made.append(change("a", lambda outline: without_runs(outline, {"r1"})))
    chain(lines, 1, start=20)
    made.append(change("a", keep_latest))
    made.append(lambda backend: backend.drop_thread("a"))
    chain(lines, 1, start=30)
    made.append(change("b", lambda outline: without_runs(outline, {"r0", "r1", "r2"})))
    return made


def states(steps: list[Step]) -> list[Any]:
    model = MemoryBackend()
    found = [look(model, THREADS)]
    for step in steps:
        step(model)
        found.append(look(model, THREADS))
    return found


@pytest.fixture
def new_driver(tmp_path: Path) -> Callable[[str], Driver]:
    count = iter(range(10**6))

    def make(kind: str) -> Driver:
        return ObstoreDriver(MemoryStore()) if kind == "memory" else FileDriver(tmp_path / f"{next(count)}")

    return make


@pytest.mark.parametrize("acts", [False, True], ids=["before it acts", "after it acts"])
@pytest.mark.parametrize(("kind", "every", "share"), [("memory", 1, 0), ("memory", 1, 2), ("file", 29, 0)])
@pytest.mark.usefixtures("short_heads")
def test_a_process_that_dies_at_any_request_leaves_old_or_new(
    new_driver: Callable[[str], Driver], kind: str, every: int, share: int, acts: bool
) -> None:
    steps = scripted()
    expected = states(steps)
    for number in range(1, 1000, every):
        driver = new_driver(kind)
        doomed = Leased(ObjectBackend(Watched(driver, number, acts), grace_s=0), share)
        done = 0
        try:
            for step in steps:
                step(doomed)
                done += 1
        except Died:
            pass
        doomed.close()
        survivor = Leased(ObjectBackend(driver, grace_s=0), share)
        found = look(survivor, THREADS)
        assert found in expected[done : done + 2], f"request {number}"
        for later, step in enumerate(steps[done:], done + 1):
            step(survivor)
            if later in (done + 1, len(steps)):
                assert look(survivor, THREADS) == expected[later], f"request {number}, step {later}"
        for thread in THREADS:
            survivor.drop_thread(thread)
        survivor.close()
        left = [key for key in driver.list("t") if not key.endswith("/head")]
        assert left == [], f"request {number}"
        assert share or driver.list("t") == [], f"request {number}"
        if done == len(steps):
            assert number > 60
            return
    raise AssertionError("the history has no end")


@pytest.mark.parametrize("acts", [False, True], ids=["before it acts", "after it acts"])
@pytest.mark.parametrize("share", [0, 2], ids=["unleased", "mixed"])
@pytest.mark.usefixtures("short_heads")
def test_a_request_that_fails_once_is_not_noticed(new_driver: Callable[[str], Driver], share: int, acts: bool) -> None:
    steps = scripted()
    expected = states(steps)
    for number in range(1, 1000):
        driver = new_driver("memory")
        watched = Watched(driver, number, acts, once=True)
        backend = Leased(ObjectBackend(watched, grace_s=0), share)
        for step in steps:
            step(backend)
        assert look(ObjectBackend(driver), THREADS) == expected[-1], f"request {number}"
        backend.close()
        if len(watched.requests) < number:
            return
    raise AssertionError("the history has no end")
