"""Tenants of one store: none sees, lists, changes or deletes what another has, whatever their names are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Conflict, Misuse, Retention, StatekitSaver, copy_threads, open_saver
from tests.cli.kit import Run, address, run
from tests.faces import Face, checkpoint, config, id_of, listed, put
from tests.stores_under_test import Store

__all__ = ["run"]

HOSTILE = [
    *(
        "acme",
        "acme2",
        "Acme",
        "ACME",
        "acme*",
        "acme?",
        "acm_",
        "acm%",
        "[a-z]cme",
        "a",
        "A",
        "a:b",
        "a:",
        ":",
        "*",
        "%",
    ),
    *(
        "acme:{1}",
        "{acme}",
        "acme}",
        "..",
        "../acme",
        "acme/t",
        "/",
        "\\",
        "acme\\",
        "a'b",
        'a"b',
        "'; DROP SCHEMA x; --",
    ),
    *(
        "é",
        "e\u0301",
        "İ",
        "\u0131",
        "i",
        "💥",
        " ",
        "acme ",
        "a\0b",
        "a\n",
        "\ud800",
        "x" * 64,
        "x" * 63 + "y",
        "💥" * 40,
    ),
    *("@", "acme@acme", "-", "acme-wal", "acme.db-wal", "_61", "a_5f", "t", "public", "statekit", "None"),
]


async def seen(saver: Face) -> list[Any]:
    """Return all that a saver sees of its store."""
    found = await listed(saver, None)
    threads = {item.config["configurable"]["thread_id"] for item in found}
    real: StatekitSaver = getattr(saver, "saver", saver)  # type: ignore[assignment]
    return [*found, *((thread, real.labels(thread)) for thread in sorted(threads))]


async def fill(saver: Face, value: str) -> None:
    """Leave threads `t` and `u` with three checkpoints each, writes and a label."""
    real: StatekitSaver = getattr(saver, "saver", saver)  # type: ignore[assignment]
    for thread in ("t", "u"):
        at = config(thread)
        for number in range(3):
            at = await put(saver, at, {"a": [value, number]}, {"a": number}, id=f"{number:06}", meta={"run_id": "r"})
        await saver.aput_writes(at, [("a", value)], "task")
        real.label(config(thread, id="000000"), "first")


async def test_whatever_one_tenant_does_another_keeps_and_does_not_see(
    durable_store: Store, face: Callable[[StatekitSaver], Face], run: Run
) -> None:
    with (
        durable_store.open(tenant="a") as mine,
        durable_store.open(tenant="a:b") as theirs,
        durable_store.open() as none,
    ):
        own, other, bare = face(mine), face(theirs), face(none)
        for saver, value in ((own, "own"), (other, "other"), (bare, "bare")):
            assert await seen(saver) == []
            await fill(saver, value)
        kept = [await seen(other), await seen(bare)]
        url = address(durable_store)
        url = f"{url}{'&' if '?' in url else '?'}tenant=a"

        with theirs.lease("t", owner="theirs") as lease, mine.lease("t", owner="mine") as held:
            mine.put(held.config, none.get_tuple(config("t")).checkpoint, {}, {})  # type: ignore[union-attr]
            with pytest.raises(Conflict, match="theirs"):
                theirs.lease("t")
            assert not lease.lost
        mine.unlabel("t", "first")
        await own.acopy_thread("t", "copy")
        await own.aprune(["t"])
        mine.prune(["u"], strategy=Retention(keep_last=1))
        await own.adelete_for_runs(["r"])
        await own.aprune(["copy"], strategy="delete")
        await own.adelete_thread("t")
        await put(own, config("new"), {"a": 1})
        assert {each["thread"] for each in run("ls", "--json", "--url", url).json} == {"new"}
        assert run("prune", "--all", "--keep-latest", "--url", url).code == 0
        assert run("show", "t", "--url", url).code == 2
        assert run("doctor", "--all", "--json", "--url", url).json["threads"] == 1
        await own.adelete_thread("new")
        assert await seen(own) == []
        assert [await seen(other), await seen(bare)] == kept


async def test_no_name_of_a_tenant_reaches_into_another(durable_store: Store) -> None:
    left = list(HOSTILE)
    for tenant in HOSTILE:
        with durable_store.open(tenant=tenant) as saver:
            saver.put(config(), _checkpoint(tenant), {}, {"name": 1})
    for tenant in HOSTILE:
        with durable_store.open(tenant=tenant) as saver:
            assert [_name(item) for item in saver.list(None)] == [ascii(tenant)]
            saver.delete_thread("t")
        left.remove(tenant)
        for other in left[:3]:
            with durable_store.open(tenant=other) as saver:
                assert [_name(item) for item in saver.list(None)] == [ascii(other)]
    with durable_store.open() as saver:
        assert list(saver.list(None)) == []


@pytest.mark.parametrize("bad", ["", 5, b"acme", True])
def test_what_is_no_tenant_is_refused_and_not_taken_for_none(bad: Any, tmp_path: Path) -> None:
    for url in ("memory://", "redis://h", "postgresql://h/db", f"sqlite:///{tmp_path}/x.db", f"file://{tmp_path}/x"):
        with pytest.raises(Misuse, match="the option tenant must be a text that is not empty"):
            open_saver(url, tenant=bad)
        if bad == "":
            with pytest.raises(Misuse, match="tenant"):
                open_saver(f"{url}?tenant=")


def test_no_place_without_a_tenant_is_that_of_one() -> None:
    for url in (
        "redis://h?prefix=statekit%40acme",
        "postgresql://h/db?schema=statekit%40acme",
        "file:///x?prefix=%40acme",
    ):
        with pytest.raises(Misuse, match=r"prefix|schema|tenant="):
            open_saver(url)


@pytest.mark.without("retention")
def test_threads_move_between_tenants_by_a_copy_that_names_both(durable_store: Store) -> None:
    with durable_store.open(tenant="old") as src, durable_store.open(tenant="new") as dst:
        at = src.put(config(), _checkpoint("x"), {}, {"name": 1})
        assert copy_threads(src, dst).checkpoints == 1
        src.delete_thread("t")
        assert [id_of(item.config) for item in dst.list(None)] == [id_of(at)]


def _checkpoint(tenant: str) -> Any:
    return checkpoint({"name": ascii(tenant)})


def _name(item: Any) -> str:
    return str(item.checkpoint["channel_values"]["name"])
