"""A saver that tells what it is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from langgraph_statekit import StatekitSaver
from langgraph_statekit.events import Event
from tests.stores_under_test import Store


@pytest.fixture
async def told() -> list[Event]:
    return []


@pytest.fixture
async def saver(store: Store, told: list[Event]) -> AsyncIterator[StatekitSaver]:
    async with store.open(hooks=[told.append]) as saver:
        yield saver
