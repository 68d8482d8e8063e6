"""Replays change nothing that is stored, and run nothing that may do harm."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Send, interrupt

from langgraph_statekit import (
    CheckpointMissing,
    EffectLedger,
    Fenced,
    Misuse,
    NotMade,
    StatekitSaver,
    TimeTravel,
    effect,
    pure,
)
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.rehearsal import is_rehearsal, not_made
from tests.timetravel.kit import START_OF_SHOP, monitor, named, talk
from tests.versions.states import Third


class Log(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]


class Runs:
    """Nodes that note that they ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def graph(self, saver: Any) -> Any:
        @pure
        def plan(state: Log) -> Log:
            self.ran.append("plan")
            return {"log": ["plan"]}

        def pay(state: Log) -> Log:
            self.ran.append("pay")
            return {"log": ["pay"]}

        graph: Any = StateGraph(Log)
        graph.add_node("plan", plan)
        graph.add_node("check", lambda state: self.ran.append("check"), metadata={"statekit_pure": True})
        graph.add_node("pay", pay)
        graph.add_edge(START, "plan").add_edge("plan", "check").add_edge("check", "pay")
        return graph.compile(checkpointer=saver)


def stored(saver: Any, thread: str) -> list[Any]:
    return [(item.config, item.checkpoint, item.metadata, item.pending_writes) for item in saver.list(named(thread))]


async def test_a_dry_replay_refuses_a_node_by_name_and_changes_nothing_stored(real: StatekitSaver) -> None:
    runs = Runs()
    graph = runs.graph(real)
    graph.invoke({"log": []}, named("t"), durability="sync")
    before = stored(real, "t")
    tt = TimeTravel(graph, named("t"))
    runs.ran.clear()
    with pytest.raises(Misuse, match="would run 'pay' again"):
        tt.replay(0)
    assert runs.ran == ["plan", "check"]
    replayed = tt.replay(0, stop_before="pay")
    assert (replayed.ran.stopped, replayed.ran.nodes) == ("before 'pay'", ("plan", "check"))
    assert replayed.at().values == {"log": ["plan"]}
    assert [each.tip.step for each in replayed.branches()] == [3, 3]
    assert (await tt.areplay(0, stop_before=["pay"])).ran.nodes == ("plan", "check")
    assert "pay" not in runs.ran
    trusting = TimeTravel(graph, named("t"), pure=["pay"])
    assert trusting.replay(0).ran.stopped == "end"
    whole = trusting.replay(0)
    assert whole.compare(whole.branches()[1]).changes == ()
    assert trusting.step().ran.nodes == ()
    assert stored(real, "t") == before


def test_a_live_replay_is_a_new_branch(real_sqlite: StatekitSaver) -> None:
    runs = Runs()
    graph = runs.graph(real_sqlite)
    graph.invoke({"log": []}, named("t"), durability="sync")
    tt = TimeTravel(graph, named("t"))
    replayed = tt.replay(1, effects="live")
    assert runs.ran == ["plan", "check", "pay", "check", "pay"]
    assert replayed.ran.stopped == "end"
    assert [each.name for each in tt.branches()] == ["current", "branch 1"]
    assert tt.at().values == {"log": ["plan", "pay"]}
    with pytest.raises(Misuse, match="'dry', 'replay', 'live'"):
        tt.replay(effects="wet")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="stop_before names 'nothing'"):
        tt.replay(stop_before="nothing")


async def test_a_checkpoint_of_another_thread_is_neither_read_nor_written(real: StatekitSaver) -> None:
    graph = monitor(real, rounds=2)
    for thread in ("t", "other"):
        await graph.ainvoke(START_OF_SHOP, named(thread), durability="sync")
    tt, other = TimeTravel(graph, named("t")), TimeTravel(graph, named("other"))
    theirs = await other.aat(2)
    before = [item.config async for item in real.alist(named("other"))]
    for where in (theirs, theirs.point, (await other.abranches())[0]):
        for call in (
            tt.aat(where),
            tt.adiff(where, 1),
            tt.acompare(1, where),
            tt.afork(where),
            tt.afork(where, edit={"pages": []}, as_node="crawl"),
            tt.alabel("good", where),
            tt.areplay(where, effects="live"),
            tt.atimeline(before=where),
        ):
            with pytest.raises(Misuse, match="a checkpoint of thread 'other'"):
                await call
    assert [item.config async for item in real.alist(named("other"))] == before
    with pytest.raises(CheckpointMissing):
        await other.aat("good")


