"""Threads for the tests of the Redis saver, and ways to look at them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest
import redis
from langgraph.checkpoint.conformance import checkpointer_test, validate

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.records import Frame, Ref, Row, SaveRow, SaveWrites, Write
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import Face, checkpoint, config, metadata


def chat(saver: StatekitSaver, steps: int, thread: str = "t") -> list[str]:
    """Store a thread of so many checkpoints with a task's write each; return their ids."""
    ids: list[str] = []
    at = config(thread)
    for step in range(steps):
        version = f"{step:032}.0"
        made = checkpoint({"m": [step]}, {"m": version})
        at = saver.put(at, made, metadata(step), {"m": version})
        saver.put_writes(at, [("m", step)], f"task {step}")
        ids.append(made["id"])
    return ids


def row(thread: str, id: str, ns: str = "", **fields: Any) -> Row:
    return Row(Ref(thread, ns, id), **fields)


def frame(key: bytes, check: bytes, base: Frame | None = None, body: bytes = b"") -> Frame:
    """Return a frame with a check of 4 bytes, whole or a delta on another frame."""
    place = b"" if base is None else base.key + base.check + bytes(9)
    return Frame(key, bytes((1, 0 if base is None else 2)) + check + place + body)


def save(store: Backend, row: Row, *frames: Frame) -> bool | Exception:
    return store.save([SaveRow(row, frames)])[0]


def save_writes(store: Backend, ref: Ref, *writes: Write) -> None:
    assert store.save([SaveWrites(ref, writes)]) == [True]


def count_trips(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what clients send in one piece; each waits for its answer."""
    sent: Counter[str] = Counter()
    send = redis.connection.AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> None:
        sent["trips"] += 1
        send(self, command, check_health)

    monkeypatch.setattr(redis.connection.AbstractConnection, "send_packed_command", counted)
    return sent


def contents(client: redis.Redis) -> dict[bytes, Any]:
    """Return all that a server holds."""
    read: dict[Any, Callable[[Any], Any]] = {b"hash": client.hgetall, b"zset": lambda key: client.zrange(key, 0, -1)}
    return {key: read[client.type(key)](key) for key in client.scan_iter()}


def listed_threads(store: Backend, run_ids: Collection[str] | None = None) -> list[str]:
    return [thread for page in store.threads(run_ids) for thread in page]


async def passes_conformance(make: Callable[[], StatekitSaver], face: Callable[[Any], Face]) -> None:
    @checkpointer_test(name="redis")
    async def factory() -> Any:
        async with make() as saver:
            yield face(saver)

    report = await validate(factory)
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert report.conformance_level() == "FULL"


def fresh() -> str:
    return f"p{os.urandom(6).hex()}"
