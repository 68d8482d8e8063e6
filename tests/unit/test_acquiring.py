"""How often those who wait for a lease ask for it."""

from __future__ import annotations

import pytest

from langgraph_statekit.acquiring import pause_s


@pytest.mark.parametrize("took_s", [0.0, 0.001, 0.05, 0.5, 1.0])
def test_who_waits_keeps_the_store_busy_for_a_fifth_of_the_time_at_most(took_s: float) -> None:
    assert took_s <= (took_s + pause_s(took_s)) / 5 + 1e-9


def test_a_lease_that_is_given_back_is_noticed_soon() -> None:
    assert pause_s(0.001) <= 0.25
    assert pause_s(1_000.0) <= 5.0