async def test_nothing_is_forked_or_run_at_a_checkpoint_that_is_not_stored(real: StatekitSaver) -> None:
    graph = monitor(real, rounds=2)
    await graph.ainvoke(START_OF_SHOP, named("t"), durability="sync")
    tt = TimeTravel(graph, named("t"), pure=["crawl", "cut"])
    made = await (await tt.areplay(2)).aat()  # in memory alone
    before = [item.config async for item in real.alist(named("t"))]
    for call in (
        tt.afork(made),
        tt.afork(made, edit={"round": 1}),
        tt.afork(made, edit={"round": 1}, as_node="crawl"),
        tt.areplay(made),
        tt.areplay(made, effects="live"),
    ):
        with pytest.raises(CheckpointMissing, match="made by a dry replay"):
            await call
    assert [item.config async for item in real.alist(named("t"))] == before
    assert (await tt.aat()).step == 4


def test_every_method_calls_the_checkpoint_at(in_memory: Any) -> None:
    graph = Runs().graph(in_memory)
    graph.invoke({"log": []}, named("t"), durability="sync")
    tt = TimeTravel(graph, named("t"))
    assert tt.at(at=1).step == 1
    assert tt.why(channel="log", at=1).point.step == 1
    assert [each.node for each in tt.pending(at=0)] == ["plan"]
    assert tt.size(at=0) != tt.size(at=3)
    assert tt.inside(at=1) == []
    assert tt.replay(at=0, stop_before="check").ran.nodes == ("plan",)
    assert tt.fork(at=1, edit={"log": ["edit"]}, as_node="check").next == ["pay"]
    assert tt.undo(n=1).values == {"log": ["plan"]}


def test_steps_go_one_by_one(in_memory: Any) -> None:
    runs = Runs()
    graph = runs.graph(in_memory)
    graph.invoke({"log": []}, named("t"), durability="sync", interrupt_before=["plan"])
    tt = TimeTravel(graph, named("t"))
    assert tt.step().ran.nodes == ("plan",)
    assert tt.at().next == ["plan"]
    assert tt.step("live").ran.nodes == ("plan",)
    assert tt.at().next == ["check"]
    assert runs.ran == ["plan", "plan"]


def test_questions_are_asked_anew_and_stop_a_replay(real_sqlite: StatekitSaver) -> None:
    graph = talk(real_sqlite)
    tt = TimeTravel(graph, named("agent"), pure=["think", "act", "research", "ask"])
    replayed = tt.replay(0)
    assert replayed.ran.stopped == "waits"
    assert replayed.ran.nodes[-2:] == ("research", "ask")
    assert [(each.node, each.state) for each in replayed.pending()] == [("ask", "waits")]
    with pytest.raises(Misuse, match=r"'research\.look', 'research\.note'"):
        TimeTravel(graph, named("agent"), pure=["think", "act"]).replay(6)


def test_tasks_of_a_fan_out_are_replayed_all(in_memory: Any) -> None:
    graph: Any = StateGraph(Log)
    graph.add_node("fan", pure(lambda state: {}))
    graph.add_node("work", pure(lambda number: {"log": [number]}))
    graph.add_node("ask", pure(lambda state: {"log": [interrupt("go on?")]}))
    graph.add_edge(START, "fan").add_edge("work", "ask")
    graph.add_conditional_edges("fan", lambda state: [Send("work", n) for n in range(5)], ["work"])
    graph = graph.compile(checkpointer=in_memory)
    graph.invoke({"log": []}, named("t"), durability="sync")
    tt = TimeTravel(graph, named("t"))
    assert [each.node for each in tt.pending(1)] == ["work"] * 5
    replayed = tt.replay(1)
    assert replayed.at().values == tt.at().values
    assert replayed.ran.stopped == "waits"


