"""What a SQLite file as the hot store notes of its changes, when the clock is set back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from langgraph_statekit import SqliteSaver, TieredSaver
from tests.faces import checkpoint, config, metadata

HOUR_US = 3600 * 1_000_000


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[TieredSaver]:
    hot = SqliteSaver(tmp_path / "hot.db")
    with TieredSaver(hot, f"file://{tmp_path}/cold", max_lag_s=3600.0, max_lag_checkpoints=10**6) as made:
        yield made


def put(saver: TieredSaver) -> None:
    saver.put(config("thread"), checkpoint({"n": 1}, {"n": "1.x"}), metadata(1), {"n": "1.x"})


def set_clock_back(path: Path) -> None:
    """Give what is noted the time that a clock an hour ahead would have given it."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE tier_touched SET mark = mark + ?", (HOUR_US,))


def test_a_clock_set_back_delays_no_upload(saver: TieredSaver, tmp_path: Path) -> None:
    put(saver)
    tier = saver.tiers._tier
    assert tier.dirty(tier.now_us() - HOUR_US, 10) == []
    set_clock_back(tmp_path / "hot.db")
    assert tier.dirty(tier.now_us() - HOUR_US, 10) == ["thread"]


def test_an_upload_from_before_the_clock_was_set_back_hides_no_later_change(saver: TieredSaver, tmp_path: Path) -> None:
    put(saver)
    set_clock_back(tmp_path / "hot.db")
    tier = saver.tiers._tier
    slow = tier.changes("thread")
    assert slow is not None
    saver.flush()  # by another worker
    put(saver)
    later = tier.changes("thread")
    assert later is not None
    assert later.mark > slow.mark
    tier.uploaded("thread", slow.state.born, slow.mark, "", 1, False)
    assert tier.dirty(tier.now_us() + 2 * HOUR_US, 10) == ["thread"]
