"""A deletion takes what was there, and nothing that begins after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faces import config
from tests.servers import Servers
from tests.tiered_under_test import HOT
from tests.tiers.kit import Tiers, history, put

HOUR_US = 3600 * 1_000_000


@pytest.fixture(params=HOT)
def tiers(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of(f"{request.param}-file", servers.url, tmp_path)
    yield made
    made.clean()


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
@pytest.mark.parametrize("knows", [True, False], ids=["the store knows", "another store took over"])
def test_a_thread_that_begins_after_the_clock_was_set_back_is_not_taken_for_the_deleted_one(
    tiers: Tiers, mode: str, knows: bool
) -> None:
    with tiers.open(mode=mode) as saver:
        put(saver, 2)
        saver.flush()
        saver.delete_thread("t")
        hot, cold = saver.tiers._tier, saver.tiers._cold
        head, tag = cold.head("t")
        later_us = hot.now_us() + HOUR_US
        assert cold.publish("t", replace(head, gen=head.gen + 1, dead_us=later_us), tag)
        if knows:
            hot.buried("t", later_us, head.gen + 1)
    with tiers.open(mode=mode) as saver:
        new = put(saver, 3)
        saver.flush()
        assert [*history(saver, "t")] == new
        assert saver.archive("t")
        assert [*history(saver, "t")] == new
        assert put(saver, 1)
        saver.delete_thread("t")
        assert saver.deleted("t")
        again = put(saver, 1)
        saver.flush()
    with tiers.open_below() as below:
        assert [*history(below, "t")] == again


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_a_deletion_counts_below_though_the_thread_begins_anew_meanwhile(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    with tiers.open(mode=mode) as saver, tiers.open() as other:
        put(saver, 3)
        saver.flush()
        end, new = saver.tiers._tier.end, list[str]()

        def ended(thread: str) -> bool:
            had = end(thread)
            new.extend(put(other, 2))
            return had

        monkeypatch.setattr(saver.tiers._tier, "end", ended)
        saver.delete_thread("t")
        tiers.lose_hot()
        with tiers.open_below() as below:
            assert [*history(below, "t")] == new


@pytest.mark.parametrize("before", [0, 1], ids=["never there before", "deleted before"])
def test_an_upload_under_way_brings_nothing_back_that_was_deleted_after_the_hot_store_lost_it(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    with tiers.open() as saver, tiers.open() as late:
        for _ in range(before):
            put(late, 1)
            late.delete_thread("t")
        put(late, 2)
        append, acts = late.tiers._cold.append, [True]

        def appended(*args: Any) -> Any:
            if acts:
                acts.pop()
                tiers.lose_hot()
                saver.delete_thread("t")
            return append(*args)

        monkeypatch.setattr(late.tiers._cold, "append", appended)
        late.flush()
        assert not acts
        assert late.get_tuple(config("t")) is None
        assert saver.deleted("t")
    with tiers.open_below() as below:
        assert history(below, "t") == {}
