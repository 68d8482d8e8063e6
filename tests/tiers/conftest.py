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


@pytest.fixture(scope="session")
def all_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    with workers(tmp_path_factory.mktemp("workers")) as made:
        yield made


@pytest.fixture
def processes(all_processes: Workers) -> Iterator[Workers]:
    yield all_processes
    all_processes.end()
