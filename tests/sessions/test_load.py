"""Many sessions with many clients each, at once: nobody's message is lost, doubled, or between those of another turn.

`STATEKIT_TEST_SESSIONS=1000x10` makes it a thousand sessions with ten clients each.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from langgraph_statekit import SessionManager
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.sessions.kit import chat, says
from tests.stores_under_test import Store

SESSIONS, CLIENTS = map(int, os.environ.get("STATEKIT_TEST_SESSIONS", "12x4").split("x"))
PATIENCE_S = 3600
"""A busy machine is to make nobody give up, or lose a lease that was not renewed in time."""


@pytest.fixture
async def real(store: Store, store_name: str) -> AsyncIterator[StatekitSaver]:
    patience: Any = {"sqlite": {"lock_wait_s": PATIENCE_S}, "redis": {"retry_s": PATIENCE_S}}.get(store_name, {})
    async with store.open(**patience) as saver:
        yield saver


@pytest.mark.timeout(PATIENCE_S)
async def test_many_clients_of_many_sessions_lose_and_mix_nothing(real: StatekitSaver) -> None:
    graph = chat(real)
    options: Any = {"agent": "support", "version": 1, "lease_s": PATIENCE_S}
    workers = [SessionManager(real, **options) for _ in range(2)]  # as two processes would be
    made = await asyncio.gather(*(workers[0].acreate(f"user {n}") for n in range(SESSIONS)))

    async def client(session_id: str, number: int) -> None:
        async with workers[number % 2].turn(session_id, device=f"device {number}", wait_s=PATIENCE_S) as turn:
            await graph.ainvoke(says(f"from {number}"), turn.config)

    await asyncio.gather(*(client(one.session_id, number) for number in range(CLIENTS) for one in made))
    for one in made:
        found = await workers[1].aget(one.session_id, one.user_id)
        assert (found.status, found.message_count) == ("idle", 2 * CLIENTS)
        state = await graph.aget_state(await workers[1].aconfig(one.session_id))
        said = [str(message.content) for message in state.values["messages"]]
        assert said[1::2] == [f"you said {text}" for text in said[::2]]
        assert sorted(said[::2]) == sorted(f"from {number}" for number in range(CLIENTS))
    assert len(await workers[0].alist(status="idle", limit=SESSIONS + 1)) == SESSIONS
