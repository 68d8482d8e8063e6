"""A hot store that comes back in an older state, from a backup or as a replica of it that takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import RESUME

from langgraph_statekit import Corrupt, Encryption, TieredSaver
from langgraph_statekit.events import Event, HotStoreBehind
from tests.faces import checkpoint, config, metadata
from tests.servers import Servers
from tests.tiered_under_test import HOT
from tests.tiers.kit import Tiers, content, history, put

KEYS = {"first": b"k" * 32, "second": b"l" * 32}


@pytest.fixture(params=HOT)
def tiers(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of(f"{request.param}-file", servers.url, tmp_path)
    yield made
    made.clean()


def latest(saver: TieredSaver, thread: str = "t") -> str:
    found = saver.get_tuple(config(thread))
    assert found is not None
    return str(found.checkpoint["id"])


class Told:
    def __init__(self) -> None:
        self.events: list[HotStoreBehind] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, HotStoreBehind):
            self.events.append(event)


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
@pytest.mark.parametrize("sent", [True, False], ids=["all was uploaded before", "some was not"])
def test_a_run_that_goes_on_from_an_older_state_writes_nothing_over_that_is_newer(
    tiers: Tiers, mode: str, sent: bool
) -> None:
    with tiers.open() as saver:
        old = put(saver, 3)
        saver.flush()
        old += put(saver, 2)
        if sent:
            saver.flush()
        put_back = tiers.hot.backup()
        newer = put(saver, 20)
    before = history_below(tiers)
    put_back()
    told = Told()
    with tiers.open(mode=mode, hooks=[told]) as saver:
        assert latest(saver) == old[-1]  # nobody knows yet
        forked = put(saver, 2)
        saver.flush()
        assert [(event.thread_id, event.checkpoints) for event in told.events] == [("t", 20)]
        found = history(saver, "t")
        assert [*found] == [*old, *newer, *forked]
        assert {id: found[id] for id in before} == before
        assert latest(saver) == forked[-1]
        more = put(saver, 10)
        saver.flush()
        assert len(told.events) == 1
        after = history(saver, "t")
        assert [*after] == [*found, *more]
    tiers.lose_hot()
    with tiers.open() as saver:
        assert history(saver, "t") == after
        assert saver.archive("t") is False
        assert put(saver, 1)


def history_below(tiers: Tiers) -> dict[str, Any]:
    with tiers.open_below() as below:
        return history(below, "t")


def test_restored_threads_are_as_new_as_the_cold_store_has_them(tiers: Tiers) -> None:
    with tiers.open() as saver:
        for thread in ("grown", "same", "written", "archived", "deleted"):
            put(saver, 3, thread)
        saver.flush()
        put_back = tiers.hot.backup()
        put(saver, 3, "grown")
        found = saver.get_tuple(config("written"))
        assert found is not None
        saver.put_writes(found.config, [("log", 1)], "another task")
        assert saver.archive("archived")
        put(saver, 2, "archived")
        saver.delete_thread("deleted")
        states = {thread: saver.get_tuple(config(thread)) for thread in ("grown", "same", "written", "archived")}
    put_back()
    told = Told()
    with tiers.open(hooks=[told]) as saver:
        assert sorted(saver.restore(prefix="")) == sorted(states)
        assert {thread: saver.get_tuple(config(thread)) for thread in states} == states
        assert {event.thread_id: event.checkpoints for event in told.events} == {
            "grown": 3,
            "written": 1,
            "archived": 2,
        }
        assert saver.get_tuple(config("deleted")) is None
        assert saver.deleted("deleted")
        saver.restore(prefix="")
        assert len(told.events) == 3
        assert len(put(saver, 2, "grown")) == 2


def test_a_key_that_was_rotated_since_stays_so(tiers: Tiers) -> None:
    with tiers.open(encryption=Encryption(KEYS, "first")) as saver:
        put(saver, 3)
        saver.flush()
        put_back = tiers.hot.backup()
    told = Told()
    with tiers.open(encryption=Encryption(KEYS, "second"), hooks=[told]) as saver:
        saver.rotate_keys()
        newer = put(saver, 1)
    assert told.events == []
    put_back()
    with tiers.open(encryption=Encryption(KEYS, "second")) as saver:
        forked = put(saver, 1)
    with tiers.open(encryption=Encryption({"second": KEYS["second"]}, "second")) as saver:
        saver.restore(["t"])
        assert [*history(saver, "t")][3:] == [*newer, *forked]
    tiers.lose_hot()
    with tiers.open(encryption=Encryption({"second": KEYS["second"]}, "second")) as saver:
        assert [*history(saver, "t")][3:] == [*newer, *forked]


def test_a_hot_store_that_was_not_told_of_an_upload_is_not_taken_for_older(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    with tiers.open(hooks=[told]) as saver:
        old = put(saver, 3)
        saver.flush()
        for change in (lambda: put(saver, 2), lambda: saver.prune(["t"])):
            change()
            with monkeypatch.context() as patched:
                patched.setattr(saver.tiers._tier, "uploaded", lambda *args: None)
                saver.flush()
            before = history(saver, "t")
            more = put(saver, 1)
            saver.flush()
            after = history(saver, "t")
            assert [*after] == [*before, *more]
            assert history_below(tiers) == after
        assert old[0] not in after
        assert told.events == []
        assert saver.archive("t")
        assert history(saver, "t") == after


@pytest.mark.parametrize("act", ["read", "save", "sweep", "restore"])
def test_a_thread_that_only_the_older_state_takes_for_expired_lives_on(tiers: Tiers, act: str) -> None:
    with tiers.open(ttl_s=3600) as saver:
        ids = put(saver, 3)
        saver.flush()
        before = history(saver, "t")
    tiers.hot.advance(7200)  # as if it had come back from a time before the thread was used last
    with tiers.open(ttl_s=3600) as saver:
        if act == "save":
            ids += put(saver, 1)
        elif act == "sweep":
            saver.sweep()
        elif act == "restore":
            assert saver.restore(prefix="") == ["t"]
        found = history(saver, "t")
        assert [*found] == ids
        assert {id: found[id] for id in before} == before
        assert len(put(saver, 1)) == 1
    with tiers.open_below() as below:
        assert len(history(below, "t")) == len(ids) + 1


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_what_both_histories_have_in_one_place_is_sealed_anew(tiers: Tiers, mode: str) -> None:
    """A label has no time of its own: it goes right behind the last checkpoint."""
    keys = Encryption(KEYS, "first")
    with tiers.open(mode=mode, encryption=keys, require_encryption=True) as saver:
        old = put(saver, 3)
        saver.flush()
        put_back = tiers.hot.backup()
        for label in ("one", "two"):
            saver.label(config(id=old[0]), label)
        saver.flush()
        seqs = {row.ref.id: row.seq for row in saver.backend.outline("t").rows}
    put_back()
    with tiers.open(mode=mode, encryption=keys, require_encryption=True) as saver:
        saver.label(config(id=old[1]), "three")
        at = {row.ref.id: row.seq for row in saver.backend.outline("t").rows}["three"]
        assert (at == seqs["one"]) is (mode == "write_behind")  # else it was uploaded with the save
        saver.flush()
        assert saver.labels("t").keys() == {"one", "two", "three"}
        assert [*history(saver, "t")] == old
    tiers.lose_hot()
    with tiers.open(encryption=keys, require_encryption=True) as saver:
        assert saver.labels("t").keys() == {"one", "two", "three"}
        assert [*history(saver, "t")] == old
        assert len({row.seq for row in saver.backend.outline("t").rows}) == 6


@pytest.mark.parametrize("how", ["runs", "retention"])
@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_what_was_removed_since_does_not_return_and_is_built_upon_by_nothing(tiers: Tiers, mode: str, how: str) -> None:
    with tiers.open() as saver:
        old = put(saver, 3)
        made = checkpoint(content(3), {"log": "9", "last": "9"})
        saver.put(config(id=old[-1]), made, metadata(3, run_id="erased"), made["channel_versions"])
        saver.flush()
        put_back = tiers.hot.backup()
        if how == "runs":
            saver.delete_for_runs(["erased"])
        else:
            saver.prune(["t"])
        saver.flush()
        left = [*history(saver, "t")]
    put_back()
    told = Told()
    with tiers.open(mode=mode, hooks=[told]) as saver:
        more = put(saver, 1)
        saver.flush()
        assert len(told.events) == 1
        assert [*history(saver, "t")] == [*left, *more]
        more += put(saver, 1)
        saver.flush()
        found = history(saver, "t")
        assert [*found] == [*left, *more]
    tiers.lose_hot()
    with tiers.open() as saver:
        assert history(saver, "t") == found


def test_what_both_replaced_stays_as_the_cold_store_has_it(tiers: Tiers) -> None:
    with tiers.open() as saver:
        [at] = put(saver, 1)
        saver.put_writes(config(id=at), [(RESUME, ["old"])], "task")
        saver.flush()
        put_back = tiers.hot.backup()
        saver.put_writes(config(id=at), [(RESUME, ["new"])], "task")
        saver.put_writes(config(id=at), [("log", 0)], "another")
    put_back()
    with tiers.open() as saver:
        saver.put_writes(config(id=at), [("last", 0)], "a third")
        saver.flush()
        found = saver.get_tuple(config())
        assert found is not None
        assert sorted(found.pending_writes or ()) == sorted(
            [
                ("task", "log", 0),
                ("task", "last", 0),
                ("task", RESUME, ["new"]),
                ("another", "log", 0),
                ("a third", "last", 0),
            ]
        )


def test_an_erasure_is_in_both_stores_when_it_returns_though_the_hot_one_is_older(tiers: Tiers) -> None:
    with tiers.open() as saver:
        old = put(saver, 2)
        saver.flush()
        put_back = tiers.hot.backup()
        made = checkpoint(content(2), {"log": "9", "last": "9"})
        saver.put(config(id=old[-1]), made, metadata(2, run_id="erased"), made["channel_versions"])
        saver.flush()
    put_back()
    with tiers.open() as saver:
        saver.delete_for_runs(["erased"])
        assert [*history(saver, "t")] == old
        assert [*history_below(tiers)] == old


def test_who_is_told_of_an_older_state_may_restore(tiers: Tiers) -> None:
    with tiers.open() as saver:
        old = put(saver, 2)
        saver.flush()
        put_back = tiers.hot.backup()
        old += put(saver, 2)
    put_back()
    restored = list[list[str]]()

    def restore(event: Event) -> None:
        if isinstance(event, HotStoreBehind):
            restored.append(saver.restore(prefix=""))

    with tiers.open(hooks=[restore]) as saver:
        new = put(saver, 1)
        saver.flush()
        assert restored == [["t"]]
        assert [*history(saver, "t")] == [*old, *new]


def test_a_damaged_thread_keeps_no_other_from_being_restored(tiers: Tiers, tmp_path: Path) -> None:
    with tiers.open() as saver:
        ids = {thread: put(saver, 2, thread) for thread in ("a", "bad", "c")}
        saver.flush()
        head = saver.tiers._cold.head("bad")[0]
        pack = saver.tiers._cold.packs.key(head, head.packs[0].name)
    tiers.lose_hot()
    [path] = tmp_path.rglob(pack.rpartition("/")[2])
    path.write_bytes(path.read_bytes()[:-1])
    with tiers.open() as saver:
        with pytest.raises(Corrupt, match="2 threads were restored, and not 1: thread 'bad'"):
            saver.restore(prefix="")
        for thread in ("a", "c"):
            assert saver.tiers._tier.state(thread) is not None
            assert [*history(saver, thread)] == ids[thread]


def test_a_copy_is_whole_though_its_source_goes_down_meanwhile(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    with tiers.open() as saver:
        put(saver, 3)
        before = history(saver, "t")
        copy, acts = saver.tiers._hot.copy_thread, [True]

        def copied(*args: Any) -> Any:
            if acts:
                acts.pop()
                assert saver.archive("t")
            return copy(*args)

        monkeypatch.setattr(saver.tiers._hot, "copy_thread", copied)
        saver.copy_thread("t", "copy")
        assert not acts
        assert history(saver, "copy") == before


def test_an_erasure_finds_what_comes_up_while_it_looks(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    with tiers.open() as saver:
        old = put(saver, 2)
        made = checkpoint(content(2), {"log": "9", "last": "9"})
        saver.put(config(id=old[-1]), made, metadata(2, run_id="erased"), made["channel_versions"])
        assert saver.archive("t")
        threads = saver.tiers._hot.threads

        def slow(*args: Any) -> Iterator[Any]:
            yield from threads(*args)
            assert saver.tiers.moving.thaw("t")

        monkeypatch.setattr(saver.tiers._hot, "threads", slow)
        saver.delete_for_runs(["erased"])
        assert [*history(saver, "t")] == old
        assert [*history_below(tiers)] == old
