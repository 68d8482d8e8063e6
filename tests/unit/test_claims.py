"""Who gets a lease: decided alike whatever the clocks of two hosts say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from langgraph_statekit.checkpoint.claims import DRAIN, About, Claim, Held, LeaseQuery, decide, is_listed
from langgraph_statekit.watchdog.leased import leased

NOW_US = 10**12


def claim(**fields: object) -> Claim:
    return Claim(**{"thread": "t", "holder": "h", "owner": "o", "ttl_us": 10**6, **fields})  # type: ignore[arg-type]


def made(held: Held | None) -> Held:
    assert held is not None
    return held


def test_what_was_handed_over_is_free_at_once_also_by_a_clock_that_is_behind() -> None:
    first = made(decide(claim(), None, NOW_US))
    asked = made(decide(claim(token=first.token, control=DRAIN), first, NOW_US))
    given = made(decide(claim(token=first.token, ttl_us=0), asked, NOW_US + 10))
    behind_us = NOW_US - 10**6
    assert is_listed(LeaseQuery(True), given, behind_us)
    assert leased("t", given, behind_us, 600).problem == DRAIN
    assert not leased("t", given, behind_us, 600).held
    taken = made(decide(claim(holder="other", instead=given.token), given, behind_us))
    assert (taken.holder, taken.control) == ("other", "")
    assert taken.token > given.token
    released = made(decide(claim(token=first.token, ttl_us=0), first, NOW_US))
    assert not is_listed(LeaseQuery(), released, NOW_US)


@given(
    st.lists(
        st.tuples(
            st.sampled_from("xyz"), st.booleans(), st.sampled_from([None, 0, 1]), st.integers(0, 5), st.integers(-9, 9)
        )
    )
)
def test_tokens_never_fall_and_only_their_holder_renews(
    claims: list[tuple[str, bool, int | None, int, int]],
) -> None:
    held: Held | None = None
    for holder, steal, back, ttl_us, clock_us in claims:
        token = None if back is None or held is None else held.token - back
        wanted = claim(holder=holder, steal=steal, token=token, ttl_us=ttl_us)
        after = decide(wanted, held, NOW_US + clock_us)
        if after is None:
            continue
        if held is not None:
            assert after.token >= held.token
            assert after.token > held.token or after.holder == held.holder
            assert token in (None, held.token), "an old token was renewed"
        held = after


@given(st.text(), st.text(), st.text())
def test_what_a_holder_tells_comes_back_and_garbage_tells_nothing(graph: str, process: str, item: str) -> None:
    told = About(graph, process, item)
    assert About.unpacked(told.packed()) == told
    for garbage in ("[]", "3", "null", "{", '{"graph": {}}'):
        assert About.unpacked(garbage)._replace(graph="") == About(), garbage
