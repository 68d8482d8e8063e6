"""Fixtures: two tiers of each kind, and what starts processes on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import Servers
from tests.tiers.kit import PAIRS, Tiers, Workers, workers


@pytest.fixture(params=PAIRS)
def tiers(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of(request.param, servers.url, tmp_path)
    yield made
    made.clean()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Workers]:
    with workers(tmp_path) as made:
        yield made
