"""Leases: who may write to a thread, and what becomes of those who may no more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import StateUpdate

from langgraph_statekit import Conflict, Fenced, Lease, Misuse
from langgraph_statekit.checkpoint.claims import Claim, Held
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import Face, checkpoint, config, ids, listed, metadata, put
from tests.servers import wait_until
from tests.stores_under_test import Store

LONG_S = 600
RENEWED_S = 1.5
"""Long enough for a renewal on a busy machine."""


@pytest.fixture
async def real(new_store: Callable[[str], Store], store_name: str) -> AsyncIterator[StatekitSaver]:
    async with new_store(store_name).open() as saver:
        yield saver


@pytest.fixture
def saver(real: StatekitSaver, face: Callable[[StatekitSaver], Face]) -> Face:
    return face(real)


def claim(real: StatekitSaver, **fields: Any) -> Held | None:
    (held,) = real.backend.claim([Claim(**{"thread": "t", "holder": "h", "owner": "o", "ttl_us": 10**8, **fields})])
    return held


async def test_a_taken_over_worker_can_neither_put_nor_write_nor_update_state(real: StatekitSaver, saver: Face) -> None:
    first = real.lease("t", owner="first", ttl_s=LONG_S)
    at = await put(saver, {"configurable": {**config()["configurable"], **first.config["configurable"]}}, {"x": 1})
    second = real.lease("t", owner="second", ttl_s=LONG_S, steal=True)
    assert second.token > first.token
    stale = {"configurable": {**at["configurable"], **first.config["configurable"]}}
    before = await listed(saver, config())
    with pytest.raises(Fenced, match="taken over"):
        await put(saver, stale, {"x": 2})
    with pytest.raises(Fenced, match="taken over"):
        await saver.aput_writes(stale, [("x", 3), ("__interrupt__", 4)], "task")
    assert await listed(saver, config()) == before
    fresh = {"configurable": {**at["configurable"], **second.config["configurable"]}}
    await saver.aput_writes(fresh, [("x", 3)], "task")
    await put(saver, fresh, {"x": 2})
    assert len(await ids(saver, config())) == 2


async def test_one_of_many_claims_gets_the_lease(real: StatekitSaver) -> None:
    got: list[int] = []
    refused: list[Conflict] = []

    def work(number: int) -> None:
        try:
            got.append(real.lease("t", owner=f"w{number}", ttl_s=LONG_S).token)
        except Conflict as error:
            refused.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        await asyncio.to_thread(worker.join, 30)
    assert len(got) == 1
    assert len(refused) == 7
    assert "is leased by 'w" in str(refused[0])


async def test_whoever_is_cancelled_at_any_moment_of_asking_leaves_no_lease(real: StatekitSaver) -> None:
    for turns in (0, 1, 2, 3, 10, 100, 1000):
        asked = asyncio.ensure_future(real.alease("t", ttl_s=LONG_S))
        for _ in range(turns):
            await asyncio.sleep(0)
        asked.cancel()
        [lease] = await asyncio.gather(asked, return_exceptions=True)
        if isinstance(lease, Lease):
            lease.release()
        (await real.alease("t", ttl_s=LONG_S, wait_s=LONG_S)).release()


async def test_a_released_lease_is_free_and_its_token_stays_behind(real: StatekitSaver, saver: Face) -> None:
    tokens = []
    for _ in range(3):
        with real.lease("t", ttl_s=LONG_S) as lease:
            lease.check()
            tokens.append(lease.token)
            await put(saver, {"configurable": {"checkpoint_ns": "", **lease.config["configurable"]}})
        assert lease.lost
        with pytest.raises(Fenced, match="released"):
            lease.check()
    assert tokens == sorted(set(tokens))
    async with await real.alease("t", ttl_s=LONG_S) as lease:
        assert lease.token > tokens[-1]


async def test_a_deleted_thread_is_not_brought_back_by_its_late_holder(real: StatekitSaver, saver: Face) -> None:
    lease = real.lease("t", ttl_s=LONG_S)
    at = {"configurable": {"checkpoint_ns": "", **lease.config["configurable"]}}
    await put(saver, at)
    await saver.adelete_thread("t")
    with pytest.raises(Fenced):
        await put(saver, at)
    with pytest.raises(Fenced):
        await saver.aput_writes(config(id="1", **at["configurable"]), [("x", 1)], "task")
    assert await listed(saver, config()) == []
    assert real.lease("t", ttl_s=LONG_S).token > lease.token


async def test_a_token_without_a_lease_is_refused(saver: Face) -> None:
    with pytest.raises(Fenced):
        await put(saver, config(statekit_token=7))
    for wrong in ("7", 0, -1, 1.5, True):
        with pytest.raises(Misuse, match="statekit_token"):
            await put(saver, config(statekit_token=wrong))
    assert await listed(saver, config()) == []


async def test_a_lease_that_was_renewed_outlives_its_first_term(real: StatekitSaver) -> None:
    lease = real.lease("t", ttl_s=RENEWED_S)
    until = [claim(real, ttl_us=1)]
    wait_until(
        lambda: until.append(claim(real, ttl_us=1)) or until[-1].until_us > until[0].until_us + RENEWED_S * 1e6,
        "renewed",
    )
    assert all(held is not None and held.token == lease.token for held in until)
    assert not lease.lost


async def test_a_blocked_event_loop_keeps_its_lease(real: StatekitSaver) -> None:
    lease = await real.alease("t", ttl_s=RENEWED_S)
    first = claim(real, ttl_us=1)
    assert first is not None
    # No await here: the loop stands still while the keeper renews twice and more.
    wait_until(lambda: claim(real, ttl_us=1).until_us > first.until_us + RENEWED_S / 2 * 1e6, "renewed")
    assert not lease.lost
    await lease.arelease()


async def test_a_holder_learns_that_it_was_taken_over(real: StatekitSaver) -> None:
    told = []
    lease = real.lease("t", owner="first", ttl_s=0.6, on_lost=told.append)
    claim(real, holder="other", owner="second", steal=True)
    wait_until(lambda: bool(told), "told")
    assert told == [lease]
    with pytest.raises(Fenced, match="taken over by 'second'"):
        lease.check()
    lease.release()
    held = claim(real, holder="third", ttl_us=1)
    assert held is not None
    assert held.holder == "other", "the release of a lost lease touched the new holder's"


async def test_a_waiting_worker_gets_the_lease_when_it_is_free(real: StatekitSaver) -> None:
    claim(real, holder="other", ttl_us=300_000)
    lease = await real.alease("t", ttl_s=LONG_S, wait_s=60)
    held = claim(real, holder="third")
    assert held is not None
    assert held.token == lease.token
    with pytest.raises(Conflict, match="leased by"):
        await real.alease("t", ttl_s=LONG_S, wait_s=0.3)


async def test_a_claim_that_is_repeated_gets_the_same_lease(real: StatekitSaver) -> None:
    first = claim(real)
    again = claim(real)
    assert first is not None
    assert again is not None
    assert (again.holder, again.token) == (first.holder, first.token)
    other = claim(real, holder="other")
    assert other is not None
    assert (other.holder, other.token) == (first.holder, first.token)
    assert claim(real, holder="other", token=first.token + 1) == other
    gone = claim(real, token=first.token, ttl_us=0)
    assert gone is not None
    assert gone.token == first.token
    new = claim(real, holder="other")
    assert new is not None
    assert new.holder == "other"
    assert new.token > first.token
    assert claim(real, thread="none", token=1) is None


async def test_leases_of_other_threads_and_copies_are_apart(real: StatekitSaver, saver: Face) -> None:
    with real.lease("t", ttl_s=LONG_S) as lease, real.lease("u", ttl_s=LONG_S):
        await put(saver, {"configurable": {"checkpoint_ns": "", **lease.config["configurable"]}})
        await saver.acopy_thread("t", "v")
        with pytest.raises(Fenced):
            await put(saver, config("v", statekit_token=lease.token))
        with real.lease("v", ttl_s=LONG_S) as copy:
            await put(saver, config("v", statekit_token=copy.token))


async def test_a_run_under_a_lease_goes_through_and_one_without_the_required_lease_does_not(
    new_store: Callable[[str], Store], store_name: str
) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [("ai", "yes")]})
    builder.add_edge(START, "answer")
    async with new_store(store_name).open(require_lease=True) as saver:
        app = builder.compile(checkpointer=saver)
        async with await saver.alease("t", ttl_s=LONG_S) as lease:
            await app.ainvoke({"messages": [("user", "hi")]}, lease.config)
            await app.aupdate_state(lease.config, {"messages": [("user", "more")]})
            state = await app.aget_state(lease.config)
            assert len(state.values["messages"]) == 3
            with pytest.raises(Misuse, match="require_lease"):
                await app.aupdate_state(config(), {"messages": [("user", "more")]})
        with pytest.raises(Fenced):
            saver.put_writes(
                {"configurable": {**state.config["configurable"], "statekit_token": 5}}, [("x", 1)], "task"
            )
        with pytest.raises(Misuse, match="require_lease"):
            saver.put(config("u"), checkpoint(), metadata(), {})


async def test_what_update_state_saves_in_several_steps_is_all_under_the_lease(
    new_store: Callable[[str], Store], store_name: str
) -> None:
    builder = StateGraph(MessagesState)
    for name in ("a", "b"):
        builder.add_node(name, lambda state: {"messages": [("ai", "yes")]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    async with new_store(store_name).open(require_lease=True) as saver:
        app = builder.compile(checkpointer=saver)
        async with await saver.alease("t", ttl_s=LONG_S) as lease:
            await app.ainvoke({"messages": [("user", "hi")]}, lease.config)
            update = StateUpdate({"messages": [("ai", "more")]}, "a")
            end = await app.abulk_update_state(lease.config, [[update], [update]])
            assert end["configurable"]["statekit_token"] == lease.token
            copied = await app.aupdate_state(end, None, as_node="__copy__")
            state = await app.aget_state(copied)
            assert len(state.values["messages"]) == 5
            stolen = saver.lease("t", ttl_s=LONG_S, steal=True)
            before = await ids(saver, config())
            for late in (lease.config, end, copied):
                with pytest.raises(Fenced):
                    await app.abulk_update_state(late, [[update], [update]])
                with pytest.raises(Fenced):
                    await app.aupdate_state(late, None, as_node="__copy__")
            assert await ids(saver, config()) == before
            stolen.release()


async def test_the_keeper_outlives_what_on_lost_and_the_store_raise(
    real: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(lease: Any) -> None:
        raise RuntimeError("the user's own")

    first = real.lease("t", ttl_s=0.3, on_lost=fails)
    claim(real, holder="other", steal=True)
    wait_until(lambda: first.lost, "lost")
    with monkeypatch.context() as broken:
        keeper = real._keeper
        broken.setattr(keeper, "_claim", lambda claims: (_ for _ in ()).throw(OSError("no driver's error")))
        second = real.lease("u", ttl_s=0.3)
        wait_until(lambda: second.lost, "lost")
    third = real.lease("v", ttl_s=RENEWED_S)
    begun = claim(real, thread="v", ttl_us=1)
    assert begun is not None
    wait_until(lambda: claim(real, thread="v", ttl_us=1).until_us > begun.until_us + RENEWED_S / 2 * 1e6, "renewed")
    assert not third.lost


async def test_a_released_lease_is_not_brought_back_by_a_renewal_under_way(
    real: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    inner = real._keeper._claim

    def slow(claims: Any) -> Any:
        if claims[0].ttl_us and not entered.is_set():
            entered.set()
            assert go_on.wait(60)
        return inner(claims)

    monkeypatch.setattr(real._keeper, "_claim", slow)
    lease = real.lease("t", ttl_s=20)
    lease._confirmed_s -= 15  # its renewal is due
    with real._keeper._changed:
        real._keeper._changed.notify()
    assert await asyncio.to_thread(entered.wait, 60)
    releasing = asyncio.create_task(lease.arelease())
    await asyncio.sleep(0)
    go_on.set()
    await releasing
    held = claim(real, holder="other")
    assert held is not None
    assert held.holder == "other"


async def test_closing_gives_leases_back(new_store: Callable[[str], Store], store_name: str) -> None:
    store = new_store(store_name)
    async with store.open() as saver:
        backend = saver.backend
        lease = saver.lease("t", ttl_s=LONG_S)
    assert lease.lost
    if store_name == "memory":
        (held,) = backend.claim([Claim("t", "other", "other", 10**8)])
        assert held is not None
        assert held.holder == "other"
        return
    async with store.open() as saver:
        assert saver.lease("t", ttl_s=LONG_S).token > lease.token


@pytest.mark.parametrize("wrong", [{"ttl_s": 0}, {"ttl_s": float("nan")}, {"ttl_s": "30"}, {"wait_s": -1}])
def test_a_wrong_setting_is_refused(new_store: Callable[[str], Store], wrong: dict[str, Any]) -> None:
    with new_store("memory").open() as saver, pytest.raises(Misuse):
        saver.lease("t", **wrong)
