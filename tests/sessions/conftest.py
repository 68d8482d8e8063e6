"""A manager on a fresh store of each kind, once by its async and once by its sync methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_statekit import SessionManager
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.sessions.kit import SyncSessions


@pytest.fixture(params=["async", "sync"])
def shown(request: pytest.FixtureRequest) -> Callable[[SessionManager], Any]:
    faces: dict[str, Callable[[SessionManager], Any]] = {"async": lambda manager: manager, "sync": SyncSessions}
    return faces[request.param]


@pytest.fixture
def manager(real: StatekitSaver) -> SessionManager:
    return SessionManager(real, agent="support", version="1")


@pytest.fixture
def sessions(manager: SessionManager, shown: Callable[[SessionManager], Any]) -> Any:
    return shown(manager)
