"""A run that goes wrong is noticed, stopped, fenced off, rolled back and resumed; one that is well is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_statekit import StatekitSaver
from langgraph_statekit.errors import GaveUp
from langgraph_statekit.events import Event
from langgraph_statekit.watchdog.attempts import dead, is_dead, revive, tried
from langgraph_statekit.watchdog.checks import Invariant, NodeDeadline, NoProgress
from langgraph_statekit.watchdog.errors import WatchdogWarning
from langgraph_statekit.watchdog.policy import DeadLetter, Interrupt, Rollback, Skip
from langgraph_statekit.watchdog.view import Finding, View
from langgraph_statekit.watchdog.watchdog import Watchdog
from tests.stores_under_test import Store
from tests.watchdog.kit import AT, NOW, QUICK, Clock, Hanging, State, astep, deadline, healthy, kinds, looped, step


async def test_a_hanging_item_is_rolled_back_and_retried(saver: StatekitSaver, told: list[Event]) -> None:
    clock = Clock()
    work = Hanging(2, 2, clock)
    graph = looped(saver, work)
    dog = Watchdog(graph, policy=Rollback(backoff=NOW), **deadline(clock))
    assert await dog.ainvoke({"i": 0}, AT) == {"i": 4, "done": [f"item {i}" for i in range(4)]}
    assert work.calls == [0, 1, 2, 2, 2, 3]
    assert kinds(told) == ["Found", "RolledBack"] * 2
    forks = [each async for each in graph.aget_state_history(AT, filter={"statekit_op": "rollback"})]
    assert [(fork.metadata["statekit_attempt"], fork.metadata["statekit_item"]) for fork in forks] == [
        (2, "2"),
        (1, "2"),
    ]
    assert [(each.item, each.attempts) for each in await tried(saver.async_cells, "t")] == [("2", 2)]


async def test_attempts_are_counted_in_the_store_over_calls(saver: StatekitSaver, told: list[Event]) -> None:
    clock = Clock()
    graph = looped(saver, Hanging(1, 9, clock))
    settings = deadline(clock, policy=Rollback(max_attempts=2, backoff=NOW))
    with pytest.raises(GaveUp, match=r"item 1 takes more than 50 s \(attempts made: 2\)"):
        await Watchdog(graph, **settings).ainvoke({"i": 0}, AT)
    with pytest.raises(GaveUp):
        await Watchdog(graph, **settings).ainvoke(None, AT)
    assert kinds(told) == [*["Found", "RolledBack"] * 2, *["Found", "GivenUp"] * 2]


async def test_an_item_that_always_hangs_is_left_out_and_listed_as_dead(saver: StatekitSaver) -> None:
    clock = Clock()
    graph = looped(saver, Hanging(1, 9, clock))
    skip = DeadLetter(as_node="work", update=lambda state, finding: {"i": state["i"] + 1, "done": ["none"]})
    policy = Rollback(max_attempts=1, backoff=NOW, then=skip)
    after = await Watchdog(graph, policy=policy, **deadline(clock)).ainvoke({"i": 0}, AT)
    assert after["done"] == ["item 0", "none", "item 2", "item 3"]
    assert [(each.item, each.attempts) for each in await dead(saver.async_cells)] == [("1", 1)]
    assert not await is_dead(saver.async_cells, "t")


async def test_a_dead_thread_is_not_run_until_it_is_revived(saver: StatekitSaver) -> None:
    clock = Clock()
    graph = looped(saver, Hanging(1, 2, clock))
    dog = Watchdog(graph, policy=Rollback(max_attempts=0, then=DeadLetter()), **deadline(clock))
    for given in ({"i": 0}, None):
        with pytest.raises(GaveUp):
            await dog.ainvoke(given, AT)
    await revive(saver.async_cells, "t")
    with pytest.raises(GaveUp):
        await dog.ainvoke(None, AT)
    await revive(saver.async_cells, "t")
    assert (await dog.ainvoke(None, AT))["i"] == 4


async def test_the_answer_of_a_human_is_not_lost_when_the_head_is_tried_again(saver: StatekitSaver) -> None:
    clock = Clock()
    answers: list[str] = []

    async def asks(state: State) -> State:
        answers.append(interrupt("which price?"))
        if len(answers) == 1:
            clock.now_s += 100
            await asyncio.Event().wait()
        return {"i": 4, "asked": answers[-1]}

    dog = Watchdog(looped(saver, asks), policy=Rollback(to="retry_head", backoff=NOW), **deadline(clock))
    assert "__interrupt__" in await dog.ainvoke({"i": 0}, AT)
    assert (await dog.ainvoke(Command(resume="high"), AT))["asked"] == "high"
    assert answers == ["high", "high"]


async def test_an_item_is_skipped_or_left_to_a_human(saver: StatekitSaver) -> None:
    clock = Clock()
    graph = looped(saver, Hanging(1, 1, clock))
    policy = Rollback(max_attempts=0, then=Skip("work", {"i": 2, "done": ["none"]}))
    assert (await Watchdog(graph, policy=policy, **deadline(clock)).ainvoke({"i": 0}, AT))["i"] == 4
    graph = looped(saver, Hanging(1, 1, clock))
    other: RunnableConfig = {"configurable": {"thread_id": "other"}}
    dog = Watchdog(graph, policy=Rollback(max_attempts=0, then=Interrupt("ask")), **deadline(clock))
    asked = await dog.ainvoke({"i": 0}, other)
    assert [each.value for each in asked["__interrupt__"]] == ["what now?"]
    assert (await dog.ainvoke(Command(resume="stop"), other))["asked"] == "stop"


@pytest.mark.filterwarnings("ignore::langgraph_statekit.watchdog.errors.WatchdogWarning")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_that_gets_nowhere_is_stopped_within_its_limit(
    saver: StatekitSaver, told: list[Event], is_async: bool
) -> None:
    calls: list[int] = []

    def empty(state: State) -> State:
        calls.append(state["i"])
        return {} if len(calls) < 12 else step(state)

    check = NoProgress(project=lambda values: values["i"], supersteps=5)
    dog = Watchdog(looped(saver, empty, items=2), checks=[check], policy=Rollback(backoff=NOW))
    after = await dog.ainvoke({"i": 0}, AT) if is_async else dog.invoke({"i": 0}, AT)
    assert after["i"] == 2
    assert len(calls) == 13
    assert kinds(told) == ["Found", "RolledBack"] * 2


@pytest.mark.filterwarnings("ignore::langgraph_statekit.watchdog.errors.WatchdogWarning")
@pytest.mark.parametrize("is_async", [True, False])
async def test_a_run_that_is_well_again_after_a_finding_at_a_step_goes_on_to_its_end(
    saver: StatekitSaver, told: list[Event], is_async: bool
) -> None:
    found: list[str] = []
    done: list[int] = []

    def late(view: View) -> Finding | None:
        if view.step is None or view.step.values.get("i") != 2 or found:
            return None
        found.append(view.step.id)
        return Finding("late", "it took long, and is well")

    def work(state: State) -> State:
        done.append(state["i"])
        return step(state)

    dog = Watchdog(looped(saver, work), checks=[late], policy=Rollback(backoff=NOW), every_s=600)
    after = await dog.ainvoke({"i": 0}, AT) if is_async else dog.invoke({"i": 0}, AT)
    assert after["i"] == 4 and done == [0, 1, 2, 3]
    assert kinds(told) == ["Found"]


@pytest.mark.parametrize("breakpoint", ["interrupt_before", "interrupt_after"])
async def test_a_finding_at_a_breakpoint_does_not_pass_it(
    saver: StatekitSaver, told: list[Event], breakpoint: str
) -> None:
    def late(view: View) -> Finding | None:
        at = view.step is not None and view.step.next and view.step.values.get("i") == stops
        return Finding("late", "it took long, and is well") if at and not kinds(told) else None

    stops = 1 if breakpoint == "interrupt_after" else 0
    graph = looped(saver, astep)
    options: dict[str, Any] = {breakpoint: ["work"]}
    dog = Watchdog(graph, checks=[late], policy=Rollback(backoff=NOW), every_s=600)
    await dog.ainvoke({"i": 0}, AT, **options)
    state = await graph.aget_state(AT)
    assert state.values["i"] == stops and state.next == ("work",)
    assert kinds(told) == ["Found"]


async def test_a_step_that_breaks_a_rule_is_undone(saver: StatekitSaver) -> None:
    broken: list[int] = []

    async def forgets(state: State) -> State:
        if state["i"] == 2 and not broken:
            broken.append(2)
            return {"i": 0}
        return step(state)

    rule = Invariant("i_rises", lambda before, after: after.get("i", 0) >= before.get("i", 0))
    graph = looped(saver, forgets)
    after = await Watchdog(graph, checks=[rule], policy=Rollback(backoff=NOW), **QUICK).ainvoke({"i": 0}, AT)
    assert after["done"] == [f"item {i}" for i in range(4)] and broken


async def test_an_item_named_by_half_a_surrogate_is_rolled_back_too(saver: StatekitSaver) -> None:
    clock = Clock()

    def late(view: View) -> Finding | None:
        return NodeDeadline(default=50)(view) and Finding("late", "too late", "sku \ud800")

    graph = looped(saver, Hanging(2, 1, clock))
    dog = Watchdog(graph, checks=[late], policy=Rollback(backoff=NOW), clock=clock, **QUICK)
    assert (await dog.ainvoke({"i": 0}, AT))["i"] == 4
    (fork,) = [each async for each in graph.aget_state_history(AT, filter={"statekit_op": "rollback"})]
    assert fork.metadata["statekit_item"] == "sku \\ud800"


async def test_a_task_that_waits_for_its_turn_or_is_done_raises_no_alarm(
    new_store: Callable[[str], Store], told: list[Event]
) -> None:
    clock, calls = Clock(), list[int]()

    async def work(state: State) -> State:
        calls.append(state["i"])
        hangs = calls == [1, 2, 3, 4, 5]  # once, when the others are done
        for _ in count() if hangs else range(4):
            clock.now_s += 10
            await asyncio.sleep(0.02)  # for a look
        return {"done": [f"item {state['i']}"]}

    builder = StateGraph(State)
    builder.add_node("work", work)
    builder.add_conditional_edges(START, lambda state: [Send("work", {"i": i}) for i in range(1, 6)], ["work"])
    async with new_store("memory").open(hooks=[told.append]) as saver:
        graph = builder.compile(checkpointer=saver)
        policy = Rollback(to="retry_head", backoff=NOW)
        dog = Watchdog(graph, checks=[NodeDeadline(default=50)], policy=policy, clock=clock, **QUICK)
        after = await dog.ainvoke({"i": 0}, {**AT, "max_concurrency": 1})
    assert after["done"] == [f"item {i}" for i in range(1, 6)]
    assert calls == [1, 2, 3, 4, 5, 5]
    assert kinds(told) == ["Found", "RolledBack"]


async def test_a_healthy_run_of_a_thousand_steps_raises_no_alarm(new_store: Callable[[str], Store]) -> None:
    told: list[Event] = []
    async with new_store("memory").open(hooks=[told.append]) as saver:
        graph = StateGraph(State)
        graph.add_node("work", lambda state: {"i": state["i"] + 1})
        graph.add_edge(START, "work")
        graph.add_conditional_edges("work", lambda state: "work" if state["i"] < 1000 else END, ["work", END])
        with pytest.warns(WatchdogWarning, match="sync nodes"):
            dog = Watchdog(graph.compile(checkpointer=saver), checks=healthy())
        assert dog.invoke({"i": 0}, AT) == {"i": 1000, "done": []}
        assert kinds(told) == []
