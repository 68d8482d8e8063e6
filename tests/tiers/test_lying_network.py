"""A network to the cold store that is slow, lies, or is down: clear errors, an end, and nothing lost or done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import ObjectStoreSaver, TieredSaver, Unavailable, open_saver
from langgraph_statekit.errors import Misuse, StatekitError
from langgraph_statekit.events import BacklogTold, Event
from tests.faces import config
from tests.servers import Servers, wait_until
from tests.tiers.kit import PAIRS, Tiers, grow, history
from tests.tiers.network import Network, network


@pytest.fixture(params=[pair for pair in PAIRS if pair.endswith("-s3")])
def tiers(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of(request.param, servers.url, tmp_path)
    yield made
    made.clean()


@pytest.fixture
def net(tiers: Tiers) -> Iterator[Network]:
    with network(tiers.cold_url) as made:
        yield made


@pytest.fixture
def opened(tiers: Tiers, net: Network) -> Callable[..., TieredSaver]:
    def make(retry_s: float = 20.0, **options: Any) -> TieredSaver:
        hot = open_saver(tiers.hot.url, **tiers.hot.options)
        short = {"client_options": {"timeout": "1s"}}
        cold = ObjectStoreSaver.from_url(net.url, retry_s=retry_s, config=short)
        return TieredSaver(hot, cold, **{"max_lag_s": 3600.0, "grace_s": 0.0, **options})

    return make


@pytest.mark.parametrize("mode", ["write_through", "write_behind"])
def test_lost_and_cut_answers_delays_and_refusals_are_not_noticed(
    tiers: Tiers, net: Network, opened: Callable[..., TieredSaver], mode: str
) -> None:
    faults = cycle(["", "lost", "", "cut", "busy", "", "slow", "", ""])
    net.fault = lambda: next(faults)
    with opened(mode=mode) as saver:
        for thread in ("one", "two", "three"):
            assert len([*grow(saver, 5, thread)]) == 15
        for thread in ("one", "two"):
            saver.archive(thread)
            assert len([*grow(saver, 2, thread)]) == 6
        saver.prune(["two"])
        saver.delete_thread("three")
        before = {thread: history(saver, thread) for thread in ("one", "two", "three")}
        assert [len(each) for each in before.values()] == [7, 1, 0]
    assert net.seen.keys() == {"lost", "cut", "busy", "slow", ""}
    tiers.lose_hot()
    with tiers.open() as survivor:
        assert {thread: history(survivor, thread) for thread in before} == before
        assert survivor.deleted("three")
        for thread in ("one", "two"):
            head, _ = survivor.tiers._cold.head(thread)
            named = len(head.packs) + len(head.garbage)
            assert len(survivor.tiers._cold.objects(thread)) == 1 + named


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        ("busy", Unavailable, "did not answer within retry_s=0.*503"),
        ("silent", Unavailable, "did not answer within retry_s=0"),
        ("lost", Unavailable, "did not answer within retry_s=0"),
        ("denied", Misuse, "refused the credentials"),
    ],
)
def test_a_cold_store_that_nobody_reaches_is_named_in_time_and_gets_all_later(
    tiers: Tiers, net: Network, opened: Callable[..., TieredSaver], fault: str, error: type[StatekitError], says: str
) -> None:
    with opened(mode="write_through", retry_s=0.0) as saver:
        assert len([*grow(saver, 2, "t")]) == 6
        saver.archive("cold")
        net.fault, asked = (lambda: fault), net.seen.total()
        puts = grow(saver, 1, "t")
        assert next(puts)[0] == "begin"
        with pytest.raises(error, match=says):
            next(puts)
        with pytest.raises(error, match=says):
            saver.get_tuple(config("cold"))
        with pytest.raises(error, match=says):
            saver.delete_thread("t")
        assert net.seen.total() - asked <= 24
        net.fault = lambda: ""
        assert [number for number, _ in enumerate(grow(saver, 2, "t"))] == [*range(6)]
        before = history(saver, "t")
        assert len(before) in (4, 5)  # the refused put is in the hot store, and no error if it is
    tiers.lose_hot()
    with tiers.open() as survivor:
        assert history(survivor, "t") == before


def test_keys_that_are_taken_away_stop_no_work_and_are_told(
    tiers: Tiers, net: Network, opened: Callable[..., TieredSaver]
) -> None:
    told: list[Event] = []
    with opened(max_lag_s=0.0, retry_s=0.0, hooks=[told.append]) as saver:
        assert len([*grow(saver, 1, "t")]) == 3
        saver.flush()
        net.fault = lambda: "denied"
        assert len([*grow(saver, 3, "t")]) == 9
        wait_until(lambda: any(isinstance(event, BacklogTold) and event.error for event in told), "a failed upload")
        assert "refused the credentials" in next(str(e.error) for e in told if isinstance(e, BacklogTold))
        net.fault = lambda: ""
        saver.flush()
        before = history(saver, "t")
        assert len(before) == 4
    tiers.lose_hot()
    with tiers.open() as survivor:
        assert history(survivor, "t") == before
