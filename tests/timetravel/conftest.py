"""Savers for what does not depend on the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_statekit import SqliteSaver, StatekitSaver, open_saver


@pytest.fixture
def real_sqlite(tmp_path: Path) -> Iterator[StatekitSaver]:
    with SqliteSaver.from_url(f"sqlite:///{tmp_path}/threads.db") as saver:
        yield saver


@pytest.fixture(params=["statekit", "langgraph"])
def in_memory(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "langgraph":
        yield InMemorySaver()
        return
    with open_saver("memory://") as saver:
        yield saver
