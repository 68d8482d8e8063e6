"""Every release reads the stores of every earlier format, byte for byte as they were left, and goes on with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from langgraph_statekit import Encryption, SchemaTooNew
from langgraph_statekit.checkpoint.cells import CellQuery
from langgraph_statekit.checkpoint.exact import lost
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.golden.content import CELL, HISTORY, KEPT, KEYS, PUTS, at, expected, fill, fill_encrypted, identifier, read
from tests.golden.kit import ENCRYPTED, GOLDEN, KINDS, load
from tests.stores_under_test import Store
from tests.versions.states import Second

FORMATS = sorted(int(path.name.removeprefix("format_")) for path in GOLDEN.glob("format_*"))


def check(saver: StatekitSaver) -> None:
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
    with durable_store.open() as saver:
        check(saver)
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
        check(saver)


@pytest.mark.parametrize("version", FORMATS)
def test_an_encrypted_golden_store_is_read_exactly_and_goes_on(new_store: Callable[[str], Store], version: int) -> None:
    load(store := new_store("sqlite"), GOLDEN / f"format_{version}" / ENCRYPTED, version)
    both = Encryption({**KEYS.keys, "newer": b"n" * 32}, "newer")
    for encryption, rotated in ((KEYS, 0), (both, len(expected()) + 1), (both, 0)):
        with store.open(encryption=encryption, require_encryption=True, retention=None) as saver:
            check(saver)
            [cell] = run_sync(saver.cells.cells(CellQuery(kind=CELL.kind, group="group"))).cells
            assert (cell.ref, cell.value) == (CELL, b"sealed")
            assert saver.rotate_keys() == rotated
    with store.open(encryption=both) as saver:
        saver.prune(["copied"])
        assert {item.checkpoint["id"] for item in saver.list({"configurable": {"thread_id": "copied"}})} == KEPT


def test_the_content_of_the_encrypted_one_is_what_a_store_of_this_release_holds(durable_store: Store) -> None:
    with durable_store.open(encryption=KEYS, require_encryption=True) as saver:
        fill_encrypted(saver)
        check(saver)


def test_every_store_has_golden_files_of_every_format() -> None:
    assert FORMATS
    for version in FORMATS:
        assert {each.name for each in (GOLDEN / f"format_{version}").iterdir()} == {*KINDS.values(), ENCRYPTED}
