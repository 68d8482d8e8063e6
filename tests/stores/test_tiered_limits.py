"""Two tiers when one of them does not answer, how much they take, and what cannot be configured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_statekit import (
    Encryption,
    ObjectStoreSaver,
    Retention,
    SqliteSaver,
    TieredSaver,
    Unavailable,
    open_saver,
)
from langgraph_statekit.checkpoint.backends.tiered.layout import decode_head
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import BacklogTold, Event
from tests.faces import checkpoint, config, id_of, metadata
from tests.servers import wait_until
from tests.stores.objects_kit import Rounds
from tests.stores.test_tiered import THREAD, Cold, Place, grow, here, local, seen

__all__ = ["here", "local"]


def test_work_goes_on_while_the_cold_store_is_away_and_the_backlog_is_told(local: Place) -> None:
    cold, told = Cold(local.driver), list[Event]()
    with local.open(cold, max_lag_s=0.0, hooks=[told.append]) as saver:
        cold.down = True
        saver.tiers.saving.seen.add(THREAD)  # a thread that is in use
        puts = grow_blindly(saver, 5)
        wait_until(lambda: any(isinstance(event, BacklogTold) for event in told), "a failed upload")
        assert saver.tiers.uploading.backlog[1] >= 1
        assert any(fact.name == "backlog" and fact.verdict == "note" for fact in saver.backend.facts())
        cold.down = False
        wait_until(lambda: isinstance(told[-1], BacklogTold) and told[-1].error is None, "the end of it to be told")
        assert saver.tiers.uploading.backlog == (0, 0)
    local.lose_hot()
    with local.open() as saver:
        assert list(reversed(seen(saver))) == puts


def grow_blindly(saver: TieredSaver, count: int) -> list[str]:
    """Put checkpoints of a new thread without reading it first."""
    at = config()
    ids = []
    for step in range(count):
        versions: dict[str, str | int | float] = {"x": f"{step:04}"}
        at = saver.put(at, checkpoint({"x": step}, versions), metadata(step), versions)
        ids.append(id_of(at))
    return ids


def test_the_end_waits_once_for_a_cold_store_that_is_away_however_many_threads_it_lacks(
    local: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold, asked = Cold(local.driver), list[str]()
    names = [f"thread {number}" for number in range(24)]
    with local.open(cold) as saver:
        for name in names:
            assert len(list(grow(saver, 1, name))) == 1
        cold.down = True
        ask = cold._do

        def count(verb: str, *args: object) -> object:
            asked.append(verb)
            return ask(verb, *args)

        monkeypatch.setattr(cold, "_do", count)
    assert 1 <= len(asked) < 20  # those that were begun before the first one failed
    with local.open() as other:
        assert sorted(other.tiers._tier.dirty(1 << 62, 100)) == sorted(names)
        other.tiers.uploading.flush(names)
        assert not other.tiers._tier.dirty(1 << 62, 100)


def test_the_backlog_is_bounded(local: Place) -> None:
    cold = Cold(local.driver)
    saver = local.open(cold, max_backlog=4)
    saver.setup()
    cold.down = True
    saver.tiers.saving.seen.add(THREAD)
    with pytest.raises(Unavailable, match="max_backlog=4"):
        grow_blindly(saver, 5)
    cold.down = False
    saver.flush()
    assert len(seen(saver)) == 4
    saver.close()


def test_write_through_says_so_when_the_cold_store_did_not_take_it(local: Place) -> None:
    cold = Cold(local.driver)
    with local.open(cold, mode="write_through") as saver:
        assert len(list(grow(saver, 2))) == 2
        cold.down = True
        puts = grow(saver, 1)
        with pytest.raises(Unavailable):
            next(puts)
        cold.down = False
        assert len(list(grow(saver, 1))) == 1
    local.lose_hot()
    with local.open() as saver:
        assert next(each[0]["last"] for each in seen(saver).values()) >= 2


def test_reads_go_on_from_the_cold_store_while_the_hot_one_is_away(local: Place) -> None:
    class Away:
        def __init__(self, inner: object) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> object:
            if name in ("deltas", "close"):
                return getattr(self._inner, name)
            raise Unavailable("nobody answers")

    with local.open() as saver:
        assert len(list(grow(saver, 3))) == 3
        saver.flush()
        before = seen(saver)
        hot, tier = saver.tiers._hot, saver.tiers.moving._hot
        saver.tiers._hot = saver.tiers.moving._hot = Away(hot)  # type: ignore[assignment]
        assert seen(saver) == before
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["last"] == 2
        saver.tiers._read_cold = False
        with pytest.raises(Unavailable):
            saver.get_tuple(config())
        saver.tiers._hot, saver.tiers.moving._hot = hot, tier


def test_a_cold_thread_is_read_in_three_rounds_of_requests_at_most(here: Place) -> None:
    with here.open(retry_s=10.0) as saver:
        for _ in range(4):
            assert len(list(grow(saver, 5))) == 5
            saver.flush()
        assert saver.archive(THREAD)
    with here.open(retry_s=10.0) as saver:
        rounds = Rounds(saver.tiers._cold.bucket)
        assert saver.get_tuple(config()) is not None
        assert rounds.count <= 3
    with here.open(retry_s=10.0) as saver:
        saver.setup()
        rounds = Rounds(saver.tiers._cold.bucket)
        assert saver.tiers.moving.thaw(THREAD)
        assert rounds.count <= 3


def test_small_packs_become_few(local: Place) -> None:
    with local.open(mode="write_through") as saver:
        assert len(list(grow(saver, 60))) == 60
        head, _ = saver.tiers._cold.head(THREAD)
        assert len(head.packs) <= 24
        assert len(saver.tiers._cold.objects(THREAD)) <= 26
        before = seen(saver)
        assert saver.archive(THREAD)
        assert seen(saver) == before


def test_a_tombstone_holds_no_content(local: Place) -> None:
    with local.open() as saver:
        assert len(list(grow(saver, 3, "a secret name"))) == 3
        saver.flush()
        assert not saver.deleted("a secret name")
        saver.delete_thread("a secret name")
        assert saver.deleted("a secret name")
        [path] = [path for path in (local._directory / "cold").rglob("*") if path.is_file()]
        head = decode_head(path.read_bytes())
        assert not head.live
        assert (head.thread, head.header, list(head.packs)) == ("", b"", [])


def test_another_cold_store_gets_all(local: Place, tmp_path: Path) -> None:
    with local.open() as saver:
        assert len(list(grow(saver, 5))) == 5
        saver.flush()
    moved = f"file://{tmp_path}/other"
    with TieredSaver(SqliteSaver(tmp_path / "hot 0.db"), moved) as saver:
        assert len(list(grow(saver, 1))) == 1
        saver.flush()
        before = seen(saver)
        assert len(before) == 6
    with TieredSaver(SqliteSaver(tmp_path / "empty.db"), moved) as saver:
        assert seen(saver) == before


def test_the_hot_store_drops_idle_threads_in_the_mode_archive(local: Place) -> None:
    with local.open(mode="archive", idle_s=0.0, max_lag_s=0.0) as saver:
        assert len(list(grow(saver, 3))) == 3
        wait_until(lambda: saver.tiers._tier.state(THREAD) is None, "the thread to be dropped")
        assert len(seen(saver)) == 3


def test_keys_are_rotated_in_both_stores(local: Place) -> None:
    old, new = {"old": b"o" * 32}, {"old": b"o" * 32, "new": b"n" * 32}
    with local.open(encryption=Encryption(old, "old")) as saver:
        assert len(list(grow(saver, 2, "cold"))) == 2
        assert saver.archive("cold")
        assert len(list(grow(saver, 2, "hot"))) == 2
        saver.flush()
    with local.open(encryption=Encryption(new, "new")) as saver:
        assert saver.rotate_keys() == 2
        assert saver.rotate_keys() == 0
    local.lose_hot()
    with local.open(encryption=Encryption({"new": b"n" * 32}, "new")) as saver:
        assert len(seen(saver, "cold")) == len(seen(saver, "hot")) == 2


def test_what_cannot_be_two_tiers_is_refused(tmp_path: Path) -> None:
    hot, cold = SqliteSaver(tmp_path / "a.db"), f"file://{tmp_path}/cold"
    refused: list[Callable[[], object]] = [
        lambda: TieredSaver(SqliteSaver(tmp_path / "a.db", ttl_s=5), cold),
        lambda: TieredSaver(SqliteSaver(tmp_path / "a.db", retention=Retention(keep_last=5)), cold),
        lambda: TieredSaver(SqliteSaver(tmp_path / "a.db", hooks=[print]), cold),
        lambda: TieredSaver(SqliteSaver(tmp_path / "a.db", secret_keys={"pin"}), cold),
        lambda: TieredSaver(SqliteSaver(tmp_path / "a.db", serde=JsonPlusSerializer()), cold),
        lambda: TieredSaver(open_saver("memory://"), cold),
        lambda: TieredSaver(hot, "redis://localhost"),
        lambda: TieredSaver(hot, cold, mode="sometimes"),
        lambda: TieredSaver(hot, cold, max_lag_s=-1),
        lambda: TieredSaver(hot, ObjectStoreSaver.from_url(cold, tenant="a")),
    ]
    for wrong in refused:
        with pytest.raises(Misuse):
            wrong()


@pytest.mark.parametrize("mode", ["write_through", "write_behind"])
def test_a_copy_of_a_thread_that_is_not_there_makes_none(local: Place, mode: str) -> None:
    with local.open(mode=mode) as saver:
        saver.copy_thread("never was", "copy")
        assert len(list(grow(saver, 1))) == 1
        saver.delete_thread(THREAD)
        saver.copy_thread(THREAD, "copy")
        assert seen(saver, "copy") == {}
