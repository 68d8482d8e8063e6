"""A run that goes wrong is noticed, stopped, fenced off, rolled back and resumed; one that is well is left alone."""

from __future__ import annotations

import asyncio
import operator
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import RunControl
from langgraph.types import Command, interrupt

from langgraph_statekit import Conflict, Fenced, Misuse, StatekitSaver
from langgraph_statekit.errors import CannotStop, GaveUp
from langgraph_statekit.events import Event, Found, GivenUp, RolledBack
from langgraph_statekit.watchdog.attempts import dead, is_dead, revive, tried
from langgraph_statekit.watchdog.beat import heartbeat
from langgraph_statekit.watchdog.checks import Budget, Invariant, ItemDeadline, NodeDeadline, NoProgress
from langgraph_statekit.watchdog.errors import WatchdogWarning
from langgraph_statekit.watchdog.policy import Backoff, DeadLetter, Fail, Interrupt, Rollback, Skip
from langgraph_statekit.watchdog.view import Finding, View
from langgraph_statekit.watchdog.watchdog import Watchdog
from tests.stores_under_test import Store

AT: RunnableConfig = {"configurable": {"thread_id": "t"}, "recursion_limit": 3000}
NOW = Backoff(first_s=0)
QUICK: dict[str, Any] = {"every_s": 0.01, "grace_s": 0.01}


class State(TypedDict, total=False):
    i: int
    done: Annotated[list[str], operator.add]
    asked: str


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


Node = Callable[[State], Any]


async def ask(state: State) -> Command[Any]:
    return Command(goto=END, update={"asked": interrupt("what now?")})


def looped(saver: StatekitSaver, work: Any, items: int = 4) -> Any:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("ask", ask)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["i"] < items else END, ["work", END])
    return graph.compile(checkpointer=saver)


def step(state: State) -> State:
    return {"i": state["i"] + 1, "done": [f"item {state['i']}"]}


async def astep(state: State) -> State:
    return step(state)


class Hanging:
    """A node that hangs at an item, so many times, and lets the clock run on when it does."""

    def __init__(self, item: int, times: int, clock: Clock) -> None:
        self.item, self.left, self.clock = item, times, clock
        self.calls: list[int] = []

    async def __call__(self, state: State) -> State:
        self.calls.append(state["i"])
        if state["i"] == self.item and self.left:
            self.left -= 1
            self.clock.now_s += 100
            await asyncio.Event().wait()
        return step(state)


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events if isinstance(event, Found | RolledBack | GivenUp)]


@pytest.fixture
async def told() -> list[Event]:
    return []


@pytest.fixture
async def saver(store: Store, told: list[Event]) -> AsyncIterator[StatekitSaver]:
    async with store.open(hooks=[told.append]) as saver:
        yield saver


def deadline(clock: Clock, **more: Any) -> dict[str, Any]:
    check = ItemDeadline(seconds=50, key=lambda values: values["i"])
    return {"checks": [check], "clock": clock, **QUICK, **more}


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
    dog = Watchdog(looped(saver, empty, items=2), checks=[check], policy=Rollback(backoff=NOW), **QUICK)
    after = await dog.ainvoke({"i": 0}, AT) if is_async else dog.invoke({"i": 0}, AT)
    assert after["i"] == 2
    assert len(calls) == 13
    assert kinds(told) == ["Found", "RolledBack"] * 2


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


async def test_a_healthy_run_of_a_thousand_steps_raises_no_alarm(new_store: Callable[[str], Store]) -> None:
    told: list[Event] = []
    async with new_store("memory").open(hooks=[told.append]) as saver:
        checks = [
            ItemDeadline(seconds=60, key=lambda values: values["i"]),
            NodeDeadline({"work": 60}, default=60),
            NoProgress(project=lambda values: values["i"], supersteps=2, seconds=60),
            Invariant("i_rises", lambda before, after: after.get("i", 0) >= before.get("i", 0)),
            Budget(seconds=600),
        ]
        graph = StateGraph(State)
        graph.add_node("work", lambda state: {"i": state["i"] + 1})
        graph.add_edge(START, "work")
        graph.add_conditional_edges("work", lambda state: "work" if state["i"] < 1000 else END, ["work", END])
        with pytest.warns(WatchdogWarning, match="sync nodes"):
            dog = Watchdog(graph.compile(checkpointer=saver), checks=checks)
        assert dog.invoke({"i": 0}, AT) == {"i": 1000, "done": []}
        assert kinds(told) == []


