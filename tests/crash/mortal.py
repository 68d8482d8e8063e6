"""Graphs whose nodes count what they do and may die, and savers that die with them."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from langgraph_statekit import StatekitSaver
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from tests.crash.faulty import Died
from tests.graphs.builders import DeltaLog, Log, SnapshotLog


class Fate:
    """Counts what nodes do, and ends the process, so to speak, at one of them."""

    def __init__(self, dies_at: int = 0) -> None:
        self.dies_at = dies_at
        self.points = 0
        self.dead = False
        self.failed = False

    def point(self) -> None:
        self.points += 1
        if self.points == self.dies_at:
            self.dead = True
        if self.dead:
            raise Died(f"point {self.points}")


class Mortal:
    """Stands before a backend; once the process is dead no call gets through."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return _until_death(found, self._fate) if callable(found) and name != "close" else found


def _until_death(call: Callable[..., Any], fate: Fate) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        if fate.dead:
            raise Died
        return call(*args, **options)

    return called


class Place:
    """Where checkpoints stay: opens savers for one process after the other."""

    def __init__(self, kind: str) -> None:
        self._kept: Any = MemoryBackend() if kind == "ours" else InMemorySaver()

    def open(self, fate: Fate) -> BaseCheckpointSaver[Any]:
        if isinstance(self._kept, MemoryBackend):
            return StatekitSaver(Mortal(self._kept, fate))  # type: ignore[arg-type]
        saver = copy.copy(self._kept)
        for name in ("put", "put_writes", "aput", "aput_writes"):
            setattr(saver, name, _until_death(getattr(self._kept, name), fate))
        return saver


Effects = Counter[str]
Build = Callable[[Fate, Effects], Any]


def _node(name: str, fate: Fate, effects: Effects, *, logs: Callable[[Any], str] | None = None) -> Callable[[Any], Any]:
    def run(state: Any) -> Any:
        said = logs(state) if logs else name
        effects[said] += 1
        fate.point()
        return {"log": [said]}

    return run


def loop(state_type: type = Log, steps: int = 12) -> Build:
    def build(fate: Fate, effects: Effects) -> Any:
        graph = StateGraph(state_type)
        graph.add_node("work", _node("work", fate, effects, logs=lambda state: f"work {len(state.get('log', []))}"))
        graph.add_node("last", _node("last", fate, effects))
        graph.add_edge(START, "work")
        graph.add_conditional_edges("work", lambda state: "last" if len(state["log"]) > steps else "work")
        return graph.add_edge("last", END)

    return build


def _question(state_type: type = Log) -> Build:
    def build(fate: Fate, effects: Effects) -> Any:
        def ask(_: Any) -> Any:
            fate.point()
            answer = interrupt("approve?")
            effects[answer] += 1
            return {"log": [answer]}

        graph = StateGraph(state_type)
        for name in ("one", "two", "three", "side", "four", "five"):
            graph.add_node(name, _node(name, fate, effects))
        graph.add_node("ask", ask)
        graph.add_edge(START, "one").add_edge("one", "two").add_edge("two", "three")
        graph.add_edge("three", "ask").add_edge("three", "side")
        return graph.add_edge(["ask", "side"], "four").add_edge("four", "five").add_edge("five", END)

    return build


