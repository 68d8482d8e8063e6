"""What a sweep removes from the cold store, and what it must not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from langgraph_statekit import Encryption, Unavailable
from langgraph_statekit.checkpoint.backends.tiered import cold as cold_store
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Pack
from tests.faces import checkpoint, config, metadata
from tests.stores.test_tiered import THREAD, Cold, Place, grow, here, local, seen
from tests.stores.test_tiered_replicas import Two, two
from tests.tiered_under_test import advance_cold

__all__ = ["here", "local", "two"]

LOST_S = -3600.0
"""By then even what was stored a moment ago is old, whatever the clock of the store."""


def test_a_tombstone_goes_after_its_time_and_the_id_may_be_used_again(here: Place) -> None:
    with here.open(retry_s=10.0) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        saver.delete_thread(THREAD)
        saver.sweep()
        assert len(saver.tiers._cold.objects(THREAD)) == 1  # it is young
    with here.open(retry_s=10.0, tombstone_s=0.0) as saver:
        saver.sweep()
        assert saver.tiers._cold.objects(THREAD) == []
        assert saver.deleted(THREAD)
        assert len(list(grow(saver, 2))) == 2
        assert saver.archive(THREAD)
        assert len(list(grow(saver, 1))) == 1  # it is thawed, though an earlier life was buried here
        assert len(seen(saver)) == 3
        saver.sweep()
        saver.flush()
        before = seen(saver)
    here.lose_hot()
    with here.open(retry_s=10.0) as saver:
        assert seen(saver) == before


@pytest.mark.parametrize("name", ["tiered", "tiered-postgres"])
def test_a_thread_does_not_expire_before_the_cold_store_has_all_of_it(
    name: str, new_store: Callable[[str], Any]
) -> None:
    store = new_store(name)
    with store.open(ttl_s=60.0, max_lag_s=3600.0) as saver:
        put = [*grow(saver, 2)]
        saver.flush()
        put += grow(saver, 1)
        saver.put_writes(config("writes only", id="1"), [("log", 1)], "task")
        assert THREAD in saver.tiers._tier.dirty(1 << 62, 10)
        for _ in range(2):
            store._hot.advance(3600)
            advance_cold(store._cold._directory, 3600)
            assert list(seen(saver)) == put[::-1]
            saver.sweep()
        saver.flush()
        assert saver.tiers._tier.dirty(1 << 62, 10) == []
        store._hot.advance(50)
        advance_cold(store._cold._directory, 50)
        assert list(seen(saver)) == put[::-1]  # and lives on
        store._hot.advance(50)
        advance_cold(store._cold._directory, 50)
        assert list(seen(saver)) == put[::-1]
        store._hot.advance(3600)
        advance_cold(store._cold._directory, 3600)
        assert seen(saver) == {}
        assert not saver.deleted(THREAD)
        saver.sweep()
        assert saver.deleted(THREAD)


def test_a_tombstone_stays_until_all_replicas_have_it(two: Two) -> None:
    away = Cold(two.second)
    with two.open(replicas=[two.replica(away)], tombstone_s=0.0) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        away.down = True
        saver.delete_thread(THREAD)
        saver.sweep()
        assert len(saver.tiers._cold.objects(THREAD)) == 1
        away.down = False
        saver.sweep()
        assert saver.tiers._cold.objects(THREAD) == []
        assert saver.tiers.replicas.all[0].place.objects(THREAD) == []
        assert saver.deleted(THREAD)


def test_a_life_that_begins_while_the_tombstone_is_removed_is_not_removed_with_it(local: Place) -> None:
    slow = Cold(local.driver)
    with local.open() as saver, local.open(slow, tombstone_s=0.0) as sweeper:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        saver.delete_thread(THREAD)
        assert len(list(grow(saver, 2))) == 2
        upload = threading.Thread(target=saver.flush)
        delete, read = slow.delete, threading.Event()
        get = saver.tiers._cold.head

        def head(thread: str) -> Any:
            found = get(thread)
            read.set()  # and found the mark
            return found

        def begin(keys: Any) -> None:
            saver.tiers._cold._heads.renew()
            saver.tiers._cold.head = head  # type: ignore[method-assign]
            upload.start()
            read.wait()
            delete(keys)

        slow.delete = begin  # type: ignore[method-assign]
        sweeper.sweep()
        upload.join()
        before = seen(saver)
    local.lose_hot()
    with local.open() as saver:
        assert seen(saver) == before
        assert len(before) == 2


def test_a_sweep_that_died_holds_up_the_next_life_for_a_while_only(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Cold(local.driver)
    with local.open() as saver, local.open(dying, tombstone_s=0.0) as sweeper:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        saver.delete_thread(THREAD)

        def die(keys: Any) -> None:
            raise Unavailable("it died")

        monkeypatch.setattr(dying, "delete", die)
        sweeper.sweep()
        head, _ = saver.tiers._cold.head(THREAD)
        assert saver.tiers._cold.is_dying(head)
        assert len(list(grow(saver, 1))) == 1
        monkeypatch.setattr(cold_store, "_DYING_US", 0)
        saver.flush()
        assert saver.archive(THREAD)
        assert len(seen(saver)) == 1


def test_packs_that_nothing_names_are_swept_and_others_stay(here: Place) -> None:
    with here.open(retry_s=10.0, grace_s=3600.0) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        assert len(list(grow(saver, 1))) == 1
        saver.prune([THREAD])
        saver.flush()  # which leaves garbage that readers may need
        before, objects = seen(saver), saver.tiers._cold.objects(THREAD)
        head, _ = saver.tiers._cold.head(THREAD)
        saver.tiers._cold.packs.upload(head, Pack(frames={b"k" * 16: b"x"}), {}, {})  # by one that died then
        saver.tiers._cold.packs.upload(ColdHead("e", "never begun"), Pack(frames={b"k" * 16: b"x"}), {}, {})
        saver.sweep()
        assert len(saver.tiers._cold.objects(THREAD)) == len(objects) + 1  # it is young
        saver.tiers.sweep_cold(LOST_S)
        assert sorted(saver.tiers._cold.objects(THREAD)) == sorted(objects)
        assert saver.tiers._cold.objects("never begun") == []
    here.lose_hot()
    with here.open(retry_s=10.0) as saver:
        assert seen(saver) == before


def test_a_sweep_cleans_replicas_too(two: Two) -> None:
    with two.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        place = saver.tiers.replicas.all[0].place
        objects = place.objects(THREAD)
        place.packs.upload(place.head(THREAD)[0], Pack(frames={b"k" * 16: b"x"}), {}, {})
        saver.tiers.sweep_cold(LOST_S)
        assert sorted(place.objects(THREAD)) == sorted(objects)


def test_an_encrypted_thread_goes_on_with_its_key_though_worker_and_hot_store_forgot_it(local: Place) -> None:
    with local.open(encryption=Encryption({"k": b"k" * 32}, "k"), mode="write_through") as saver:
        assert len(list(grow(saver, 3))) == 3
        with closing(saver.tiers._hot._connections._connect(9e9)) as db:  # type: ignore[attr-defined]
            for table in ("threads", "rows", "frames", "writes", "tier", "tier_touched", "tier_gone", "tier_ended"):
                db.execute(f"DELETE FROM {table}")
        saver.backend._keys.renew()  # type: ignore[attr-defined]
        saver.put(config(), checkpoint({"log": [1]}, {"log": "9999.x"}), metadata(3), {"log": "9999.x"})
        assert len(list(saver.list(config()))) == 4