async def test_it_streams_as_the_graph_does(new_store: Callable[[str], Store]) -> None:
    async with new_store("memory").open() as saver:
        graph = looped(saver, astep)
        dog = Watchdog(graph, checks=[NoProgress()])
        for number, options in enumerate(
            [
                {},
                {"stream_mode": "values"},
                {"stream_mode": ["values", "updates"]},
                {"stream_mode": ["updates"], "subgraphs": True},
                {"stream_mode": "updates", "subgraphs": True},
                {"stream_mode": ["values", "updates"], "version": "v2"},
            ]
        ):
            threads = [{"configurable": {"thread_id": f"{number} {name}"}} for name in ("plain", "watched")]
            plain = [part async for part in graph.astream({"i": 0}, threads[0], **options)]
            assert [part async for part in dog.astream({"i": 0}, threads[1], **options)] == plain
        many = await dog.abatch([{"i": 0}, {"i": 2}], [{"configurable": {"thread_id": name}} for name in "ab"])
        assert [each["i"] for each in many] == [4, 4]


async def test_what_a_node_raises_comes_out_as_it_is(saver: StatekitSaver) -> None:
    async def fails(state: State) -> State:
        raise KeyError("no such item")

    with pytest.raises(KeyError, match="no such item"):
        await Watchdog(looped(saver, fails)).ainvoke({"i": 0}, AT)
    async with await saver.alease("t"):  # it was given back
        with pytest.raises(Conflict):
            await Watchdog(looped(saver, astep)).ainvoke(None, AT)


async def test_who_takes_the_thread_over_is_not_fought(saver: StatekitSaver) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waits(state: State) -> State:
        begun.set()
        await go.wait()
        return step(state)

    run = asyncio.create_task(Watchdog(looped(saver, waits)).ainvoke({"i": 0}, AT))
    await begun.wait()
    async with await saver.alease("t", steal=True):
        go.set()
        with pytest.raises(Fenced):
            await run


async def test_the_caller_may_drain_cancel_or_leave_a_run(saver: StatekitSaver) -> None:
    control = RunControl()

    async def drains(state: State) -> State:
        control.request_drain("deploy")
        return step(state)

    from langgraph.errors import GraphDrained

    dog = Watchdog(looped(saver, drains))
    with pytest.raises(GraphDrained, match="deploy"):
        await dog.ainvoke({"i": 0}, AT, control=control)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hangs(state: State) -> State:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    run = asyncio.create_task(Watchdog(looped(saver, hangs), stop_s=0.05).ainvoke(None, AT))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert ended.is_set()
    parts = Watchdog(looped(saver, astep)).astream(None, AT)
    assert await anext(parts) == {"work": {"i": 2, "done": ["item 1"]}}
    await parts.aclose()  # type: ignore[attr-defined]
    async with await saver.alease("t"):
        pass


@pytest.mark.filterwarnings("ignore::langgraph_statekit.watchdog.errors.WatchdogWarning")
async def test_a_sync_node_that_hangs_is_fenced_off_and_said_to_be_alive(
    saver: StatekitSaver, told: list[Event]
) -> None:
    clock, go = Clock(), threading.Event()
    ended: list[int] = []

    def hangs(state: State) -> State:
        clock.now_s += 100
        go.wait()
        ended.append(state["i"])
        return step(state)

    graph = looped(saver, hangs)
    dog = Watchdog(graph, **deadline(clock, stop_s=0.01))
    for is_async in (True, False):
        with pytest.raises(CannotStop, match="still runs in this process"):
            await dog.ainvoke({"i": 0}, AT) if is_async else dog.invoke({"i": 0}, AT)
    assert kinds(told) == ["Found"] * 2 and not ended
    go.set()
    assert (await graph.aget_state(AT)).values["i"] == 0


