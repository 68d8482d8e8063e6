"""Whether a human is waited for, and how much there is: told of graphs of every shape."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_statekit import SessionManager
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.sessions.kit import Chat, chat, says
from tests.stores_under_test import Store


@pytest.fixture(params=["memory", "sqlite"])
async def real(request: pytest.FixtureRequest, new_store: Callable[[str], Store]) -> AsyncIterator[StatekitSaver]:
    """Yield a saver: what is told does not depend on the store."""
    async with new_store(request.param).open() as saver:
        yield saver


def asks(state: Any) -> Any:
    return {"messages": [AIMessage(f"answered {interrupt(state['question'])}")]}


def several(saver: StatekitSaver) -> Any:
    """Return a graph that asks as many questions at once as the message has words."""
    graph = StateGraph(Chat).add_node("ask", asks)
    graph.add_conditional_edges(
        START, lambda state: [Send("ask", {"question": word}) for word in state["messages"][-1].text.split()], ["ask"]
    )
    return graph.compile(checkpointer=saver)


def nested(saver: StatekitSaver, depth: int = 2) -> Any:
    """Return a graph whose subgraph's subgraph asks."""
    graph: Any = StateGraph(Chat).add_node("ask", lambda state: asks({"question": "sure?"})).add_edge(START, "ask")
    for _ in range(depth):
        graph = StateGraph(Chat).add_node("inner", graph.compile()).add_edge(START, "inner")
    return graph.compile(checkpointer=saver)


async def told(sessions: Any, session_id: str) -> tuple[str, int | None]:
    found = await sessions.aget(session_id)
    return found.status, found.message_count


async def test_a_human_is_waited_for_until_every_question_is_answered(
    manager: SessionManager, real: StatekitSaver
) -> None:
    graph, made = several(real), await manager.acreate("ann")
    async with manager.turn(made.session_id) as turn:
        await graph.ainvoke(says("one two"), turn.config)
    assert await told(manager, made.session_id) == ("waiting", 1)
    assert await manager.alist(status="waiting") == [await manager.aget(made.session_id)]
    async with manager.turn(made.session_id) as turn:
        asked = (await graph.aget_state(turn.config)).interrupts
        await graph.ainvoke(Command(resume={asked[0].id: "yes"}), turn.config)
    assert await told(manager, made.session_id) == ("waiting", 1)
    async with manager.turn(made.session_id) as turn:
        await graph.ainvoke(Command(resume={asked[1].id: "no"}), turn.config)
    assert await told(manager, made.session_id) == ("idle", 3)
    assert await manager.alist(status="waiting") == []


async def test_a_question_of_an_inner_graph_is_one_of_the_session(manager: SessionManager, real: StatekitSaver) -> None:
    graph, made = nested(real), await manager.acreate("ann")
    async with manager.turn(made.session_id) as turn:
        await graph.ainvoke(says("hello"), turn.config)
    assert await told(manager, made.session_id) == ("waiting", 1)
    async with manager.turn(made.session_id, on_busy="interrupt") as turn:  # nobody is busy, and nothing is lost
        assert (await manager.aget(made.session_id)).status == "active"
    assert await told(manager, made.session_id) == ("waiting", 1)
    async with manager.turn(made.session_id) as turn:
        await graph.ainvoke(Command(resume="yes"), turn.config)
    assert await told(manager, made.session_id) == ("idle", 2)


async def test_a_new_message_instead_of_an_answer_ends_the_waiting(
    manager: SessionManager, real: StatekitSaver
) -> None:
    graph, made = several(real), await manager.acreate("ann")
    async with manager.turn(made.session_id) as turn:
        await graph.ainvoke(says("one"), turn.config)
    async with manager.turn(made.session_id) as turn:
        await graph.aupdate_state(turn.config, {"messages": [AIMessage("never mind")]}, as_node="ask")
    assert await told(manager, made.session_id) == ("idle", 2)


async def test_messages_of_a_channel_that_is_not_there_are_not_known(real: StatekitSaver) -> None:
    manager = SessionManager(real, messages_key="said")
    made = await manager.acreate("ann")
    assert made.message_count == 0
    async with manager.turn(made.session_id) as turn:
        await chat(real).ainvoke(says("hello"), turn.config)
    assert (await manager.aget(made.session_id)).message_count is None


async def test_removed_messages_are_not_counted_and_the_size_is_that_of_the_thread(
    manager: SessionManager, real: StatekitSaver
) -> None:
    def forget(state: Chat) -> Any:
        return {"messages": [RemoveMessage(id=str(message.id)) for message in state["messages"][:-1]]}

    graph = StateGraph(Chat).add_node("forget", forget).add_edge(START, "forget").compile(checkpointer=real)
    made, sizes = await manager.acreate("ann"), list[int]()
    assert (await manager.aget(made.session_id)).message_count == 0
    for number in range(3):
        async with manager.turn(made.session_id) as turn:
            await graph.ainvoke({"messages": [HumanMessage(f"{number} {turn.config} " * 50)]}, turn.config)
        found = await manager.aget(made.session_id)
        assert found.message_count == 1
        if found.size_bytes is not None:
            sizes.append(found.size_bytes)
    assert sizes == sorted(sizes)
    assert len(sizes) in (0, 3)
