"""Threads with a time to live: they expire as a whole, by the store's clock, and not while somebody waits for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from langgraph_statekit.checkpoint.records import Query, Ref
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse
from tests.faces import LONG, Face, config, id_of, listed, put
from tests.stores_under_test import RedisStore, Store

pytestmark = pytest.mark.without("ttl_s")

Faces = Callable[[StatekitSaver], Face]
HOUR_US = 3600 * 10**6


@pytest.fixture
def opened(store: Store, face: Faces) -> Callable[..., Any]:
    """Return what opens a saver on the store; it yields the saver as the test calls it, and the saver itself."""

    @asynccontextmanager
    async def open_(**options: Any) -> AsyncIterator[tuple[Face, StatekitSaver]]:
        async with store.open(**options) as saver:
            yield face(saver), saver

    return open_


async def alive(saver: Face, thread: str = "t") -> bool:
    """Say whether a thread is there, without letting it live on if the saver has no time to live."""
    return await saver.aget_tuple(config(thread)) is not None


async def test_a_thread_expires_as_a_whole(opened: Any, store: Store) -> None:
    async with opened(ttl_s=100) as (saver, real), opened() as (reader, _):
        first = await put(saver, config(), {"doc": LONG}, meta={"run_id": "r"})
        await saver.aput_writes(first, [("a", 1)], "task")
        child = await put(saver, config(ns="node:1"), {"x": LONG})
        await put(saver, config("other"), {"doc": LONG})
        real.label(first, "kept")
        store.advance(50)
        assert await alive(reader)
        await put(saver, config("other"), {"doc": LONG})
        store.advance(51)
        assert not await alive(reader)
        assert await reader.aget_tuple(first) is None
        assert await reader.aget_tuple(child) is None
        assert await listed(reader, config()) == []
        assert {item.config["configurable"]["thread_id"] for item in await listed(reader, None)} == {"other"}
        assert real.labels("t") == {}
        backend = real.backend
        assert backend.outline("t").rev == 0
        assert not backend.outline("t").rows
        assert not backend.rows(Query("t"))
        assert [thread for page in backend.threads() for thread in page] == ["other"]
        assert not [thread for page in backend.threads({"r"}) for thread in page]
        await saver.acopy_thread("t", "copy")
        assert not await alive(reader, "copy")


async def test_reads_and_writes_let_a_thread_live_on(opened: Any, store: Store) -> None:
    async with opened(ttl_s=100) as (saver, _), opened() as (reader, _):
        at = await put(saver, config(), {"doc": 1})
        for use in (
            lambda: saver.aget_tuple(config()),
            lambda: listed(saver, config()),
            lambda: saver.aput_writes(at, [("a", 1)], "task"),
            lambda: put(saver, at, {"doc": 2}),
        ):
            store.advance(70)
            await use()
        store.advance(70)
        assert await alive(reader), "as each use began the time anew"
        store.advance(31)
        assert not await alive(reader), "as a read by a saver without a time to live leaves it alone"


async def test_a_read_that_finds_most_of_the_time_left_writes_nothing(opened: Any, store: Store) -> None:
    async with opened(ttl_s=1000) as (saver, _):
        await put(saver, config(), {"doc": 1})
        before = store.raw_dump()
        assert await saver.aget_tuple(config()) is not None
        assert await listed(saver, config())
        assert store.raw_dump() == before


async def test_a_thread_has_the_time_to_live_of_its_last_checkpoint(opened: Any, store: Store) -> None:
    async with opened(ttl_s=100) as (short, _), opened(ttl_s=1000) as (long, real), opened() as (without, _):
        at = await put(short, config(), {"doc": 1})
        store.advance(50)
        assert await long.aget_tuple(config()) is not None  # a read changes no setting
        store.advance(80)
        at = await put(long, at, {"doc": 2})
        store.advance(500)
        assert await alive(without)
        at = await put(short, at, {"doc": 3})
        store.advance(101)
        assert not await alive(without)
        at = await put(short, config(), {"doc": 1})
        await put(without, at, {"doc": 2})
        store.advance(10_000)
        assert await alive(without), "as its last checkpoint came without one"
        real.prune(["t"])
        real.label(config(), "kept")
        store.advance(10_000)
        assert await alive(without), "as neither is a checkpoint of a run"
        await put(short, config(), {"doc": 4})
        store.advance(101)
        assert not await alive(without)


async def test_an_expired_thread_is_gone_before_it_is_swept(opened: Any, store: Store) -> None:
    """Nothing of it shines through what is saved then, not even under the same ids."""
    async with opened(ttl_s=100) as (saver, real), opened(ttl_s=100) as (other, unread):
        first = await put(saver, config(), {"doc": LONG, "gone": 1})
        await saver.aput_writes(first, [("a", "old")], "task")
        await saver.aput_writes(first, [("b", "old")], "old task")
        second = await put(saver, first, {"doc": LONG + "2"}, {"doc": 2, "gone": 1})
        old_keys = {key for row in real.backend.outline("t").rows for key in row.keys}
        old_refs = [Ref("t", "", id_of(at)) for at in (first, second)]
        store.advance(101)
        assert unread.backend.fill("t", old_keys, old_refs) == ({}, {})
        # A run goes on that knows nothing of it, and its values come whole, though deltas of what is gone.
        await saver.aput_writes(second, [("a", "new")], "task")
        third = await put(saver, second, {"doc": LONG + "3"}, {"doc": 3})
        found = await other.aget_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"doc": LONG + "3"}
        assert found.config["configurable"]["checkpoint_id"] == id_of(third)
        assert [item.checkpoint["id"] for item in await listed(other, config())] == [id_of(third)]
        again = await put(other, config(), {"doc": 1}, id=id_of(first))
        found = await other.aget_tuple(again)
        assert found is not None
        assert found.pending_writes == []
        assert found.checkpoint["channel_values"] == {"doc": 1}
        assert {row.ref.id for row in real.backend.outline("t").rows} == {id_of(third), id_of(first)}
        refs = [Ref("t", "", id_of(at)) for at in (first, second, third)]
        frames, writes = unread.backend.fill("t", old_keys, refs)
        assert frames.keys() == old_keys & real.backend.outline("t").frames.keys()
        assert writes == {refs[0]: [], refs[2]: []}


async def test_a_copy_has_a_time_of_its_own_and_may_replace_what_expired(opened: Any, store: Store) -> None:
    async with opened(ttl_s=100) as (saver, _), opened() as (reader, _):
        await put(saver, config("target"), {"doc": "old"})
        store.advance(50)
        at = await put(saver, config(), {"doc": 1})
        store.advance(60)
        await saver.acopy_thread("t", "target")
        store.advance(50)
        assert not await alive(reader, "t")
        found = await reader.aget_tuple(config("target", id=id_of(at)))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"doc": 1}
        store.advance(51)
        assert not await alive(reader, "target")


async def test_a_sweep_removes_what_expired_and_nothing_else(opened: Any, store: Store) -> None:
    async with opened(ttl_s=100) as (saver, real), opened() as (without, _):
        at = await put(saver, config("gone"), {"doc": "marked-gone"})
        await saver.aput_writes(at, [("a", "marked-gone")], "task")
        for number in range(3):
            at = await put(without, config("stays"), {"doc": f"marked-stays {number}"})
        await without.aput_writes(at, [("a", "marked-stays")], "task")
        store.advance(60)
        await put(saver, config("young"), {"doc": "marked-young"})
        store.advance(60)
        assert real.sweep() in ((1, 0, False), (0, 0, False))  # Redis removes it by itself
        assert b"marked-gone" not in store.raw_dump()
        assert b"gone" not in store.raw_dump()
        assert await real.asweep() == (0, 0, False)
        assert await alive(without, "young")
        assert [item.pending_writes for item in await listed(without, config("stays"), limit=1)] == [
            [("task", "a", "marked-stays")]
        ]
        assert len(await listed(without, config("stays"))) == 3


async def test_writes_whose_checkpoint_never_came_are_swept_by_age(opened: Any, store: Store, store_name: str) -> None:
    if store_name.startswith(("evicting", "tiered-archive")):
        pytest.skip("what only the cold store has is not swept by age: it keeps no time of writes")
    async with opened() as (saver, real):
        backend = real.backend
        at = await put(saver, config(), {"doc": 1})
        await saver.aput_writes(at, [("a", "kept")], "task")
        to_come, orphan = config(id="to come"), config(id="never came")
        await saver.aput_writes(to_come, [("a", "early")], "task")
        await saver.aput_writes(orphan, [("a", "late")], "marked-orphan")
        await saver.aput_writes(config("no thread", id="1"), [("a", "late")], "marked-orphan")
        await put(saver, at, {"doc": 2}, id="to come")
        assert backend.usage("t").orphans == 1
        assert real.sweep(orphans_s=60) == (0, 0, False)
        assert b"marked-orphan" in store.raw_dump()
        swept = [backend.sweep(-HOUR_US) for _ in range(3)]  # as if it were an hour later
        # Redis keeps the time itself of a thread without any checkpoint, and lists it only if it has a key.
        assert sum(each.orphans for each in swept) in ((1, 2) if isinstance(store, RedisStore) else (2,))
        assert backend.usage("t").orphans == 0
        assert b"marked-orphan" not in store.raw_dump() or isinstance(store, RedisStore) or not store.leaves_nothing
        for each, value in ((at, "kept"), (to_come, "early")):
            found = await saver.aget_tuple(each)
            assert found is not None
            assert found.pending_writes == [("task", "a", value)]
        await put(saver, at, {"doc": 3}, id="never came")
        assert backend.fill("t", [], [Ref("t", "", "never came")])[1] == {Ref("t", "", "never came"): []}


@pytest.mark.parametrize("ttl_s", [0, -1, True, "60", float("nan"), float("inf")])
def test_a_time_to_live_that_is_none_is_refused(store: Store, ttl_s: Any) -> None:
    with pytest.raises(Misuse, match="ttl_s"):
        store.open(ttl_s=ttl_s)


def test_what_expires_interrupted_threads_is_yes_or_no(store: Store) -> None:
    with pytest.raises(Misuse, match="expire_interrupted"):
        store.open(ttl_s=60, expire_interrupted=1)
