"""A pack that the cold store lost: nothing is uploaded over the hole, and the hot store drops nothing because of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_statekit import Encryption
from langgraph_statekit.checkpoint.backends.tiered.layout import is_pack
from langgraph_statekit.errors import Corrupt
from tests.stores.test_tiered import THREAD, Cold, Place, grow, here, local, seen
from tests.stores.test_tiered_replicas import Two, two

__all__ = ["here", "local", "two"]

KEYS = Encryption({"k": b"k" * 32}, "k")


def _saved(place: Place, **options: Any) -> None:
    with place.open(retry_s=10.0, **options) as saver:
        for _ in range(3):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()


def _lose(place: Place, at: int) -> None:
    """Remove a pack, of which -1 is the newest."""
    with place.open(retry_s=10.0) as saver:
        cold = saver.tiers._cold
        head, _ = cold.head(THREAD)
        cold.packs.remove(head, [head.packs[at].name])


def _cut(place: Place, at: int) -> None:
    """Leave half of a pack."""
    with place.open(retry_s=10.0) as saver:
        cold = saver.tiers._cold
        head, _ = cold.head(THREAD)
        name = head.packs[at].name
        data = cold.packs.get(head, name)
        assert data is not None
        cold.packs.put(head, name, data[: len(data) // 2])


PACK = pytest.mark.parametrize("at", [0, -1])
HARM = pytest.mark.parametrize("harm", [_lose, _cut])
Harm = Callable[[Place, int], None]


@PACK
@HARM
def test_an_upload_that_finds_a_pack_gone_stores_all_anew(here: Place, harm: Harm, at: int) -> None:
    _saved(here, encryption=KEYS)
    harm(here, at)
    with here.open(retry_s=10.0, encryption=KEYS) as saver:
        assert len(list(grow(saver, 1))) == 1
        saver.flush()
        before = seen(saver)
    here.lose_hot()
    with here.open(retry_s=10.0, encryption=KEYS) as saver:
        assert seen(saver) == before
        assert len(before) == 4


@PACK
@HARM
def test_the_hot_store_drops_nothing_of_which_a_pack_is_gone(here: Place, harm: Harm, at: int) -> None:
    _saved(here)
    harm(here, at)
    with here.open(retry_s=10.0) as saver:
        before = seen(saver)
        assert saver.archive(THREAD)
        assert saver.tiers._tier.state(THREAD) is None
        assert seen(saver) == before


@PACK
def test_a_removal_that_finds_a_pack_damaged_stores_all_anew(local: Place, at: int) -> None:
    _saved(local)
    with local.open() as saver:
        cold = saver.tiers._cold
        head, _ = cold.head(THREAD)
        data = cold.packs.get(head, head.packs[at].name)
        assert data is not None
        cold.packs.put(head, head.packs[at].name, data[:-1] + bytes([data[-1] ^ 1]))
    with local.open() as saver:
        saver.prune([THREAD])
        saver.flush()
        before = seen(saver)
        assert len(before) == 1
    local.lose_hot()
    with local.open() as saver:
        assert seen(saver) == before


@PACK
def test_a_pack_that_is_gone_while_a_process_holds_it_is_put_back(local: Place, at: int) -> None:
    with local.open() as saver:
        for _ in range(3):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        before = seen(saver)
        _lose(local, at)
        head = saver.tiers._cold.head(THREAD)[0]
        assert saver.archive(THREAD)
        assert saver.tiers._cold.head(THREAD)[0] == head
    with local.open() as saver:
        assert seen(saver) == before


def test_a_pack_that_is_gone_comes_back_from_a_replica(two: Two) -> None:
    _saved(two)
    two.lose_hot()
    with two.open() as saver:
        before = seen(saver)
        assert saver.tiers.moving.thaw(THREAD)
    _lose(two, -1)
    with two.open() as saver:
        head = saver.tiers._cold.head(THREAD)[0]
        assert saver.archive(THREAD)
        assert saver.tiers._cold.head(THREAD)[0] == head
        assert saver.tiers._cold.lost(head) == []
        assert seen(saver) == before


@PACK
def test_an_upload_says_so_if_nobody_has_the_pack_that_is_gone(local: Place, at: int) -> None:
    _saved(local)
    with local.open() as saver:
        [first, *_] = seen(saver)
        head = saver.tiers._cold.head(THREAD)[0]
    local.lose_hot()
    with local.hot() as hot:  # which knows nothing of the rest
        assert len(list(grow(hot, 1))) == 1
    _lose(local, at)
    left = {key: local.driver.get(key) for key in local.driver.list("p/c")}
    with local.open() as saver:
        with pytest.raises(Corrupt, match="missing"):
            saver.archive(THREAD)
        assert saver.tiers._tier.state(THREAD) is not None
        assert saver.tiers._cold.head(THREAD)[0] == head
    assert {key: local.driver.get(key) for key in local.driver.list("p/c")} == left
    assert first


def test_a_pack_that_is_put_back_while_the_thread_is_deleted_does_not_stay(local: Place) -> None:
    slow, asked = Cold(local.driver), 0
    with local.open(slow) as saver, local.open() as other:
        for _ in range(3):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        _lose(local, 0)
        stats = slow.stats

        def delete(prefix: str) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2:
                other.delete_thread(THREAD)
            return stats(prefix)

        slow.stats = delete  # type: ignore[method-assign]
        assert not saver.archive(THREAD)
        assert asked == 2
        assert other.deleted(THREAD)


def test_one_that_goes_on_with_what_it_stored_asks_for_no_list(local: Place) -> None:
    cold = Cold(local.driver)
    with local.open(cold) as saver:
        for _ in range(4):
            assert len(list(grow(saver, 1))) == 1
            saver.flush()
        assert [verb for verb, _ in cold.requests if verb == "stats"] == []
        assert len([key for key in local.driver.list("p/c") if is_pack(key)]) == 4
