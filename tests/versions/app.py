"""A graph called through its sync or its async methods."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.faces import config


class App:
    def __init__(self, graph: Any, mode: str) -> None:
        self.graph, self.mode = graph, mode

    def run(self, given: Any, at: Any = None, **options: Any) -> Any:
        at = at or config()
        if self.mode == "sync":
            return self.graph.invoke(given, at, **options)
        return asyncio.run(self.graph.ainvoke(given, at, **options))

    def state(self, at: Any = None) -> Any:
        at = at or config()
        return self.graph.get_state(at) if self.mode == "sync" else asyncio.run(self.graph.aget_state(at))

    def update(self, values: Any, at: Any = None, **options: Any) -> Any:
        at = at or config()
        if self.mode == "sync":
            return self.graph.update_state(at, values, **options)
        return asyncio.run(self.graph.aupdate_state(at, values, **options))

    def history(self, at: Any = None) -> list[Any]:
        async def collect() -> list[Any]:
            return [each async for each in self.graph.aget_state_history(at or config())]

        return list(self.graph.get_state_history(at or config())) if self.mode == "sync" else asyncio.run(collect())
