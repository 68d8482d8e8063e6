"""Two tiers: what is lost when a process or the hot store dies, who wins a race, and what it takes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import ObjectStoreSaver, SqliteSaver, StatekitSaver, TieredSaver
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver, Found, Stat
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from tests.faces import LONG, checkpoint, config, id_of, metadata
from tests.servers import Servers, wait_until
from tests.stores.objects_kit import bucket_driver

THREAD = "t"
SAYS_NO = 400


class Died(Exception):
    """The process had died by then."""


class Fate:
    """Counts steps of a process, which dies at one of them, before or after it acts."""

    def __init__(self, dies_at: int = 0, acts: bool = False) -> None:
        self.dies_at, self.acts, self.steps = dies_at, acts, 0
        self._lock = threading.Lock()

    @property
    def died(self) -> bool:
        return 0 < self.dies_at <= self.steps

    def step(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            self.steps += 1
            number = self.steps
        if not self.dies_at or number < self.dies_at:
            return call()
        if number == self.dies_at and self.acts:
            call()
        raise Died(f"step {number}")


class Mortal:
    """Stands before a store; each call is a step."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name in ("close", "setup"):
            return found
        return lambda *args, **options: self._fate.step(lambda: found(*args, **options))


class Cold(Driver):
    """A driver each request of which is a step, that may be down, and tells what it is about to do."""

    def __init__(self, inner: Driver, fate: Fate | None = None) -> None:
        self.name, self.transient = inner.name, inner.transient
        self._inner, self.fate = inner, fate or Fate()
        self.down = False
        self.before_put: Callable[[str], None] = lambda key: None
        self.requests: list[tuple[str, int]] = []

    def _do(self, verb: str, *args: Any) -> Any:
        if self.down:
            raise self.transient[0]("nobody answers")
        self.requests.append((verb, len(args[1]) if verb == "put" else 0))
        return self.fate.step(lambda: getattr(self._inner, verb)(*args))

    def get(self, key: str) -> Found | None:
        return self._do("get", key)  # type: ignore[no-any-return]

    def put(self, key: str, data: bytes, expect: str | None = None) -> str:
        self.before_put(key)
        return self._do("put", key, data, expect)  # type: ignore[no-any-return]

    def list(self, prefix: str) -> Any:
        return self._do("list", prefix)

    def folders(self, prefix: str) -> Any:
        return self._do("folders", prefix)

    def now_us(self, key: str) -> int:
        return self._inner.now_us(key)

    def stats(self, prefix: str) -> dict[str, Stat]:
        return self._do("stats", prefix)  # type: ignore[no-any-return]

    def copy(self, source: str, target: str) -> bool:
        return self._do("copy", source, target)  # type: ignore[no-any-return]

    def delete(self, keys: Any) -> None:
        self._do("delete", keys)


class Place:
    """A hot file and a cold place; the hot one can be lost."""

    def __init__(self, directory: Path, driver: Driver, prefix: str) -> None:
        self._directory, self.driver, self._prefix = directory, driver, prefix
        self.lives = 0

    def open(self, cold: Driver | None = None, retry_s: float = 0.0, **options: Any) -> TieredSaver:
        below = ObjectStoreSaver(cold or self.driver, prefix=self._prefix, retry_s=retry_s)
        return TieredSaver(self.hot(), below, **{"max_lag_s": 3600.0, "grace_s": 0.0, **options})

    def hot(self) -> StatekitSaver:
        return SqliteSaver(self._directory / f"hot {self.lives}.db")

    def lose_hot(self) -> None:
        self.lives += 1


