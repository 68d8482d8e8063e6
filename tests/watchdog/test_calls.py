"""A Watchdog is called as its graph is, and ends what it can end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.graph import START, StateGraph
from langgraph.runtime import RunControl, Runtime
from langgraph.types import interrupt

from langgraph_statekit import Conflict, Fenced, Misuse, StatekitSaver
from langgraph_statekit.checkpoint.claims import DRAIN, About, Claim, Held, LeaseQuery
from langgraph_statekit.checkpoint.records import from_text
from langgraph_statekit.errors import CannotStop, GaveUp
from langgraph_statekit.events import Event, Found
from langgraph_statekit.watchdog.beat import heartbeat
from langgraph_statekit.watchdog.checks import Budget, ItemDeadline, NoProgress
from langgraph_statekit.watchdog.errors import WatchdogWarning
from langgraph_statekit.watchdog.policy import Fail, Rollback
from langgraph_statekit.watchdog.tasks import LoopMailbox
from langgraph_statekit.watchdog.view import Finding, View
from langgraph_statekit.watchdog.watchdog import Watchdog
from tests.stores_under_test import Store
from tests.watchdog.kit import AT, NOW, QUICK, Clock, State, astep, deadline, kinds, looped, step


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


async def test_steps_of_a_subgraph_are_progress_and_not_shown_unasked(new_store: Callable[[str], Store]) -> None:
    told: list[Event] = []
    clock = Clock()
    looks: list[View] = []

    async def slow(state: State) -> State:
        clock.now_s += 40
        aim = len(looks) + 2
        while len(looks) < aim:  # noqa: ASYNC110  (they come from another thread, and find nothing)
            await asyncio.sleep(0)
        return step(state)

    async with new_store("memory").open(hooks=[told.append]) as saver:
        inner = looped(None, slow)  # type: ignore[arg-type]
        graph = StateGraph(State).add_node("outer", inner).add_edge(START, "outer").compile(checkpointer=saver)
        check = NoProgress(project=lambda values: values["i"], seconds=100)
        dog = Watchdog(graph, checks=[check, looks.append], clock=clock, **QUICK)
        parts = [part async for part in dog.astream({"i": 0}, AT)]
        assert [part.keys() for part in parts] == [{"outer"}]
        assert kinds(told) == []


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


async def test_a_supervisor_sees_what_a_run_is_at_and_may_ask_it_to_stop(store: Store) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def waits(state: State, runtime: Runtime) -> State:
        heartbeat(item="sku 1")
        runtimes.append(runtime)
        begun.set()
        await go.wait()
        return step(state)

    runtimes: list[Runtime] = []
    async with store.open(encryption=None) as saver:  # with encryption no lease tells an item
        watched = Watchdog(looped(saver, waits), name="prices", lease_s=2, **QUICK)
        run = asyncio.create_task(watched.ainvoke({"i": 0}, AT))
        await begun.wait()

        def held() -> Held:
            ((_, lease),) = saver.backend.leases(LeaseQuery()).leases
            return lease

        while (about := About.unpacked(from_text(held().about))).item != "sku 1":  # noqa: ASYNC110  (a renewal tells it)
            await asyncio.sleep(0.01)
        assert about.graph == "prices"
        saver.backend.claim([Claim("t", "", "", 0, held().token, control=DRAIN)])
        while not runtimes[0].drain_requested:  # noqa: ASYNC110  (a renewal brings it)
            await asyncio.sleep(0.01)
        go.set()
        with pytest.raises(GraphDrained, match="drain"):
            await run
        ((_, left),) = saver.backend.leases(LeaseQuery(True)).leases
        assert left.control == DRAIN, "whoever asked for the thread goes on with it"


async def test_the_caller_may_drain_cancel_or_leave_a_run(saver: StatekitSaver) -> None:
    control = RunControl()

    async def drains(state: State) -> State:
        control.request_drain("deploy")
        return step(state)

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


async def test_a_run_that_is_cancelled_twice_is_not_left_to_itself(saver: StatekitSaver) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hangs(state: State) -> State:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return {}

    run = asyncio.create_task(Watchdog(looped(saver, hangs), stop_s=600).ainvoke({"i": 0}, AT))
    await begun.wait()
    for _ in range(2):
        run.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await run
    await asyncio.wait_for(ended.wait(), 30)
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
    looks: list[View] = []

    async def batch(state: State) -> State:
        for item in "abc":
            heartbeat(item=item, note=f"working at {item}")
            clock.now_s += 40
            aim = len(looks) + 2
            while len(looks) < aim:  # noqa: ASYNC110  (they come from another thread, and find nothing)
                await asyncio.sleep(0)
        tries.append("hangs")
        if len(tries) == 1:
            clock.now_s += 40
            await asyncio.Event().wait()
        return {"i": 4}

    check = NoProgress(project=lambda values: values["i"], seconds=70)
    dog = Watchdog(
        looped(saver, batch),
        checks=[ItemDeadline(seconds=60), check, looks.append],
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


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_a_call_for_the_last_state_hands_over_that_and_questions_only(
    saver: StatekitSaver, monkeypatch: pytest.MonkeyPatch, version: Any
) -> None:
    async def asks(state: State) -> State:
        return {"asked": interrupt("what now?")} if state["i"] == 20 else {"i": state["i"] + 1}

    handed: list[Any] = []
    put = LoopMailbox.put
    monkeypatch.setattr(LoopMailbox, "put", lambda self, item: (handed.append(item), put(self, item))[1])
    graph = looped(saver, asks, 30)
    for app, thread in ((graph, "plain"), (Watchdog(graph), "watched")):
        at: Any = {"configurable": {"thread_id": thread}}
        found = await app.ainvoke({"i": 0}, at, version=version)
        asked = found.interrupts if version == "v2" else found["__interrupt__"]
        assert [each.value for each in asked] == ["what now?"]
        assert (found.value if version == "v2" else found)["i"] == 20
    assert len(handed) <= 3
