"""Search over messages by meaning: only where it was asked for, and gone with the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore

from langgraph_statekit import MessageSearch, Misuse, SessionManager, SessionMissing
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.servers import Servers
from tests.sessions.kit import chat, says
from tests.stores_under_test import unique

WORDS = ("tea", "train", "peanut")


def embed(texts: list[str]) -> list[list[float]]:
    return [[0.01, *(float(word in text.lower()) for word in WORDS)] for text in texts]


INDEX: Any = {"dims": 4, "embed": embed}


@contextmanager
def pgvector(servers: Servers) -> Iterator[BaseStore]:
    url = servers.url("postgres")
    with psycopg.connect(url, autocommit=True) as db:
        if not db.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchall():
            pytest.skip("this server has no pgvector")
        database = unique()
        db.execute(f"CREATE DATABASE {database}")
        try:
            with PostgresStore.from_conn_string(f"{url.rpartition('/')[0]}/{database}", index=INDEX) as store:
                store.setup()
                yield store
        finally:
            db.execute(f"DROP DATABASE {database} WITH (FORCE)")


@pytest.fixture(params=["memory", "pgvector"])
def indexed(request: pytest.FixtureRequest, servers: Servers) -> Iterator[BaseStore]:
    if request.param == "memory":
        yield InMemoryStore(index=INDEX)
    else:
        with pgvector(servers) as store:
            yield store


async def test_messages_are_found_by_meaning_until_their_session_goes(
    indexed: BaseStore, new_store: Any, shown: Callable[[SessionManager], Any]
) -> None:
    async with new_store("memory").open() as saver:
        manager = SessionManager(saver, agent="support", version=1, search=MessageSearch(indexed))
        sessions = shown(manager)
        ids = []
        for user, text in (("ann", "I like tea"), ("bob", "The train is late"), ("ann", "No peanuts")):
            made = await manager.acreate(user)
            async with manager.turn(made.session_id) as turn:
                await chat(saver).ainvoke(says(text), turn.config)
            ids.append(made.session_id)
            assert await sessions.aindex_messages(made.session_id) == 2
            assert await sessions.aindex_messages(made.session_id) == 0
        first, *_ = await sessions.asearch_messages("a cup of TEA")
        assert (first.session_id, first.user_id, "tea" in first.text) == (ids[0], "ann", True)
        assert {one.user_id for one in await sessions.asearch_messages("the train", "ann")} == {"ann"}
        assert len(await sessions.asearch_messages("tea", limit=1)) == 1
        await sessions.adelete(ids[0])
        assert ids[0] not in {one.session_id for one in await sessions.asearch_messages("tea")}
        await sessions.aerase_user("ann")
        assert {one.session_id for one in await sessions.asearch_messages("peanuts")} == {ids[1]}


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
