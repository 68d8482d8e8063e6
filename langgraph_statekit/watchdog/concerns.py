"""What a watchdog cannot guard against in a graph, told before it runs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from langgraph.pregel import Pregel

_SYNC: Final = (
    "sync nodes ({}): one that hangs can be fenced off but not ended, and the call raises CannotStop; "
    'make them async, or run with isolation="process"'
)
_RETRIED: Final = (
    "nodes with a timeout and a retry policy ({}): work that a timed out try left to a thread goes on beside the "
    "next try; do its effects by an EffectLedger"
)


def sync_nodes(graph: Pregel[Any, Any, Any, Any]) -> frozenset[str]:
    """Return the nodes that are sync functions, so that nothing in their process can end them."""
    found = set()
    for name, node in graph.nodes.items():
        bound: Any = node.bound
        native = getattr(bound, "afunc", None)  # of a sync function LangGraph makes a call in a thread
        if (
            not name.startswith("__")
            and getattr(bound, "func", None)
            and (native is None or isinstance(native, partial))
        ):
            found.add(name)
    return frozenset(found)


def concerns(graph: Pregel[Any, Any, Any, Any], isolation: str, has_ledger: bool) -> Iterator[str]:
    """Yield what to warn of."""
    if isolation == "task" and (nodes := sync_nodes(graph)):
        yield _SYNC.format(", ".join(sorted(nodes)))
    retried = sorted(name for name, node in graph.nodes.items() if node.timeout is not None and node.retry_policy)
    if retried and not has_ledger:
        yield _RETRIED.format(", ".join(retried))
