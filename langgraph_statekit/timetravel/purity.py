"""Which nodes may run again: those that are declared to change nothing, and those whose effects are recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from langgraph.pregel import Pregel

from langgraph_statekit.errors import Misuse
from langgraph_statekit.rehearsal import EFFECT_MARK, PURE_MARK

F = TypeVar("F", bound=Callable[..., Any])
_METADATA: Final = "statekit_pure"


def pure(node: F) -> F:
    """Declare that a node, a function or an object that is called, changes nothing in the world; it may run again.

    Reading is fine: a node that asks a model or a web page is pure in this sense, if asking again does no harm.
    """
    try:
        setattr(node, PURE_MARK, True)
    except AttributeError:
        raise Misuse(f"{node!r} takes no attribute: name it in TimeTravel(..., pure=[...])") from None
    return node


def refused(graph: Pregel[Any, Any, Any, Any], nodes: Iterable[str], allowed: Collection[str]) -> list[str]:
    """Return which of these nodes may not run again; of a subgraph the path of each node inside.

    Args:
        graph: The graph.
        nodes: Names of nodes that would run.
        allowed: Names that somebody declared pure.
    """
    return [path for name in nodes for path in _refused(graph, name, allowed, name)]


def _refused(graph: Any, name: str, allowed: Collection[str], path: str) -> list[str]:
    node = graph.nodes.get(name)
    if name in allowed or path in allowed or node is None or name == "__start__":
        return []
    if (getattr(node, "metadata", None) or {}).get(_METADATA):
        return []
    if any(getattr(each, mark, False) for each in _callables(node.bound) for mark in (PURE_MARK, EFFECT_MARK)):
        return []
    inner = [each for each in getattr(node, "subgraphs", ()) or () if isinstance(each, Pregel)]
    if inner:
        parts = [_refused(each, below, allowed, f"{path}.{below}") for each in inner for below in each.nodes]
        return [each for part in parts for each in part]
    return [path]


def _callables(bound: Any) -> list[Any]:
    """Return what LangGraph keeps of a node's function."""
    found = [bound]
    for each in found:
        if len(found) < 50:
            found += (part for name in ("func", "afunc", "bound", "__wrapped__") if (part := getattr(each, name, None)))
            found += getattr(each, "steps", None) or ()
    return found
