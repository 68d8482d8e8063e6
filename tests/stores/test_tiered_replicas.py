"""Replicas of the cold store: what they have, who brings it there, and what they are good for."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Encryption, ObjectStoreSaver, SqliteSaver, TieredSaver, Unavailable
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.tiered import replica
from langgraph_statekit.checkpoint.backends.tiered import replicas as bringing
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, decode_head
from langgraph_statekit.errors import Corrupt, Misuse
from langgraph_statekit.events import Event, ReplicaTold
from tests.faces import config
from tests.servers import Servers, wait_until
from tests.stores.objects_kit import bucket_driver
from tests.stores.test_tiered import THREAD, Cold, Died, Fate, Place, grow, seen


class Two(Place):
    """A place with a replica."""

    def __init__(self, directory: Path, primary: Driver, second: Driver, prefix: str) -> None:
        super().__init__(directory, primary, prefix)
        self.second = second

    def replica(self, driver: Driver | None = None) -> ObjectStoreSaver:
        return ObjectStoreSaver(driver or self.second, prefix="second", retry_s=0.0)

    def open(self, cold: Driver | None = None, retry_s: float = 0.0, **options: Any) -> TieredSaver:
        return super().open(cold, retry_s, **{"replicas": [self.replica()], **options})

    def promoted(self, **options: Any) -> TieredSaver:
        """Return a saver on the hot store whose cold one is the replica."""
        return TieredSaver(SqliteSaver(self._directory / f"hot {self.lives}.db"), self.replica(), **options)

    def notes(self) -> list[str]:
        return list(self.driver.list(f"{self._prefix}/r"))


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path, FileDriver(tmp_path / "cold"), FileDriver(tmp_path / "second"), "p")


@pytest.fixture(params=["file to s3", "s3 to file"])
def mixed(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Two:
    bucket, folder = bucket_driver(servers, "s3"), FileDriver(tmp_path / "cold")
    prefix = os.urandom(6).hex()
    made = Two(tmp_path, folder, bucket, prefix) if request.param == "file to s3" else None
    made = made or Two(tmp_path, bucket, folder, prefix)
    made.replica = lambda driver=None: ObjectStoreSaver(driver or made.second, prefix=f"{prefix}/second")  # type: ignore[method-assign]
    return made


def test_a_replica_has_all_that_was_acknowledged_and_can_take_over(mixed: Two) -> None:
    keys = Encryption({"k": b"k" * 32}, "k")
    with mixed.open(encryption=keys, retry_s=10.0) as saver:
        assert len(list(grow(saver, 12))) == 12
        assert len(list(grow(saver, 2, "gone"))) == 2
        saver.flush()
        saver.prune([THREAD])
        assert len(list(grow(saver, 3))) == 3
        saver.delete_thread("gone")
        before = seen(saver)
        saver.flush()
        # An upload that was under way when the thread was deleted, or replaced, takes back what it brought.
        wait_until(lambda: saver.deleted("gone"), "the deletion to be whole")
        assert mixed.notes() == []
        assert all(item.place.objects(THREAD) for item in saver.tiers.replicas.all)
    mixed.lose_hot()
    with mixed.promoted(encryption=keys, grace_s=0.0) as saver:
        assert seen(saver) == before
        assert saver.get_tuple(config("gone")) is None
        assert len(list(grow(saver, 2))) == 2
        assert saver.archive(THREAD)
        assert len(seen(saver)) == len(before) + 2


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_saves_go_on_while_a_replica_is_away_and_it_catches_up(
    two: Two, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "_RETRY_S", 0.05)
    away, told = Cold(two.second), list[Event]()
    away.down = True
    options: dict[str, Any] = {"mode": mode, "hooks": [told.append], "replicas": [two.replica(away)], "max_lag_s": 0.0}
    with two.open(**options) as saver:
        for name in ("one", "two"):
            assert len(list(grow(saver, 3, name))) == 3
        saver.tiers.uploading.flush_all()
        wait_until(lambda: any(isinstance(event, ReplicaTold) for event in told), "the replica's silence to be told")
        facts = {fact.name: fact for fact in saver.backend.facts()}
        assert (facts["replicas"].value, facts["replicas"].verdict) == ("2 threads behind", "note")
        assert "nobody answers" in facts["replica"].meaning
        with pytest.raises(Unavailable):
            saver.flush()
        away.down = False
        wait_until(lambda: not two.notes(), "the replica to catch up")
        last = [event for event in told if isinstance(event, ReplicaTold)][-1]
        assert (last.error, last.replica) == (None, saver.tiers.replicas.all[0].name)
        facts = {fact.name: fact for fact in saver.backend.facts()}
        assert [facts[name].verdict for name in ("replicas", "replica")] == ["ok", "ok"]
        before = [seen(saver, name) for name in ("one", "two")]
    two.lose_hot()
    with two.promoted() as saver:
        assert [seen(saver, name) for name in ("one", "two")] == before


def test_what_a_dead_worker_did_not_bring_over_is_brought_by_another(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Cold(two.second)
    away.down = True
    dead = two.open(replicas=[two.replica(away)])
    dead.setup()
    assert len(list(grow(dead, 3))) == 3
    dead.tiers.uploading.flush_all()
    two.lose_hot()  # with what it could tell
    assert two.notes()
    monkeypatch.setattr(bringing, "_OTHERS_S", -1.0)
    with two.open() as saver:
        saver.tiers.replicas._look_around()
        wait_until(lambda: not two.notes(), "the notes to be seen to")
        before = seen(saver)
    with two.promoted() as saver:
        assert seen(saver) == before
        assert len(before) == 3


def test_an_upload_that_failed_once_is_noted_when_it_succeeds(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    away = Cold(two.second)
    away.down = True
    with two.open(replicas=[two.replica(away)]) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.tiers.uploading.flush_all()  # of a first upload that is tried again, the generation is another
        before = two.notes()
        assert len(list(grow(saver, 3))) == 3
        upload, failures = saver.tiers._cold.packs.upload, [Unavailable("for once")]

        def failing(*args: Any) -> Any:
            if failures:
                raise failures.pop()
            return upload(*args)

        monkeypatch.setattr(saver.tiers._cold.packs, "upload", failing)
        with pytest.raises(Unavailable, match="for once"):
            saver.tiers.moving.upload(THREAD)
        assert two.notes() == before
        saver.tiers.moving.upload(THREAD)
        assert len(two.notes()) == len(before) + 1
        away.down = False


def stored_head(place: Any, thread: str) -> ColdHead:
    found, _ = place.stored(digest(thread))
    return ColdHead("") if found is None else decode_head(found.data)


def test_whatever_step_a_worker_dies_at_the_replica_gets_what_the_cold_store_has(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringing, "_OTHERS_S", -1.0)
    with two.open() as survivor:
        replicas = survivor.tiers.replicas
        place = replicas.all[0].place
        for number in range(1, 200):
            thread, fate = f"thread {number}", Fate(number)
            saver = two.open(Cold(two.driver, fate), replicas=[two.replica(Cold(two.second, fate))])
            saver.setup()
            with suppress(Died):
                for _ in range(2):
                    assert len(list(grow(saver, 2, thread))) == 2
                    saver.flush()
                saver.prune([thread])
                saver.flush()
                saver.delete_thread(thread)
            saver.tiers.uploading._background.closing = saver.tiers.replicas._background.closing = True
            saver.tiers.replicas._background.wake()
            saver.tiers.uploading._background.wake()
            replicas._look_around()
            wait_until(lambda: not any(replicas._due.values()), "the survivor to see to it")
            head, copy = (stored_head(each, thread) for each in (survivor.tiers._cold, place))
            assert (copy.gen, copy.packs) == (head.gen, head.packs)
            assert {key.rpartition("/")[2] for key in place.objects(thread)} >= {ref.name.hex() for ref in head.packs}
            if not fate.died:
                return
    raise AssertionError("there is no end")


def test_the_note_of_an_upload_that_failed_goes_in_the_end(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Cold(two.driver)
    with two.open() as saver:
        assert len(list(grow(saver, 1))) == 1
        saver.flush()

    def fail(key: str) -> None:
        if key.endswith("/head"):
            raise broken.transient[0]("the line went dead")

    broken.before_put = fail
    saver = two.open(broken)
    saver.setup()
    assert len(list(grow(saver, 1))) == 1
    with pytest.raises(Unavailable):
        saver.flush()
    assert len(two.notes()) == 1
    monkeypatch.setattr(bringing, "_OTHERS_S", -1.0)
    with two.open() as other:
        other.tiers.replicas._look_around()
        wait_until(lambda: not any(other.tiers.replicas._due.values()), "the note to be looked at")
        assert len(two.notes()) == 1  # its upload may still come
        monkeypatch.setattr(bringing, "_VAIN_S", -1.0)
        other.tiers.replicas._look_around()
        wait_until(lambda: not two.notes(), "the note to go")


def test_the_end_waits_once_for_a_replica_that_is_away_however_many_threads_it_lacks(two: Two) -> None:
    away = Cold(two.second)
    saver = two.open(replicas=[two.replica(away)])
    saver.setup()
    away.down = True
    for number in range(30):
        assert len(list(grow(saver, 1, f"thread {number}"))) == 1
    asked = 0

    def ask(key: str) -> Any:
        nonlocal asked
        asked += 1
        raise away.transient[0]("nobody answers")

    away.get = ask  # type: ignore[method-assign]
    saver.close()
    assert 0 < asked <= 20  # one for each call that was under way when it was found out
    assert len({key.split("/")[-2] for key in two.notes()}) == 30


def test_a_deletion_is_proven_only_when_the_replicas_have_it(two: Two) -> None:
    away = Cold(two.second)
    with two.open(replicas=[two.replica(away)]) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        away.down = True
        saver.delete_thread(THREAD)
        assert seen(saver) == {}
        with pytest.raises(Unavailable):
            saver.deleted(THREAD)
        away.down = False
        assert not saver.deleted(THREAD)
        saver.flush()
        assert saver.deleted(THREAD)
        [key] = saver.tiers.replicas.all[0].place.objects(THREAD)
        assert key.endswith("/head")


def _lose_a_pack(place: Two) -> None:
    pack = next(key for key in place.driver.list("p/c") if not key.endswith("/head"))
    place.driver.delete([pack])


def _damage(place: Two, key: str) -> None:
    found = place.driver.get(key)
    assert found is not None
    place.driver.put(key, found.data[:-1] + b"?")


def _damage_a_pack(place: Two) -> None:
    _damage(place, next(key for key in place.driver.list("p/c") if not key.endswith("/head")))


def _lose_a_head(place: Two) -> None:
    place.driver.delete([key for key in place.driver.list("p/c") if key.endswith("/head")])


def _damage_a_head(place: Two) -> None:
    _damage(place, next(key for key in place.driver.list("p/c") if key.endswith("/head")))


@pytest.mark.parametrize("harm", [_lose_a_pack, _damage_a_pack, _lose_a_head, _damage_a_head])
def test_what_the_cold_store_lost_or_damaged_is_read_from_a_replica(two: Two, harm: Callable[[Two], None]) -> None:
    with two.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        before = seen(saver)
    harm(two)
    two.lose_hot()
    with two.open(replicas=()) as alone:
        if harm in (_lose_a_head, _damage_a_head):
            assert seen(alone) == before  # as its packs tell of it
        else:
            with pytest.raises(Corrupt):
                seen(alone)
    two.lose_hot()
    with two.open() as saver:
        assert seen(saver) == before
        assert len(list(grow(saver, 1))) == 1  # a thaw, and an upload to what was mended, or is made anew
        saver.flush()
        before = seen(saver)
        two.lose_hot()
        with two.open(replicas=()) as alone:
            assert seen(alone) == before


def test_work_goes_on_from_a_replica_that_is_behind_and_both_ways_come_together(two: Two) -> None:
    cold = Cold(two.driver)
    with two.open() as saver:
        assert len(list(grow(saver, 3))) == 3
    with two.open(replicas=()) as saver:
        assert len(list(grow(saver, 2))) == 2  # of which the replica knows nothing
    two.lose_hot()
    with two.open(cold) as saver:
        cold.down = True
        assert len(seen(saver)) == 3
        assert len(list(grow(saver, 1))) == 1
        assert len(seen(saver)) == 4
        with pytest.raises(Unavailable):
            seen(saver, "a thread that neither has")
        cold.down = False
        saver.flush()
        assert len(seen(saver)) == 6
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["last"] == 3  # the checkpoint that was saved last
    two.lose_hot()
    with two.open() as saver:
        assert len(seen(saver)) == 6


def test_the_hot_store_drops_nothing_that_a_promoted_replica_lacks(two: Two) -> None:
    with two.open() as saver:
        assert len(list(grow(saver, 3))) == 3
    with two.open(replicas=()) as saver:
        for _ in grow(saver, 4):
            saver.flush()
        before = seen(saver)
    with two.promoted() as saver:
        assert saver.archive(THREAD)
        assert seen(saver) == before
        assert len(list(grow(saver, 1))) == 1  # it goes on from there, though the replica's head was older by far
        assert len(seen(saver)) == len(before) + 1


def test_a_new_replica_gets_all_when_asked(two: Two) -> None:
    with two.open(replicas=()) as saver:
        for name in ("one", "two"):
            assert len(list(grow(saver, 3, name))) == 3
        before = seen(saver, "one")
    with two.open() as saver:
        assert saver.replicate() == 2
        place = saver.tiers.replicas.all[0].place
        pack = next(key for key in place.objects("one") if not key.endswith("/head"))
        two.second.delete([pack])
        assert saver.replicate() == 2
        assert pack in place.objects("one")
    two.lose_hot()
    with two.promoted() as saver:
        assert seen(saver, "one") == before


def test_a_deletion_does_not_remove_what_the_next_life_uploads_meanwhile(two: Two) -> None:
    slow = Cold(two.driver)
    with two.open(replicas=()) as deleter, two.open(slow, replicas=()) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        deleter.delete_thread(THREAD)
        assert len(list(grow(saver, 2))) == 2

        def clear(key: str) -> None:
            if key.endswith("/head"):  # the pack is there, and nothing names it yet
                slow.before_put = lambda key: None
                deleter.tiers._cold.clear(THREAD)

        slow.before_put = clear
        saver.flush()
        before = seen(saver)
    two.lose_hot()
    with two.open(replicas=()) as saver:
        assert seen(saver) == before
        assert len(before) == 2


def test_what_cannot_be_a_replica_is_refused(tmp_path: Path) -> None:
    hot, cold = SqliteSaver(tmp_path / "a.db"), f"file://{tmp_path}/cold"
    for wrong in (f"file://{tmp_path}/other", [hot], [ObjectStoreSaver.from_url(cold, tenant="a")]):
        with pytest.raises(Misuse):
            TieredSaver(hot, cold, replicas=wrong)  # type: ignore[arg-type]
