"""`write_behind`: what was saved while its thread was uploaded is in the cold store as soon as any other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_statekit import TieredSaver
from tests.faces import config
from tests.servers import Servers, wait_until
from tests.tiers.kit import Tiers, grow


@pytest.fixture
def tiers(servers: Servers, tmp_path: Path) -> Iterator[Tiers]:
    made = Tiers.of("sqlite-file", servers.url, tmp_path)
    yield made
    made.clean()


def during_an_upload(saver: TieredSaver, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Act once, after the next upload has read what changed and before it counts."""
    append, acted = saver.tiers._cold.append, threading.Event()

    def appended(*args: Any) -> Any:
        if not acted.is_set():
            acted.set()
            act()
        return append(*args)

    monkeypatch.setattr(saver.tiers._cold, "append", appended)
    return acted


@pytest.mark.parametrize("what", ["interrupt", "checkpoints"])
def test_what_is_urgent_waits_for_no_later_upload(tiers: Tiers, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    with tiers.open(max_lag_s=3600.0, max_lag_checkpoints=12) as saver, tiers.open_below() as below:
        for _ in grow(saver, 1, "t"):
            pass
        found = saver.get_tuple(config("t"))
        assert found is not None

        def act() -> None:
            if what == "interrupt":
                saver.put_writes(found.config, [(INTERRUPT, "?")], "task 2")
            else:
                assert len([*grow(saver, 3, "t")]) == 9

        acted = during_an_upload(saver, act, monkeypatch)
        saver.put_writes(found.config, [(INTERRUPT, "?")], "task 1")
        assert acted.wait(60)
        wait_until(lambda: saver.tiers.uploading.backlog == (0, 0), "the second upload")
        if what == "interrupt":
            left = below.get_tuple(config("t"))
            assert left is not None
            assert {task for task, _, _ in left.pending_writes or ()} >= {"task 1", "task 2"}
        else:
            assert len([*below.list(config("t"))]) == 4
