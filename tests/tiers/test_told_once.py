"""What happens between two steps of an upload is no conflict of those who work meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit.events import Conflicted, Event, Failed, Retried
from tests.stores_under_test import FileStore, SqliteStore
from tests.tiers.kit import Tiers, grow, history


@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_a_removal_between_an_upload_and_the_note_of_it_is_no_conflict(tmp_path: Path, mode: str) -> None:
    events: list[Event] = []
    tiers = Tiers(SqliteStore(lambda kind: "", tmp_path), FileStore(lambda kind: "", tmp_path), tmp_path)
    with tiers.open(mode=mode, hooks=[events.append]) as saver:
        hot: Any = saver.tiers.moving._hot
        note, hot.uploaded = hot.uploaded, lambda *args: None
        assert len([*grow(saver, 3, "t")]) == 9
        saver.flush()
        hot.uploaded = note
        saver.prune(["t"])
        assert len(history(saver, "t")) == 1
    assert not [event for event in events if isinstance(event, Failed | Retried | Conflicted)]
