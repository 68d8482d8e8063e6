"""No finding, and nothing that is done about one, takes a run past a static breakpoint that nobody let it pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from langgraph_statekit import StatekitSaver
from langgraph_statekit.events import Event
from langgraph_statekit.watchdog.checks import Invariant, NodeDeadline
from langgraph_statekit.watchdog.policy import Rollback, Skip
from langgraph_statekit.watchdog.supervisor import Supervisor
from langgraph_statekit.watchdog.view import Finding, View
from langgraph_statekit.watchdog.watchdog import Watchdog
from tests.servers import wait_until
from tests.stores_under_test import Store
from tests.watchdog.kit import AT, NOW, QUICK, Clock, State, kinds
from tests.watchdog.world import LONG_S, World

pytestmark = pytest.mark.filterwarnings("ignore::langgraph_statekit.watchdog.errors.WatchdogWarning")
WAYS = pytest.mark.parametrize(
    "options", [{"interrupt_before": ["pay"]}, {"interrupt_after": ["plan"]}, {"interrupt_before": "*"}], ids=str
)
FACES = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


class Shop:
    """Plans, and pays; a human is to approve of each plan."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.act: Callable[[str], None] = lambda node: None

    def graph(self, saver: Any, **options: Any) -> Any:
        def node(name: str) -> Callable[[State], State]:
            def work(state: State) -> State:
                self.ran.append(name)
                self.act(name)
                return {"i": state.get("i", 0) + 1}

            return work

        graph: Any = StateGraph(State)
        for name in ("look", "plan", "pay"):
            graph.add_node(name, node(name))
        graph.add_edge(START, "look").add_edge("look", "plan").add_edge("plan", "pay")
        return graph.compile(checkpointer=saver, **options)


def broken(step: int, times: int = 1) -> Any:
    """Return a check that finds so many times that a step broke a rule."""
    left = [times]

    def found(view: View) -> Finding | None:
        if view.step is None or view.step.values.get("i") != step or not left[0]:
            return None
        left[0] -= 1
        return Finding("rule", "it broke a rule", since=view.step.id)

    return found


def dog(graph: Any, *checks: Any, to: Any = "retry_head", **options: Any) -> Watchdog:
    return Watchdog(graph, checks=checks, policy=Rollback(to=to, backoff=NOW), every_s=600, **options)


async def run(app: Any, given: Any, is_async: bool, **options: Any) -> Any:
    return await app.ainvoke(given, AT, **options) if is_async else app.invoke(given, AT, **options)


@FACES
@WAYS
@pytest.mark.parametrize("to", ["retry_head", "item_start"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "called"])
async def test_a_step_that_is_not_to_be_trusted_before_a_breakpoint_does_not_pass_it(
    saver: StatekitSaver, is_async: bool, options: dict[str, Any], to: Any, compiled: bool
) -> None:
    shop = Shop()
    graph = shop.graph(saver, **(options if compiled else {}))
    called = {} if compiled else options
    rule = Invariant("i_is_small", lambda before, after: after.get("i", 0) < 2)
    watched = dog(graph, rule, to=to)
    after = await run(watched, {"i": 0}, is_async, **called)
    while (await graph.aget_state(AT)).next not in (("pay",), ()):
        after = await run(watched, None, is_async, **called)
    assert "pay" not in shop.ran and after["i"] == 2
    assert (await run(watched, None, is_async, **called))["i"] == 3  # now it is let pass
    assert shop.ran.count("pay") == 1


@FACES
@pytest.mark.parametrize("to", ["last_healthy", "parent"])
async def test_a_run_taken_back_behind_a_breakpoint_goes_on_and_stops_there_again(
    saver: StatekitSaver, told: list[Event], is_async: bool, to: Any
) -> None:
    shop = Shop()
    graph = shop.graph(saver, interrupt_before=["pay"])
    await run(dog(graph, broken(2), to=to), {"i": 0}, is_async)
    assert shop.ran == ["look", "plan", "plan"]
    assert (await graph.aget_state(AT)).next == ("pay",)
    assert kinds(told) == ["Found", "RolledBack"]


@FACES
@pytest.mark.parametrize("to", ["retry_head", "last_healthy"])
async def test_a_step_that_was_let_pass_a_breakpoint_is_tried_again_in_the_same_call(
    saver: StatekitSaver, told: list[Event], is_async: bool, to: Any
) -> None:
    shop, failed = Shop(), list[str]()
    graph = shop.graph(saver, interrupt_before=["pay"])
    await run(graph, {"i": 0}, is_async)

    def late(view: View) -> Finding | None:
        paid = view.step is not None and view.step.values.get("i") == 3
        if not paid or len(failed) > 1:
            return None
        failed.append("pay")
        return Finding("late", "pay is not well", since=view.step.id if view.step else None)

    assert (await run(dog(graph, late, to=to), None, is_async))["i"] == 3
    assert shop.ran == ["look", "plan", "pay", *(["pay", "pay"] if to == "last_healthy" else [])]


