"""Search over messages by meaning: only where it was asked for, and gone with the session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.postgres.aio import AsyncPostgresStore

from langgraph_statekit import MessageSearch, Misuse, SessionManager, SessionMissing
from langgraph_statekit.checkpoint.cells import CellChange
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.sessions.records import ref_of
from tests.servers import Absent, Servers, postgres_server
from tests.sessions.kit import SyncSessions, chat, says
from tests.sessions.test_sessions import HOSTILE
from tests.stores_under_test import unique

WORDS = ("tea", "train", "peanut")


def embed(texts: list[str]) -> list[list[float]]:
    return [[0.01, *(float(word in text.lower()) for word in WORDS)] for text in texts]


INDEX: Any = {"dims": 4, "embed": embed}


@pytest.fixture(scope="module")
def pgvector_url(servers: Servers) -> Iterator[str]:
    """Yield the URL of a server that has pgvector: the one of the tests, else the one in the wheel."""
    try:
        with psycopg.connect(url := servers.url("postgres")) as db:
            has_it = db.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchall()
        if has_it:
            yield url
            return
        server = postgres_server(bundled=True)
        url = server.__enter__().url
    except Absent as absent:
        pytest.skip(f"no server with pgvector: {absent}")
    with ExitStack() as stack:
        stack.push(server)
        yield url


@contextmanager
def database(url: str) -> Iterator[str]:
    name = unique()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
        try:
            yield f"{url.rpartition('/')[0]}/{name}"
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["memory", "pgvector", "async pgvector"])
async def indexed(request: pytest.FixtureRequest) -> AsyncIterator[BaseStore]:
    if request.param == "memory":
        yield InMemoryStore(index=INDEX)
        return
    with database(request.getfixturevalue("pgvector_url")) as url:
        if request.param == "pgvector":
            with PostgresStore.from_conn_string(url, index=INDEX) as store:
                store.setup()
                yield store
        else:
            async with AsyncPostgresStore.from_conn_string(url, index=INDEX) as store:
                await store.setup()
                yield store


@pytest.fixture
async def searching(indexed: BaseStore, new_store: Any) -> AsyncIterator[tuple[SessionManager, Any]]:
    """Yield a manager that searches, and the methods of it that the store takes as calls for them."""
    async with new_store("memory").open() as saver:
        manager = SessionManager(saver, agent="support", version=1, search=MessageSearch(indexed))
        yield manager, SyncSessions(manager) if isinstance(indexed, PostgresStore) else manager


async def talked(manager: SessionManager, user: str, *texts: str) -> str:
    made = await manager.acreate(user)
    async with manager.turn(made.session_id) as turn:
        await chat(manager.saver).ainvoke({"messages": [HumanMessage(text) for text in texts]}, turn.config)
    return made.session_id


async def test_messages_are_found_by_meaning_until_their_session_goes(searching: tuple[SessionManager, Any]) -> None:
    manager, sessions = searching
    ids = []
    for user, text in (("ann", "I like tea"), ("bob", "The train is late"), ("ann", "No peanuts")):
        ids.append(await talked(manager, user, text))
        assert await sessions.aindex_messages(ids[-1]) == 2
        assert await sessions.aindex_messages(ids[-1]) == 0
    first, *_ = await sessions.asearch_messages("a cup of TEA")
    assert (first.session_id, first.user_id, "tea" in first.text) == (ids[0], "ann", True)
    assert {one.user_id for one in await sessions.asearch_messages("the train", "ann")} == {"ann"}
    assert len(await sessions.asearch_messages("tea", limit=1)) == 1
    await sessions.adelete(ids[0])
    assert ids[0] not in {one.session_id for one in await sessions.asearch_messages("tea")}
    await sessions.aerase_user("ann")
    assert {one.session_id for one in await sessions.asearch_messages("peanuts")} == {ids[1]}


async def test_the_nearest_come_first_and_of_many_none_is_left(searching: tuple[SessionManager, Any]) -> None:
    manager, sessions = searching
    id = await talked(manager, "ann", *(f"{number} tea" for number in range(230)), "a train")
    assert await sessions.aindex_messages(id) == 232
    found = await sessions.asearch_messages("tea", limit=500)
    assert len(found) == 232
    assert {"train" in one.text for one in found[:-2]} == {False}
    assert found[0].score > found[-1].score
    await sessions.adelete(id)
    assert await sessions.asearch_messages("tea", limit=500) == []


async def test_hostile_texts_and_users_are_found_as_they_are(searching: tuple[SessionManager, Any]) -> None:
    manager, sessions = searching
    texts = [
        "tea\0train",
        "\u202etea",
        "tea 👩‍👩‍👧‍👦",
        "'; DROP TABLE store; -- tea",
        "\\u0000 tea",
        "tea " * 20_000,
    ]
    for user in (user for user in HOSTILE if user):
        id = await talked(manager, user, *texts[:1])
        await sessions.aindex_messages(id)
        assert [one.user_id for one in await sessions.asearch_messages("tea", user)] == [user] * 2
    id = await talked(manager, "bob", *texts)
    assert await sessions.aindex_messages(id) == len(texts) + 1
    assert await sessions.aindex_messages(id) == 0
    assert {one.text for one in await sessions.asearch_messages("tea", "bob")} >= set(texts)


async def test_an_erasure_takes_the_messages_of_sessions_that_the_store_removed(
    searching: tuple[SessionManager, Any],
) -> None:
    manager, sessions = searching
    id = await talked(manager, "ann", "tea")
    await talked(manager, "bob", "tea")
    await sessions.aindex_messages(id)
    await manager._async.cells.change_cell(CellChange(ref=ref_of(id), value=None))  # as its time to live does
    await sessions.aerase_user("ann")
    assert await sessions.asearch_messages("tea", "ann") == []


async def test_search_needs_a_store_with_an_index(new_store: Any) -> None:
    for wrong in (InMemoryStore(), {}):
        with pytest.raises(Misuse):
            MessageSearch(wrong)  # type: ignore[arg-type]
    async with new_store("memory").open() as saver:
        manager: SessionManager = SessionManager(saver, agent="support", version=1)
        assert isinstance(saver, StatekitSaver)
        made = await manager.acreate("ann")
        for use in (lambda: manager.aindex_messages(made.session_id), lambda: manager.asearch_messages("tea")):
            with pytest.raises(Misuse, match="MessageSearch"):
                await use()


async def test_nothing_of_a_session_is_indexed_that_is_erased_meanwhile(new_store: Any, monkeypatch: Any) -> None:
    search = MessageSearch(InMemoryStore(index=INDEX))
    async with new_store("memory").open() as saver:
        manager = SessionManager(saver, agent="support", version=1, search=search)
        made, add = await manager.acreate("ann"), search.add
        async with manager.turn(made.session_id) as turn:
            await chat(saver).ainvoke(says("tea"), turn.config)

        async def late(*args: Any) -> int:
            await manager.aerase_user("ann")
            return await add(*args)

        monkeypatch.setattr(search, "add", late)
        with pytest.raises(SessionMissing):
            await manager.aindex_messages(made.session_id)
        assert await manager.asearch_messages("tea") == []
