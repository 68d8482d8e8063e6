"""Processes that end in the midst of uploads end well, and those that were forked say what is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from langgraph_statekit.errors import Misuse
from tests.faces import config
from tests.servers import Servers
from tests.tiers.kit import CRASHES, PAIRS, Tiers, Workers, grow, history

EXITS, ON = (200, PAIRS) if CRASHES >= 100 else (10, ["sqlite-s3"])


@pytest.fixture(params=ON)
def tiers(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of(request.param, servers.url, tmp_path)
    yield made
    made.clean()


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_no_process_is_aborted_at_its_end(tiers: Tiers, processes: Workers, tmp_path: Path, mode: str) -> None:
    options = tiers.options(mode=mode, max_lag_s=0.0)
    for number in range(EXITS // 2):
        worker = processes.start("leave", tiers, options, tmp_path / f"{number}", thread=f"{number}")
        assert worker.wait() == 0, processes.errors
        put = [line.split("\t")[2] for line in worker.lines if line.startswith("put")]
        with tiers.open() as survivor:
            for thread in {*put}:
                assert len(history(survivor, thread)) == put.count(thread)
    assert processes.errors == ""


@pytest.mark.parametrize("tiers", ["sqlite-s3"], indirect=True)  # a directory survives a fork
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_works_on_the_hot_store_and_says_why_not_on_the_cold_one(tiers: Tiers) -> None:
    with tiers.open() as saver:
        for thread in ("hot", "cold"):
            assert len([*grow(saver, 2, thread)]) == 6
        assert saver.archive("cold")
        child = os.fork()
        if child == 0:
            code = 2
            try:
                code = 3 if len([*grow(saver, 2, "hot")]) == 6 else 4
                saver.get_tuple(config("cold"))
            except Misuse as error:
                code = 0 if "forked" in str(error) and "spawn" in str(error) else 1
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(history(saver, "hot")) == 4
        assert len(history(saver, "cold")) == 2
        assert saver.archive("hot")  # what the child saved is uploaded too
        assert len(history(saver, "hot")) == 4
