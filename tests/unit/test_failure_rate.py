"""The failure rate over a window, and its alert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from langgraph_statekit import FailureRate, Misuse
from langgraph_statekit.events import Conflicted, Failed, Finished, Retried


class Clock:
    """Seconds that pass when told."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


COMMON = {"store": "sqlite", "operation": "put", "thread_id": "a", "checkpoint_ns": ""}
OK = Finished(**COMMON, latency_s=0.1)  # type: ignore[arg-type]
FAILED = Failed(**COMMON, latency_s=0.1, error="Unavailable")  # type: ignore[arg-type]
OTHERS = Retried(**COMMON, error="TimeoutError"), Conflicted(**COMMON)  # type: ignore[arg-type]


def tell(hook: FailureRate, events: Sequence[Finished]) -> None:
    for event in events:
        hook(event)


def test_the_rate_counts_operations_of_the_window_and_nothing_else() -> None:
    clock = Clock()
    hook = FailureRate(window_s=60, clock=clock)
    assert hook.rate == 0
    tell(hook, [OK, FAILED, OK, OK])
    for other in OTHERS:
        hook(other)
    assert hook.rate == 0.25
    clock.now_s += 30
    tell(hook, [FAILED] * 4)
    assert hook.rate == 5 / 8
    clock.now_s += 30
    assert hook.rate == 1
    clock.now_s += 30
    assert hook.rate == 0


def test_the_alert_comes_when_the_rate_reaches_the_threshold_and_again_only_after_it_was_below() -> None:
    clock, alerts = Clock(), list[float]()
    hook = FailureRate(window_s=10, threshold=0.5, alert=alerts.append, min_operations=4, clock=clock)
    tell(hook, [FAILED] * 3)
    assert alerts == []  # too few to tell
    tell(hook, [OK])
    assert alerts == [0.75]
    tell(hook, [FAILED] * 20)
    assert len(alerts) == 1
    clock.now_s += 11
    tell(hook, [OK, OK, FAILED])
    assert len(alerts) == 1
    tell(hook, [FAILED])
    assert alerts == [0.75, 0.5]


def test_a_rate_that_fell_while_nothing_happened_is_told_when_it_rises_again() -> None:
    clock, alerts = Clock(), list[float]()
    hook = FailureRate(window_s=10, threshold=0.5, alert=alerts.append, min_operations=1, clock=clock)
    tell(hook, [FAILED])
    clock.now_s += 11
    tell(hook, [FAILED])
    assert alerts == [1, 1]


def test_a_rate_that_rose_while_nothing_happened_is_told_with_the_next_operation() -> None:
    clock, alerts = Clock(), list[float]()
    hook = FailureRate(window_s=10, threshold=0.5, alert=alerts.append, min_operations=1, clock=clock)
    tell(hook, [OK] * 5)
    clock.now_s += 6
    tell(hook, [FAILED] * 4)
    clock.now_s += 6
    assert alerts == []
    tell(hook, [FAILED])
    assert alerts == [1]


def test_memory_does_not_grow_with_operations() -> None:
    clock = Clock()
    hook = FailureRate(window_s=6, clock=clock)
    for _ in range(5000):
        clock.now_s += 0.01
        hook(OK)
    assert len(hook._counts) <= 61


@pytest.mark.parametrize(
    "wrong", [{"window_s": 0}, {"threshold": 0}, {"threshold": 5}, {"min_operations": 0}, {"alert": 3}]
)
def test_a_rate_that_could_never_be_told_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        FailureRate(**wrong)
