"""The order of a thread's checkpoints."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base.id import uuid6

from langgraph_statekit.checkpoint.order import RACE_US, clock_us, place

NOW = 1_800_000_000_000_000
TIMES = st.integers(NOW - 10**10, NOW + 10**10)


def test_a_checkpoint_id_tells_its_time() -> None:
    assert abs(clock_us(str(uuid6())) - time.time_ns() // 1000) < 60_000_000


@pytest.mark.parametrize(
    "id",
    [
        "",
        "1",
        "checkpoint",
        "9ec206fb-ceea-4e31-b922-25d9dd6d67ed",
        "ffffffff-ffff-6fff-8000-000000000000",
        "z" * 14 + "6" + "z" * 21,
    ],
)
def test_other_ids_tell_none(id: str) -> None:
    assert clock_us(id) == 0


def test_ids_of_one_process_keep_their_order() -> None:
    ids = [str(uuid6()) for _ in range(100)]
    places = [clock_us(id) for id in ids]
    assert places == sorted(places)


@given(TIMES, st.integers(0, 10**10))
def test_a_child_is_behind_its_parent_whatever_the_clocks(at: int, ahead: int) -> None:
    parent = at + ahead
    assert place(at, parent, parent) > parent


@given(TIMES, st.integers(RACE_US + 1, 10**10))
def test_a_fork_by_a_host_whose_clock_is_behind_is_the_latest(at: int, behind: int) -> None:
    last = at + behind
    assert place(at, last, 0) > last


@given(TIMES, st.integers(0, RACE_US))
def test_racing_runs_sort_by_id(at: int, gap: int) -> None:
    assert place(at, at + gap, 0) == at


def test_ids_without_a_time_sort_as_they_were_committed() -> None:
    assert place(0, 7, 3) == 8
