"""New code goes on with a running agent where the old code was drained, and nothing is done twice or left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import PIPE, Program, run
from tests.servers import wait_until
from tests.stores_under_test import Store

AGENT = """
import json, os, signal, sys
from pathlib import Path
from typing import TypedDict
from langgraph.errors import GraphDrained
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import RunControl
from langgraph_statekit import ItemDeadline, Watchdog, open_saver
import asyncio

url, options, effects = sys.argv[1:]

class State(TypedDict, total=False):
    i: int
    done: list[str]

async def work(state):
    with open(effects, "a") as file:
        file.write(f"VERSION {state['i']}\\n")
    while FIRST and state["i"] == 3 and not control.drain_requested:
        await asyncio.sleep(0.01)  # until the deploy
    return {"i": state["i"] + 1, "done": [*state.get("done", []), f"VERSION {state['i']}"]}

control = RunControl()
signal.signal(signal.SIGTERM, lambda number, frame: control.request_drain("deploy"))
graph = StateGraph(State)
graph.add_node("NODE", work)
graph.add_edge(START, "NODE")
graph.add_conditional_edges("NODE", lambda state: "NODE" if state["i"] < 6 else END, ["NODE", END])
at = {"configurable": {"thread_id": "agent"}}
with open_saver(url, **json.loads(options)) as saver:
    compiled = graph.compile(checkpointer=saver)
    dog = Watchdog(COMPILED, checks=[ItemDeadline(seconds=60, key=lambda s: s["i"])])
    new = compiled.get_state(at).created_at is None
    try:
        print(json.dumps(asyncio.run(dog.ainvoke({"i": 0} if new else None, at, control=control))))
    except GraphDrained as drained:
        print(json.dumps(drained.reason))
"""


def deploy(folder: Path, version: str, first: bool, node: str) -> list[str]:
    compiled = "compiled"
    head = "from langgraph_statekit import guard\n" if node != "work" else ""
    if node != "work":
        compiled = f'guard(compiled, rename_nodes={{"work": "{node}"}})'
    code = AGENT.replace("VERSION", version).replace("FIRST", str(first)).replace("NODE", node)
    (folder / "agent.py").write_text(head + code.replace("COMPILED", compiled))
    return [sys.executable, str(folder / "agent.py")]


CASES = [("sqlite", "work"), ("sqlite", "renamed"), ("redis", "work"), ("postgres", "work")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--stores").split(",")
    metafunc.parametrize("case", [case for case in CASES if case[0] in chosen], ids="-".join)


def test_a_running_agent_gets_new_code_between_two_steps(
    new_store: Callable[[str], Store], tmp_path: Path, case: tuple[str, str]
) -> None:
    name, node = case
    store = new_store(name)
    effects = tmp_path / "effects"
    given = [store.url, json.dumps(store.options), str(effects)]
    command = deploy(tmp_path, "old", True, "work")
    with Program([*command, *given], stdout=PIPE) as old:
        wait_until(lambda: effects.exists() and "old 3" in effects.read_text(), "item 3 of the old code")
        command = deploy(tmp_path, "new", False, node)
        old.terminate()
        output, _ = old.communicate()
    assert (json.loads(output), old.returncode) == ("deploy", 0)
    output = run([*command, *given], stdout=PIPE, check=True).stdout
    expected = [*(f"old {i}" for i in range(4)), "new 4", "new 5"]
    assert json.loads(output) == {"i": 6, "done": expected}
    assert effects.read_text().splitlines() == expected
