"""`write_cold`: while the hot store is away the cold one takes saves, and what the hot one missed wins when it is back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import RESUME

from langgraph_statekit import Corrupt, Encryption, TieredSaver, Unavailable
from tests.faces import config, id_of
from tests.servers import STARTERS, Server, wait_until
from tests.stores_under_test import FileStore
from tests.tiered_under_test import HOT
from tests.tiers.kit import CRASHES, Tiers, Workers, grow, history, put, sample


class Place(Tiers):
    """Tiers whose hot store has a server of its own."""

    server: Server

    def open_cold_writer(self, **options: object) -> TieredSaver:
        return self.open(write_cold=True, retry_s=0.1, **options)


@pytest.fixture(params=[kind for kind in HOT if kind in STARTERS])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    start: Callable[[], AbstractContextManager[Server]] = STARTERS[request.param]
    with start() as server:
        made = Place(
            HOT[request.param](lambda kind: server.url, tmp_path), FileStore(lambda kind: "", tmp_path), tmp_path
        )
        made.server = server
        yield made


def latest(saver: TieredSaver, thread: str) -> str | None:
    found = saver.get_tuple(config(thread))
    return None if found is None else found.checkpoint["id"]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_saves_go_on_and_are_the_latest_when_the_hot_store_is_back(place: Place, encrypted: bool) -> None:
    options = {"encryption": Encryption({"key": b"k" * 32}, "key")} if encrypted else {}
    with place.open_cold_writer(**options) as saver:
        uploaded = put(saver, 3, "old")
        saver.flush()
        unsent = put(saver, 2, "old")  # the hot store has them only
        put(saver, 1, "other")
        saver.archive("other")
        place.server.kill()
        below = put(saver, 2, "old")
        assert put(saver, 1, "other")
        begun = put(saver, 2, "new")
        assert [*history(saver, "old")] == [*uploaded, *below]
        assert latest(saver, "old") == below[-1]
        place.server.start()
        wait_until(lambda: len(history(saver, "old")) == 7, "the hot store to be told")
        assert [*history(saver, "old")] == [*uploaded, *unsent, *below]
        assert latest(saver, "old") == below[-1]
        assert [*history(saver, "new")] == begun
        more = {thread: put(saver, 2, thread) for thread in ("old", "new", "other")}
        before = {thread: history(saver, thread) for thread in more}
        assert {thread: [*each][-2:] for thread, each in before.items()} == more
        assert [len(each) for each in before.values()] == [9, 4, 4]
        saver.flush()
    place.lose_hot()
    with place.open(**options) as survivor:
        assert {thread: history(survivor, thread) for thread in before} == before


def test_what_a_process_saved_below_and_told_nobody_of_another_tells(place: Place) -> None:
    with place.open_cold_writer() as dead, place.open_cold_writer(max_lag_s=0.0) as other:
        old = put(dead, 3, "t")
        dead.flush()
        assert latest(other, "t") == old[-1]
        place.server.kill()
        below = put(dead, 2, "t")
        place.server.start()
        wait_until(lambda: latest(other, "t") == below[-1], "the other to learn of it")
        assert [*history(other, "t")] == [*old, *below]
        assert put(other, 1, "t")
        assert len(history(other, "t")) == 6
        assert not other.tiers._cold.head("t")[0].ahead


@pytest.mark.slow
def test_a_process_that_dies_at_any_request_of_a_save_below_loses_nothing(
    place: Place, processes: Workers, tmp_path: Path
) -> None:
    options = place.options(write_cold=True, retry_s=0.0)
    names = [f"{number}" for number in range(CRASHES + 1)]
    with place.open() as saver:
        old = {thread: put(saver, 2, thread) for thread in names}
    place.server.kill()
    whole = processes.start("below", place, options, tmp_path / "0", thread="0")
    assert whole.wait() == 0, processes.errors
    logs = {"0": whole.lines}
    for thread, dies_at in zip(names[1:], sample(int(whole.lines[-1].split("\t")[1])), strict=False):
        given = {"thread": thread, "dies_at": dies_at, "acts": dies_at % 2 == 0}
        worker = processes.start("below", place, options, tmp_path / thread, **given)
        assert worker.wait() == -9, processes.errors
        logs[thread] = worker.lines
    place.server.start()
    with place.open_cold_writer() as survivor:
        for thread, lines in logs.items():
            acknowledged = [line.split("\t")[1] for line in lines if line.startswith("put")]
            left = [*history(survivor, thread)]
            assert left[: 2 + len(acknowledged)] == [*old[thread], *acknowledged]
            assert len(left) - 2 - len(acknowledged) in (0, 1)
            assert latest(survivor, thread) == left[-1]
            assert put(survivor, 1, thread)


def test_a_save_under_a_lease_is_refused_while_nobody_can_tell_whose_it_is(place: Place) -> None:
    with place.open_cold_writer() as saver:
        put(saver, 1, "t")
        saver.flush()
        with saver.lease("t") as lease:
            place.server.kill()
            puts = grow(saver, 1, "t")
            found = saver.get_tuple(config("t"))
            assert found is not None
            leased: Any = {"configurable": {**found.config["configurable"], **lease.config["configurable"]}}
            with pytest.raises(Unavailable, match="lease of thread 't' is in the hot store"):
                saver.put_writes(leased, [("log", 1)], "other task")
            assert [what for what, _ in puts] == ["begin", "put", "written"]
            place.server.start()


def test_without_the_option_saves_are_refused_and_reads_go_on_also_in_a_process_that_begins_then(place: Place) -> None:
    with place.open(retry_s=0.1) as saver:
        put(saver, 1, "t")
        saver.flush()
        place.server.kill()
        with pytest.raises(Unavailable):
            put(saver, 1, "t")
        assert len(history(saver, "t")) == 1
        with place.open(retry_s=0.1) as other:
            assert len(history(other, "t")) == 1
            place.server.start()
            wait_until(lambda: other.tiers._tier.state("t") is not None, "the hot store")
            assert put(other, 1, "t")


@pytest.mark.parametrize("sent", [True, False], ids=["all was uploaded", "some was not"])
def test_a_removal_that_the_cold_store_did_not_know_of_takes_nothing_from_what_it_took(
    place: Place, sent: bool
) -> None:
    with place.open_cold_writer() as saver:
        put(saver, 4, "t")
        if sent:
            saver.flush()
        else:
            saver.tiers.moving.upload("t")
            put(saver, 1, "t")
        last = latest(saver, "t")
        saver.prune(["t"])  # the hot store has it only
        place.server.kill()
        below = put(saver, 3, "t")
        place.server.start()
        wait_until(lambda: last in history(saver, "t"), "the hot store to be told")
        found = history(saver, "t")
        assert [*found][-3:] == below
        assert put(saver, 2, "t")
        found = history(saver, "t")
        saver.flush()
    place.lose_hot()
    with place.open() as survivor:
        assert history(survivor, "t") == found
        assert put(survivor, 1, "t")


def test_of_what_was_replaced_the_last_counts_whichever_store_took_it(place: Place) -> None:
    with place.open_cold_writer() as saver:
        first, second, third = put(saver, 3, "t")
        at = config("t", id=first)
        for label in ("below", "above"):
            saver.label(at, label)
        saver.put_writes(at, [(RESUME, ["old"])], "below")
        saver.put_writes(at, [(RESUME, ["old"])], "above")
        saver.flush()
        saver.label(config("t", id=second), "above")
        saver.put_writes(config("t", id=second), [(RESUME, ["new"])], "above")
        place.server.kill()
        saver.label(config("t", id=third), "below")
        saver.put_writes(at, [(RESUME, ["new"])], "below")
        place.server.start()
        for _ in range(2):
            wait_until(lambda: labels(saver) == {"above": second, "below": third}, "the labels")
            found = saver.get_tuple(at)
            assert found is not None
            assert {write[0]: write[2] for write in found.pending_writes or () if write[1] == RESUME} == {
                "above": ["old"],
                "below": ["new"],
            }
            other = saver.get_tuple(config("t", id=second))
            assert other is not None
            assert ("above", RESUME, ["new"]) in (other.pending_writes or ())
            assert put(saver, 1, "t")


def labels(saver: TieredSaver) -> dict[str, str]:
    return {label: id_of(at) for label, at in saver.labels("t").items()}


def notes(saver: TieredSaver) -> list[str]:
    below = saver.tiers._below
    return list(below._cold.bucket.stats(below._notes))


def test_a_thread_that_cannot_be_told_holds_up_no_other_and_is_not_taken_for_older(
    place: Place, tmp_path: Path
) -> None:
    with place.open_cold_writer(max_lag_s=0.0) as saver:
        old = put(saver, 2, "good") + put(saver, 2, "bad")
        saver.flush()
        place.server.kill()
        below = {thread: put(saver, 2, thread) for thread in ("bad", "good")}
        cold = saver.tiers._cold
        last = cold.packs.key(cold.head("bad")[0], cold.head("bad")[0].packs[-1].name)
        [path] = tmp_path.rglob(last.rpartition("/")[2])
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        cold.packs.forget([last])
        place.server.start()
        wait_until(lambda: not saver.tiers._below.serves(), "the hot store to be used")
        assert len(old) == 4
        assert [*history(saver, "good")][-2:] == below["good"]
        assert put(saver, 1, "good")
        assert saver.tiers._tier.state("good") is not None
        for use in (lambda: history(saver, "bad"), lambda: put(saver, 1, "bad")):
            with pytest.raises(Corrupt):
                use()
        path.write_bytes(whole)
        saver.tiers._below.tell()
        assert [*history(saver, "bad")][-2:] == below["bad"]
        assert put(saver, 1, "bad")


def test_what_is_saved_below_while_the_hot_store_is_told_is_told_too_and_no_note_stays(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.open_cold_writer() as saver:
        old = put(saver, 2, "t")
        saver.flush()
        place.server.kill()
        below = put(saver, 3, "t")
        tell, meanwhile = saver.tiers._below.tell, list[str]()

        def told() -> None:
            tell()
            if not meanwhile:
                meanwhile.extend(put(saver, 1, "t"))

        monkeypatch.setattr(saver.tiers._below, "tell", told)
        assert notes(saver)
        place.server.start()
        wait_until(lambda: not saver.tiers._below.serves(), "the hot store to be used")
        assert [*history(saver, "t")] == [*old, *below, *meanwhile]
        assert not saver.tiers._cold.head("t")[0].ahead
        assert notes(saver) == []
