"""How often retention is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from langgraph_statekit.checkpoint.pacing import Pacing, is_due, period_of

Saver = Callable[[int], bool]
"""Says whether the save with this `rev` makes a pass."""


def gaps(saver_of: Callable[[int], Saver | None], saves: int, rev: int) -> Iterator[int]:
    """Yield how many saves there were before each pass, and at last since the last one; a pass takes a `rev`, too."""
    since = 0
    for number in range(saves):
        rev, since = rev + 1, since + 1
        saver = saver_of(number)
        if saver is not None and saver(rev):
            yield since
            rev, since = rev + 1, 0
    yield since


@pytest.mark.parametrize("period", [16, 17, 50, 127, 128, 5_000])
def test_each_period_has_one_pass(period: int) -> None:
    for begin in range(0, 2 * period, period // 8):
        first, *found, last = gaps(lambda number: lambda rev: is_due(rev, period), 5 * period, begin)
        assert max(first, last) <= period * 1.01 + 1
        assert all(period - 2 <= gap <= period * 1.01 for gap in found)


@pytest.mark.parametrize("others", [1, 2, 3])
@pytest.mark.parametrize("period", [16, 50])
def test_savers_without_retention_who_save_in_step_with_the_period_do_not_take_all_that_is_due(
    period: int, others: int
) -> None:
    for step in range(others + 1, 3 * period):
        for begin in range(0, 128, 7):
            found = gaps(
                lambda number: None if number % step < others else lambda rev: is_due(rev, period), 20 * period, begin
            )
            assert max(found) <= (period + 2 if others == 1 and step > 2 else 6 * 128), (step, begin)


@pytest.mark.parametrize("period", [16, 50, 128])
def test_the_save_after_one_that_is_due_may_make_the_pass_and_no_further_one(period: int) -> None:
    firsts = [rev for rev in range(10_000) if is_due(rev, period) and not is_due(rev - 1, period)]
    assert all(is_due(rev + 1, period) and not is_due(rev + 2, period) for rev in firsts)
    assert {after - before for before, after in pairwise(firsts)} <= {period, period + 1, period + 2}


def test_who_knows_of_no_long_thread_makes_the_passes_that_are_due_to_who_does() -> None:
    for keep_last in (0, 50, 77):
        for left in (0, 100, 1_000, 77_777):
            short, long = period_of(keep_last, 0), period_of(keep_last, left)
            assert all(is_due(rev, short) for rev in range(100_000) if is_due(rev, long))
            assert short == max(16, keep_last * 2 // 3)
            assert max(short, left // 4) <= long <= max(short, left // 2)


def test_passes_cost_a_share_of_the_saves_however_long_the_thread() -> None:
    pacing, passes = Pacing(), list[int]()
    for rev in range(10**15, 10**15 + 100_000):
        if pacing.due("t", rev, None):
            passes.append(rev)
            pacing.passed("t", rev, rev - 10**15)
    assert passes[0] - 10**15 <= 16
    assert len(passes) < 60
