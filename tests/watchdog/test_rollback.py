"""A rollback is a recorded fork: nothing is lost, nobody can undo it, and both ends stay."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_statekit import CheckpointMissing, Fenced, Misuse, Retention, StatekitSaver
from langgraph_statekit.events import Event, RolledBack
from langgraph_statekit.watchdog.policy import Label
from langgraph_statekit.watchdog.rollback import Edit, Rolled, arollback, rollback
from langgraph_statekit.watchdog.view import Finding
from tests.stores_under_test import Store

WHY = Finding("hang", "it hangs", item="2")
RollBack = Callable[..., Awaitable[Rolled]]


def folded(old: list[str], writes: Any) -> list[str]:
    return [*old, *(each for write in writes for each in write)]


class State(TypedDict, total=False):
    i: int
    done: Annotated[list[str], operator.add]
    log: Annotated[list[str], DeltaChannel(folded)]
    asked: str


def work(state: State) -> State:
    i = state.get("i", 0)
    return {"i": i + 1, "done": [f"item {i}"], "log": [f"log {i}"]}


def ask(state: State) -> Command[Any]:
    return Command(goto=END, update={"asked": interrupt("what now?")})


def compiled(saver: StatekitSaver, items: int = 4) -> Any:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_node("ask", ask)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["i"] < items else END, ["work", END])
    return graph.compile(checkpointer=saver)


@pytest.fixture(params=["async", "sync"])
def roll(request: pytest.FixtureRequest) -> RollBack:
    async def sync(*args: Any, **options: Any) -> Rolled:
        return rollback(*args, **options)

    return arollback if request.param == "async" else sync


async def begun(saver: StatekitSaver) -> tuple[Any, RunnableConfig]:
    """Return a graph whose thread stopped before its third item, and the config of a lease taken since."""
    graph = compiled(saver)
    at: RunnableConfig = {"configurable": {"thread_id": "t"}}
    await graph.ainvoke({"i": 0}, at, interrupt_before=["work"], durability="sync")
    for _ in range(2):
        await graph.ainvoke(None, at, interrupt_before=["work"], durability="sync")
    return graph, (await saver.alease("t", steal=True)).config


async def values(graph: Any, config: RunnableConfig) -> dict[str, Any]:
    return dict((await graph.aget_state(config)).values)


async def test_a_rollback_is_recorded_and_the_thread_goes_on_from_its_target(store: Store, roll: RollBack) -> None:
    told: list[Event] = []
    async with store.open(hooks=[told.append]) as saver:
        graph, config = await begun(saver)
        before = await graph.aget_state(config)
        rolled = await roll(graph, config, "parent", WHY, 2)
        assert (rolled.from_id, rolled.to_id) == tuple(
            at["configurable"]["checkpoint_id"] for at in (before.config, before.parent_config)
        )
        fork = await graph.aget_state(config)
        assert fork.values == {"i": 1, "done": ["item 0"], "log": ["log 0"]} and fork.next == ("work",)
        assert fork.config["configurable"]["checkpoint_id"] == rolled.fork_id
        assert {key: value for key, value in fork.metadata.items() if key.startswith("statekit_")} == {
            "statekit_op": "rollback",
            "statekit_reason": "hang",
            "statekit_item": "2",
            "statekit_attempt": 2,
            "statekit_from": rolled.from_id,
            "statekit_to": rolled.to_id,
            "statekit_token": rolled.token,
        }
        await graph.ainvoke(None, rolled.config, durability="sync")
        assert (await values(graph, config))["log"] == [f"log {i}" for i in range(4)]
        assert (await graph.aget_state(before.config)).values == before.values
        (event,) = (each for each in told if isinstance(each, RolledBack))
        assert (event.from_id, event.to_id, event.fork_id) == (rolled.from_id, rolled.to_id, rolled.fork_id)
        assert (event.thread_id, event.reason, event.item, event.attempt) == ("t", "hang", "2", 2)


async def test_the_worker_that_hung_cannot_undo_a_rollback(store: Store, roll: RollBack) -> None:
    async with store.open() as saver:
        graph, old = await begun(saver)
        async with await saver.alease("t", steal=True) as lease:
            await roll(graph, lease.config, "parent", WHY)
            rolled = await values(graph, lease.config)
            with pytest.raises(Fenced):
                await graph.ainvoke(None, old, durability="sync")
            with pytest.raises(Fenced):
                await roll(graph, old, "parent", WHY)
            assert await values(graph, lease.config) == rolled


async def test_each_target_names_its_checkpoint(roll: RollBack, new_store: Callable[[str], Store]) -> None:
    async with new_store("memory").open() as saver:
        for target, since, expected in (
            ("retry_head", None, 2),
            ("parent", None, 1),
            ("last_healthy", None, 2),
            ("last_healthy", 2, 1),
            ("item_start", None, 2),
            (Label("begin"), None, 0),
            (lambda state: state.values["i"] < 2, None, 1),
        ):
            await saver.adelete_thread("t")
            graph, config = await begun(saver)
            at = {state.values.get("i"): state.config async for state in graph.aget_state_history(config)}
            await saver.alabel({"configurable": {**at[0]["configurable"], **config["configurable"]}}, "begin")
            suspect = None if since is None else at[since]["configurable"]["checkpoint_id"]
            finding = Finding("check", "", since=suspect)
            rolled = await roll(graph, config, target, finding, item_key=lambda values: values["i"])
            assert (await values(graph, config))["i"] == expected, target
            assert (rolled.fork_id == rolled.from_id) == (target == "retry_head")
        with pytest.raises(CheckpointMissing, match="the label 'no'"):
            await roll(graph, config, Label("no"), WHY)
        with pytest.raises(CheckpointMissing, match="predicate"):
            await roll(graph, config, lambda state: False, WHY)


async def test_an_item_starts_at_its_first_checkpoint(roll: RollBack, new_store: Callable[[str], Store]) -> None:
    async with new_store("memory").open() as saver:
        graph, config = await begun(saver)
        await roll(graph, config, "item_start", WHY, item_key=lambda values: values["i"] // 2)
        assert (await values(graph, config))["i"] == 2
        await roll(graph, config, "item_start", WHY, item_key=lambda values: "all")
        assert not (await values(graph, config)).get("done")


async def test_both_ends_of_a_rollback_survive_every_retention(store: Store, roll: RollBack) -> None:
    async with store.open() as saver:
        graph, config = await begun(saver)
        rolled = await roll(graph, config, "parent", WHY)
        await graph.ainvoke(None, config, durability="sync")
        for strategy in ("keep_latest", Retention(keep_last=1, max_age_s=0, keep_labels=False)):
            await saver.aprune(["t"], strategy=strategy)
            ids = {item.checkpoint["id"] async for item in saver.alist(config)}
            assert {rolled.from_id, rolled.to_id} <= ids


async def test_an_edit_at_the_target_leaves_an_item_out(store: Store, roll: RollBack) -> None:
    async with store.open() as saver:
        graph, config = await begun(saver)
        skip = Edit("work", lambda state, finding: {"i": state["i"] + 1, "log": [f"no {finding.item}"]})
        rolled = await roll(graph, config, "parent", WHY, edit=skip)
        assert (await graph.aget_state(config)).metadata["statekit_op"] == "skip"
        await graph.ainvoke(None, rolled.config, durability="sync")
        after = await values(graph, config)
        assert after["log"] == ["log 0", "no 2", "log 2", "log 3"]
        assert after["done"] == ["item 0", "item 2", "item 3"]


async def test_a_thread_can_be_left_to_a_human(store: Store, roll: RollBack) -> None:
    async with store.open() as saver:
        graph, config = await begun(saver)
        rolled = await roll(graph, config, "last_healthy", WHY, edit=Edit("ask", {"done": ["!"]}, "interrupt"))
        asked = await graph.ainvoke(None, rolled.config, durability="sync")
        assert [each.value for each in asked["__interrupt__"]] == ["what now?"]
        assert asked["i"] == 2 and asked["done"][-1] == "!"
        answered = await graph.ainvoke(Command(resume="stop"), config, durability="sync")
        assert answered["asked"] == "stop" and answered["i"] == 2


async def test_what_a_command_wrote_to_the_target_stays(store: Store, roll: RollBack) -> None:
    async with store.open() as saver:
        graph, config = await begun(saver)
        await graph.ainvoke(Command(goto="work", update={"i": 7}), config, durability="sync")
        assert (await values(graph, config))["i"] == 8
        await roll(graph, config, "parent", WHY)
        await graph.ainvoke(None, config, durability="sync")
        assert (await values(graph, config))["done"] == ["item 0", "item 1", "item 7"]


async def test_what_cannot_be_rolled_back_says_so(roll: RollBack, new_store: Callable[[str], Store]) -> None:
    async with new_store("memory").open() as saver:
        graph, config = await begun(saver)
        with pytest.raises(Misuse, match="fence first"):
            await roll(graph, {"configurable": {"thread_id": "t"}}, "parent", WHY)
        with pytest.raises(Misuse, match="a target is one of"):
            await roll(graph, config, "somewhere", WHY)
        with pytest.raises(CheckpointMissing, match="no checkpoint"):
            await roll(graph, (await saver.alease("other")).config, "parent", WHY)
        with pytest.raises(Misuse, match="saver of this package"):
            await roll(
                StateGraph(State).add_node("work", work).add_edge(START, "work").compile(), config, "parent", WHY
            )
