"""Many sessions with many clients each, at once: nobody's message is lost, doubled, or between those of another turn.

`STATEKIT_TEST_SESSIONS=1000x10` makes it a thousand sessions with ten clients each.
"""

from __future__ import annotations

import asyncio
import os

from langgraph_statekit import SessionManager
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.sessions.kit import chat, says

SESSIONS, CLIENTS = map(int, os.environ.get("STATEKIT_TEST_SESSIONS", "12x4").split("x"))


async def test_many_clients_of_many_sessions_lose_and_mix_nothing(real: StatekitSaver) -> None:
    graph = chat(real)
    workers = [SessionManager(real, agent="support", version=1) for _ in range(2)]  # as two processes would be
    made = await asyncio.gather(*(workers[0].acreate(f"user {n}") for n in range(SESSIONS)))

    async def client(session_id: str, number: int) -> None:
        async with workers[number % 2].turn(session_id, device=f"device {number}", wait_s=3600) as turn:
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