async def test_a_blocked_event_loop_is_noticed_and_fenced_off_while_it_is_blocked(
    saver: StatekitSaver, told: list[Event]
) -> None:
    clock = Clock()
    order: list[str] = []

    async def blocks(state: State, config: RunnableConfig) -> State:
        if not order:
            clock.now_s += 100
            token = config["configurable"]["statekit_token"]
            while not refused(token):  # blocks the loop until it is fenced off
                pass
            order.append("fenced")
        return step(state)

    def refused(token: int) -> bool:
        address = {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "none", "statekit_token": token}
        try:
            saver.put_writes({"configurable": address}, [("x", 1)], "task")
        except Fenced:
            return True
        return False

    after = await Watchdog(looped(saver, blocks), policy=Rollback(backoff=NOW), **deadline(clock)).ainvoke({"i": 0}, AT)
    assert after["done"] == [f"item {i}" for i in range(4)]
    assert order == ["fenced"] and kinds(told)[0] == "Found"


async def test_a_heartbeat_names_items_and_counts_as_progress(saver: StatekitSaver, told: list[Event]) -> None:
    clock = Clock()
    tries: list[str] = []

    async def batch(state: State) -> State:
        for item in "abc":
            heartbeat(item=item, note=f"working at {item}")
            clock.now_s += 40
            await asyncio.sleep(0.05)  # looks are taken meanwhile, and find nothing
        tries.append("hangs")
        if len(tries) == 1:
            clock.now_s += 40
            await asyncio.Event().wait()
        return {"i": 4}

    check = NoProgress(project=lambda values: values["i"], seconds=70)
    dog = Watchdog(
        looped(saver, batch),
        checks=[ItemDeadline(seconds=60), check],
        clock=clock,
        policy=Rollback(backoff=NOW),
        **QUICK,
    )
    assert (await dog.ainvoke({"i": 0}, AT))["i"] == 4
    assert tries == ["hangs", "hangs"]
    (found,) = (event for event in told if isinstance(event, Found))
    assert (found.reason, found.item) == ("item_deadline", "c")
    heartbeat("outside of a graph it does nothing")


async def test_a_check_is_a_function_and_a_broken_one_ends_no_run(
    saver: StatekitSaver, caplog: pytest.LogCaptureFixture
) -> None:
    def third(view: View) -> Finding | None:
        if view.step is not None and view.step.values.get("i") == 3 and not seen:
            seen.append(3)
            return Finding("third", "the third", since=view.step.id)
        return None

    def broken(view: View) -> Finding | None:
        raise ZeroDivisionError

    seen: list[int] = []
    dog = Watchdog(looped(saver, astep), checks=[broken, third], policy=Rollback(backoff=NOW), **QUICK)
    assert (await dog.ainvoke({"i": 0}, AT))["i"] == 4
    assert seen == [3]
    assert sum("it is logged once" in record.message for record in caplog.records) == 1


async def test_a_budget_is_not_tried_again(saver: StatekitSaver) -> None:
    clock = Clock()

    async def slow(state: State) -> State:
        clock.now_s += 30
        return step(state)

    dog = Watchdog(looped(saver, slow), checks=[Budget(seconds=50)], clock=clock, **QUICK)
    with pytest.raises(GaveUp, match="the budget of 50 seconds is spent"):
        await dog.ainvoke({"i": 0}, AT)


async def test_wrong_use_says_what_to_do(saver: StatekitSaver) -> None:
    graph = looped(saver, astep)
    for wrong, why in (
        ({"isolation": "thread"}, "'task' or 'process'"),
        ({"isolation": "process"}, "a new process can import"),
        ({"every_s": 0}, "every_s"),
        ({"checks": [3]}, "sequence of functions"),
        ({"policy": Fail()}, "a policy is"),
    ):
        with pytest.raises(Misuse, match=why):
            Watchdog(graph, **wrong)
    with pytest.raises(Misuse, match="saver of this package"):
        Watchdog(looped(None, astep))  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="names no thread"):
        await Watchdog(graph).ainvoke({"i": 0})
    with pytest.raises(Misuse, match="takes the lease itself"):
        await Watchdog(graph).ainvoke({"i": 0}, (await saver.alease("t")).config)
    with pytest.warns(WatchdogWarning, match="run again after a stop"), pytest.raises(Conflict):
        await Watchdog(graph).ainvoke({"i": 0}, AT, durability="exit")
