"""Threads for the tests of the Redis saver, and ways to look at them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import pytest
import redis

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import checkpoint, config, metadata


def chat(saver: StatekitSaver, steps: int, thread: str = "t") -> list[str]:
    """Store a thread of so many checkpoints, each of a run of its own and with a task's write; return their ids."""
    ids: list[str] = []
    at = config(thread)
    for step in range(steps):
        version = f"{step:032}.0"
        made = checkpoint({"m": [step]}, {"m": version})
        at = saver.put(at, made, metadata(step, run_id=f"run {step}"), {"m": version})
        saver.put_writes(at, [("m", step)], f"task {step}")
        ids.append(made["id"])
    return ids


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


def fresh() -> str:
    return f"p{os.urandom(6).hex()}"
