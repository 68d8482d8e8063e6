"""A process that charges for numbered items, one a step, and kills itself at a chosen point; and what it left."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

from langgraph.graph import END, START, StateGraph

from langgraph_statekit import EffectLedger, EffectUnknown, Fenced
from tests.faces import config
from tests.stores_under_test import open_here

AFTER_CLAIM, AFTER_EFFECT, AFTER_MARK = "after the claim", "after the effect", "after the mark"
POINTS = (AFTER_CLAIM, AFTER_EFFECT, AFTER_MARK)


class State(TypedDict, total=False):
    item: int


class Charges:
    """A provider that notes each charge in a file, where it stays when its caller is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def charge(self, item: int, idempotency_key: str = "") -> None:
        with self._path.open("a") as file:
            file.write(f"{item}\n")

    def made(self) -> Counter[int]:
        return Counter(int(line) for line in self._path.read_text().splitlines()) if self._path.exists() else Counter()


class Strict(Charges):
    """One that refuses a key that it has seen before."""

    def charge(self, item: int, idempotency_key: str = "") -> None:
        (self._path.parent / idempotency_key).touch(exist_ok=False)
        super().charge(item)


FENCED = 42
"""Exit code of a worker that learns that it was taken over."""


def work(
    url: str,
    options: dict[str, Any],
    items: int,
    path: Path,
    durability: Any,
    policy: str,
    ends: tuple[int, str, int] | None,
) -> None:
    """Begin or go on until all items are done, or until the item, the point and the signal that ends or stops it."""
    charges = Strict(path) if policy == "retry" else Charges(path)

    def point(item: int, name: str) -> None:
        if ends is not None and ends[:2] == (item, name):
            os.kill(os.getpid(), ends[2])

    def charge(item: int, idempotency_key: str) -> int:
        point(item, AFTER_CLAIM)
        with suppress(FileExistsError):  # it was made before, or is by now
            charges.charge(item, idempotency_key)
        point(item, AFTER_EFFECT)
        return item

    with open_here(url, options) as saver, saver.lease("t", ttl_s=600, steal=True) as lease:
        ledger = EffectLedger(saver, lease_s=600)

        def node(state: State) -> State:
            item = state["item"]
            verify = (lambda key: charges.made()[item] or None) if policy == "verify" else None
            with suppress(EffectUnknown):  # it is listed, and somebody will look
                ledger.run(f"item {item}", charge, item, verify=verify, on_unknown=policy)
            point(item, AFTER_MARK)
            return {"item": item + 1}

        graph = StateGraph(State)
        graph.add_node("node", node)
        graph.add_edge(START, "node")
        graph.add_conditional_edges("node", lambda state: "node" if state["item"] < items else END, ["node", END])
        app = graph.compile(checkpointer=saver)
        at: Any = {**config(), **lease.config, "recursion_limit": items + 10}
        begun = app.get_state(at).created_at is not None
        try:
            app.invoke(None if begun else {"item": 0}, at, durability=durability)
        except Fenced:
            sys.exit(FENCED)
