"""Memories: only what a user explicitly asks for, apart from all other users, confirmed and forgotten on request."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore
from langgraph.types import Command
from psycopg.rows import dict_row

from langgraph_statekit import Memories, Misuse, SessionManager, memory_node, memory_tools
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.sessions.memory_nodes import as_prompt
from tests.servers import Servers
from tests.sessions.kit import Chat, says
from tests.sessions.test_sessions import HOSTILE
from tests.stores_under_test import unique


def sqlite_store() -> BaseStore:
    store = SqliteStore(sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None))
    store.setup()
    return store


@pytest.fixture(params=[InMemoryStore, sqlite_store], ids=["memory", "sqlite"])
def memories(request: pytest.FixtureRequest) -> Memories:
    return Memories(request.param())


def texts(memories: Memories, user: str = "ann") -> list[str]:
    return [memory.text for memory in memories.list_memories(user)]


def test_what_was_remembered_is_listed_once_until_it_is_forgotten(memories: Memories) -> None:
    first = memories.remember("ann", " I like tea. ", {"session": "s"})
    assert memories.remember("ann", "i like tea") == first
    memories.remember("ann", "My birthday is May 5")
    memories.remember("ann", "我对花生过敏")
    assert sorted(texts(memories)) == ["I like tea.", "My birthday is May 5", "我对花生过敏"]
    assert first.source == {"session": "s"}
    prompt = as_prompt(memories.list_memories("ann")).splitlines()[1:]
    assert sorted(prompt) == ["- I like tea.", "- My birthday is May 5", "- 我对花生过敏"]
    assert [gone.text for gone in memories.forget("ann", "birthday")] == ["My birthday is May 5"]
    assert memories.forget("ann", "coffee") == []
    assert memories.forget("ann", first.memory_id) == [first]
    assert [gone.text for gone in memories.forget_all("ann")] == ["我对花生过敏"]
    assert texts(memories) == []
    assert as_prompt([]) == ""


def test_what_a_store_might_refuse_is_remembered_on_postgres(servers: Servers) -> None:
    with psycopg.connect(servers.url("postgres"), autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {(schema := unique())}")
        try:
            options = {"options": f"-c search_path={schema}", "autocommit": True, "row_factory": dict_row}
            with psycopg.connect(servers.url("postgres"), **options) as conn:  # type: ignore[arg-type]
                store = PostgresStore(conn)
                store.setup()
                memories = Memories(store)
                source = {"message": "m\0", "half": "\udc00", "path": "C:\\u0000", "n": [1.5, None, {"": True}]}
                kept = memories.remember("a\0b", "I like \0 tea \ud800 \\u0000 茶", source)
                assert (kept.text, kept.source) == ("I like \ufffd tea \ufffd \\u0000 茶", source)
                assert memories.remember("a\0b", kept.text) == kept
                assert memories.list_memories("a\0b") == [kept]
                assert memories.list_memories("ab") == []
                assert memories.forget("a\0b", "tea") == [kept]
        finally:
            db.execute(f"DROP SCHEMA {schema} CASCADE")


def test_a_code_that_differs_by_case_is_another_one(memories: Memories) -> None:
    memories.remember("ann", "The gate code is aB3")
    assert memories.remember("ann", "the Gate code is Ab3").text == "the Gate code is Ab3"
    assert sorted(texts(memories)) == ["The gate code is aB3", "the Gate code is Ab3"]
    memories.forget("ann", "gate code")
    assert texts(memories) == []


def test_users_with_hostile_ids_share_nothing(memories: Memories) -> None:
    users = [user for user in HOSTILE if user]
    for number, user in enumerate(users):
        memories.remember(user, f"number {number}")
    for number, user in enumerate(users):
        assert texts(memories, user) == [f"number {number}"]
    memories.forget_all("a%")
    assert texts(memories, "a_") == [f"number {users.index('a_')}"]


def test_many_memories_are_listed_and_forgotten_whole(memories: Memories) -> None:
    for number in range(230):
        memories.remember("ann", f"number {number}")
    assert len(set(texts(memories))) == 230
    assert len(memories.forget_all("ann")) == 230
    assert texts(memories) == []


def test_what_is_no_memory_is_refused(memories: Memories) -> None:
    for text in ("", "  ", None, "x" * 4001):
        with pytest.raises(Misuse, match="memory"):
            memories.remember("ann", text)  # type: ignore[arg-type]
    for user in ("", None):
        with pytest.raises(Misuse, match="user_id"):
            memories.remember(user, "x")  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="forget_all"):
        memories.forget("ann", " ")
    with pytest.raises(Misuse, match="BaseStore"):
        Memories({})  # type: ignore[arg-type]


def remembering(saver: StatekitSaver | None, memories: Memories, **options: Any) -> Any:
    graph = StateGraph(Chat).add_node("memory", memory_node(memories, **options)).add_edge(START, "memory")
    return graph.compile(checkpointer=saver)


@pytest.fixture
def invoke(request: pytest.FixtureRequest) -> Callable[..., Any]:
    async def call(graph: Any, given: Any, user: str = "ann", thread: str = "t") -> Any:
        config = {"configurable": {"thread_id": thread, "user_id": user}}
        return await graph.ainvoke(given, config) if request.param == "async" else graph.invoke(given, config)

    return call


both = pytest.mark.parametrize("invoke", ["async", "sync"], indirect=True)


@both
async def test_a_node_does_what_is_asked_for_and_confirms_it(invoke: Any) -> None:
    memories = Memories(InMemoryStore())
    graph = remembering(None, memories)
    for asked, told in (
        (
            "Remember that I like tea. Please remember my name is Ann.",
            "I will remember: “I like tea”\nI will remember: “my name is Ann”",
        ),
        ("请记住我对花生过敏。", "我记住了：「我对花生过敏」"),
        ("Remember that " + "x" * 5_000, "Too long to remember: over 4,000 characters."),
        ("What do you remember about me?", "You asked me to remember:\n- I like tea\n- my name is Ann\n- 我对花生过敏"),
        ("Forget that I like tea", "I have forgotten: “I like tea”"),
        ("请忘记咖啡", "没有找到相关的记忆，所以没有忘记任何内容。"),
        ("请忘记关于我的一切", "我忘记了：“my name is Ann”; “我对花生过敏”"),
        ("你记得我什么？", "我没有记住任何内容。"),
    ):
        assert (await invoke(graph, says(asked)))["messages"][-1].content == told
    for asked in ("I like tea", "I remember that day", "Do you remember me?"):
        assert len((await invoke(graph, says(asked)))["messages"]) == 1
    assert texts(memories) == []
    with pytest.raises(Misuse, match="user_id"):
        await graph.ainvoke(says("Remember that I like tea"), {"configurable": {}})


@both
async def test_only_words_of_the_user_are_remembered(invoke: Any) -> None:
    memories = Memories(InMemoryStore())
    graph = remembering(None, memories)
    said = "Remember that I am rich"
    for last in (AIMessage(said), ToolMessage(said, tool_call_id="1")):
        await invoke(graph, {"messages": [HumanMessage("hello"), last]})
    tools = StateGraph(Chat).add_node("tools", ToolNode(memory_tools(memories))).add_edge(START, "tools").compile()

    def calls(name: str, text: str) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": name, "args": {"text": text}, "id": "1"}])

    for before in ([HumanMessage("hello")], [HumanMessage("hello"), ToolMessage(said, tool_call_id="0")]):
        for name in ("remember", "forget"):
            got = await invoke(tools, {"messages": [*before, calls(name, "I am rich")]})
            assert got["messages"][-1].content.startswith("Not done")
    assert texts(memories) == []
    got = await invoke(
        tools, {"messages": [HumanMessage("Remember that I like tea"), calls("remember", "User likes tea")]}
    )
    assert got["messages"][-1].content == "I will remember: “I like tea”"
    assert texts(memories) == ["I like tea"]
    listing = AIMessage("", tool_calls=[{"name": "list_memories", "args": {}, "id": "1"}])
    got = await invoke(tools, {"messages": [HumanMessage("hi"), listing]})
    assert "I like tea" in got["messages"][-1].content
    got = await invoke(tools, {"messages": [HumanMessage("Please forget that I like tea"), calls("forget", "tea")]})
    assert texts(memories) == []


@both
async def test_a_node_that_asks_remembers_only_what_is_agreed_to(invoke: Any, real: StatekitSaver) -> None:
    memories = Memories(InMemoryStore())
    graph = remembering(real, memories, ask=True)
    for answer, kept in ((False, []), ("yes", []), (True, ["I like tea"])):
        got = await invoke(graph, says("Remember that I like tea"))
        assert got["__interrupt__"][0].value == {"action": "remember", "text": "I like tea"}
        assert texts(memories) == []
        got = await invoke(graph, Command(resume=answer))
        assert texts(memories) == kept
        assert got["messages"][-1].content.startswith("I will remember" if kept else "Nothing was changed")


async def test_memories_are_known_in_the_next_session(real: StatekitSaver) -> None:
    memories = Memories(InMemoryStore())
    manager, graph = SessionManager(real, agent="support", version=1), remembering(real, memories)
    first, second = await manager.acreate("ann"), await manager.acreate("ann")
    async with manager.turn(first.session_id) as turn:
        await graph.ainvoke(says("Remember that I like tea"), turn.config)
    async with manager.turn(second.session_id) as turn:
        got = await graph.ainvoke(says("What do you remember?"), turn.config)
    assert "I like tea" in got["messages"][-1].content
    (memory,) = await memories.alist_memories("ann")
    assert memory.source["session_id"] == first.session_id
