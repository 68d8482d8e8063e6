"""The store fails at each call in turn: an effect is then made at most once, and once in all when it is asked for."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_statekit import EffectLedger, EffectUnknown
from langgraph_statekit.checkpoint.cells import Cell, cell_ref
from langgraph_statekit.effects.rules import (
    CLAIM,
    COMPENSATED,
    DONE,
    FAILED,
    NOT_SENT,
    PENDING,
    RESOLVED,
    SENT,
    UNKNOWN,
    WAIT,
    Asked,
    Record,
    decode,
    encode,
    fingerprint,
    judge,
)
from tests.crash.faulty import Died, Faulty
from tests.effects.kit import Provider
from tests.stores_under_test import Store

BEFORE_OR_AFTER = pytest.mark.parametrize("acts", [False, True], ids=["before it acts", "after it acts"])


@BEFORE_OR_AFTER
@pytest.mark.parametrize("scope", ["thread", "global"])
def test_an_effect_is_made_once_whichever_call_to_the_store_fails(store: Store, scope: str, acts: bool) -> None:
    def doom(saver: Any, number: int) -> Faulty:
        faulty = Faulty(saver.backend, number, acts)
        saver._sync._backend = faulty
        return faulty

    _fail_at_every_call(store, scope, doom)


@BEFORE_OR_AFTER
def test_an_effect_is_made_once_whichever_request_of_a_call_fails(
    new_store: Callable[[str], Store], acts: bool
) -> None:
    def doom(saver: Any, number: int) -> Faulty:
        bucket = getattr(saver.backend, "inner", saver.backend)._bucket
        bucket._driver = Faulty(bucket._driver, number, acts)
        return bucket._driver  # type: ignore[no-any-return]

    _fail_at_every_call(new_store("file"), "thread", doom)


def _fail_at_every_call(store: Store, scope: str, doom: Callable[[Any, int], Faulty]) -> None:
    with store.open() as survivor:
        for number in range(1, 100):
            thread, provider = f"fails at {number}", Provider()
            key = f"key {number}"
            lease = survivor.lease(thread, ttl_s=600)
            with store.open() as doomed:
                faulty = doom(doomed, number)
                with suppress(Died):
                    doomed_ledger = EffectLedger(doomed, scope=scope, lease_s=600)
                    doomed_ledger.run(key, provider.charge, 5, config=lease.config)
            assert provider.total <= 1
            lease.release()
            lease = survivor.lease(thread, ttl_s=600)
            ledger = EffectLedger(survivor, scope=scope, lease_s=600)
            known = ledger.find(key, thread)
            if known is not None and known.state == "sent":
                assert provider.total == 1
            elif known is not None and known.state != "failed":  # of a claim that was taken back
                with pytest.raises(EffectUnknown):
                    ledger.run(key, provider.charge, 5, config=lease.config)
            ledger.run(key, provider.charge, 5, config=lease.config, verify=provider.find)
            ledger.run(key, provider.charge, 5, config=lease.config)
            assert provider.total == 1, f"call {number}"
            lease.release()
            if not faulty.died:
                assert number > 3
                return
    raise AssertionError("an effect has no end")


RECORDS = st.builds(
    Record,
    state=st.sampled_from([PENDING, SENT, FAILED, UNKNOWN]),
    request=st.sampled_from([b"1", b"2"]),
    claim=st.text(max_size=3),
    claimed_us=st.integers(0, 100),
    lease_us=st.integers(0, 100),
    token=st.none() | st.integers(1, 3),
    attempts=st.integers(0, 3),
    generation=st.integers(0, 2),
    key=st.text(max_size=3),
    thread=st.sampled_from(["t", "u"]),
    uses=st.lists(st.text(max_size=3), max_size=3).map(tuple),
    result=st.none() | st.tuples(st.text(max_size=3), st.binary(max_size=3)),
    compensates=st.booleans(),
    forgotten=st.booleans(),
) | st.builds(
    Record,
    state=st.just(RESOLVED),
    request=st.sampled_from([b"1", b"2"]),
    claim=st.just(""),
    outcome=st.sampled_from([SENT, NOT_SENT, COMPENSATED]),
)
ASKED = st.builds(Asked, st.sampled_from([b"1", b"2"]), st.sampled_from(["t", "u"]), st.none() | st.integers(1, 3))


@given(RECORDS, ASKED, st.integers(0, 300))
def test_only_what_was_certainly_not_made_may_be_claimed(record: Record, asked: Asked, now_us: int) -> None:
    verdict = judge(record, asked, now_us)
    assert (verdict == CLAIM) == (record.state == FAILED or record.outcome in (NOT_SENT, COMPENSATED))
    if verdict == DONE:
        assert record.is_made
        assert record.request == asked.request
    if verdict == WAIT:
        assert record.state == PENDING
        assert now_us < record.claimed_us + record.lease_us


@given(RECORDS)
def test_a_record_comes_back_as_it_was_stored(record: Record) -> None:
    cell = Cell(cell_ref("effect", "k"), encode(record), (), record.claimed_us, "")
    assert decode(cell) == record


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(PLAIN, st.randoms())
def test_the_order_of_a_request_does_not_matter(request: Any, dice: random.Random) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            items = [(key, shuffled(item)) for key, item in value.items()]
            dice.shuffle(items)
            return dict(items)
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    def dumps(value: Any) -> tuple[str, bytes]:
        raise AssertionError("all of it is plain")

    assert fingerprint(b"k", request, dumps) == fingerprint(b"k", shuffled(request), dumps)
    assert fingerprint(b"k", request, dumps) != fingerprint(b"k", [request, 1], dumps)
