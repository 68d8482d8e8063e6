"""LangGraph's conformance kit: every capability, base and extended, on every store, async and sync."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from langgraph.checkpoint.conformance.capabilities import Capability

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.conformance import conforms
from tests.faces import Face
from tests.stores_under_test import Store


@pytest.mark.parametrize("capability", [each.value for each in Capability])
async def test_passes_every_test_of(store: Store, face: Callable[[StatekitSaver], Face], capability: str) -> None:
    await conforms(store.open, face, capability)
