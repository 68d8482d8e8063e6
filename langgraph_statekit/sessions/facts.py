"""What a thread tells of its session. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import INTERRUPT, RESUME

from langgraph_statekit.sessions.records import IDLE, WAITING, Record, Session


@dataclass(frozen=True, slots=True)
class Facts:
    """What a thread tells of itself; None: it is not known, and of `waiting`: nothing is."""

    messages: int | None = None
    size_bytes: int | None = None
    waiting: bool | None = None


def with_facts(record: Record, facts: Facts) -> Record:
    """Return a record with what is known of its thread."""
    if facts.waiting is None:
        return record
    return replace(
        record,
        state=(WAITING if facts.waiting else IDLE) if record.state in (IDLE, WAITING) else record.state,
        messages=facts.messages,
        size_bytes=record.size_bytes if facts.size_bytes is None else facts.size_bytes,
    )


def waits(writes: Sequence[tuple[str, str, Any]]) -> bool:
    """Say whether a task of a checkpoint waits for an answer, given the writes of all."""
    done = {task for task, channel, _ in writes if channel not in (INTERRUPT, RESUME)}
    return any(channel == INTERRUPT and task not in done for task, channel, _ in writes)


def thread_config(session_id: str) -> RunnableConfig:
    """Return the config of a session's thread."""
    return {"configurable": {"thread_id": session_id, "checkpoint_ns": ""}}


def session_config(session: Session) -> RunnableConfig:
    """Return the config of a session for its user."""
    return {"configurable": {"thread_id": session.session_id, "user_id": session.user_id}}
