"""When a thread ends, and whether somebody waits for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_statekit import Misuse, open_saver
from langgraph_statekit.checkpoint.expiry import end, is_due, is_held, is_over
from langgraph_statekit.checkpoint.records import Ref, Row

NOW_US = 1_000_000
TIMES = st.integers(0, 10 * NOW_US)


@given(ttl_us=st.integers(1, NOW_US), until_us=TIMES | st.none(), leased_us=TIMES, held=st.booleans())
def test_a_used_thread_has_at_least_nine_tenths_of_its_time_left(
    ttl_us: int, until_us: int | None, leased_us: int, held: bool
) -> None:
    found = end(ttl_us, until_us, NOW_US, held=held, leased_us=leased_us)
    assert (found is None) == held
    impatient = end(-ttl_us, until_us, NOW_US, held=held, leased_us=leased_us)
    assert impatient is not None
    for each in (found or impatient, impatient):
        assert 0.9 * ttl_us <= each - NOW_US <= max(ttl_us, leased_us - NOW_US)
        assert each >= leased_us
        assert not is_over(each, NOW_US)
        assert not is_due(ttl_us, each, NOW_US)
        assert end(-ttl_us, each, NOW_US, held=held, leased_us=leased_us) == each, "a second use changes nothing"


def test_a_thread_without_a_time_to_live_has_no_end() -> None:
    assert end(0, 5, NOW_US, held=False, leased_us=7) is None
    assert not is_over(None, NOW_US)
    assert not is_due(0, None, NOW_US)
    assert is_over(NOW_US, NOW_US)


@pytest.mark.parametrize(
    ("latest", "asked", "held"),
    [
        ([], [], False),
        (["2", "1"], ["2"], True),
        (["2", "1"], ["1"], False),
        (["a:2", "a:1", "1"], ["a:2"], True),
        (["a:2", "a:1", "1"], ["a:1"], False),
        (["b:9", "a:2", "1"], ["a:2"], True),
        (["b:9", "a:2", "1"], ["1"], True),
        (["2", "a:1", "1"], ["a:1", "1"], False),
        (["a:1"], ["a:1"], True),
        (["2"], ["not stored"], False),
    ],
)
def test_a_thread_is_held_by_a_latest_checkpoint_that_the_root_has_not_left_behind(
    latest: list[str], asked: list[str], held: bool
) -> None:
    def ref(name: str) -> Ref:
        ns, _, id = name.rpartition(":")
        return Ref("t", ns, id)

    assert is_held([Row(ref(name)) for name in latest], {ref(name) for name in asked}) is held


def test_both_options_may_stand_in_a_url() -> None:
    saver = open_saver("memory://?ttl_s=1.5&expire_interrupted=true")
    assert saver._sync.ttl_us == saver._async.ttl_us == -1_500_000
    with pytest.raises(Misuse, match="ttl_s"):
        open_saver("memory://?ttl_s=soon")