async def test_a_hanging_step_that_was_let_pass_a_breakpoint_is_tried_again_also_from_an_older_checkpoint(
    saver: StatekitSaver, told: list[Event]
) -> None:
    clock, hangs = Clock(), [0]

    async def pay(state: State) -> State:
        if hangs[0]:
            hangs[0] -= 1
            clock.now_s += 100
            await asyncio.Event().wait()
        return {"i": 1}

    graph: Any = StateGraph(State).add_node("pay", pay).add_edge(START, "pay")
    graph = graph.compile(checkpointer=saver, interrupt_before=["pay"])
    await graph.ainvoke({"i": 0}, AT)
    at: RunnableConfig = (await graph.aget_state(AT)).config
    for to in ("retry_head", "last_healthy"):
        hangs[0] = 1
        settings: dict[str, Any] = {**QUICK, "clock": clock, "policy": Rollback(to=to, backoff=NOW)}  # type: ignore[arg-type]
        watched = Watchdog(graph, checks=[NodeDeadline(default=50)], **settings)
        assert (await watched.ainvoke(None, at))["i"] == 1, to
        assert (await graph.aget_state(AT)).next == ()


@FACES
@pytest.mark.parametrize("mode", ["values", "updates"])
async def test_an_item_left_out_before_a_breakpoint_leads_to_it_and_not_past_it(
    saver: StatekitSaver, is_async: bool, mode: Any
) -> None:
    shop = Shop()
    graph = shop.graph(saver, interrupt_before=["pay"])
    policy = Rollback(max_attempts=0, then=Skip("plan", {"i": 40}))
    watched = Watchdog(graph, checks=[broken(1)], policy=policy, every_s=600)
    if mode == "values":
        assert (await run(watched, {"i": 0}, is_async))["i"] == 40
    else:
        parts = watched.astream({"i": 0}, AT, stream_mode=mode)
        assert [part async for part in parts] == [{"look": {"i": 1}}]
    state = await graph.aget_state(AT)
    assert (state.next, state.values["i"], shop.ran) == (("pay",), 40, ["look"])


@pytest.mark.parametrize("to", ["retry_head", "parent"])
async def test_a_breakpoint_in_a_subgraph_is_not_passed(saver: StatekitSaver, told: list[Event], to: Any) -> None:
    shop, stopped = Shop(), list[str]()
    inner = shop.graph(None, interrupt_before=["pay"])
    graph: Any = StateGraph(State).add_node("inner", inner).add_edge(START, "inner").compile(checkpointer=saver)

    def late(view: View) -> Finding | None:
        if shop.ran != ["look", "plan"] or stopped or not view.step:
            return None
        stopped.append(view.step.id)
        return Finding("rule", "it broke a rule", since=view.step.id)

    def act(node: str) -> None:
        if node == "plan":
            wait_until(lambda: "Found" in kinds(told), "a look found it while the subgraph ran")

    shop.act = act
    policy = Rollback(to=to, backoff=NOW)
    await Watchdog(graph, checks=[late], policy=policy, every_s=0.01, grace_s=60).ainvoke({"i": 0}, AT)
    assert shop.ran == ["look", "plan"] * (1 if to == "retry_head" else 2)
    assert kinds(told) == ["Found", "RolledBack"]
    await graph.ainvoke(None, AT)
    assert shop.ran[-1] == "pay"


def test_a_supervisor_does_not_pass_a_breakpoint_that_its_policy_leads_to(saver: StatekitSaver, store: Store) -> None:
    world = World(3)

    def graph(each: StatekitSaver) -> Any:
        return world.graph(each, interrupt_after=["work"])

    lease = saver.lease("t", graph="shop", ttl_s=LONG_S)
    graph(saver).update_state(lease.config, {"i": 0}, as_node="__start__")
    lease._keeper.forget(lease)
    store.advance(LONG_S + 1)
    policy = Rollback(max_attempts=0, then=Skip("work", {"i": 1}))
    look = Supervisor(saver, {"shop": graph}, policy=policy, quarantine_s=0, alert=lambda event: None)
    assert [event.outcome for event in look.once()] == ["waiting"]
    state = graph(saver).get_state({"configurable": {"thread_id": "t"}})
    assert (world.effects, state.values["i"], state.next) == ([], 1, ("work",))
    assert look.once() == []
