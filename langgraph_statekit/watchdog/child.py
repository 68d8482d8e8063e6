"""The process of a run with `isolation="process"`: it makes the graph, streams it to its parent, and ends."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from langgraph.runtime import RunControl

from langgraph_statekit.watchdog.beat import listening
from langgraph_statekit.watchdog.spending import with_counter
from langgraph_statekit.watchdog.tasks import finish
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
        self._pipe.send(BEAT, [task_id, *(None if each is None else str(each) for each in (item, note))])

    def spend(self, requests: int, tokens: int) -> None:
        """Tell what was spent."""
        self._pipe.send(SPEND, [requests, tokens])


def main(incoming: int, outgoing: int) -> None:
    """Run what the parent asks for."""
    pipe = Pipe(os.fdopen(incoming, "rb"), os.fdopen(outgoing, "wb"))
    error: BaseException | None = None
    graph: Any = None
    try:
        begin = pipe.receive()
        if begin is None or begin[0] != BEGIN:
            return
        sys.path[:] = begin[1]["path"]
        graph = graph_of(begin[1]["factory"])
        asked = pipe.receive()
        if asked is None or asked[0] != RUN:
            return
        _work(graph, pipe, asked[1])
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


def _work(graph: Any, pipe: Pipe, packed: Any) -> None:
    serde = graph.checkpointer.serde
    given = serde.loads_typed(tuple(packed))
    control = RunControl()
    cancel: list[Callable[[], None]] = []
    threading.Thread(target=_obey, args=(pipe, control, cancel), daemon=True).start()
    reporter = Reporter(pipe)
    wanted = set(given["modes"])
    arguments = {**given["options"], "control": control}
    config = with_counter(given["config"], reporter) if given["counts"] else given["config"]

    def send(part: Any) -> None:
        pipe.send(PART, list(serde.dumps_typed(_lean(part, wanted, arguments))))

    with listening(reporter):
        if given["is_async"]:
            finish(graph.astream(given["input"], config, **arguments), send, cancel.append)
        else:
            for part in graph.stream(given["input"], config, **arguments):
                send(part)


def _obey(pipe: Pipe, control: RunControl, cancel: list[Callable[[], None]]) -> None:
    while (frame := pipe.receive()) is not None:
        if frame[0] == DRAIN:
            control.request_drain(frame[1])
        elif frame[0] == CANCEL:
            for each in cancel:
                each()
    control.request_drain("the parent process has gone")
    threading.Event().wait(ORPHAN_S)
    os._exit(1)


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
            shown["error"] = str(payload["error"])
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