@pytest.fixture(params=["file", "s3"])
def here(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Place:
    if request.param == "file":
        return Place(tmp_path, FileDriver(tmp_path / "cold"), "p")
    return Place(tmp_path, bucket_driver(servers, "s3"), os.urandom(6).hex())


@pytest.fixture
def local(tmp_path: Path) -> Place:
    return Place(tmp_path, FileDriver(tmp_path / "cold"), "p")


def grow(saver: StatekitSaver, count: int, thread: str = THREAD) -> Iterator[str]:
    """Put checkpoints with writes below the latest one, whose values tell their number; yield each id when it is."""
    found = saver.get_tuple(config(thread))
    number = len(found.checkpoint["channel_values"]["log"]) if found else 0
    at = found.config if found else config(thread)
    for step in range(number, number + count):
        versions: dict[str, str | int | float] = {"log": f"{step:04}.x", "last": f"{step:04}.x"}
        made = checkpoint({"log": [LONG, *range(step)], "last": step}, versions)
        at = saver.put(at, made, metadata(step), versions)
        yield id_of(at)
        saver.put_writes(at, [("log", step)], "task")


def seen(saver: StatekitSaver, thread: str = THREAD) -> dict[str, Any]:
    """Return values, parent and writes of each checkpoint, newest first."""
    return {
        id_of(item.config): (item.checkpoint["channel_values"], item.parent_config, item.pending_writes)
        for item in saver.list(config(thread))
    }


def doomed(place: Place, fate: Fate, **options: Any) -> TieredSaver:
    saver = place.open(Cold(place.driver, fate), **options)
    saver.setup()
    tiers = saver.tiers
    tiers._tier = tiers.moving._hot = tiers.uploading._hot = Mortal(tiers._tier, fate)
    tiers._hot = tiers.saving._hot = Mortal(tiers._hot, fate)
    return saver


@pytest.mark.parametrize("acts", [False, True], ids=["before it acts", "after it acts"])
def test_a_process_that_dies_at_any_step_loses_nothing_and_brings_nothing_back(local: Place, acts: bool) -> None:
    """Puts, uploads, compactions, evictions, thaws, removals and a deletion, each step of each of them."""
    with local.open(mode="write_through") as survivor:
        for number in range(1, SAYS_NO):
            thread, fate = f"thread {number}", Fate(number, acts)
            saver = doomed(local, fate, mode="write_through")
            known: list[str] = []
            pruned = deleted = False
            with suppress(Died):
                for round in range(2):
                    known.extend(grow(saver, 1 if round else 4, thread))
                    saver.archive(thread)
                pruned = True
                saver.prune([thread])
                saver.archive(thread)
                known.append(next(grow(saver, 1, thread)))
                deleted = True
                saver.delete_thread(thread)
                known = []
            saver.tiers.uploading._background.closing = True
            saver.tiers.uploading._background.wake()
            left = seen(survivor, thread)
            if not deleted:
                assert left.keys() >= set(known[-1:] if pruned else known)
            elif not known:
                assert left == {}
                assert survivor.deleted(thread)
            else:
                assert left == {} or known[-1] in left
                assert left == {} or fate.died
            for values, parent, _ in left.values():
                assert values["log"] == [LONG, *range(values["last"])]
                assert parent is None or id_of(parent) in left
            assert len(list(grow(survivor, 2, thread))) == 2  # and it goes on
            after = seen(survivor, thread)
            assert {id: after[id] for id in left} == left
            survivor.archive(thread)
            assert seen(survivor, thread) == after
            survivor.delete_thread(thread)
            assert survivor.get_tuple(config(thread)) is None
            if not fate.died:
                return
    raise AssertionError("there is no end")


def test_write_through_loses_nothing_with_the_hot_store(here: Place) -> None:
    with here.open(mode="write_through", retry_s=10.0) as saver:
        for _ in grow(saver, 20):
            pass
        saver.put_writes(config(id="never came"), [("log", 1)], "task")
        before = seen(saver)
    here.lose_hot()
    with here.open(mode="write_through", retry_s=10.0) as saver:
        assert seen(saver) == before
        assert len(list(grow(saver, 3))) == 3
        after = seen(saver)
    here.lose_hot()
    with here.open(retry_s=10.0) as saver:
        assert seen(saver) == after
        assert len(after) == 23


def test_a_run_goes_on_though_the_hot_store_loses_all_under_it(local: Place) -> None:
    with local.open(mode="write_through") as saver:
        for at, _ in enumerate(grow(saver, 12)):
            if at % 4 == 3:
                with closing(saver.tiers._hot._connections._connect(9e9)) as db:  # type: ignore[attr-defined]
                    for table in ("threads", "rows", "frames", "writes", "tier", "tier_touched", "tier_gone"):
                        db.execute(f"DELETE FROM {table}")
                    db.execute("DELETE FROM tier_ended")
        assert len(seen(saver)) == 12
        saver.archive(THREAD)
        assert [each[0]["last"] for each in seen(saver).values()] == [*range(11, -1, -1)]


def test_write_behind_loses_no_more_than_its_window(local: Place) -> None:
    for crash in range(10):
        saver = local.open(max_lag_checkpoints=6)
        saver.setup()
        put = list(grow(saver, 7 + crash, f"thread {crash}"))
        wait_until(lambda: not saver.tiers.uploading._under_way, "uploads to end")
        local.lose_hot()  # and nothing was flushed or closed
        with local.open() as survivor:
            left = seen(survivor, f"thread {crash}")
            assert [*reversed(left)] == put[: len(left)]
            assert 2 * (len(put) - len(left)) <= 6  # a put and its writes are two saves


def test_what_a_dead_worker_left_is_uploaded_by_another(local: Place) -> None:
    dead = local.open()
    dead.setup()
    assert len(list(grow(dead, 3))) == 3
    with local.hot() as plain:  # and one that knows nothing of tiers
        assert len(list(grow(plain, 2))) == 2
    with local.open() as saver:
        assert saver.tiers._tier.dirty(1 << 62, 10) == [THREAD]
        saver.tiers.uploading._max_lag_s = -2.0
        saver.tiers.uploading._look_around()
        assert saver.tiers._tier.dirty(1 << 62, 10) == []
        before = seen(saver)
    local.lose_hot()
    with local.open() as saver:
        assert seen(saver) == before
        assert len(before) == 5


def test_an_upload_that_ends_after_a_deletion_brings_nothing_back(local: Place) -> None:
    slow = Cold(local.driver)
    with local.open() as deleter, local.open(slow) as saver:
        assert len(list(grow(saver, 3))) == 3

        def delete(key: str) -> None:
            slow.before_put = lambda key: None
            deleter.delete_thread(THREAD)

        slow.before_put = delete
        saver.flush()
        assert seen(saver) == {}
        assert deleter.deleted(THREAD)
        assert len(list(grow(saver, 1))) == 1  # a new life
        saver.archive(THREAD)
        assert len(seen(deleter)) == 1


def test_a_thaw_that_ends_after_a_deletion_brings_nothing_back(local: Place) -> None:
    with local.open() as deleter, local.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.archive(THREAD)
        image = saver.tiers._cold.image

        def late(thread: str) -> Any:
            saver.tiers._cold.image = image  # type: ignore[method-assign]
            found = image(thread)
            deleter.delete_thread(thread)
            return found

        saver.tiers._cold.image = late  # type: ignore[method-assign]
        assert saver.tiers.moving.thaw(THREAD) is False
        assert seen(saver) == seen(deleter) == {}


def test_a_thaw_from_an_older_state_does_not_hide_newer_checkpoints(local: Place) -> None:
    with local.open() as other, local.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.archive(THREAD)
        image = saver.tiers._cold.image

        def late(thread: str) -> Any:
            saver.tiers._cold.image = image  # type: ignore[method-assign]
            found = image(thread)
            assert len(list(grow(other, 2))) == 2
            assert other.archive(THREAD)
            return found

        saver.tiers._cold.image = late  # type: ignore[method-assign]
        assert saver.tiers.moving.thaw(THREAD)
        assert len(seen(saver)) == 5


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_a_copy_of_the_first_checkpoint_has_its_values_though_the_thread_was_archived_a_moment_ago(
    local: Place, mode: str
) -> None:
    with local.open(mode=mode) as saver, local.open() as other:
        for _ in grow(saver, 2):
            pass
        assert other.archive(THREAD)  # of which `saver` knows nothing
        first = list(saver.list(config(THREAD)))[-1].checkpoint
        copied = checkpoint(first["channel_values"], first["channel_versions"])
        at = saver.put(config(THREAD), copied, metadata(), {})
        found = saver.get_tuple(at)
        assert found is not None
        assert found.checkpoint["channel_values"] == first["channel_values"]
        last = saver.get_tuple(config(THREAD))
        assert last is not None
        assert last.checkpoint["id"] == copied["id"]
        assert len(seen(saver)) == 3


def test_two_workers_that_upload_archive_and_thaw_at_once_do_no_harm(here: Place) -> None:
    names = [f"thread {number}" for number in range(3)]
    errors: list[BaseException] = []

    def work(saver: TieredSaver, name: str) -> None:
        try:
            for at, _ in enumerate(grow(saver, 12, name)):
                if at % 3 == 2:
                    saver.archive(name)
        except BaseException as error:
            errors.append(error)

    def disturb(saver: TieredSaver, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                for name in names:
                    saver.archive(name)
                    for values, _, _ in seen(saver, name).values():
                        assert values["log"] == [LONG, *range(values["last"])]
        except BaseException as error:
            errors.append(error)

    with here.open(max_lag_s=0.01, retry_s=10.0) as one, here.open(max_lag_s=0.01, retry_s=10.0) as two:
        stop = threading.Event()
        workers = [threading.Thread(target=work, args=(one, name)) for name in names]
        other = threading.Thread(target=disturb, args=(two, stop))
        for thread in (*workers, other):
            thread.start()
        for thread in workers:
            thread.join()
        stop.set()
        other.join()
        assert errors == []
        for name in names:
            assert [each[0]["last"] for each in seen(two, name).values()] == [*range(11, -1, -1)]
