"""LangGraph's conformance kit: every capability, base and extended, on every store, async and sync."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import Face
from tests.stores_under_test import Store


@pytest.mark.parametrize("capability", [each.value for each in Capability])
async def test_passes_every_test_of(store: Store, face: Callable[[StatekitSaver], Face], capability: str) -> None:
    @checkpointer_test(name=f"{store}")
    async def factory() -> AsyncIterator[Face]:
        async with store.open() as saver:
            yield face(saver)

    report = await validate(factory, capabilities={capability})
    result = report.results[capability]
    assert result.failures == []
    assert result.passed is True
    assert result.tests_passed > 0
    assert report.conformance_level() == "FULL"
