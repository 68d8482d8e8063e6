"""What happens between two steps of an upload is no conflict of those who work meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit.events import Conflicted, Event, Failed, Retried
from tests.faces import config
from tests.servers import Servers, wait_until
from tests.stores_under_test import FileStore, PostgresStore, SqliteStore
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


def test_a_deletion_and_an_upload_that_notes_itself_do_not_wait_for_each_other(
    servers: Servers, tmp_path: Path
) -> None:
    events: list[Event] = []
    hot = PostgresStore(servers.url, tmp_path)
    tiers = Tiers(hot, FileStore(lambda kind: "", tmp_path), tmp_path)
    remove: list[Callable[[Any], object]] = [
        lambda saver: saver.delete_thread("t"),
        lambda saver: saver.tiers._hot.drop_thread("t"),
    ]
    for call in remove:
        with tiers.open(hooks=[events.append]) as saver, hot._connect() as db, ThreadPoolExecutor(1) as pool:
            assert len([*grow(saver, 1, "t")]) == 3
            with db.transaction():
                db.execute(f'SELECT 1 FROM "{hot._schema}".tier FOR NO KEY UPDATE')
                removed = pool.submit(call, saver)
                waiting = (
                    f"SELECT 1 FROM pg_locks WHERE NOT granted AND {db.info.backend_pid} = ANY(pg_blocking_pids(pid))"
                )
                with hot._connect() as other:
                    wait_until(lambda: bool(other.execute(waiting).fetchall()), "the deletion to wait")
                db.execute(f'DELETE FROM "{hot._schema}".tier_touched')
            removed.result()
            assert saver.get_tuple(config("t")) is None
    hot.clean()
    assert not [event for event in events if isinstance(event, Failed | Retried | Conflicted)]