def test_a_replay_of_a_stored_thread_reads_it_through_the_overlay(in_memory: Any) -> None:
    graph = monitor(in_memory)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    before = stored(in_memory, "shop")
    tt = TimeTravel(graph, named("shop"), pure=["crawl", "cut"])
    replayed = tt.replay(4)
    assert replayed.at().values == tt.at().values
    assert len(list(replayed._sync.side.saver.list(named("shop")))) == len(before) + 15
    assert run_sync(replayed._sync.history.page(200)).head == replayed.at().id
    assert stored(in_memory, "shop") == before
    fork = replayed.fork(2, edit={"round": 8})
    assert fork.values["round"] == 8
    assert stored(in_memory, "shop") == before


def test_a_lambda_that_takes_no_attribute_is_named_instead() -> None:
    with pytest.raises(Misuse, match="pure="):
        pure("text".upper)
    with pytest.raises(Misuse, match="one string"):
        TimeTravel(InMemorySaver(), thread_id="t", pure="node")


def test_an_effect_is_told_that_a_run_is_a_replay_and_stops_it(in_memory: Any) -> None:
    made: list[str] = []

    def pay(state: Log, config: RunnableConfig) -> Log:
        if is_rehearsal(config["configurable"]):
            raise not_made("order-17")
        made.append("paid")
        return {"log": ["paid"]}

    pay.__statekit_effect__ = True  # type: ignore[attr-defined]
    graph: Any = StateGraph(Log)
    graph.add_node("plan", pure(lambda state: {"log": ["plan"]}))
    graph.add_node("pay", pay)
    graph = graph.add_edge(START, "plan").add_edge("plan", "pay").compile(checkpointer=in_memory)
    graph.invoke({"log": []}, named("t"), durability="sync")
    tt = TimeTravel(graph, named("t"))
    dry = tt.replay(0)
    assert "'order-17' is not recorded" in dry.ran.stopped
    assert dry.at().values == {"log": ["plan"]}
    with pytest.raises(NotMade):
        tt.replay(0, effects="replay")
    assert made == ["paid"]
    assert tt.replay(0, effects="live").ran.stopped == "end"
    assert made == ["paid"] * 2


def test_a_fork_under_a_lease_that_is_over_writes_nothing(real_sqlite: StatekitSaver) -> None:
    graph = monitor(real_sqlite)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    first = real_sqlite.lease("shop", owner="a")
    second = real_sqlite.lease("shop", owner="b", steal=True)
    before = stored(real_sqlite, "shop")
    for edit, node in ((None, None), ({"round": 1}, "cut")):
        with pytest.raises(Fenced):
            TimeTravel(graph, first.config).fork(4, edit=edit, as_node=node)
    assert stored(real_sqlite, "shop") == before
    assert TimeTravel(graph, second.config).fork(4).next == ["crawl"]
    second.release()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_effects_of_a_ledger_hand_out_what_they_recorded(real: StatekitSaver, is_async: bool) -> None:
    ledger = EffectLedger(real)
    paid: list[str] = []

    def transfer(order: str) -> str:
        paid.append(order)
        return f"receipt {order}"

    @effect(key=lambda state: f"order-{len(state['log'])}", ledger=ledger)
    def pay(state: Log) -> Log:
        return {"log": [transfer(f"{len(state['log'])}")]}

    graph: Any = StateGraph(Log)
    graph.add_node("plan", pure(lambda state: {"log": ["plan"]}))
    graph.add_node("pay", pay)
    graph = graph.add_edge(START, "plan").add_edge("plan", "pay").compile(checkpointer=real)
    graph.invoke({"log": []}, named("t"), durability="sync")
    assert paid == ["1"]
    tt = TimeTravel(graph, named("t"))

    async def replay(where: int, effects: Any = "dry") -> Any:
        return await tt.areplay(where, effects=effects) if is_async else tt.replay(where, effects=effects)

    for mode in ("dry", "replay"):
        replayed = await replay(0, mode)
        assert replayed.ran.stopped == "end"
        assert replayed.at().values == tt.at().values == {"log": ["plan", "receipt 1"]}
    fork = tt.fork(0, edit={"log": ["more"]}, as_node="plan")  # the next payment is another one
    assert fork.next == ["pay"]
    tt.fork(fork, edit={"log": ["again"]}, as_node="plan")
    before = stored(real, "t")
    assert "'order-2' is not recorded" in (await replay(-1)).ran.stopped
    with pytest.raises(NotMade):
        await replay(-1, "replay")
    assert stored(real, "t") == before
    assert paid == ["1"]
    assert [each.state for each in ledger.list("t")] == ["sent"]


