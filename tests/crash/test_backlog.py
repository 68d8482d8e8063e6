"""A graph that is faster than its store: what waits is bounded, nothing is lost, and a failure is told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from langgraph_statekit import RedisSaver, Unavailable
from tests.faces import config
from tests.servers import Server, redis_server

STEPS = 40
BIG = 100_000


class State(TypedDict):
    n: int
    big: bytes


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with redis_server() as started:
        yield started


def _pending_bytes(saver: RedisSaver) -> int:
    return sum(backlog.size_bytes for backlog in saver._threads._backlogs.values())


def _graph(at_step: Any) -> StateGraph[Any]:
    async def work(state: State) -> dict[str, Any]:
        at_step(state["n"])
        return {"n": state["n"] + 1, "big": os.urandom(BIG)}

    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: END if state["n"] == STEPS else "work", ["work", END])
    return graph


@pytest.mark.parametrize(
    ("bounds", "most_bytes"),
    [({}, None), ({"max_pending": 4}, 5 * BIG), ({"max_pending_bytes": 4 * BIG}, 6 * BIG)],
    ids=["default", "count", "bytes"],
)
async def test_no_more_than_allowed_waits_for_a_store_that_does_not_answer(
    server: Server, bounds: dict[str, int], most_bytes: int | None
) -> None:
    seen: list[int] = []

    def at_step(n: int) -> None:
        if n == 3:
            server.pause()
        seen.append(_pending_bytes(saver))
        if n == STEPS - 1:
            server.resume()

    async with RedisSaver.from_url(server.url, prefix=f"p{len(bounds)}{most_bytes}", **bounds) as saver:
        app = _graph(at_step).compile(checkpointer=saver)
        at: Any = {**config(), "recursion_limit": 2 * STEPS}
        await app.ainvoke({"n": 0, "big": b""}, at)
        assert [each.metadata["step"] async for each in app.aget_state_history(at)] == [*range(STEPS, -2, -1)]
        assert _pending_bytes(saver) == 0
    if most_bytes is None:
        assert max(seen) > 20 * BIG
    else:
        assert 2 * BIG < max(seen) < most_bytes


async def test_saves_that_waited_for_a_store_that_is_gone_fail_the_run() -> None:
    with redis_server() as doomed:
        async with RedisSaver.from_url(doomed.url, retry_s=0, max_pending=2) as saver:
            app = _graph(lambda n: doomed.kill() if n == 3 else None).compile(checkpointer=saver)
            with pytest.raises(Unavailable):
                await app.ainvoke({"n": 0, "big": b""}, {**config(), "recursion_limit": 2 * STEPS})
            assert _pending_bytes(saver) == 0
