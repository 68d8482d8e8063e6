"""The process of a run with `isolation="process"`: it makes the graph, streams it to its parent, and ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from langgraph.runtime import RunControl

from langgraph_statekit.watchdog.beat import listening
from langgraph_statekit.watchdog.spending import with_counter
from langgraph_statekit.watchdog.tasks import finish
from langgraph_statekit.watchdog.view import clean
from langgraph_statekit.watchdog.wire import (
    BEAT,
    BEGIN,
    CANCEL,
    DRAIN,
    END,
    PART,
    RUN,
    SPEND,
    Pipe,
    graph_of,
    packed_error,
)

ORPHAN_S = 5.0
"""Seconds that a child whose parent has gone gets to end its step."""


class Reporter:
    """Tells the parent of heartbeats and of what was spent."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def beat(self, task_id: str | None, item: object = None, note: object = None) -> None:
        """Tell of a heartbeat."""
        self._pipe.send(BEAT, [task_id, *(None if each is None else clean(each) for each in (item, note))])

    def spend(self, requests: int, tokens: int) -> None:
        """Tell what was spent."""
        self._pipe.send(SPEND, [requests, tokens])


class Orders:
    """What the parent says.

    Attributes:
        given: What to begin with, and then what to run.
        control: Is asked to drain when the parent says so, or has gone.
        cancel: What cancels the run.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.given: SimpleQueue[Any] = SimpleQueue()
        self.control = RunControl()
        self.cancel: list[Callable[[], None]] = []

    def obey(self) -> None:
        """Do what the parent says; when it has gone, end with all that the nodes have started."""
        while (frame := self._pipe.receive()) is not None:
            kind, payload = frame
            if kind in (BEGIN, RUN):
                self.given.put(payload)
            elif kind == DRAIN:
                self.control.request_drain(payload)
            elif kind == CANCEL:
                for each in self.cancel:
                    each()
        self.control.request_drain("the parent process has gone")
        threading.Event().wait(ORPHAN_S)
        os.killpg(0, signal.SIGKILL)


def main(incoming: int, outgoing: int) -> None:
    """Run what the parent asks for."""
    pipe = Pipe(os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb"))
    orders = Orders(pipe)
    error: BaseException | None = None
    graph: Any = None
    threading.Thread(target=orders.obey, daemon=True).start()  # before the factory, which may hang
    try:
        begin = orders.given.get()
        sys.path[:] = begin["path"]
        graph = graph_of(begin["factory"])
        _work(graph, pipe, orders)
    except BaseException as raised:
        error = raised
    try:
        pipe.send(END, packed_error(error))
        if graph is not None and hasattr(graph.checkpointer, "close"):
            graph.checkpointer.close()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # threads of nodes that still run end with it


def _work(graph: Any, pipe: Pipe, orders: Orders) -> None:
    serde = graph.checkpointer.serde
    given = serde.loads_typed(tuple(orders.given.get()))
    reporter = Reporter(pipe)
    wanted = set(given["modes"])
    arguments = {**given["options"], "control": orders.control}
    config = with_counter(given["config"], reporter) if given["counts"] else given["config"]

    def send(part: Any) -> None:
        pipe.send(PART, list(serde.dumps_typed(_lean(part, wanted, arguments))))

    with listening(reporter):
        if given["is_async"]:
            finish(graph.astream(given["input"], config, **arguments), send, orders.cancel.append)
        else:
            for part in graph.stream(given["input"], config, **arguments):
                send(part)


def _lean(part: Any, wanted: set[str], arguments: dict[str, Any]) -> Any:
    """Return a part without what only the watchdog would get and has no use for."""
    v2 = arguments.get("version") == "v2"
    mode, payload = (part["type"], part["data"]) if v2 else part[-2:]
    inner = part["ns"] if v2 else len(part) > 2 and part[0]
    if mode in wanted or mode not in ("tasks", "checkpoints"):
        return part
    if mode == "tasks":
        shown = {"id": payload["id"], "name": payload["name"]}
        if "triggers" in payload:
            shown["triggers"] = []
        elif payload.get("error") is not None:
            shown["error"] = clean(payload["error"])
    else:
        shown = {
            "config": {"configurable": {"checkpoint_id": payload["config"]["configurable"]["checkpoint_id"]}},
            "metadata": {"step": payload["metadata"].get("step", -1)},
            "values": None if inner else payload["values"],
            "next": list(payload["next"]),
        }
    return {**part, "data": shown} if v2 else (*part[:-1], shown)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
