"""A host whose clock is behind goes on with a thread: it sees its own work, and all goes as with one clock."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest
from langgraph.checkpoint.base import id as ids
from langgraph.checkpoint.memory import InMemorySaver

from tests.faces import config
from tests.graphs.builders import Log, nested
from tests.graphs.test_graphs import SCRIPTS, App, Run, _replay_question
from tests.stores_under_test import Store


class Clock:
    """The clock of a host that is so many seconds behind, as LangGraph's checkpoint ids take it."""

    def __init__(self, behind_s: float) -> None:
        self._behind_ns = int(behind_s * 1e9)
        self.last: int | None = None

    def time_ns(self) -> int:
        return time.time_ns() - self._behind_ns


class TwoHosts(App):
    """Hosts that take turns with a thread: each call comes from the other one."""

    def __init__(self, app: Any, behind_s: float, patch: pytest.MonkeyPatch) -> None:
        super().__init__(app, "sync", "sync")
        self._clocks = [Clock(0), Clock(behind_s)]
        self._patch = patch

    def run(self, given: Any, at: Any) -> Any:
        return self._there(super().run, given, at)

    def update(self, at: Any, values: Any) -> Any:
        return self._there(super().update, at, values)

    def _there(self, call: Run, *given: Any) -> Any:
        clock = self._clocks[0]
        self._clocks.reverse()
        self._patch.setattr(ids, "time", clock)
        self._patch.setattr(ids, "_last_v6_timestamp", clock.last)
        try:
            return call(*given)
        finally:
            clock.last = ids._last_v6_timestamp


ALL = {
    **{name: (script, build(Log)) for name, (script, build) in SCRIPTS.items()},
    "replayed question in a subgraph": (_replay_question, nested(Log)),
}


@cache
def over_the_reference(name: str) -> Any:
    """Return what a script comes to over InMemorySaver."""
    script, graph = ALL[name]
    return script(App(graph.compile(checkpointer=InMemorySaver()), "sync", "sync"))


@pytest.mark.parametrize("behind_s", [5, 3600])
@pytest.mark.parametrize("name", ALL)
def test_hosts_with_other_clocks_go_on_as_one_host_would(
    store: Store, name: str, behind_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, graph = ALL[name]
    expected = over_the_reference(name)
    with store.open() as saver:
        app = TwoHosts(graph.compile(checkpointer=saver), behind_s, monkeypatch)
        assert script(app) == expected
        history = [each.config["configurable"]["checkpoint_id"] for each in app.history(config())]
        assert history != sorted(history, reverse=True), "the clocks did not differ"
