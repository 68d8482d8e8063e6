"""A worker that makes an effect for each item under a lease, and stops itself or dies where it is told to.

python -m tests.watchdog.worker URL OPTIONS-AS-JSON FOLDER THREADS KIND [AT=ACT ...]

FOLDER is the world outside: a provider's file. KIND is `strict`, whose provider refuses a repeated key, `plain`, whose
provider is asked about what is not known, or `wide`, as plain with all items in one step. AT is `node:N` (before the
claim of item N), `effect:N` (between claim and effect) or `lock:N` (holding the write lock of the SQLite file); ACT is
`stop` (SIGSTOP) or `kill` (SIGKILL). With several THREADS, joined by commas, each gets a few items, and then the process
kills itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.config import get_config
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from langgraph_statekit import StatekitError, StatekitSaver
from langgraph_statekit.effects.ledger import EffectLedger
from tests.stores_under_test import open_here

ITEMS = 12
WIDE = 200
TTL_S = 2.0
FOLDER = "STATEKIT_TEST_FOLDER"
KIND = "STATEKIT_TEST_KIND"


class Provider:
    """What is done in the world outside: a line for each effect, and one for each refusal of a repeated key."""

    def __init__(self, folder: Path, *, strict: bool) -> None:
        self.path = folder / "effects"
        self.path.touch()
        self._strict = strict

    def lines(self) -> list[tuple[int, str, bool]]:
        """Process, key, and whether it was made, in the order in which it happened."""
        found = [line.split("\t") for line in self.path.read_text().splitlines()]
        return [(int(pid), key, done == "made") for pid, key, done in found]

    def make(self, key: str) -> bool:
        """Make an effect, or refuse to."""
        with self.path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            made = not (self._strict and self.find(key))
            file.write(f"{os.getpid()}\t{key}\t{'made' if made else 'refused'}\n")
        return True

    def find(self, key: str) -> bool | None:
        """Return True for an effect that was made."""
        return any(other == key and made for _, other, made in self.lines()) or None


class State(TypedDict, total=False):
    i: int
    done: Annotated[list[int], lambda old, new: old + new]


def acted(acts: dict[str, str], at: str) -> None:
    """Stop or die here, the first time."""
    act = acts.pop(at, None)
    if act is not None:
        os.kill(os.getpid(), signal.SIGSTOP if act == "stop" else signal.SIGKILL)


def make_graph(saver: StatekitSaver, acts: dict[str, str] | None = None, path: str = "") -> Any:
    """Return the graph; supervisors get no acts."""
    folder, kind = Path(os.environ[FOLDER]), os.environ[KIND]
    provider, ledger = Provider(folder, strict=kind == "strict"), EffectLedger(saver, lease_s=TTL_S)
    left = {} if acts is None else acts

    def effect(i: int) -> None:
        thread = get_config()["configurable"]["thread_id"]
        acted(left, f"node:{i}")
        if left.pop(f"lock:{i}", None):
            db = sqlite3.connect(path, isolation_level=None)
            db.execute("BEGIN IMMEDIATE")
            os.kill(os.getpid(), signal.SIGSTOP)

        def made(idempotency_key: str) -> bool:
            acted(left, f"effect:{i}")
            return provider.make(f"{thread}/{i}")

        if kind == "strict":
            ledger.run(str(i), made, on_unknown="retry")
        else:
            ledger.run(str(i), made, verify=lambda key: provider.find(f"{thread}/{i}"))

    def work(state: State) -> State:
        i = state.get("i", 0)
        effect(i)
        return {"done": [i]} if kind == "wide" else {"i": i + 1, "done": [i]}

    builder = StateGraph(State)
    builder.add_node("work", work)
    if kind == "wide":
        builder.add_conditional_edges(START, lambda state: [Send("work", {"i": i}) for i in range(WIDE)], ["work"])
        builder.add_edge("work", END)
    else:
        builder.add_edge(START, "work")
        builder.add_conditional_edges("work", lambda state: "work" if state["i"] < ITEMS else END, ["work", END])
    return builder.compile(checkpointer=saver)


def main(url: str, options: str, folder: str, threads: str, kind: str, *acts: str) -> int:
    os.environ[FOLDER], os.environ[KIND] = folder, kind
    with open_here(url, json.loads(options)) as saver:
        graph = make_graph(saver, dict(each.split("=") for each in acts), url.removeprefix("sqlite:///"))
        leases = [saver.lease(thread, graph="items", ttl_s=TTL_S) for thread in threads.split(",")]
        if len(leases) > 1:
            for lease in leases:
                with suppress(GraphRecursionError):
                    graph.invoke({}, {**lease.config, "recursion_limit": 3}, durability="sync")
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            graph.invoke({}, leases[0].config, durability="sync")
            leases[0].release()
        except StatekitError as error:
            print(type(error).__name__, flush=True)
            return 7
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
