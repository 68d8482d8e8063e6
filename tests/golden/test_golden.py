"""Every release reads the stores of every earlier format, byte for byte as they were left, and goes on with them."""

from __future__ import annotations

import pytest

from langgraph_statekit import SchemaTooNew
from langgraph_statekit.checkpoint.exact import lost
from langgraph_statekit.checkpoint.run import run_sync
from tests.golden.content import HISTORY, PUTS, at, expected, fill, identifier, read
from tests.golden.kit import GOLDEN, KINDS, load
from tests.stores_under_test import Store
from tests.versions.states import Second

FORMATS = sorted(int(path.name.removeprefix("format_")) for path in GOLDEN.glob("format_*"))


def check(store: Store) -> None:
    with store.open() as saver:
        want = expected()
        assert {each.config["configurable"]["thread_id"] for each in saver.list(None)} == set(want)
        for thread, items in want.items():
            found = [read(each) for each in saver.list({"configurable": {"thread_id": thread}})]
            assert lost(items, found) is None, thread
            assert lost(items[0], read(saver.get_tuple(items[0][0]))) is None  # type: ignore[arg-type]
        for thread in ("delta", "pruned delta"):
            history = saver.get_delta_channel_history(config=at(thread, id=identifier(204)), channels=["log"])
            assert lost(HISTORY, dict(history)) is None, thread
        assert {name: each["configurable"]["checkpoint_id"] for name, each in saver.labels("grown").items()} == {
            "before release": identifier(139)
        }


@pytest.mark.parametrize("version", FORMATS)
def test_a_golden_store_is_read_exactly_and_goes_on(durable_store: Store, durable_name: str, version: int) -> None:
    load(durable_store, GOLDEN / f"format_{version}" / KINDS[durable_name], version)
    check(durable_store)
    with durable_store.open() as saver:
        with pytest.raises(SchemaTooNew, match="version 3"):
            saver.with_state(Second).get_tuple(at("versioned"))
        newer = saver.with_state(Second)
        assert run_sync(newer._sync.rewrite(newer._codec, "migrated", "revert", None)) == 1
        before = next(each for each in PUTS if each.thread == "migrated")
        item = saver.get_tuple(at("migrated"))
        assert item is not None
        assert (item.checkpoint, item.metadata) == (before.checkpoint, before.metadata)
        saver.prune(["copied"])
        saver.delete_thread("kinds")
        last = next(each for each in PUTS if each.thread == "versioned")
        below = {**last.checkpoint, "id": identifier(301)}
        saver.put(last.config, below, last.metadata, {})  # type: ignore[arg-type]
        head = saver.get_tuple(at("versioned"))
        assert head is not None
        assert head.checkpoint["id"] == identifier(301)
        assert head.checkpoint["channel_values"] == {"cents": 100}


def test_the_content_of_the_golden_stores_is_what_a_store_of_this_release_holds(durable_store: Store) -> None:
    with durable_store.open() as saver:
        fill(saver)
    check(durable_store)


def test_every_store_has_golden_files_of_every_format() -> None:
    assert FORMATS
    for version in FORMATS:
        assert {each.name for each in (GOLDEN / f"format_{version}").iterdir()} == set(KINDS.values())
