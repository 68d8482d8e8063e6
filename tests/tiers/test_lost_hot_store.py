"""The hot store loses everything: with `write_through` nothing is gone, with `write_behind` no more than its window."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.servers import wait_until
from tests.tiers.kit import CRASHES, PAIRS, Tiers, Workers, grow, history

WINDOW = 6


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["write_through", "write_behind"])
def test_a_host_that_dies_with_the_hot_store_takes_no_more_than_the_window_along(
    tiers: Tiers, processes: Workers, tmp_path: Path, mode: str
) -> None:
    options = tiers.options(mode=mode, max_lag_checkpoints=WINDOW)
    for crash in range(CRASHES):
        threads = [f"{crash} {number}" for number in range(3)]
        worker = processes.start("write", tiers, options, tmp_path / f"{crash}", threads=threads)
        worker.kill(random.randint(3, 60))
        tiers.lose_hot()
        lines = [line.split("\t") for line in worker.lines]
        with tiers.open(mode=mode) as survivor:
            for thread in threads:
                _check(survivor, thread, lines, 0 if mode == "write_through" else WINDOW)
                assert len([*grow(survivor, 1, thread)]) == 3


def _check(survivor: object, thread: str, lines: list[list[str]], window: int) -> None:
    saved = [(what, id) for what, id, of in lines if of == thread and what != "begin"]
    left = history(survivor, thread)
    there = [id in left and (what == "put" or bool(left[id][2])) for what, id in saved]
    lost = there.count(False)
    assert there == [True] * (len(saved) - lost) + [False] * lost
    assert lost <= window


@pytest.mark.parametrize("mode", ["write_through", "write_behind"])
def test_a_change_is_in_the_cold_store_after_its_time(tiers: Tiers, mode: str) -> None:
    with tiers.open(mode=mode, max_lag_s=0.02) as saver:
        assert len([*grow(saver, 3, "t")]) == 9
        wait_until(lambda: saver.tiers.uploading.backlog[0] == 0, "the upload")
        before = history(saver, "t")
        tiers.lose_hot()
        assert history(saver, "t") == before


def test_what_a_killed_process_left_another_uploads_that_only_stands_by(
    tiers: Tiers, processes: Workers, tmp_path: Path
) -> None:
    worker = processes.start("write", tiers, tiers.options(), tmp_path / "log", threads=["t"])
    worker.kill(20)
    with tiers.open(max_lag_s=0.0) as other, tiers.open_below() as below:
        other.setup()
        wait_until(lambda: history(below, "t") == history(other, "t"), "the upload")
        assert history(below, "t")


@pytest.mark.slow
@pytest.mark.parametrize("tiers", [pair for pair in PAIRS if not pair.startswith("sqlite")], indirect=True)
def test_a_hot_store_that_loses_all_under_a_run_takes_nothing_along_with_write_through(
    tiers: Tiers, processes: Workers, tmp_path: Path
) -> None:
    """At any moment, also between a save in the hot store and its upload."""
    threads = [f"{number}" for number in range(2)]
    options = tiers.options(mode="write_through")
    worker = processes.start("write", tiers, options, tmp_path / "log", threads=threads)
    for _ in range(CRASHES):
        aim = len(worker.lines) + random.randint(1, 9)
        wait_until(lambda: worker.ended is not None or len(worker.lines) >= aim, "some saves")
        tiers.lose_hot()
    worker.kill(len(worker.lines) + 1)
    lines = [line.split("\t") for line in worker.lines]
    with tiers.open(mode="write_through") as survivor:
        for thread in threads:
            _check(survivor, thread, lines, 0)
