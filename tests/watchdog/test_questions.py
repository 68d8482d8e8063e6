"""Whoever resumes a thread without an answer gives no task an answer that was meant for another question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_statekit import Rollback, StatekitSaver, Supervisor, Watchdog
from tests.stores_under_test import Store
from tests.watchdog.kit import AT, NOW, Clock, deadline
from tests.watchdog.world import LONG_S, Died


class State(TypedDict, total=False):
    i: int
    answers: list[str]
    other: str


@pytest.fixture
def memory(new_store: Callable[[str], Store]) -> Store:
    return new_store("memory")


@pytest.fixture
def saver(memory: Store) -> Iterator[StatekitSaver]:
    with memory.open() as saver:
        yield saver


class Asking:
    """A node that asks two questions and then dies, as often as is said; in a subgraph of a subgraph if wanted."""

    def __init__(self, deep: bool) -> None:
        self.deep, self.dies = deep, 0

    def ask(self, state: State) -> State:
        answers = [interrupt("first?"), interrupt("second?")]
        if self.dies:
            self.dies -= 1
            raise Died
        return {"answers": answers}

    def graph(self, saver: StatekitSaver) -> Any:
        graph: Any = self.ask
        for _ in range(3 if self.deep else 1):
            builder = StateGraph(State)
            builder.add_node("node", graph)
            builder.add_edge(START, "node")
            graph = builder
            if self.deep:
                graph = builder.compile()
        return graph.copy({"checkpointer": saver}) if self.deep else graph.compile(checkpointer=saver)

    def start(self, saver: StatekitSaver, *given: Any) -> None:
        """Run as workers of which the last one dies and does not give its lease back."""
        for one in given:
            held = saver.lease("t", graph="asking", ttl_s=LONG_S, steal=True)
            held._keeper.forget(held)
            try:
                self.graph(saver).invoke(one, held.config, durability="sync")
            except Died:
                return

    def recover(self, saver: StatekitSaver) -> list[str]:
        look = Supervisor(saver, {"asking": self.graph}, quarantine_s=0, policy=Rollback(to="retry_head", backoff=NOW))
        return [event.outcome for event in look.once()]

    def found(self, saver: StatekitSaver) -> Any:
        return self.graph(saver).get_state(AT).values.get("answers")


@pytest.mark.parametrize("deep", [False, True])
def test_a_node_that_dies_after_its_second_answer_is_resumed_with_both(
    saver: StatekitSaver, memory: Store, deep: bool
) -> None:
    asking = Asking(deep)
    asking.start(saver, {"i": 0}, Command(resume="one"))
    asking.dies = 1
    asking.start(saver, Command(resume="two"))
    memory.advance(LONG_S + 1)
    assert asking.recover(saver) == ["resumed", "finished"]
    assert asking.found(saver) == ["one", "two"]


@pytest.mark.parametrize("deep", [False, True])
def test_a_second_question_is_not_answered_by_the_first_answer(saver: StatekitSaver, memory: Store, deep: bool) -> None:
    asking = Asking(deep)
    asking.start(saver, {"i": 0}, Command(resume="yes"))
    memory.advance(LONG_S + 1)
    assert asking.recover(saver) == ["waiting"]
    assert asking.found(saver) is None
    asking.start(saver, Command(resume="no"))
    assert asking.found(saver) == ["yes", "no"]


@pytest.mark.parametrize("deep", [False, True])
def test_a_second_answer_that_equals_the_first_is_asked_for_again_after_a_death(
    saver: StatekitSaver, memory: Store, deep: bool
) -> None:
    asking = Asking(deep)
    asking.start(saver, {"i": 0}, Command(resume="yes"))
    asking.dies = 1
    asking.start(saver, Command(resume="yes"))
    memory.advance(LONG_S + 1)
    assert asking.recover(saver) == ["waiting"]
    assert asking.found(saver) is None
    asking.start(saver, Command(resume="no"))
    assert asking.found(saver) == ["yes", "no"]


class Beside:
    """Two nodes of one step: one asks, the other fails, then dies or hangs, and then asks too."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock, self.calls = clock, 0

    async def ask(self, state: State) -> State:
        return {"answers": [interrupt("first?")]}

    async def beside(self, state: State) -> State:
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("not yet")
        if self.calls == 2:
            if self.clock is None:
                raise Died
            self.clock.now_s += 100
            await asyncio.Event().wait()
        return {"other": interrupt("other?")}

    def graph(self, saver: StatekitSaver) -> Any:
        builder = StateGraph(State)
        for name, node in (("ask", self.ask), ("beside", self.beside)):
            builder.add_node(name, node)
            builder.add_edge(START, name)
        return builder.compile(checkpointer=saver)


async def test_a_watchdog_gives_the_answer_of_a_task_that_has_ended_to_no_other(saver: StatekitSaver) -> None:
    clock = Clock()
    beside = Beside(clock)
    policy = Rollback(to="retry_head", backoff=NOW)
    dog = Watchdog(beside.graph(saver), policy=policy, **deadline(clock))
    with pytest.raises(RuntimeError, match="not yet"):
        await dog.ainvoke({"i": 0}, AT)
    found = await dog.ainvoke(Command(resume="yes"), AT)
    assert [each.value for each in found["__interrupt__"]] == ["other?"]
    assert (await dog.ainvoke(Command(resume="no"), AT))["other"] == "no"
