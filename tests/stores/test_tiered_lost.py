"""What is done about a thread whose head in the cold store is lost together with more: nothing, rather than a guess."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_statekit import Encryption, Unavailable
from langgraph_statekit.checkpoint.backends.objects.layout import packed, unpacked
from langgraph_statekit.checkpoint.backends.tiered import heads
from langgraph_statekit.checkpoint.backends.tiered.layout import PACK, ColdHead, PackRef, Told, is_pack, new_name
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import head_told
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES
from langgraph_statekit.errors import Corrupt
from tests.servers import wait_until
from tests.stores.test_tiered import THREAD, Cold, Place, grow, local, seen
from tests.stores.test_tiered_heads import _damage, _lose
from tests.stores.test_tiered_replicas import Two, two
from tests.tiered_under_test import advance_cold

__all__ = ["local", "two"]

KEYS = Encryption({"k": b"k" * 32}, "k")


def _packs(place: Place) -> list[str]:
    """Return the keys of packs in the cold store, the oldest first."""
    keys = [key for key in place.driver.list("p/c") if is_pack(key)]
    stats = place.driver.stats("p/c")
    return sorted(keys, key=lambda key: stats[key].modified_s)


def _saved(place: Place, **options: Any) -> dict[str, Any]:
    with place.open(**options) as saver:
        for _ in range(3):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        return seen(saver)


def _stored(place: Place) -> dict[str, bytes]:
    return {key: found.data for key in place.driver.list("p/c") if (found := place.driver.get(key)) is not None}


def _spoil(driver: Any, key: str) -> None:
    driver.put(key, driver.get(key).data[:-3])


def test_a_repair_waits_for_a_replica_that_is_away(two: Two) -> None:
    before = _saved(two)
    two.lose_hot()
    _damage(two)
    two.driver.delete(_packs(two))
    left, away = _stored(two), Cold(two.second)
    away.down = True
    with two.open(replicas=[two.replica(away)]) as saver:
        for _ in range(2):  # the second time it rests
            with pytest.raises(Unavailable):
                saver.repair(THREAD)
            assert _stored(two) == left
            saver.tiers.replicas.all[0].failed(Unavailable("it did not answer"))
    with two.open() as saver:
        assert saver.repair(THREAD)
        assert seen(saver) == before
        assert not saver.repair(THREAD)


def test_a_repair_does_nothing_if_a_replica_is_damaged_too(two: Two) -> None:
    _saved(two)
    two.lose_hot()
    _damage(two)
    two.driver.delete(_packs(two))
    left = _stored(two)
    stats = two.second.stats("")
    _spoil(two.second, max((key for key in stats if not key.endswith("/head")), key=lambda key: stats[key].modified_s))
    with two.open() as saver:
        with pytest.raises(Corrupt):
            saver.repair(THREAD)
        assert _stored(two) == left


def test_a_thread_whose_packs_tell_of_no_head_is_left_alone_until_it_is_deleted(local: Place) -> None:
    _saved(local)
    local.lose_hot()
    _damage(local)
    for key in _packs(local):
        found = local.driver.get(key)
        assert found is not None
        local.driver.put(key, packed(*unpacked(found.data)[:6]))  # as they were before they told heads
    left = _stored(local)
    with local.open() as saver:
        with pytest.raises(Corrupt):
            saver.repair(THREAD)
        assert _stored(local) == left
        saver.delete_thread(THREAD)
        assert saver.deleted(THREAD)


def test_a_process_that_found_nothing_looks_again_for_a_lost_head(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local.open() as saver:
        assert seen(saver) == {}
        local.lose_hot()
        before = _saved(local)
        _lose(local)
        monkeypatch.setattr(heads, "_ABSENT_S", 0.0)
        assert seen(saver) == before


def test_a_deletion_removes_also_what_was_not_there_a_moment_ago(local: Place) -> None:
    with local.open() as saver:
        assert seen(saver) == {}
        local.lose_hot()
        _saved(local)
        _lose(local)
        saver.delete_thread(THREAD)
        assert _packs(local) == []
        assert saver.deleted(THREAD)


def test_a_lost_head_is_not_told_without_a_pack_that_cannot_be_read(local: Place) -> None:
    _saved(local)
    local.lose_hot()
    _lose(local)
    _spoil(local.driver, _packs(local)[-1])
    left = _stored(local)
    with local.open() as saver:
        with pytest.raises(Corrupt, match="verify --repair"):
            seen(saver)
        with pytest.raises(Corrupt, match="verify --repair"):
            saver.repair(THREAD)
        assert _stored(local) == left


@pytest.mark.parametrize("gone", [True, False])
def test_a_repair_takes_what_a_replica_has_if_it_is_newer(two: Two, gone: bool) -> None:
    before = _saved(two)
    two.lose_hot()
    _lose(two)
    if gone:
        two.driver.delete(_packs(two)[-1:])
    else:
        _spoil(two.driver, _packs(two)[-1])
    with two.open() as saver:
        assert saver.repair(THREAD)
        assert seen(saver) == before
        assert len(list(grow(saver, 1))) == 1
        saver.flush()
        before = seen(saver)
    two.lose_hot()
    with two.open() as saver:
        assert seen(saver) == before


@pytest.mark.parametrize("harm", [True, False])
def test_a_repair_takes_no_replica_that_lacks_what_the_packs_tell(two: Two, harm: bool) -> None:
    with two.open() as saver:
        assert len(list(grow(saver, 1))) == 1
        saver.flush()
    with two.open(replicas=[]) as saver:
        for _ in range(2):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        before = seen(saver)
    two.lose_hot()
    _lose(two)
    if harm:
        _spoil(two.driver, _packs(two)[0])
    left = _stored(two)
    with two.open() as saver:
        if harm:
            with pytest.raises(Corrupt):
                saver.repair(THREAD)
            assert _stored(two) == left
        else:
            assert saver.repair(THREAD)
            assert seen(saver) == before


def test_a_repair_ends_the_deletion_that_a_replica_knows_of(two: Two) -> None:
    _saved(two)
    packs = {key: data for key, data in _stored(two).items() if not key.endswith("/head")}
    with two.open() as saver:
        saver.delete_thread(THREAD)
        saver.flush()
    for key, data in packs.items():  # as if the removal had broken off
        two.driver.put(key, data)
    _lose(two)
    two.lose_hot()
    with two.open() as saver:
        assert saver.repair(THREAD)
        assert seen(saver) == {}
        assert saver.deleted(THREAD)


def test_a_hot_store_that_comes_back_older_brings_back_no_thread_that_was_deleted_when_damaged(local: Place) -> None:
    _saved(local)
    local.lose_hot()
    _damage(local)
    _spoil(local.driver, _packs(local)[-1])
    with local.open() as saver:
        saver.delete_thread(THREAD)
    local.lives = 0
    with local.open() as saver:
        saver.tiers.moving.upload(THREAD)
        assert seen(saver) == {}
        assert saver.deleted(THREAD)


def test_a_thread_of_which_all_was_lost_stays_deleted_though_the_hot_store_comes_back_older(local: Place) -> None:
    _saved(local)
    _damage(local)
    local.driver.delete(_packs(local))
    local.lose_hot()
    with local.open() as saver:
        saver.delete_thread(THREAD)
        assert saver.deleted(THREAD)
    local.lives = 0
    with local.open() as saver:
        saver.tiers.moving.upload(THREAD)
        assert seen(saver) == {}
        assert saver.deleted(THREAD)
        assert len(list(grow(saver, 2))) == 2  # a new life is another matter
        assert saver.archive(THREAD)
        assert len(seen(saver)) == 2


def test_a_replica_is_cleared_of_a_thread_that_was_deleted_when_both_had_lost_its_head(two: Two) -> None:
    _saved(two)
    two.lose_hot()
    _damage(two)
    two.driver.delete(_packs(two))
    two.second.delete([key for key in two.second.list("") if key.endswith("/head")])
    with two.open() as saver:
        saver.delete_thread(THREAD)
        wait_until(lambda: saver.deleted(THREAD), "the replica to be cleared")


def test_a_replica_keeps_neither_packs_nor_key_of_a_thread_that_was_deleted_when_all_was_lost(two: Two) -> None:
    _saved(two, encryption=KEYS)
    two.lose_hot()
    _damage(two)
    two.driver.delete([key for key in two.driver.list("p/c") if not key.endswith("/head")])
    with two.open(encryption=KEYS) as saver:
        saver.delete_thread(THREAD)
        wait_until(lambda: saver.deleted(THREAD), "the replica to be cleared")
        assert len(saver.tiers.replicas.all[0].place.objects(THREAD)) == 1


def test_a_deletion_that_broke_off_is_ended_though_its_tombstone_is_damaged_and_nothing_tells(local: Place) -> None:
    cold = Cold(local.driver)
    with local.open(cold) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()

        def die(keys: Any) -> None:
            raise Unavailable("it died")

        cold.delete = die  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            saver.delete_thread(THREAD)
    _damage(local)
    local.driver.delete(_packs(local))
    with local.open() as saver:
        assert saver.repair(THREAD)
        assert saver.tiers._tier.ended() == []
        assert saver.deleted(THREAD)


def test_a_replica_gets_the_copy_of_a_key_that_it_lacks(two: Two) -> None:
    _saved(two, encryption=KEYS)
    with two.open(encryption=KEYS) as saver:
        head, place = saver.tiers._cold.head(THREAD)[0], saver.tiers.replicas.all[0].place
        place.packs.remove(head, [head.header[:HEADER_ID_BYTES]])
        saver.replicate()
        assert place.packs.get(head, head.header[:HEADER_ID_BYTES]) == head.header


def test_a_thread_whose_key_has_no_copy_is_not_harmed_and_gets_one(local: Place) -> None:
    _saved(local, encryption=KEYS)
    with local.open(encryption=KEYS) as saver:
        head = saver.tiers._cold.head(THREAD)[0]
        saver.tiers._cold.packs.remove(head, [head.header[:HEADER_ID_BYTES]])
        assert not saver.tiers.restoring.harm(THREAD)
        assert saver.tiers.restoring.lacks_key(THREAD)
        assert saver.repair(THREAD)
        assert not saver.tiers.restoring.lacks_key(THREAD)
        assert not saver.repair(THREAD)


@pytest.mark.parametrize("harm", [_lose, _damage])
def test_a_thread_that_lost_its_head_ends_its_time_to_live_after_it_was_noticed(
    local: Place, harm: Callable[[Place], None]
) -> None:
    before = _saved(local, ttl_s=60.0)
    local.lose_hot()
    harm(local)
    with local.open(ttl_s=60.0) as saver:
        head, _ = saver.tiers._cold.head(THREAD)
        assert 0 < (head.until_us or 0) - saver.tiers._cold.now_us() <= 60e6
        saver.sweep()
        assert not saver.tiers.restoring.harm(THREAD)
        assert seen(saver) == before
    local.lose_hot()
    advance_cold(local._directory / "cold", 7 * 24 * 3600)
    with local.open(ttl_s=60.0) as saver:
        assert seen(saver) == {}
        saver.sweep()
        assert saver.deleted(THREAD)


def test_a_thread_that_waits_for_an_answer_does_not_end_since_its_head_was_lost() -> None:
    head = ColdHead("e", THREAD, 5, ttl_us=60)
    found = head_told([Told(head, [PackRef(new_name(PACK), 1, 1)])])
    assert found is not None
    assert found.until_us is None


def test_a_data_key_whose_name_begins_as_that_of_a_pack_is_none(local: Place) -> None:
    before = _saved(local)
    with local.open() as saver:
        cold = saver.tiers._cold
        cold.packs.put(cold.head(THREAD)[0], PACK + b"7654321", b"a wrapped key")
    _lose(local)
    local.lose_hot()
    with local.open() as saver:
        assert seen(saver) == before