class Sparse(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    one: str
    two: str
    three: str
    four: str


def _sparse(fate: Fate, effects: Effects) -> Any:
    """Steps that each set a channel of their own, and a question at the end."""

    def ask(_: Any) -> Any:
        fate.point()
        return {"log": [interrupt("approve?")]}

    def only(name: str) -> Callable[[Any], Any]:
        def run(_: Any) -> Any:
            effects[name] += 1
            fate.point()
            return {name: f"set by {name}"}

        return run

    graph = StateGraph(Sparse)
    before = START
    for name in ("one", "two", "three", "four"):
        graph.add_node(f"node {name}", only(name))
        graph.add_edge(before, f"node {name}")
        before = f"node {name}"
    graph.add_node("ask", ask)
    return graph.add_edge(before, "ask").add_edge("ask", END)


def _nested(inner: Build, **options: Any) -> Build:
    def build(fate: Fate, effects: Effects) -> Any:
        graph = StateGraph(Log)
        for name in ("pre", "post", "after"):
            graph.add_node(name, _node(name, fate, effects))
        graph.add_node("inner", inner(fate, effects).compile(**options))
        graph.add_edge(START, "pre").add_edge("pre", "inner").add_edge("inner", "post")
        return graph.add_edge("post", "after").add_edge("after", END)

    return build


def _fan_out(fate: Fate, effects: Effects) -> Any:
    graph = StateGraph(Log)
    for name in ("begin", "short", "long 1", "long 2", "joined"):
        graph.add_node(name, _node(name, fate, effects))
    graph.add_node("task", _node("task", fate, effects, logs=lambda item: f"task {item['n']}"))
    graph.add_node("end", _node("end", fate, effects), defer=True)
    graph.add_edge(START, "begin").add_edge("begin", "short").add_edge("begin", "long 1").add_edge("long 1", "long 2")
    graph.add_edge(["short", "long 2"], "joined").add_edge("joined", "end")
    graph.add_conditional_edges("begin", lambda _: [Send("task", {"n": n}) for n in range(3)], ["task"])
    return graph.add_edge("task", "end").add_edge("end", END)


def _failing(fate: Fate, effects: Effects) -> Any:
    """A loop in which a task fails once, beside one that does not."""

    def shaky(_: Any) -> Any:
        fate.point()
        if not fate.failed:
            fate.failed = True
            raise ConnectionError("once")
        effects["shaky"] += 1
        return {"log": ["shaky"]}

    graph = StateGraph(Log)
    for name in ("one", "two", "sound", "three", "four"):
        graph.add_node(name, _node(name, fate, effects))
    graph.add_node("shaky", shaky)
    graph.add_edge(START, "one").add_edge("one", "two").add_edge("two", "sound").add_edge("two", "shaky")
    return graph.add_edge(["sound", "shaky"], "three").add_edge("three", "four").add_edge("four", END)


def _failing_alone(fate: Fate, effects: Effects) -> Any:
    """A chain in which a task fails once."""

    def shaky(_: Any) -> Any:
        fate.point()
        if not fate.failed:
            fate.failed = True
            raise ConnectionError("once")
        return {"log": ["shaky"]}

    graph = StateGraph(Log)
    for name in ("one", "two", "three"):
        graph.add_node(name, _node(name, fate, effects))
    graph.add_node("shaky", shaky)
    return graph.add_edge(START, "one").add_edge("one", "two").add_edge("two", "shaky").add_edge("shaky", "three")


class Memory(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    turns: Annotated[int, operator.add]


def remembering(fate: Fate, effects: Effects) -> Any:
    """A loop around a subgraph that keeps its own state from turn to turn."""

    def turn(_: Any) -> Any:
        fate.point()
        return {"turns": 1}

    def say(state: Any) -> Any:
        effects[f"turn {state['turns']}"] += 1
        return {"log": [f"turn {state['turns']}"]}

    inner = StateGraph(Memory)
    inner.add_node("turn", turn)
    inner.add_node("say", say)
    inner.add_edge(START, "turn").add_edge("turn", "say").add_edge("say", END)
    stateful = inner.compile(checkpointer=True)
    graph = StateGraph(Log)
    graph.add_node("inner", lambda _: {"log": stateful.invoke({"log": []})["log"][-1:]})
    graph.add_node("between", _node("between", fate, effects, logs=lambda state: f"between {len(state['log'])}"))
    graph.add_edge(START, "inner").add_edge("inner", "between")
    graph.add_conditional_edges("between", lambda state: END if len(state["log"]) > 9 else "inner", ["inner", END])
    return graph


GRAPHS: dict[str, Build] = {
    "loop": loop(),
    "delta loop": loop(DeltaLog, 6),
    "snapshot loop": loop(SnapshotLog, 6),
    "question": _question(),
    "delta question": _question(DeltaLog),
    "sparse question": _sparse,
    "nested question": _nested(_question()),
    "nested loop": _nested(loop(steps=6)),
    "stateful question": _nested(_question(), checkpointer=True),
    "fan-out": _fan_out,
    "failing": _failing,
    "failing alone": _failing_alone,
}
