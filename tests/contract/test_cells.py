"""Cells: small records that are changed by compare-and-set, and outlive the threads that they belong to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from langgraph_statekit import Encryption, Fenced, Misuse
from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellQuery, Changed, cell_ref, new_operation
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Corrupt
from tests.crash.faulty import Died, Faulty
from tests.faces import Face, put
from tests.servers import wait_until
from tests.stores_under_test import Store

LONG_S = 600


@pytest.fixture
async def saver(new_store: Callable[[str], Store], store_name: str) -> AsyncIterator[StatekitSaver]:
    async with new_store(store_name).open() as saver:
        yield saver


def change(
    saver: StatekitSaver, key: str = "k", value: bytes | None = b"v", thread: str = "", **fields: Any
) -> Changed:
    return run_sync(saver.cells.change_cell(CellChange(ref=cell_ref("test", key, thread), value=value, **fields)))


def cell(saver: StatekitSaver, key: str = "k", thread: str = "") -> Cell | None:
    page = run_sync(saver.cells.cells(CellQuery(kind="test", refs=[cell_ref("test", key, thread)])))
    return page.cells[0] if page.cells else None


def listed(saver: StatekitSaver, group: str | None = None, kind: str = "test", limit: int = 100) -> list[Cell]:
    """Return all cells of a listing, read in pages."""
    found: list[Cell] = []
    while page := run_sync(
        saver.cells.cells(
            CellQuery(kind=kind, group=group, limit=limit, before=found[-1].place if found else None),
        )
    ).cells:
        assert len(page) <= limit
        found += page
    return found


async def test_a_cell_changes_only_as_it_is_expected(saver: StatekitSaver) -> None:
    for thread in ("", "t"):
        made = change(saver, thread=thread, expect=0, groups=("a",))
        assert made.made
        assert made.cell is not None
        assert abs(made.now_us - made.cell.at_us) < 60_000_000
        assert cell(saver, thread=thread) == made.cell
        refused = change(saver, thread=thread, value=b"w", expect=0)
        assert (refused.made, refused.cell) == (False, made.cell)
        again = change(saver, thread=thread, value=b"w\0\xff", expect=made.cell.rev)
        assert again.made
        assert again.cell is not None
        assert again.cell.rev > made.cell.rev
        assert (again.cell.value, again.cell.groups) == (b"w\0\xff", ())
        assert not change(saver, thread=thread, value=b"x", expect=made.cell.rev).made
        assert not change(saver, thread=thread, value=None, expect=made.cell.rev).made
        assert cell(saver, thread=thread) == again.cell
        forced = change(saver, thread=thread, value=b"")
        assert forced.cell is not None
        assert (forced.made, forced.cell.value) == (True, b"")
        gone = change(saver, thread=thread, value=None, expect=forced.cell.rev)
        assert (gone.made, gone.cell) == (True, None)
        assert cell(saver, thread=thread) is None
        assert change(saver, thread=thread, value=None, expect=forced.cell.rev).made, "a repeat after a lost reply"
        anew = change(saver, thread=thread, expect=0)
        assert anew.cell is not None
        assert anew.cell.rev > forced.cell.rev, "what saw the cell before could take the new one for the old"


async def test_a_change_that_comes_after_its_deadline_changes_nothing(saver: StatekitSaver) -> None:
    made = change(saver, expect=0, deadline_us=1 << 60)
    assert made.made
    assert made.cell is not None
    for deadline_us in (1, made.now_us, made.cell.at_us):
        for value in (b"w", None):
            refused = change(saver, value=value, expect=made.cell.rev, deadline_us=deadline_us)
            assert (refused.made, refused.cell) == (False, made.cell)
            assert not change(saver, value=value, deadline_us=deadline_us).made, "whatever it has"
    assert not change(saver, "other", expect=0, deadline_us=1).made
    assert cell(saver, "other") is None
    assert change(saver, "other", None, deadline_us=1).made, "what is not there is removed"
    asked = CellChange(ref=cell_ref("test", "k"), value=b"x", expect=made.cell.rev, deadline_us=made.now_us + 10**8)
    assert run_sync(saver.cells.change_cell(asked)).made
    late = replace(asked, deadline_us=1)
    assert run_sync(saver.cells.change_cell(late)).made, "a repeat after a lost reply finds what it did"


async def test_a_change_that_is_repeated_finds_what_it_did(saver: StatekitSaver) -> None:
    first = CellChange(ref=cell_ref("test", "k"), value=b"1", expect=0)
    second = replace(first, value=b"2", operation=new_operation(), expect=None)
    made = run_sync(saver.cells.change_cell(first))
    assert run_sync(saver.cells.change_cell(first))[:2] == made[:2]
    later = run_sync(saver.cells.change_cell(second))
    assert run_sync(saver.cells.change_cell(second))[:2] == later[:2]
    late = run_sync(saver.cells.change_cell(first))
    assert (late.made, late.cell) == (False, later.cell)


async def test_one_of_many_gets_a_cell_that_none_has(saver: StatekitSaver) -> None:
    async def work(number: int) -> Changed:
        asked = CellChange(ref=cell_ref("test", "k", "t"), value=b"%d" % number, expect=0)
        return await saver.async_cells.change_cell(asked)

    results = await asyncio.gather(*[work(number) for number in range(16)])
    assert [result.made for result in results].count(True) == 1
    assert {result.cell for result in results} == {cell(saver, thread="t")}


async def test_many_that_count_lose_no_count(saver: StatekitSaver) -> None:
    async def count() -> None:
        for _ in range(3):
            expect, value = 0, b"1"
            while not (
                changed := await saver.async_cells.change_cell(
                    CellChange(ref=cell_ref("test", "k"), value=value, expect=expect, groups=("count",))
                )
            ).made:
                assert changed.cell is not None
                expect, value = changed.cell.rev, b"%d" % (int(changed.cell.value) + 1)

    await asyncio.gather(*[count() for _ in range(6)])
    [counted] = listed(saver, "count")
    assert counted.value == b"18"


async def test_a_change_with_the_token_of_another_lease_changes_nothing(saver: StatekitSaver) -> None:
    with pytest.raises(Fenced):
        change(saver, thread="t", token=7)
    first = saver.lease("t", ttl_s=LONG_S)
    made = change(saver, thread="t", token=first.token, groups=("g",))
    assert made.made
    second = saver.lease("t", ttl_s=LONG_S, steal=True)
    for late in (b"late", None):
        with pytest.raises(Fenced, match="taken over"):
            change(saver, thread="t", value=late, token=first.token)
    with pytest.raises(Fenced):
        change(saver, key="new", thread="t", expect=0, token=first.token, groups=("g",))
    assert cell(saver, thread="t") == made.cell
    assert cell(saver, key="new", thread="t") is None
    assert listed(saver, "g") == [made.cell]
    assert change(saver, thread="t", value=b"new", token=second.token).made
    assert change(saver, thread="t", value=b"no matter").made


async def test_a_group_is_listed_in_pages_newest_first_and_follows_its_cells(saver: StatekitSaver) -> None:
    made = []
    for number in range(25):
        groups = ("even", "all") if number % 2 == 0 else ("all",)
        made.append(change(saver, key=f"{number}", thread=f"t{number % 3}" if number % 4 else "", groups=groups).cell)
    change(saver, key="other")
    for size in (1, 7, 25, 100):
        assert listed(saver, "all", limit=size) == made[::-1]
    assert listed(saver, "even", limit=5) == made[::2][::-1]
    assert len(listed(saver, limit=10)) == 26
    assert listed(saver, "none") == listed(saver, kind="none") == listed(saver, "all", kind="none") == []
    moved = change(saver, key="0", value=b"moved", groups=("odd",)).cell
    change(saver, key="4", value=None)
    assert listed(saver, "odd") == [moved]
    assert listed(saver, "even", limit=3) == [made[at] for at in (24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 2)]
    assert listed(saver)[0] == moved


async def test_a_cell_ends_by_the_servers_clock_and_a_change_sets_its_end_anew(saver: StatekitSaver) -> None:
    change(saver, ttl_us=300_000, groups=("g",))
    change(saver, key="longer", ttl_us=300_000, groups=("g",))
    longer = change(saver, key="longer", groups=("g",)).cell
    wait_until(lambda: cell(saver) is None, "expired")
    assert listed(saver, "g") == [longer]
    anew = change(saver, expect=0, value=b"new")
    assert anew.made
    change(saver, key="swept", ttl_us=1, groups=("g",))
    saver.sweep()
    wait_until(lambda: cell(saver, key="swept") is None, "expired")
    saver.sweep()
    assert listed(saver, "g") == [longer]
    assert cell(saver) == anew.cell


async def test_cells_outlive_their_thread_and_are_not_copied(
    saver: StatekitSaver, face: Callable[[StatekitSaver], Face]
) -> None:
    made = change(saver, thread="t", groups=("g",)).cell
    await put(face(saver), {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, {"x": 1})
    await face(saver).acopy_thread("t", "u")
    await face(saver).adelete_thread("t")
    assert cell(saver, thread="t") == made
    assert listed(saver) == [made]
    assert [thread for page in saver.backend.threads() for thread in page] == ["u"]


async def test_names_of_any_text_are_kept_apart(saver: StatekitSaver) -> None:
    names = ["a", "a:b", "", "b\0", "ü/{}%", "\ud800", "x" * 600, "A"]
    for name in names:
        change(saver, key=name, thread=name, value=name.encode(errors="surrogatepass") + b"!", groups=(f"{len(name)}",))
    for name in names:
        found = cell(saver, key=name, thread=name)
        assert found is not None
        assert found.ref == cell_ref("test", name, name)
        assert found.value == name.encode(errors="surrogatepass") + b"!"
    assert len(listed(saver)) == len(names)
    assert len(listed(saver, "1")) == 3


OLD, NEW = {"old": b"o" * 32}, {"new": b"n" * 32}


async def test_the_store_holds_no_value_of_an_encrypted_cell_and_keys_rotate(store: Store) -> None:
    with store.open(encryption=Encryption(OLD, "old")) as saver, store.open(encryption=Encryption(OLD, "old")) as other:
        made = change(saver, value=b"the secret", thread="t", groups=("g",))
        change(other, key="other", value=b"the secret", thread="t")
        assert change(saver, value=b"the secret", thread="t", expect=0).cell == made.cell
        assert listed(other, "g") == [made.cell] == listed(saver, "g")
        assert b"the secret" not in store.raw_dump()
    with store.open(encryption=None) as plain:
        with pytest.raises(Misuse, match="encryption="):
            cell(plain, thread="t")
        change(plain, key="plain", value=b"in plain")
    both = Encryption({**OLD, **NEW}, "new")
    with store.open(encryption=both) as saver:
        assert (saver.rotate_keys(), saver.rotate_keys()) == (1, 0)
        assert cell(saver, thread="t") == made.cell
    with store.open(encryption=Encryption(NEW, "new")) as saver:
        assert cell(saver, thread="t") == made.cell
        found = cell(saver, key="plain")
        assert found is not None
        assert found.value == b"in plain"
        made = change(saver, value=b"more", thread="t", expect=made.cell.rev if made.cell else 0)
    with store.open(encryption=both, require_encryption=True) as saver:
        assert cell(saver, thread="t") == made.cell
        with pytest.raises(Corrupt, match="require_encryption"):
            cell(saver, key="plain")


async def test_tenants_see_no_cell_of_each_other(durable_store: Store) -> None:
    with durable_store.open(tenant="a") as one, durable_store.open(tenant="b") as two, durable_store.open() as none:
        made = [change(saver, thread="t", groups=("g",), expect=0) for saver in (one, two, none)]
        for saver, own in zip((one, two, none), made, strict=True):
            assert own.made
            assert listed(saver) == listed(saver, "g") == [own.cell]
        change(one, thread="t", value=None)
        assert listed(two) == [made[1].cell]


@pytest.mark.parametrize("acts", [False, True], ids=["before it acts", "after it acts"])
def test_a_change_that_dies_at_any_request_leaves_the_old_cell_or_the_new_one(
    new_store: Callable[[str], Store], acts: bool
) -> None:
    """Where one change is many requests, a process can die between them."""
    store = new_store("file")
    with store.open() as survivor:
        for number in range(1, 100):
            name = f"dies at {number}"
            old = change(survivor, key=name, value=b"old", groups=("old", "both"))
            lease = survivor.lease(name)
            assert old.cell is not None
            wanted = CellChange(ref=cell_ref("test", name), value=b"new", groups=("new", "both"), expect=old.cell.rev)
            leased = CellChange(ref=cell_ref("test", "leased", name), value=b"new", expect=0, token=lease.token)
            with store.open() as doomed:
                bucket = getattr(doomed.backend, "inner", doomed.backend)._bucket
                bucket._driver = driver = Faulty(bucket._driver, number, acts)
                try:
                    run_sync(doomed.cells.change_cell(wanted))
                    run_sync(doomed.cells.change_cell(leased))
                except Died:
                    pass
            found = cell(survivor, key=name)
            assert found is not None
            assert found == old.cell or found.operation == wanted.operation
            for group in ("old", "new", "both"):
                assert (found in listed(survivor, group)) == (group in found.groups)
            for again in (wanted, leased):
                done = run_sync(survivor.cells.change_cell(again))
                assert done.made
                assert done.cell is not None
                assert done.cell.value == b"new"
            lease.release()
            if not driver.died:
                assert number > 5
                return
    raise AssertionError("a change has no end")


def test_what_marks_an_encrypted_value_is_refused(new_store: Callable[[str], Store]) -> None:
    with new_store("memory").open() as saver, pytest.raises(Misuse, match="begin"):
        change(saver, value=b"\1abc")