def test_a_replay_stores_nothing_in_a_store_without_effects(real_sqlite: StatekitSaver) -> None:
    ledger = EffectLedger(real_sqlite)
    graph: Any = StateGraph(Log)
    graph.add_node("pay", pure(lambda state: {"log": [ledger.run("order-1", lambda: "paid")]}))
    graph = graph.add_edge(START, "pay").compile(checkpointer=real_sqlite, interrupt_before=["pay"])
    graph.invoke({"log": []}, named("t"), durability="sync")
    assert "'order-1' is not recorded" in TimeTravel(graph, named("t")).replay().ran.stopped
    assert ledger.list() == []


def test_a_fork_keeps_the_version_of_the_state_that_it_copies(real_sqlite: StatekitSaver) -> None:
    third = real_sqlite.with_state(Third)
    builder: Any = StateGraph(Third)
    builder.add_node("look", lambda state: {"log": [{"text": "seen"}]})
    graph = builder.add_edge(START, "look").compile(checkpointer=third)
    graph.invoke({"log": [{"text": "begun"}]}, named("t"))
    TimeTravel(real_sqlite, named("t")).fork(0)  # a saver without the schema does not know the version
    assert graph.invoke(None, named("t"))["log"] == [{"text": "begun"}, {"text": "seen"}]


def test_an_edit_of_a_channel_that_there_is_not_is_refused_by_name(in_memory: Any) -> None:
    graph = monitor(in_memory)
    graph.invoke(START_OF_SHOP, named("shop"), durability="sync")
    tt = TimeTravel(graph, named("shop"))
    latest = tt.at().id
    with pytest.raises(Misuse, match=r"edit names 'pagse', which the graph does not have: .*'pages'"):
        tt.fork(4, edit={"pagse": [], "round": 1}, as_node="crawl")
    assert tt.at().id == latest


@pytest.mark.parametrize("as_node", [None, "__start__", "__input__"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
async def test_an_edit_that_langgraph_would_take_as_input_and_drop_is_refused_by_name(
    real: StatekitSaver, as_node: str | None, is_async: bool
) -> None:
    class Given(TypedDict):
        item: str

    class Whole(Given, total=False):
        price: int

    graph: Any = StateGraph(Whole, input_schema=Given)
    graph.add_node("look", lambda state: {"price": 7})
    graph.add_node("end", lambda state: {})
    graph = graph.add_edge(START, "look").add_edge("look", "end").compile(checkpointer=real)
    graph.invoke({"item": "tea"}, named("t"), durability="sync")
    before = stored(real, "t")
    tt = TimeTravel(graph, named("t"))

    async def fork(where: Any, edit: Any, as_node: str | None = None) -> Any:
        options: Any = {"edit": edit, "as_node": as_node}
        return await tt.afork(where, **options) if is_async else tt.fork(where, **options)

    first = before[-1][0]["configurable"]["checkpoint_id"]
    for where in (first, 0):
        with pytest.raises(Misuse, match="edit names 'price', which is no part of the graph's input"):
            await fork(where, {"item": "cup", "price": 1}, as_node)
    assert stored(real, "t") == before
    assert (await fork(1, {"price": 1})).values == {"item": "tea", "price": 1}
    assert (await fork(0, {"price": 1}, "look")).next == ["end"]
    assert (await fork(first, {"item": "cup"}, "__start__")).values == {"item": "cup"}
