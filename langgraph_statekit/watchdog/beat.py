"""Signs of life from inside a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, Protocol

from langgraph.runtime import get_runtime


class Listener(Protocol):
    """What takes heartbeats."""

    def beat(self, task_id: str | None, item: object = None, note: object = None) -> None:
        """Take one, from any thread."""


_LISTENER: Final[ContextVar[Listener | None]] = ContextVar("statekit_heartbeat", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Give heartbeats of what is called inside to a listener."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def heartbeat(item: object = None, note: object = None) -> None:
    """Tell the `Watchdog` that this node is alive, and what it works at; does nothing without one.

    Also refreshes the node's `idle_timeout`, if it has one. Call it as often as you like, from the node or from a
    thread that was started with its context (`asyncio.to_thread`).

    Args:
        item: What the node works at from now on. Another one than before counts as progress, and begins its
            `ItemDeadline`. None: as before.
        note: For people, as text; told in the log of a finding.
    """
    task_id: str | None = None
    with suppress(RuntimeError):  # it is not called by a graph
        runtime: Any = get_runtime()
        if runtime is not None:
            runtime.heartbeat()
            task_id = runtime.execution_info.task_id if runtime.execution_info else None
    listener = _LISTENER.get()
    if listener is not None:
        listener.beat(task_id, item, note)
