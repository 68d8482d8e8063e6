"""The change feed on a Redis Cluster and behind a Sentinel: news come without asking, also when nodes come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from langgraph_statekit import Session, SessionManager
from langgraph_statekit.checkpoint.backends.redis import RedisSaver
from tests.stores.redis_nodes import ask, cluster, port_of, sentinel


async def news(here: SessionManager, seen: AsyncGenerator[Session], session: Session, mark: int) -> dict[str, Any]:
    """Change a session until its watcher, who does not ask by itself, is told; return what it was told."""
    told = asyncio.ensure_future(anext(seen))
    while not told.done():  # a hint that came before anybody listened is lost
        await here.aupdate_metadata(session.session_id, {"n": mark})
        await asyncio.wait([told], timeout=0.1)
    return dict((await told).metadata)


async def watched(here: SessionManager, there: SessionManager, user: str) -> tuple[Session, AsyncGenerator[Session]]:
    made = await here.acreate(user)
    seen: Any = there.awatch(made.session_id)
    assert await anext(seen) == made
    return made, seen


async def test_news_come_through_every_node_of_a_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        urls = [f"redis+cluster://127.0.0.1:{port_of(node)}" for node in nodes]
        savers = [RedisSaver.from_url(url, retry_s=60) for url in urls]
        here, *others = (SessionManager(saver, agent="support", version=1, poll_s=600) for saver in savers)
        for there in others:
            async with there:
                seen = [await watched(here, there, f"user {number}") for number in range(6)]  # in many slots
                for mark, (made, watcher) in enumerate(seen):
                    assert await asyncio.wait_for(news(here, watcher, made, mark), 60) == {"n": mark}
                assert sum(int(str(ask(node, "CLIENT KILL TYPE pubsub"))) for node in nodes) == 1
                for made, watcher in seen[:2]:  # the listener comes back
                    assert await asyncio.wait_for(news(here, watcher, made, 100), 60) == {"n": 100}
                for _, watcher in seen:
                    await watcher.aclose()
        for saver in savers:
            saver.close()


async def test_news_come_after_a_failover_by_sentinel(tmp_path: Path) -> None:
    with sentinel(tmp_path, "main") as (primary, _, watcher):
        url = f"redis+sentinel://127.0.0.1:{port_of(watcher)}/main/0"
        with RedisSaver.from_url(url, retry_s=60) as one, RedisSaver.from_url(url, retry_s=60) as two:
            here = SessionManager(one, agent="support", version=1)
            async with SessionManager(two, agent="support", version=1, poll_s=600) as there:
                made, seen = await watched(here, there, "ann")
                assert await asyncio.wait_for(news(here, seen, made, 1), 60) == {"n": 1}
                ask(primary, "WAIT", 1, 0)
                primary.kill()
                for mark in (2, 3):
                    assert await asyncio.wait_for(news(here, seen, made, mark), 60) == {"n": mark}
                await seen.aclose()
