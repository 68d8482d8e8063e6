"""Saves that an event loop sends by itself, on a server that loses connections, forgets scripts, or dies."""

from __future__ import annotations

import asyncio
from pathlib import Path

import redis

from langgraph_statekit.checkpoint.backends.redis import RedisSaver
from tests.faces import checkpoint, config, metadata
from tests.servers import Server, wait_until
from tests.stores.redis_nodes import DURABLE, node, port_of, redis_binary, started

STEPS = 60


async def talk(saver: RedisSaver, thread: str, steps: int = STEPS) -> list[str]:
    """Store so many checkpoints, each with a task's write; return their ids."""
    ids: list[str] = []
    at = config(thread)
    for step in range(steps):
        version = f"{step:032}.0"
        made = checkpoint({"m": [step]}, {"m": version})
        at = await saver.aput(at, made, metadata(step), {"m": version})
        await saver.aput_writes(at, [("m", step)], f"task {step}")
        ids.append(made["id"])
    return ids


async def stored(saver: RedisSaver, thread: str) -> list[str]:
    found = [item async for item in saver.alist(config(thread))]
    assert all(len(item.pending_writes or ()) == 1 for item in found)
    return [item.checkpoint["id"] for item in reversed(found)]


async def test_a_loop_saves_over_one_connection_more_than_its_threads_and_gives_it_back(
    saver: RedisSaver, client: redis.Redis
) -> None:
    before = len(client.client_list())
    ids = await talk(saver, "t")
    assert await stored(saver, "t") == ids
    assert saver._lines is not None
    [sender] = saver._lines._senders.values()
    assert sender.open
    assert len(client.client_list()) <= before + 3
    await saver.aclose()
    await asyncio.sleep(0)
    assert not sender.open


async def test_saves_survive_lost_connections_and_forgotten_scripts(saver: RedisSaver, client: redis.Redis) -> None:
    chats = [asyncio.create_task(talk(saver, f"t{i}", 200)) for i in range(3)]
    while not all(each.done() for each in chats):
        await asyncio.sleep(0.02)
        client.script_flush()
        client.client_kill_filter(_type="normal", skipme=True)
    for i, each in enumerate(chats):
        assert await stored(saver, f"t{i}") == await each


async def test_a_killed_server_that_comes_back_is_survived(tmp_path: Path) -> None:
    made = node(tmp_path, redis_binary(), *DURABLE)
    with started(made):
        async with RedisSaver.from_url(made.url, retry_s=60) as saver:
            first = await talk(saver, "t")
            going = asyncio.create_task(talk(saver, "u", 200))
            await asyncio.sleep(0)
            await asyncio.to_thread(made.kill)
            await asyncio.to_thread(made.start)
            second = await going
            assert await stored(saver, "t") == first
            assert await stored(saver, "u") == second


async def test_a_client_of_the_users_is_used_as_it_is(server: Server, client: redis.Redis) -> None:
    with redis.Redis(port=port_of(server)) as given:
        async with RedisSaver(given) as saver:
            assert await stored(saver, "t") == []
            assert await talk(saver, "t")
            assert saver._lines is not None
            assert not saver._lines._senders


def test_a_save_that_was_sent_is_made_though_its_loop_has_ended(saver: RedisSaver) -> None:
    async def leave() -> list[str]:
        ids = await talk(saver, "t")
        made = checkpoint({}, {})
        task = asyncio.create_task(saver.aput(config("u"), made, metadata(0), {}))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        return [*ids, made["id"]]

    *ids, last = asyncio.run(leave())
    more = asyncio.run(talk(saver, "v"))
    assert asyncio.run(stored(saver, "t")) == ids
    assert asyncio.run(stored(saver, "v")) == more
    assert [item.checkpoint["id"] for item in saver.list(config("u"))] == [last]


def test_a_deleted_thread_does_not_come_back_by_a_save_whose_loop_has_ended(
    saver: RedisSaver, client: redis.Redis
) -> None:
    made = checkpoint({}, {})

    async def leave() -> None:
        await talk(saver, "t")
        client.client_pause(60_000, all=False)
        task = asyncio.create_task(saver.aput(config("u"), made, metadata(0), {}))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    client.client_unpause()
    wait_until(lambda: saver.get_tuple(config("u")) is not None, "the server makes what was sent")
    saver.delete_thread("u")
    asyncio.run(saver.aput(config("v"), made, metadata(0), {}))
    saver.close()
    assert saver.get_tuple(config("u")) is None
