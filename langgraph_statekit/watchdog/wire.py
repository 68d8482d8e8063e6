"""What a supervised run and its child process say to each other, in frames over two pipes.

Values go as the saver's serializer stores them, so nothing is ever unpickled.
"""

from __future__ import annotations

import struct
import threading
from importlib import import_module
from typing import Any, BinaryIO, Final

import ormsgpack
from langgraph.errors import GraphDrained, GraphRecursionError
from langgraph.pregel import Pregel

from langgraph_statekit import errors
from langgraph_statekit.errors import Misuse, StatekitError
from langgraph_statekit.watchdog.errors import ChildError, RollbackRequested
from langgraph_statekit.watchdog.view import Finding, clean

BEGIN, RUN, DRAIN, CANCEL, PART, BEAT, SPEND, END = range(8)
_HEAD: Final = struct.Struct(">IB")
_FINDING: Final = ("reason", "message", "item", "since", "started", "final")


class Pipe:
    """Frames to one file and from another."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._in, self._out = incoming, outgoing
        self._lock = threading.Lock()

    def send(self, kind: int, payload: Any) -> None:
        """Send a frame, from any thread; the payload is plain data.

        Raises:
            OSError: The other side has gone.
        """
        packed = ormsgpack.packb(payload)
        with self._lock:
            self._out.write(_HEAD.pack(len(packed), kind) + packed)
            self._out.flush()

    def receive(self) -> tuple[int, Any] | None:
        """Return the next frame; None when the other side has gone."""
        head = self._in.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        size, kind = _HEAD.unpack(head)
        packed = self._in.read(size)
        return None if len(packed) < size else (kind, ormsgpack.unpackb(packed))

    def close(self) -> None:
        """Close both files."""
        for each in (self._out, self._in):
            try:
                each.close()
            except OSError:  # what was left to send goes nowhere
                continue


def graph_of(name: str) -> Pregel[Any, Any, Any, Any]:
    """Return the graph that a factory makes, given as `package.module:function`.

    Raises:
        Misuse: There is no such function, or it makes no compiled graph.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute or module == "__main__":
        raise Misuse(
            f"a graph factory is named 'package.module:function', so that a new process finds it, not {name!r}"
        )
    factory: Any = import_module(module)
    for part in attribute.split("."):
        factory = getattr(factory, part, None)
    graph = factory() if callable(factory) else None
    if not isinstance(graph, Pregel):
        raise Misuse(f"{name!r} must name a function without arguments that returns a compiled graph, not {graph!r}")
    return graph


def packed_error(error: BaseException | None) -> dict[str, Any] | None:
    """Return an exception as plain data."""
    if error is None:
        return None
    kind = type(error)
    found: dict[str, Any] = {"kind": kind.__qualname__, "module": kind.__module__, "message": clean(error)}
    if isinstance(error, GraphDrained):
        found["message"] = clean(getattr(error, "reason", error))
    if isinstance(error, RollbackRequested):
        found["finding"] = {name: getattr(error.finding, name) for name in _FINDING}
        found["target"] = error.target
    return found


def error_of(packed: dict[str, Any] | None) -> BaseException | None:
    """Return the exception again: those of LangGraph and of this package as they were, any other as a `ChildError`."""
    if packed is None:
        return None
    kind, message = packed["kind"], packed["message"]
    if kind == "GraphDrained":
        return GraphDrained(message)
    if kind == "GraphRecursionError":
        return GraphRecursionError(message)
    if "finding" in packed:
        return RollbackRequested(Finding(**packed["finding"]), packed["target"])
    own = getattr(errors, kind, None)
    if packed["module"] == errors.__name__ and isinstance(own, type) and issubclass(own, StatekitError):
        return own(message)
    return ChildError(f"{packed['module']}.{kind}: {message}", packed["module"], kind)
