"""LangGraph's own checkpointer tests pass over our savers; `python -m tests.langgraph_suite.run` runs every store."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from tests.langgraph_suite.run import EXPECTED, run
from tests.servers import Servers


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_checkpointer_test_of_langgraph_passes(hard_name: str, servers: Servers, request: Any) -> None:
    hardest = {"tiered": "evicting"}.get(hard_name, hard_name)
    counts = run(hardest, servers, ["-n", "0"], all_features=request.config.getoption("--all-features"))
    assert counts.failed == 0, str(counts)
    assert counts.passed == EXPECTED.get(version("langgraph"), counts.passed)
    assert counts.passed > 600
