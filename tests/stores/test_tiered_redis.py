"""Two tiers with Redis as the hot store: the guarantees of `test_tiered`, the loss of all it holds, and expiry."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from langgraph_statekit import RedisSaver, TieredSaver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.errors import Corrupt
from tests.faces import config
from tests.servers import Server
from tests.stores import test_tiered
from tests.stores.test_tiered import (
    THREAD,
    Place,
    grow,
    seen,
    test_a_copy_of_the_first_checkpoint_has_its_values_though_the_thread_was_archived_a_moment_ago,
    test_a_thaw_from_an_older_state_does_not_hide_newer_checkpoints,
    test_a_thaw_that_ends_after_a_deletion_brings_nothing_back,
    test_an_upload_that_ends_after_a_deletion_brings_nothing_back,
    test_two_workers_that_upload_archive_and_thaw_at_once_do_no_harm,
    test_what_a_dead_worker_left_is_uploaded_by_another,
    test_write_behind_loses_no_more_than_its_window,
    test_write_through_loses_nothing_with_the_hot_store,
)
from tests.stores.test_tiered_limits import (
    test_keys_are_rotated_in_both_stores,
    test_the_hot_store_drops_idle_threads_in_the_mode_archive,
)
from tests.stores_under_test import RedisStore
from tests.tiered_under_test import advance_cold

__all__ = [
    "test_a_copy_of_the_first_checkpoint_has_its_values_though_the_thread_was_archived_a_moment_ago",
    "test_a_thaw_from_an_older_state_does_not_hide_newer_checkpoints",
    "test_a_thaw_that_ends_after_a_deletion_brings_nothing_back",
    "test_an_upload_that_ends_after_a_deletion_brings_nothing_back",
    "test_keys_are_rotated_in_both_stores",
    "test_the_hot_store_drops_idle_threads_in_the_mode_archive",
    "test_two_workers_that_upload_archive_and_thaw_at_once_do_no_harm",
    "test_what_a_dead_worker_left_is_uploaded_by_another",
    "test_write_behind_loses_no_more_than_its_window",
    "test_write_through_loses_nothing_with_the_hot_store",
]


class RedisPlace(Place):
    """A Redis and a cold place; the Redis can lose all it has."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory, FileDriver(directory / "cold"), "p")
        self.store = RedisStore(lambda kind: url, directory)

    def hot(self) -> RedisSaver:
        return RedisSaver.from_url(self.store.url, **self.store.options)

    def lose_hot(self) -> None:
        with self.store._client() as client:
            client.flushall()

    def advance(self, seconds: float) -> None:
        self.store.advance(seconds)
        advance_cold(self._directory / "cold", seconds)

    def bury(self, saver: TieredSaver) -> bool:
        """Do for all threads what a worker does now and then; say whether nothing is left of the one."""
        saver.tiers.uploading._max_lag_s = -2.0
        saver.tiers.uploading._look_around()
        return saver.deleted(THREAD)


@pytest.fixture
def local(server: Server, tmp_path: Path) -> RedisPlace:
    place = RedisPlace(tmp_path, server.url)
    place.lose_hot()  # what other tests left: a test that removes keys finds its own only
    return place


@pytest.fixture
def here(local: RedisPlace) -> RedisPlace:
    return local


def test_a_process_that_dies_at_any_step_loses_nothing_and_brings_nothing_back(local: RedisPlace) -> None:
    test_tiered.test_a_process_that_dies_at_any_step_loses_nothing_and_brings_nothing_back(local, acts=True)


def test_a_run_goes_on_though_redis_is_flushed_under_it(local: RedisPlace) -> None:
    with local.open(mode="write_through") as saver:
        put = []
        for at, id in enumerate(grow(saver, 12)):
            put.append(id)
            if at % 4 == 3:
                local.lose_hot()
                assert list(seen(saver)) == put[::-1]
        assert list(seen(saver)) == put[::-1]
        local.lose_hot()
        put += grow(saver, 1)
        with local.hot() as plain:  # that one has begun anew to note what changes
            put += grow(plain, 1)
            others = [*grow(plain, 2, "another thread")]
        assert not local.bury(saver)
        local.lose_hot()
        assert list(seen(saver)) == put[::-1]
        assert list(seen(saver, "another thread")) == others[::-1]


def test_what_is_not_in_the_cold_store_does_not_expire(local: RedisPlace) -> None:
    with local.open(ttl_s=60.0) as saver:
        put = [*grow(saver, 3)]
        local.store.advance(3600)
        assert list(seen(saver)) == put[::-1]
        local.store.advance(3600)
        saver.flush()
        assert seen(saver) == {}
        assert local.bury(saver)


def test_a_thread_that_expired_leaves_the_cold_store_too(local: RedisPlace) -> None:
    with local.open(ttl_s=60.0) as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.put_writes(config("writes only", id="1"), [("log", 1)], "task")
        saver.flush()
        local.advance(50)
        assert len(seen(saver)) == 3  # and lives on
        local.advance(50)
        assert len(seen(saver)) == 3
        local.advance(24 * 3600)
        assert seen(saver) == {}
        assert not saver.deleted(THREAD)
        assert local.bury(saver)
        assert saver.deleted("writes only")
        assert len(list(grow(saver, 1))) == 1
        saver.flush()
        assert len(seen(saver)) == 1


@pytest.mark.parametrize("part", "mohdw")
def test_a_thread_of_which_the_hot_store_lost_a_key_goes_on_from_the_cold_one_and_harms_it_never(
    local: RedisPlace, server: Server, part: str
) -> None:
    def lose_a_part() -> None:
        with redis.Redis.from_url(server.url) as client:
            client.delete(next(key for key in client.scan_iter() if f":{part}:".encode() in key))

    with local.open() as saver:
        list(grow(saver, 3))
        saver.flush()
        uploaded = seen(saver)
        lose_a_part()
        assert saver.get_tuple(config(THREAD)) is not None
        assert seen(saver) == uploaded
        [last] = grow(saver, 1)
        saver.flush()
        lose_a_part()
        saver.put_writes(config(THREAD, id=last), [("log", "late")], "other")
        uploaded = seen(saver)
        assert len(uploaded) == 4
        assert len(uploaded[last][2]) == 2
        saver.flush()
        saver.put_writes(config(THREAD, id=last), [("log", "later")], "one more")
        lose_a_part()  # of what the cold store has not
        for call in (lambda: saver.get_tuple(config(THREAD)), lambda: seen(saver), saver.flush):
            with pytest.raises(Corrupt, match="noeviction"):
                call()
        saver.sweep()
        assert saver.restore([THREAD], at=last, suffix=" again") == [f"{THREAD} again"]
        assert len(seen(saver, f"{THREAD} again")) == 4
    local.lose_hot()
    with local.open() as saver:
        assert seen(saver) == uploaded
