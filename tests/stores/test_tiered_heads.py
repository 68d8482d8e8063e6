"""A thread whose head in the cold store is missing or damaged is what its packs tell; a deleted one stays deleted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Encryption, Unavailable
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.tiered.layout import PACK as OF_A_PACK
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Pack, PackRef, Told, is_pack, new_name
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import head_told
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES
from langgraph_statekit.errors import Corrupt
from tests.stores.test_tiered import THREAD, Cold, Place, grow, here, local, seen
from tests.stores.test_tiered_replicas import Two, two

__all__ = ["here", "local", "two"]


def _lose(place: Place, thread: str = THREAD) -> None:
    place.driver.delete([_head(place, thread)])


def _damage(place: Place, thread: str = THREAD) -> None:
    key = _head(place, thread)
    found = place.driver.get(key)
    assert found is not None
    place.driver.put(key, found.data[: len(found.data) // 2])


def _head(place: Place, thread: str) -> str:
    with place.open() as saver:
        return saver.tiers._cold._keys(thread).head


Harm = Callable[..., None]
HARMS = pytest.mark.parametrize("harm", [_lose, _damage])


@HARMS
def test_a_thread_that_lost_its_head_is_read_listed_and_goes_on(here: Place, harm: Harm) -> None:
    with here.open(retry_s=10.0) as saver:
        for _ in range(11):  # which compacts on the way
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        before = seen(saver)
    harm(here)
    here.lose_hot()
    with here.open(retry_s=10.0) as saver:
        assert seen(saver) == before
        assert {item.config["configurable"]["thread_id"] for item in saver.list(None)} == {THREAD}
        saver.sweep()
        saver.tiers.sweep_cold(-1e9)  # as if all were old
        assert len(list(grow(saver, 2))) == 2
        saver.flush()
        before = seen(saver)
        assert len(before) == 13
    here.lose_hot()
    with here.open(retry_s=10.0) as saver:
        assert not saver.repair(THREAD)
        assert seen(saver) == before


@HARMS
def test_repair_stores_a_head_that_reads_need_no_packs_for(here: Place, harm: Harm) -> None:
    with here.open(retry_s=10.0) as saver:
        assert len(list(grow(saver, 3))) == 3
        before = seen(saver)
        assert saver.archive(THREAD)
        harm(here)
        assert saver.tiers.restoring.harm(THREAD)
        assert saver.repair(THREAD)
        assert not saver.tiers.restoring.harm(THREAD)
        assert not saver.repair(THREAD)
        assert not saver.repair("never was")
    here.lose_hot()
    with here.open(retry_s=10.0) as saver:
        assert seen(saver) == before


@HARMS
def test_what_the_hot_store_has_comes_along_with_the_next_upload(here: Place, harm: Harm) -> None:
    with here.open(retry_s=10.0) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        assert len(list(grow(saver, 2))) == 2
        before = seen(saver)
        harm(here)
        assert saver.archive(THREAD)
        assert seen(saver) == before


@HARMS
def test_a_deleted_thread_does_not_return_with_its_head(local: Place, harm: Harm) -> None:
    with local.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        harm(local)
        saver.delete_thread(THREAD)
        assert saver.deleted(THREAD)
        assert seen(saver) == {}


def test_a_deletion_that_broke_off_is_ended_though_its_tombstone_is_damaged(local: Place) -> None:
    cold = Cold(local.driver)
    with local.open(cold) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        ask = cold._do

        def do(verb: str, *args: Any) -> Any:
            if verb == "delete":
                raise Unavailable("it died")
            return ask(verb, *args)

        cold._do = do  # type: ignore[method-assign]
        with pytest.raises(Unavailable):
            saver.delete_thread(THREAD)
    _damage(local)
    with local.open() as saver:
        assert seen(saver) == {}
        assert saver.repair(THREAD)
        assert saver.deleted(THREAD)


def test_a_damaged_tombstone_is_told_and_repaired(local: Place) -> None:
    with local.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        saver.delete_thread(THREAD)
        _damage(local)
        with pytest.raises(Corrupt, match="verify --repair"):
            seen(saver)
        assert [*saver.list(None)] == []
        assert saver.repair(THREAD)
        assert seen(saver) == {}
        assert len(list(grow(saver, 1))) == 1
        assert saver.archive(THREAD)


def test_what_lost_all_is_made_anew_of_what_the_hot_store_has(local: Place) -> None:
    with local.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        before = seen(saver)
        _damage(local)
        local.driver.delete([key for key in local.driver.list("") if "/c/" in key and not key.endswith("/head")])
    with local.open() as saver:
        assert saver.repair(THREAD)
        assert saver.archive(THREAD)
    local.lose_hot()
    with local.open() as saver:
        assert seen(saver) == before


def test_a_pack_that_is_gone_as_well_is_told_and_nothing_is_repaired(local: Place) -> None:
    with local.open() as saver:
        for _ in range(2):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        first = saver.tiers._cold.head(THREAD)[0].packs[0]
        assert saver.archive(THREAD)
    _lose(local)
    local.driver.delete([key for key in local.driver.list("") if key.endswith(first.name.hex())])
    with local.open() as saver:
        with pytest.raises(Corrupt, match="missing"):
            saver.repair(THREAD)
        assert saver.tiers.restoring.harm(THREAD)


@HARMS
def test_an_encrypted_thread_keeps_its_key_also_after_a_rotation(here: Place, harm: Harm) -> None:
    keys = {"old": b"o" * 32, "new": b"n" * 32}
    with here.open(retry_s=10.0, encryption=Encryption(keys, "old")) as saver:
        assert len(list(grow(saver, 3))) == 3
        before = seen(saver)
        assert saver.archive(THREAD)
    with here.open(retry_s=10.0, encryption=Encryption(keys, "new")) as saver:
        saver.rotate_keys()
    harm(here)
    here.lose_hot()
    with here.open(retry_s=10.0, encryption=Encryption({"new": keys["new"]}, "new")) as saver:
        assert seen(saver) == before
        assert saver.repair(THREAD)
        saver.tiers.sweep_cold(-1e9)
        assert seen(saver) == before
        saver.delete_thread(THREAD)
        assert saver.deleted(THREAD)


KEYS = Encryption({"k": b"k" * 32}, "k")


def test_a_save_that_loses_against_a_deletion_leaves_no_key(local: Place) -> None:
    slow = Cold(local.driver)
    with local.open(slow, encryption=KEYS) as saver, local.open(encryption=KEYS) as other:
        assert len(list(grow(saver, 2))) == 2

        def delete(key: str) -> None:
            if not (is_pack(key) or key.endswith("/head")):
                slow.before_put = lambda key: None
                other.delete_thread(THREAD)

        slow.before_put = delete
        saver.flush()
        assert slow.before_put is not delete
        assert len(saver.tiers._cold.objects(THREAD)) == 1
        assert saver.deleted(THREAD)


def test_an_upload_that_dies_at_any_call_leaves_a_thread_that_is_uploaded_by_the_next(tmp_path: Path) -> None:
    for number in range(1, 50):
        place = Place(tmp_path, FileDriver(tmp_path / f"cold {number}"), "p")
        place.lives = number
        dying = Cold(place.driver)
        puts = 0

        def die(key: str) -> None:
            nonlocal puts
            puts += 1
            dying.down = dying.down or puts == number

        dying.before_put = die
        with place.open(dying, encryption=KEYS) as saver:
            assert len(list(grow(saver, 2))) == 2
            with suppress(Unavailable):
                saver.flush()
            dying.down = True
        with place.open(encryption=KEYS) as saver:
            assert saver.archive(THREAD)
            before = seen(saver)
        place.lose_hot()
        with place.open(encryption=KEYS) as saver:
            assert len(before) == 2
            assert seen(saver) == before
        if puts < number:
            break
    assert number > 3


def test_a_rotation_counts_also_in_a_copy_that_went_up_meanwhile(local: Place) -> None:
    keys = {"old": b"o" * 32, "new": b"n" * 32}
    slow = Cold(local.driver)
    with (
        local.open(encryption=Encryption(keys, "old")) as other,
        local.open(slow, encryption=Encryption(keys, "new")) as saver,
    ):
        assert len(list(grow(other, 3))) == 3
        other.flush()
        head, tag = other.tiers._cold.head(THREAD)
        assert other.tiers._cold.publish(THREAD, replace(head, gen=head.gen + 1), tag)  # the hot one is not told of it

        def replace_copy(key: str) -> None:
            if key.endswith("/head"):
                slow.before_put = lambda key: None
                other.tiers.moving.upload(THREAD)  # finds that the hot store has another key than the cold one
                assert len(list(grow(other, 1))) == 1

        slow.before_put = replace_copy
        assert saver.rotate_keys() == 1
        assert slow.before_put is not replace_copy
        with local.open(encryption=Encryption({"new": keys["new"]}, "new")) as reader:
            assert len(seen(reader)) == 4


def test_a_change_that_loses_leaves_the_key_as_the_head_has_it(two: Two) -> None:
    with two.open(encryption=KEYS) as saver:
        assert len(list(grow(saver, 2))) == 2
        saver.flush()
        cold = saver.tiers._cold
        replica = saver.tiers.replicas.all[0]
        head, tag = cold.head(THREAD)
        older = replace(head, gen=head.gen + 1, header=head.header + b"older")
        id = head.header[:HEADER_ID_BYTES]
        assert cold.publish(THREAD, replace(head, gen=head.gen + 1), tag)
        assert not cold.publish(THREAD, older, tag)
        assert cold.append(older, Pack(frames={b"k" * 16: b"x"}), tag) is None
        assert cold.packs.get(head, id) == head.header
        assert not replica._publish(digest(THREAD), older, head, "another tag")
        assert replica.place.packs.get(head, id) == head.header
        saver.delete_thread(THREAD)
        assert not replica._publish(digest(THREAD), older, head, "another tag")
        assert saver.deleted(THREAD)


def test_a_tombstone_whose_removal_broke_off_stays_until_nothing_else_is_left(local: Place) -> None:
    dying = Cold(local.driver)
    with local.open() as saver, local.open(dying, tombstone_s=0.0) as sweeper:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        head, pack = saver.tiers._cold.head(THREAD)[0], saver.tiers._cold.packs
        old = pack.read(head, head.packs)[0]
        saver.delete_thread(THREAD)
        for _ in range(2):
            pack.upload(head, old, {}, {})  # by workers that died then

        def die(keys: Any) -> None:
            local.driver.delete(sorted(keys, key=lambda key: not key.endswith("/head"))[:1])
            raise Unavailable("it died")

        dying.delete = die  # type: ignore[method-assign]
        sweeper.sweep()
    with local.open() as saver:
        assert len(saver.tiers._cold.objects(THREAD)) == 2
        assert seen(saver) == {}
        assert [*saver.list(None)] == []


HEAD = ColdHead("e", "t", 5, seq=1)


def _told(head: ColdHead, rows: int = 1, parts: int = 1) -> Told:
    return Told(head, [PackRef(new_name(OF_A_PACK), 1, rows) for _ in range(parts)])


def test_uploads_at_the_same_time_are_all_taken_the_newest_view_last() -> None:
    first = _told(HEAD)
    second = replace(HEAD, gen=6, packs=first.parts)
    older, newer, whole = _told(second), _told(replace(second, seq=2)), _told(replace(second, packs=[]))
    found = head_told([newer, first, older, whole])
    assert found is not None
    assert found.packs == [*whole.parts, *older.parts, *newer.parts]
    assert found.seq == 2
    assert found.gen > 6


def test_parts_of_one_pack_are_taken_together_also_beside_an_upload_at_the_same_time() -> None:
    first = _told(HEAD)
    on = replace(HEAD, gen=6, packs=first.parts)
    small, large, whole = _told(on), _told(replace(on, seq=2), parts=3), _told(replace(on, packs=[]), parts=4)
    for told, packs in (
        ([first, large, small], [*first.parts, *small.parts, *large.parts]),
        ([first, small, whole], [*whole.parts, *small.parts]),
    ):
        found = head_told(told)
        assert found is not None
        assert found.packs == packs


def test_a_large_pack_tells_its_head_with_its_last_part_only(local: Place) -> None:
    with local.open() as saver:
        cold, frames = saver.tiers._cold, {bytes([i]) * 16: bytes([i]) * (5 << 20) for i in range(3)}
        head = ColdHead("e", THREAD, 5)
        cold.packs._offload_bytes = 1 << 30
        made = cold.packs.upload(head, Pack(frames=frames), {}, {})
        told, bad = cold.packs.told(cold._keys(THREAD))
        assert len(made.packs) == 3
        assert not bad
        assert [(each.head.packs, list(each.parts)) for each in told] == [([], made.packs)]


def test_a_life_that_was_deleted_or_never_counted_is_not_taken() -> None:
    first = _told(HEAD)
    on = _told(replace(HEAD, gen=6, packs=first.parts))
    lost = _told(replace(HEAD, epoch="other", gen=9, seq=9))
    found = head_told([lost, first, on])
    assert found is not None
    assert found.packs == [*first.parts, *on.parts]
    born = _told(replace(HEAD, epoch="new", gen=20, dead=["e", "other"]))
    found = head_told([lost, first, on, born])
    assert found is not None
    assert (found.epoch, found.packs) == ("new", born.parts)
    assert head_told([_told(HEAD, rows=0)]) is None
    assert head_told([]) is None
