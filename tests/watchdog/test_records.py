"""What a rollback leaves behind: effects as agreed, metrics, and what people are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from langgraph_statekit import EffectLedger, Misuse, OpenTelemetryHook, PrometheusHook, Rollback, Watchdog
from langgraph_statekit.errors import GaveUp
from langgraph_statekit.watchdog.checks import Invariant
from tests.cli.kit import Run, run
from tests.stores_under_test import Store
from tests.watchdog.kit import AT, NOW, QUICK, Clock, Hanging, State, deadline, looped, step

__all__ = ["run"]


def breaks_once() -> tuple[Any, list[str]]:
    """Return a rule, and the breaches of it."""
    breaches: list[str] = []

    def holds(before: Any, after: Any) -> bool:
        if after.get("i") != 3 or breaches:
            return True
        breaches.append("i is 3")
        return False

    return Invariant("never_3", holds), breaches


@pytest.mark.parametrize(("effects", "made"), [("keep", [0, 1, 2, 3]), ("compensate", [0, 1, 2, "not 2", 2, 3])])
async def test_effects_behind_the_target_are_kept_or_undone(store: Store, effects: Any, made: list[Any]) -> None:
    world: list[Any] = []

    def undo(effect: Any) -> None:
        world.append(f"not {effect.result}")

    async with store.open() as saver:
        ledger = EffectLedger(saver, compensations=[undo])

        async def work(state: State) -> State:
            await ledger.arun(f"item {state['i']}", do, state["i"], compensate=undo)
            return step(state)

        def do(item: int) -> int:
            world.append(item)
            return item

        rule, breaches = breaks_once()
        dog = Watchdog(
            looped(saver, work), checks=[rule], policy=Rollback(backoff=NOW), ledger=ledger, effects=effects, **QUICK
        )
        assert (await dog.ainvoke({"i": 0}, AT))["i"] == 4
        assert breaches and world == made


async def test_somebody_is_asked_about_effects(new_store: Callable[[str], Store]) -> None:
    async with new_store("memory").open() as saver:
        ledger = EffectLedger(saver)

        async def work(state: State) -> State:
            await ledger.arun(f"item {state['i']}", int, state["i"])
            return step(state)

        rule, _ = breaks_once()
        graph = looped(saver, work)
        dog = Watchdog(graph, checks=[rule], policy=Rollback(backoff=NOW), ledger=ledger, effects="ask", **QUICK)
        with pytest.raises(GaveUp, match=r"decide about its effects first \(item 2\)"):
            await dog.ainvoke({"i": 0}, AT)
        assert (await graph.aget_state(AT)).values["i"] == 3  # nothing was changed
        for wrong in ({"effects": "undo"}, {"effects": "ask"}):
            with pytest.raises(Misuse, match="with a ledger"):
                Watchdog(graph, **wrong)  # type: ignore[arg-type]


async def test_rollbacks_are_counted_and_shown(new_store: Callable[[str], Store], run: Run) -> None:
    store, registry, reader, clock = new_store("sqlite"), CollectorRegistry(), InMemoryMetricReader(), Clock()
    hooks = [PrometheusHook(registry), OpenTelemetryHook(MeterProvider([reader]))]
    async with store.open(hooks=hooks) as saver:
        dog = Watchdog(
            looped(saver, Hanging(2, 9, clock)), **deadline(clock, policy=Rollback(max_attempts=1, backoff=NOW))
        )
        with pytest.raises(GaveUp):
            await dog.ainvoke({"i": 0}, AT)
    of = {"store": "sqlite", "operation": "rollback"}
    assert registry.get_sample_value("statekit_rollbacks_total", of) == 1
    assert registry.get_sample_value("statekit_findings_total", {**of, "operation": "watch"}) == 2
    assert registry.get_sample_value("statekit_given_up_total", {**of, "operation": "fail"}) == 1
    data = reader.get_metrics_data()
    assert data is not None
    counted = {
        metric.name: sum(point.value for point in metric.data.data_points)  # type: ignore[union-attr]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name in ("statekit.rollbacks", "statekit.findings", "statekit.given_up")
    }
    assert counted == {"statekit.rollbacks": 1, "statekit.findings": 2, "statekit.given_up": 1}
    shown = run("show", "--url", store.url, "t", "--history")
    assert "item_deadline, item 2, attempt 1" in shown.out
    (fork,) = (each for each in run("show", "--url", store.url, "t", "--history", "--json").json if each["rollback"])
    assert fork["rollback"]["reason"] == "item_deadline"
    assert "statekit_reason" in run("show", "--url", store.url, "t", "--at", fork["checkpoint"]).out
