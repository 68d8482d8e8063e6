"""The effect ledger: what is done to the world outside is done once, whatever becomes of those who do it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from langgraph_statekit import (
    Conflict,
    EffectLedger,
    EffectUnknown,
    Encryption,
    Fenced,
    Misuse,
    StatekitSaver,
)
from langgraph_statekit.checkpoint.cells import CellQuery
from tests.crash.faulty import Faulty
from tests.effects.kit import Died, Provider, Run, both_faces
from tests.faces import config, put
from tests.servers import wait_until
from tests.stores_under_test import Store

AT = config()
LONG_S = 600


@pytest.fixture
def saver(store: Store) -> Iterator[StatekitSaver]:
    with store.open() as saver:
        yield saver


@pytest.fixture
def provider() -> Provider:
    return Provider()


def held(saver: StatekitSaver) -> bytes:
    """Return all that is stored of effects, as it is before it is compressed or encrypted."""
    return b"".join(cell.value for cell in saver.backend.cells(CellQuery(kind="effect")).cells)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def face(request: pytest.FixtureRequest) -> Callable[[EffectLedger], Run]:
    return lambda ledger: both_faces(ledger, request.param)


def test_an_effect_is_made_once_and_gives_the_same_ever_after(
    saver: StatekitSaver, store: Store, provider: Provider, face: Callable[[EffectLedger], Run]
) -> None:
    run = face(EffectLedger(saver))
    first = run("order 17", provider.charge, 500, config=AT)
    assert first == run("order 17", provider.charge, 500, config=AT) == {"charged": 500}
    with pytest.raises(Conflict, match="request="):
        run("order 17", provider.charge, 501, config=AT)
    if store.__class__.__name__ != "MemoryStore":
        with store.open() as other:
            assert face(EffectLedger(other))("order 17", provider.charge, 500, config=AT) == first
    assert provider.total == 1
    run("order 17", provider.charge, 500, config=config("another thread"))
    run("order 18", provider.charge, 500, config=AT)
    assert sorted(provider.made.values()) == [1, 1, 1]


def test_many_workers_at_once_make_an_effect_once(saver: StatekitSaver) -> None:
    ledger, made, begun = EffectLedger(saver), [], threading.Event()

    def slow(value: int) -> int:
        begun.set()
        made.append(value)
        return len(made)

    async def workers() -> list[int]:
        return await asyncio.gather(*[ledger.arun("key", slow, 1, config=AT) for _ in range(8)])

    assert asyncio.run(workers()) == [1] * 8
    assert made == [1]


def test_what_was_certainly_not_made_is_tried_again(saver: StatekitSaver, provider: Provider) -> None:
    ledger = EffectLedger(saver)
    provider.error = ConnectionRefusedError("nobody listens")
    with pytest.raises(ConnectionRefusedError):
        ledger.run("key", provider.charge, 5, config=AT, failed_on=ConnectionRefusedError)
    [failed] = ledger.list("t")
    assert (failed.state, failed.error) == ("failed", "ConnectionRefusedError: nobody listens")
    provider.error = None
    assert ledger.run("key", provider.charge, 6, config=AT) == {"charged": 6}
    [sent] = ledger.list("t", ["sent"])
    assert (sent.key, sent.attempts, sent.result) == ("key", 2, {"charged": 6})
    assert provider.made == {sent.idempotency_key: 1}


@pytest.mark.parametrize("made", [False, True], ids=["before it acts", "after it acts"])
def test_an_error_leaves_an_effect_unknown_until_somebody_tells(
    saver: StatekitSaver, provider: Provider, made: bool, face: Callable[[EffectLedger], Run]
) -> None:
    ledger = EffectLedger(saver)
    run = face(ledger)

    def fails(cents: int, idempotency_key: str) -> None:
        if made:
            provider.charge(cents, idempotency_key)
        raise TimeoutError("no reply")

    with pytest.raises(TimeoutError):
        run("key", fails, 5, config=AT)
    for _ in range(2):
        with pytest.raises(EffectUnknown, match=r"no reply.*resolve"):
            run("key", provider.charge, 5, config=AT)
    assert [effect.state for effect in ledger.list(states=["unknown"])] == ["unknown"]
    outcome = "sent" if made else "not_sent"
    told = ledger.resolve("key", outcome, thread_id="t", result={"charged": "told"} if made else None, note="asked")
    assert (told.state, told.outcome, told.note) == ("resolved", outcome, "asked")
    assert run("key", provider.charge, 5, config=AT) == {"charged": "told" if made else 5}
    assert provider.total == 1
    with pytest.raises(Conflict, match="only unknown"):
        ledger.resolve("key", "sent", thread_id="t")


@pytest.mark.parametrize("when", ["dies_before", "dies_after"])
@pytest.mark.parametrize("policy", ["stop", "verify", "retry"])
def test_an_effect_whose_maker_died_is_unknown_and_the_policy_decides(
    saver: StatekitSaver, provider: Provider, when: str, policy: str
) -> None:
    ledger = EffectLedger(saver, lease_s=0.05)
    setattr(provider, when, True)
    with pytest.raises(Died):
        ledger.run("key", provider.charge, 5, config=AT)
    setattr(provider, when, False)
    options: Any = {"on_unknown": policy, "config": AT, "verify": provider.find if policy == "verify" else None}
    if policy == "stop":
        with pytest.raises(EffectUnknown):
            ledger.run("key", provider.charge, 5, **options)
    else:
        ledger.run("key", provider.charge, 5, **options)
    acted = int(when == "dies_after")
    assert len(provider.made) <= 1, "each attempt has the same key for the provider"
    assert provider.total == {"stop": acted, "verify": 1, "retry": 1 + acted}[policy]


def test_an_attempt_under_way_is_waited_for_and_not_made_again(saver: StatekitSaver) -> None:
    ledger, go_on, made = EffectLedger(saver, lease_s=LONG_S), threading.Event(), []

    def slow() -> str:
        made.append(1)
        assert go_on.wait(60)
        return "done"

    first = threading.Thread(target=ledger.run, args=("key", slow), kwargs={"config": AT})
    first.start()
    wait_until(lambda: bool(made), "begun")
    results: list[Any] = []
    second = threading.Thread(target=lambda: results.append(ledger.run("key", slow, config=AT)))
    second.start()
    assert [effect.state for effect in ledger.list()] == ["pending"]
    go_on.set()
    for each in (first, second):
        each.join(60)
    assert (results, made) == (["done"], [1])


def test_a_worker_that_lost_its_lease_makes_nothing_more(
    saver: StatekitSaver, provider: Provider, face: Callable[[EffectLedger], Run]
) -> None:
    for scope in ("thread", "global"):
        ledger = EffectLedger(saver, scope=scope, lease_s=LONG_S)
        run = face(ledger)
        old = saver.lease("t", ttl_s=LONG_S, steal=True)
        provider.dies_before = True
        with pytest.raises(Died):
            run(f"{scope} begun", provider.charge, 5, config=old.config)
        provider.dies_before = False
        new = saver.lease("t", ttl_s=LONG_S, steal=True)
        before = provider.total
        with pytest.raises(Fenced):
            run(f"{scope} late", provider.charge, 5, config=old.config)
        assert provider.total == before
        # Whoever has its lease need not wait for the time of the attempt to be over.
        with pytest.raises(EffectUnknown):
            run(f"{scope} begun", provider.charge, 5, config=new.config)
        run(f"{scope} late", provider.charge, 5, config=new.config)
        run(f"{scope} begun", provider.charge, 5, config=new.config, verify=provider.find)
        assert provider.total == before + 2


def test_a_global_key_is_one_effect_in_all_threads(saver: StatekitSaver, provider: Provider) -> None:
    ledger = EffectLedger(saver, scope="global")
    for name in ("t", "u", None):
        ledger.run("key", provider.charge, 5, config=config(name) if name else None)
    assert provider.total == 1
    assert [effect.thread_id for effect in ledger.list()] == ["t"]
    with pytest.raises(Misuse, match="no thread"):
        EffectLedger(saver).run("key", provider.charge, 5)


async def test_effects_outlive_retention_expiry_and_what_else_becomes_of_checkpoints(
    store: Store, provider: Provider
) -> None:
    async with store.open(ttl_s=1.0) as saver:
        ledger = EffectLedger(saver)
        await put(saver, AT, {"x": 1}, {"x": 1})
        await ledger.arun("key", provider.charge, 5, config=AT)
        await saver.aprune(["t"])
        store.advance(3600)
        await saver.asweep()
        assert await saver.aget_tuple(AT) is None
        assert await ledger.arun("key", provider.charge, 5, config=AT) == {"charged": 5}
    assert provider.total == 1


@pytest.mark.parametrize(("scope", "strategy"), [("thread", None), ("global", None), ("thread", "delete")])
def test_a_deleted_thread_leaves_the_hash_of_its_keys_for_a_time_whoever_deletes_it(
    store: Store, scope: str, strategy: str | None
) -> None:
    provider = Provider()
    with store.open() as saver:
        ledger = EffectLedger(saver, scope=scope, effects_keep_s=LONG_S)
        ledger.run("the secret key", provider.charge, 777777, config=AT)
        provider.error = ValueError("the secret error")
        with pytest.raises(ValueError, match="secret"):
            ledger.run("unknown", provider.charge, 777777, config=AT)
        provider.error = None
        assert b"the secret key" in held(saver)
        if strategy is None:
            StatekitSaver(saver.backend).delete_thread("t")
        else:
            saver.prune(["t"], strategy=strategy)
        assert b"the secret" not in held(saver) + store.raw_dump()
        assert ledger.list() == []
        with pytest.raises(EffectUnknown, match="deleted"):
            ledger.run("the secret key", provider.charge, 777777, config=AT)
        with pytest.raises(EffectUnknown):
            ledger.run("unknown", provider.charge, 777777, config=AT)
        with pytest.raises(Conflict):
            ledger.run("the secret key", provider.charge, 5, config=AT)
        assert provider.total == 1
        ledger.run("unknown", provider.charge, 777777, config=AT, verify=lambda key: {"charged": "told"})
        assert ledger.run("unknown", provider.charge, 777777, config=AT) == {"charged": "told"}
        short = EffectLedger(saver, scope=scope, effects_keep_s=0.05)
        short.run("short", provider.charge, 5, config=config("u"))
        StatekitSaver(saver.backend).delete_thread("u")
        wait_until(lambda: short.find("short", "u") is None, "expired")


def test_an_attempt_that_ends_after_its_thread_was_deleted_brings_nothing_back(store: Store) -> None:
    with store.open() as saver:
        ledger = EffectLedger(saver)

        def charge() -> str:
            saver.delete_thread("t")
            return "the secret result"

        ledger.run("the secret key", charge, config=AT)
        assert b"the secret" not in held(saver) + store.raw_dump()
        with pytest.raises(EffectUnknown, match="deleted"):
            ledger.run("the secret key", charge, config=AT)


def test_an_encrypted_store_shows_neither_keys_nor_results(store: Store, provider: Provider) -> None:
    with store.open(encryption=Encryption({"one": b"k" * 32}, "one")) as saver:
        ledger = EffectLedger(saver)
        ledger.run("the secret key", lambda value: f"the secret {value}", "the secret argument", config=AT)
        assert b"the secret" not in store.raw_dump()
        [effect] = ledger.list("t")
        assert (effect.key, effect.result) == ("the secret key", "the secret the secret argument")
        backend: Any = saver.backend
        StatekitSaver(backend.inner).delete_thread("t")
        assert ledger.list("t") == [effect], "who cannot read it does not make it less than it is"


def test_finished_effects_expire_if_they_are_to(saver: StatekitSaver, provider: Provider) -> None:
    ledger = EffectLedger(saver, keep_s=0.05)
    ledger.run("key", provider.charge, 5, config=AT)
    wait_until(lambda: ledger.find("key", "t") is None, "expired")
    ledger.run("key", provider.charge, 6, config=AT)
    assert provider.total == 2


async def test_tenants_and_threads_hand_different_keys_to_a_provider(durable_store: Store) -> None:
    provider = Provider()
    for tenant in (None, "a", "b"):
        with durable_store.open(tenant=tenant) as saver:
            for thread in ("t", "u"):
                await EffectLedger(saver).arun("key", provider.charge, 5, config=config(thread))
    assert sorted(provider.made.values()) == [1] * 6


def test_a_saver_that_requires_leases_requires_them_for_effects(store: Store) -> None:
    with store.open(require_lease=True) as saver, saver.lease("t") as lease:
        for scope in ("thread", "global"):
            ledger = EffectLedger(saver, scope=scope)
            with pytest.raises(Misuse, match="require_lease"):
                ledger.run("key", list, config=AT)
            assert ledger.run("key", list, config=lease.config) == []


@pytest.mark.parametrize(("scope", "requests"), [("thread", 2), ("global", 3)])
def test_an_effect_costs_few_requests(store: Store, scope: str, requests: int) -> None:
    with store.open() as saver, saver.lease("t") as lease:
        ledger = EffectLedger(saver, scope=scope)
        ledger.run("first", list, config=lease.config)
        backend: Any = saver._sync._backend
        counting = Faulty(backend)
        saver._sync._backend = counting  # type: ignore[assignment]
        for wanted in (requests, 1):
            before = counting.calls
            ledger.run("key", list, config=lease.config)
            assert counting.calls - before == wanted
        saver._sync._backend = backend


def test_an_attempt_is_waited_for_no_longer_than_it_may_take_when_the_stores_clock_is_set_back(
    new_store: Callable[[str], Store], provider: Provider
) -> None:
    store = new_store("memory")
    with store.open() as saver:
        ledger = EffectLedger(saver, lease_s=0.05)
        provider.dies_before = True
        with pytest.raises(Died):
            ledger.run("key", provider.charge, 5, config=AT)
        cells = store._backend._cells  # type: ignore[attr-defined]
        ref = next(ref for ref in cells if ref.kind == "effect")
        cell, until_us = cells[ref]
        cells[ref] = cell._replace(rev=cell.rev + 3_600_000_000), until_us
        with pytest.raises(EffectUnknown):
            ledger.run("key", provider.charge, 5, config=AT)
