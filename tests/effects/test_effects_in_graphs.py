"""Effects in nodes and tools: forks and replays get their results, and rollbacks keep, undo or ask."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_statekit import (
    CheckpointMissing,
    Conflict,
    Effect,
    EffectLedger,
    EffectUnknown,
    Fenced,
    Finding,
    Misuse,
    Sampled,
    StatekitSaver,
    effect,
    rollback,
)
from tests.effects.kit import Died, Provider
from tests.faces import config
from tests.stores_under_test import Store

AT: Any = config()


class State(TypedDict, total=False):
    order: int
    log: Annotated[list[Any], operator.add]


@pytest.fixture
def saver(store: Store) -> Iterator[StatekitSaver]:
    with store.open() as saver:
        yield saver


@pytest.fixture
def provider() -> Provider:
    return Provider()


class Refunds:
    """Undoes charges."""

    def __init__(self) -> None:
        self.made: list[tuple[str, Any]] = []
        self.error: Exception | None = None

    def refund(self, effect: Effect) -> None:
        if self.error is not None:
            raise self.error
        self.made.append((effect.idempotency_key, effect.result))


def built(saver: Any, ledger: EffectLedger, provider: Provider, **options: Any) -> Any:
    """Return a graph that charges in its second and its third step."""

    def charge(name: str) -> Callable[[State], Any]:
        @effect(
            key=lambda state: f"order {state['order']}: {name}",
            request=lambda state: state["order"],
            ledger=ledger,
            **options,
        )
        def node(state: State, config: RunnableConfig, idempotency_key: str) -> Any:
            assert config["configurable"]["thread_id"] == "t"
            return {"log": [name, provider.charge(state["order"], idempotency_key)["charged"]]}

        return node

    graph = StateGraph(State)
    graph.add_node("first", lambda state: {"log": ["first"]})
    graph.add_node("goods", charge("goods"))
    graph.add_node("post", charge("post"))
    graph.add_edge(START, "first").add_edge("first", "goods").add_edge("goods", "post").add_edge("post", END)
    return graph.compile(checkpointer=saver)


def before(app: Any, node: str) -> Any:
    """Return the config of the newest checkpoint from which a node runs next."""
    return next(state.config for state in app.get_state_history(AT) if state.next == (node,))


LOG = ["first", "goods", 7, "post", 7]


def test_a_fork_runs_its_effects_no_second_time(saver: StatekitSaver, provider: Provider) -> None:
    app = built(saver, EffectLedger(saver), provider)
    assert app.invoke({"order": 7}, AT)["log"] == LOG
    for node in ("goods", "first", "post"):
        assert app.invoke(None, before(app, node))["log"] == LOG
    assert sorted(provider.made.values()) == [1, 1]


async def test_async_graphs_and_sampled_savers_have_effects_too(saver: StatekitSaver, provider: Provider) -> None:
    sampled = Sampled(saver, every=3)
    ledger = EffectLedger(sampled)

    @effect(key=lambda state: f"order {state['order']}", ledger=lambda: ledger)
    async def charge(state: State, idempotency_key: str) -> Any:
        return {"log": [provider.charge(state["order"], idempotency_key)]}

    graph = StateGraph(State)
    graph.add_node("charge", charge)
    graph.add_edge(START, "charge")
    app = graph.compile(checkpointer=sampled)
    for _ in range(2):
        state = await app.ainvoke({"order": 7}, AT)
    assert state["log"] == [{"charged": 7}] * 2
    assert provider.total == 1
    await sampled.aflush()


def test_a_tool_is_an_effect_and_shows_no_key(saver: StatekitSaver, provider: Provider) -> None:
    @tool
    @effect(key=lambda order: f"order {order}", ledger=EffectLedger(saver), verify=provider.find)
    def charge(order: int, cents: int, idempotency_key: str) -> int:
        """Charge for an order."""
        return int(provider.charge(cents, idempotency_key)["charged"])

    assert set(charge.args) == {"order", "cents"}
    for _ in range(2):
        assert charge.invoke({"order": 1, "cents": 500}, AT) == 500
    with pytest.raises(Conflict):
        charge.invoke({"order": 1, "cents": 501}, AT)
    assert provider.total == 1


def test_a_key_names_arguments_of_its_function(saver: StatekitSaver) -> None:
    with pytest.raises(Misuse, match="'item'"):
        effect(key=lambda item: item, ledger=EffectLedger(saver))(lambda state: state)


def test_a_node_with_an_effect_may_tell_where_to_go(new_store: Callable[[str], Store]) -> None:
    with new_store("memory").open() as saver:

        @effect(key=lambda state: "go", ledger=EffectLedger(saver))
        def go(state: State) -> Command[Any]:
            return Command(goto="there", update={"log": ["gone"]})

        graph = StateGraph(State)
        graph.add_node("go", go)
        graph.add_node("there", lambda state: {"log": ["there"]})
        graph.add_edge(START, "go")
        app = graph.compile(checkpointer=saver)
        for times in (1, 2):
            assert app.invoke({"order": 1}, AT)["log"] == ["gone", "there"] * times


def test_a_question_inside_an_effect_is_not_answered_by_making_it_twice(
    new_store: Callable[[str], Store], provider: Provider
) -> None:
    with new_store("memory").open() as saver:

        @effect(key=lambda state: "ask", ledger=EffectLedger(saver))
        def ask(state: State, idempotency_key: str) -> Any:
            provider.charge(1, idempotency_key)
            return {"log": [interrupt("sure?")]}

        graph = StateGraph(State)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        app = graph.compile(checkpointer=saver)
        assert app.invoke({"order": 1}, AT)["__interrupt__"]
        with pytest.raises(EffectUnknown):
            app.invoke(Command(resume="yes"), AT)
        assert provider.total == 1


def test_effects_behind_a_checkpoint_are_kept_or_told(saver: StatekitSaver, provider: Provider) -> None:
    ledger = EffectLedger(saver)
    app = built(saver, ledger, provider)
    app.invoke({"order": 7}, AT)
    goods, post = "order 7: goods", "order 7: post"
    for node, keys in (("first", [post, goods]), ("goods", [post, goods]), ("post", [post])):
        assert [effect.key for effect in ledger.on_rollback(before(app, node)).kept] == keys
    asked = ledger.on_rollback(before(app, "post"), "ask")
    assert ([effect.key for effect in asked.open], asked.kept, asked.compensated) == ([post], [], [])
    assert ledger.on_rollback(app.get_state(AT).config) == ([], [], [])
    assert len(ledger.on_rollback(AT).kept) == 2
    with pytest.raises(CheckpointMissing):
        ledger.on_rollback(config(id="none"))
    for wrong in (lambda: ledger.on_rollback(AT, "hope"), lambda: ledger.on_rollback({})):
        with pytest.raises(Misuse):
            wrong()
    assert provider.total == 2


def test_compensated_effects_are_undone_once_and_then_made_anew(saver: StatekitSaver, provider: Provider) -> None:
    refunds = Refunds()
    app = built(saver, EffectLedger(saver), provider, compensate=refunds.refund)
    app.invoke({"order": 7}, AT)
    first = dict(provider.made)
    # As after a restart: nothing but the list of compensations tells how to undo.
    assert len(EffectLedger(saver).on_rollback(before(app, "goods"), "compensate").open) == 2
    ledger = EffectLedger(saver, compensations=[refunds.refund])
    for done in (2, 0):
        assert len(ledger.on_rollback(before(app, "goods"), "compensate").compensated) == done
    assert sorted(key for key, _ in refunds.made) == sorted(first)
    assert refunds.made[0][1] == {"log": ["post", 7]}, "the newest is undone first"
    assert app.invoke(None, before(app, "goods"))["log"] == LOG
    assert len(provider.made) == 4, "what is made anew has another key for the provider"
    assert set(provider.made.values()) == {1}
    [again] = [effect for effect in ledger.list("t") if effect.key == "order 7: post"]
    assert (again.state, again.attempts) == ("sent", 2)


def test_what_cannot_be_undone_is_told_and_keeps_nothing_else_from_it(saver: StatekitSaver, provider: Provider) -> None:
    refunds = Refunds()
    ledger = EffectLedger(saver, lease_s=0.01)
    app = built(saver, ledger, provider, compensate=refunds.refund)
    app.invoke({"order": 7}, AT)
    provider.dies_after = True
    with pytest.raises(Died):
        ledger.run("unknown", provider.charge, 1, config={"configurable": {**before(app, "post")["configurable"]}})
    provider.dies_after = False
    refunds.error = ConnectionError("no refunds today")
    settled = ledger.on_rollback(before(app, "post"), "compensate")
    assert [effect.key for effect in settled.open] == ["unknown", "order 7: post"]
    refunds.error = None
    settled = ledger.on_rollback(before(app, "goods"), "compensate")
    assert [effect.key for effect in settled.compensated] == ["order 7: goods"]
    assert [effect.key for effect in settled.open] == ["unknown", "order 7: post"], "its refund is unknown by now"


def test_effects_are_behind_a_checkpoint_after_which_they_were_made_or_given_again(
    saver: StatekitSaver, provider: Provider
) -> None:
    refunds = Refunds()
    ledger = EffectLedger(saver)
    app = built(saver, ledger, provider, compensate=refunds.refund)
    app.invoke({"order": 7}, AT)
    goods, post = "order 7: goods", "order 7: post"
    branches = [(before(app, "goods"), before(app, "post"))]
    lease, why = saver.lease("t"), Finding("test", "to run it again")
    app.invoke(None, {"configurable": {**branches[0][0]["configurable"], **lease.config["configurable"]}})
    branches.append((before(app, "goods"), before(app, "post")))
    for node in ("goods", "first"):
        app.invoke(None, rollback(app, lease.config, lambda state: state.next == (node,), why).config)
        branches.append((before(app, "goods"), before(app, "post")))
    assert len({at["configurable"]["checkpoint_id"] for branch in branches for at in branch}) == 8
    for at_goods, at_post in branches:
        assert [effect.key for effect in ledger.on_rollback(at_goods).kept] == [post, goods]
        assert [effect.key for effect in ledger.on_rollback(at_post).kept] == [post], "the state knows of the goods"
    at_goods, at_post = branches[-1]
    leased = {"configurable": {**at_post["configurable"], **lease.config["configurable"]}}
    assert [effect.key for effect in ledger.on_rollback(leased, "compensate").compensated] == [post]
    assert [effect.key for effect in ledger.on_rollback(at_goods).kept] == [goods]
    assert app.invoke(None, leased)["log"] == LOG
    assert sorted(provider.made.values()) == [1, 1, 1], "the post is paid anew, the goods are not"


def test_an_effect_that_each_step_asks_for_is_of_the_step_that_made_it(
    saver: StatekitSaver, provider: Provider
) -> None:
    ledger = EffectLedger(saver)

    def node(state: State) -> Any:
        return {"log": [ledger.run("log in", provider.charge, 1)["charged"]]}

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", lambda state: "node" if len(state["log"]) < 40 else END, ["node", END])
    app = graph.compile(checkpointer=saver)
    app.invoke({"order": 7}, {**AT, "recursion_limit": 100})
    *_, second, first, _ = [state.config for state in app.get_state_history(AT)]
    assert len(ledger.on_rollback(first).kept) == 1
    assert ledger.on_rollback(second).kept == []
    assert provider.total == 1


def test_whoever_lost_the_thread_compensates_nothing(saver: StatekitSaver, provider: Provider) -> None:
    refunds = Refunds()
    ledger = EffectLedger(saver)
    app = built(saver, ledger, provider, compensate=refunds.refund)
    app.invoke({"order": 7}, AT)
    late = saver.lease("t", ttl_s=600)
    saver.lease("t", ttl_s=600, steal=True)
    at = before(app, "goods")
    with pytest.raises(Fenced):
        ledger.on_rollback({"configurable": {**at["configurable"], **late.config["configurable"]}}, "compensate")
    assert refunds.made == []
