"""Whole graphs: runs, questions, forks, time travel and subgraphs go as they do over InMemorySaver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tests.faces import LONG, config
from tests.graphs.builders import DeltaLog, Log, SnapshotLog, chain, fan_out, nested, question
from tests.stores.verbs import deltas
from tests.stores_under_test import Store

Run = Callable[..., Any]


class App:
    """A compiled graph, called through its sync or its async methods."""

    def __init__(self, app: Any, mode: str, durability: str) -> None:
        self.app, self.mode, self.durability = app, mode, durability

    def run(self, given: Any, at: Any) -> Any:
        if self.mode == "sync":
            return self.app.invoke(given, at, durability=self.durability)
        return asyncio.run(self.app.ainvoke(given, at, durability=self.durability))

    def update(self, at: Any, values: Any) -> Any:
        if self.mode == "sync":
            return self.app.update_state(at, values)
        return asyncio.run(self.app.aupdate_state(at, values))

    def history(self, at: Any) -> list[Any]:
        async def collect() -> list[Any]:
            return [each async for each in self.app.aget_state_history(at)]

        return list(self.app.get_state_history(at)) if self.mode == "sync" else asyncio.run(collect())

    def seen(self, at: Any) -> list[Any]:
        """Return what a reader of the history sees, without ids and times."""
        return [
            (
                each.values,
                each.next,
                each.metadata.get("source"),
                each.metadata["step"],
                [i.value for i in each.interrupts],
            )
            for each in self.history(at)
        ]


def _talk(app: App) -> list[Any]:
    return [app.run({"log": [LONG, turn]}, config()) for turn in range(3)] + app.seen(config())


def _question(app: App) -> list[Any]:
    first = app.run({"log": [LONG]}, config())
    waiting = app.seen(config())
    return [first.get("log"), waiting, app.run(Command(resume="yes"), config()), app.seen(config())]


def _fork(app: App) -> list[Any]:
    done = app.run({"log": [LONG]}, config())
    history = app.history(config())
    before_last = next((each for each in history if each.next and each.metadata["step"] > 0), history[0])
    forked = app.update(before_last.config, {"log": ["edit"]})
    branch = app.run(None, forked)
    again = app.run({"log": ["more"]}, config())
    return [done, branch, again, app.seen(config()), app.run(None, before_last.config), app.seen(config())]


def _replay_question(app: App) -> list[Any]:
    app.run({"log": [LONG]}, config())
    app.run(Command(resume="first"), config())
    start = [each for each in app.history(config()) if each.next and each.metadata["step"] >= 0][-1]
    again = app.run(None, start.config)
    return [again.get("log"), app.run(Command(resume="second"), config()), app.seen(config())]


SCRIPTS: dict[str, tuple[Run, Callable[[type], Any]]] = {
    "talk": (_talk, chain),
    "question": (_question, question),
    "question in a subgraph": (_question, nested),
    "fork": (_fork, lambda state: chain(state, "a", "b", "c")),
    "replayed question": (_replay_question, question),
    "fan-out": (_talk, lambda _: fan_out(10)),
}


@cache
def over_the_reference(name: str, mode: str, durability: str, state: type) -> Any:
    """Return what a script comes to over InMemorySaver."""
    script, build = SCRIPTS[name]
    return script(App(build(state).compile(checkpointer=InMemorySaver()), mode, durability))


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_as_over_the_reference(store: Store, name: str, mode: str, durability: str) -> None:
    script, build = SCRIPTS[name]
    for state in (Log, DeltaLog, SnapshotLog):
        expected = over_the_reference(name, mode, durability, state)
        with store.open() as saver:
            assert script(App(build(state).compile(checkpointer=saver), mode, durability)) == expected
            if state is Log and durability != "exit":
                assert (deltas(saver.backend, "t") > 0) == saver.backend.deltas
            saver.delete_thread("t")
