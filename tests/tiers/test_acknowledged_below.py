"""`write_through`: what a save is acknowledged for, the cold store has, whatever the hot one does meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import TieredSaver
from langgraph_statekit.checkpoint.records import Ref, SaveWrites, Write
from tests.faces import config
from tests.servers import Servers
from tests.tiered_under_test import HOT
from tests.tiers.kit import Tiers, grow


@pytest.fixture(params=HOT)
def tiers(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of(f"{request.param}-file", servers.url, tmp_path)
    yield made
    made.clean()


def before_uploads(saver: TieredSaver, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Act once, between the hot store's reply to the next save and its upload."""
    upload = saver.tiers.uploading.upload
    left = [act]

    def acted(threads: Any) -> Any:
        if left:
            left.pop()()
        return upload(threads)

    monkeypatch.setattr(saver.tiers.uploading, "upload", acted)


def ids(saver: TieredSaver) -> list[str]:
    return [item.checkpoint["id"] for item in saver.list(config("t"))]


@pytest.mark.parametrize("what", ["checkpoint", "writes", "answer"])
@pytest.mark.parametrize("on", [False, True], ids=["the older state as it was", "another goes on from it"])
def test_a_save_that_the_hot_store_forgot_by_going_back_is_in_the_cold_one(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch, what: str, on: bool
) -> None:
    with tiers.open(mode="write_through") as saver, tiers.open() as other:
        for _ in grow(saver, 3, "t"):
            pass
        found = saver.get_tuple(config("t"))
        assert found is not None
        put_back = tiers.hot.backup()

        def go_back() -> None:
            put_back()
            if on:
                other.put_writes(found.config, [("log", 2)], "a third")
                other.flush()

        before_uploads(saver, go_back, monkeypatch)
        if what == "checkpoint":
            wanted = ids(saver)
            wanted[:0] = [id for name, id in grow(saver, 1, "t") if name == "put"]
        else:
            saver.put_writes(found.config, [("log", 2)] if what == "writes" else [("__resume__", "yes")], "another")
            wanted = ids(saver)
    with tiers.open_below() as below:
        assert ids(below) == wanted
        left = below.get_tuple(config("t", id=found.config["configurable"]["checkpoint_id"]))
        assert left is not None
        assert ("another" in {task for task, _, _ in left.pending_writes or ()}) is (what != "checkpoint")


def test_a_first_save_is_made_once(tiers: Tiers, monkeypatch: pytest.MonkeyPatch) -> None:
    with tiers.open(mode="write_through") as saver:
        saves: list[int] = []
        save = saver.tiers._hot.save

        def counted(given: Any) -> Any:
            saves.append(len(given))
            return save(given)

        monkeypatch.setattr(saver.tiers._hot, "save", counted)
        monkeypatch.setattr(saver.tiers.moving, "image", None)  # nothing is looked up
        assert len([*grow(saver, 3, "t")]) == 9
        assert saves == [1] * 6


@pytest.mark.parametrize("together", [True, False], ids=["in one call", "by another call"])
def test_what_a_later_save_has_replaced_is_not_saved_again(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    with tiers.open(mode="write_through") as saver:
        [at] = [id for what, id in grow(saver, 1, "t") if what == "put"]
        answer = partial(Write, "task", -4, "__resume__", "")
        first, second = (SaveWrites(Ref("t", "", at), [answer(data)]) for data in (b"first", b"second"))
        if together:
            assert all(saver.tiers.save([first, second]))
        else:
            before_uploads(saver, lambda: saver.tiers.save([second]), monkeypatch)
            assert all(saver.tiers.save([first]))
        for image in (saver.tiers, saver.tiers.image("t")):
            assert image is not None
            [writes] = image.fill("t", [], [first.ref])[1].values()
            assert [write.data for write in writes if write.idx < 0] == [b"second"]
