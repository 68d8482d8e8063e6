"""Threads that somebody waits for do not expire: interrupted ones until they are answered, leased ones."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Fenced
from tests.faces import Face, config, id_of, put
from tests.stores_under_test import Store

pytestmark = pytest.mark.without("ttl_s")

Faces = Callable[[StatekitSaver], Face]
ASKED = [("__interrupt__", "go on?")]


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def _graph(saver: StatekitSaver) -> Any:
    """Two tasks at once that ask, one of them in a subgraph."""
    inner = StateGraph(State)
    inner.add_node("before", lambda _: {"log": ["before"]})
    inner.add_node("ask", lambda _: {"log": [f"inner {interrupt('inner?')}"]})
    inner.add_edge(START, "before").add_edge("before", "ask").add_edge("ask", END)
    outer = StateGraph(State)
    outer.add_node("inner", lambda state: {"log": inner_app.invoke({"log": []})["log"]})
    outer.add_node("outer", lambda _: {"log": [f"outer {interrupt('outer?')}"]})
    outer.add_node("after", lambda _: {"log": ["after"]})
    inner_app = inner.compile()
    for name in ("inner", "outer"):
        outer.add_edge(START, name).add_edge(name, "after")
    return outer.add_edge("after", END).compile(checkpointer=saver)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_an_interrupted_thread_stays_until_all_is_answered(store: Store, durability: Any) -> None:
    with store.open(ttl_s=100) as saver, store.open() as reader:
        graph = _graph(saver)
        graph.invoke({"log": []}, config(), durability=durability)
        store.advance(10_000)
        asked = {each.value: each.id for each in graph.get_state(config()).interrupts}
        assert set(asked) == {"inner?", "outer?"}
        graph.invoke(Command(resume={asked["outer?"]: "yes"}), config(), durability=durability)
        store.advance(10_000)
        assert [each.value for each in graph.get_state(config()).interrupts] == ["inner?"]
        done = graph.invoke(Command(resume={asked["inner?"]: "yes"}), config(), durability=durability)
        assert sorted(done["log"]) == ["after", "before", "inner yes", "outer yes"]
        store.advance(50)
        assert reader.get_tuple(config()) is not None
        store.advance(51)
        assert reader.get_tuple(config()) is None
        assert not saver.backend.outline("t").rows


def test_interrupted_threads_expire_too_where_that_is_asked_for(store: Store) -> None:
    with store.open(ttl_s=100, expire_interrupted=True) as saver, store.open(ttl_s=100) as careful:
        _graph(saver).invoke({"log": []}, config("impatient"))
        _graph(saver).invoke({"log": []}, config("saved again"))
        _graph(careful).update_state(config("saved again"), {"log": ["more"]}, as_node="__start__")
        _graph(careful).invoke(None, config("saved again"))
        store.advance(101)
        assert careful.get_tuple(config("impatient")) is None
        assert careful.get_tuple(config("saved again")) is not None


@pytest.mark.parametrize("early", [False, True], ids=["writes after their checkpoint", "writes before it"])
async def test_an_interrupt_counts_while_its_checkpoint_is_the_latest(store: Store, face: Faces, early: bool) -> None:
    async with store.open(ttl_s=100) as real, store.open() as reader:
        saver = face(real)
        first = await put(saver, config(), {"x": 1})
        second = config(id="ffff")
        if early:
            await saver.aput_writes(second, ASKED, "task")
        await put(saver, first, {"x": 2}, id="ffff")
        if not early:
            await saver.aput_writes(second, ASKED, "task")
        store.advance(10_000)
        assert reader.get_tuple(config()) is not None
        await saver.aput_writes(second, [("a", 1)], "other task")
        store.advance(10_000)
        assert reader.get_tuple(config()) is not None, "as another task that ends answers nothing"
        await put(saver, second, {"x": 3})
        store.advance(101)
        assert reader.get_tuple(config()) is None


async def test_an_interrupt_in_a_subgraph_counts_until_the_root_goes_on(store: Store, face: Faces) -> None:
    async with store.open(ttl_s=100) as real, store.open() as reader:
        saver = face(real)
        for thread in ("waits", "went on"):
            root = await put(saver, config(thread), {"x": 1})
            child = await put(saver, config(thread, ns="node:1"), {"y": 1})
            await put(saver, config(thread, ns="node:2"), {"y": 1})
            await saver.aput_writes(child, ASKED, "task")
            await put(saver, config(thread, ns="node:2"), {"y": 2})
            if thread == "went on":
                await put(saver, root, {"x": 2})
        store.advance(101)
        assert reader.get_tuple(config("waits")) is not None
        assert reader.get_tuple(config("went on")) is None
        await put(saver, child | {"configurable": {**child["configurable"], "thread_id": "waits"}}, {"y": 2})
        store.advance(101)
        assert reader.get_tuple(config("waits")) is None


async def test_removals_decide_anew_whether_a_thread_is_interrupted(store: Store, face: Faces) -> None:
    async with store.open(ttl_s=100) as real, store.open() as reader:
        saver = face(real)
        for thread, asks in (("answered", "1"), ("asked", "2")):
            first = await put(saver, config(thread), {"x": 1}, meta={"run_id": "1"})
            second = await put(saver, first, {"x": 2}, meta={"run_id": f"2 {thread}"})
            await saver.aput_writes(first if asks == "1" else second, ASKED, "task")
        await saver.adelete_for_runs(["2 answered", "2 asked"])
        store.advance(101)
        assert reader.get_tuple(config("answered")) is not None
        assert reader.get_tuple(config("asked")) is None


def test_a_copy_of_an_interrupted_thread_is_interrupted(store: Store) -> None:
    with store.open(ttl_s=100) as saver, store.open() as reader:
        _graph(saver).invoke({"log": []}, config())
        saver.copy_thread("t", "copy")
        store.advance(10_000)
        assert reader.get_tuple(config("copy")) is not None
        saver.sweep()
        assert reader.get_tuple(config()) is not None
        assert reader.get_tuple(config("copy")) is not None


def test_a_leased_thread_does_not_expire(store: Store) -> None:
    with store.open(ttl_s=100) as saver, store.open() as reader:
        at = saver.put(config(), *_checkpoint())
        with saver.lease("t", ttl_s=1000) as lease:
            saver.put({"configurable": {**at["configurable"], **lease.config["configurable"]}}, *_checkpoint())
            store.advance(500)
            assert reader.get_tuple(config()) is not None
            saver.sweep()
            assert reader.get_tuple(config()) is not None
        store.advance(101)
        assert reader.get_tuple(config()) is None
        saver.sweep()
        late = {"configurable": {"thread_id": "t", "checkpoint_ns": "", **lease.config["configurable"]}}
        with saver.lease("t") as again:
            assert again.token > lease.token
            with pytest.raises(Fenced):
                saver.put(late, *_checkpoint())


def test_the_renewal_of_a_lease_lets_its_thread_live_on(store: Store) -> None:
    with store.open(ttl_s=100) as saver, store.open() as keeper:
        saver.put(config(), *_checkpoint())
        with keeper.lease("t", ttl_s=30) as lease:
            for _ in range(3):
                store.advance(70)
                keeper.backend.claim([lease.renewal()])
            assert keeper.get_tuple(config()) is not None
        store.advance(131)
        assert keeper.get_tuple(config()) is None


def test_a_run_whose_thread_expires_meanwhile_ends_well(store: Store) -> None:
    with store.open(ttl_s=100) as saver:
        graph = StateGraph(State)
        graph.add_node("first", lambda _: {"log": ["first"]})
        graph.add_node("slow", lambda _: store.advance(101) or {"log": ["slow"]})
        graph.add_node("last", lambda _: {"log": ["last"]})
        graph.add_edge(START, "first").add_edge("first", "slow").add_edge("slow", "last").add_edge("last", END)
        app = graph.compile(checkpointer=saver)
        app.invoke({"log": []}, config(), durability="sync")
        assert app.get_state(config()).values == {"log": ["first", "slow", "last"]}
        ids = [item.checkpoint["id"] for item in saver.list(config())]
        assert len(ids) == 2, "as what came before has expired"
        assert all(id_of(item.config) in ids for item in saver.list(config()))


def _checkpoint() -> tuple[Any, Any, Any]:
    from tests.faces import checkpoint, metadata

    made = checkpoint({"x": 1})
    return made, metadata(), made["channel_versions"]
