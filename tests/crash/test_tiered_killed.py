"""Two workers that put, upload, archive and thaw the same threads are killed with SIGKILL at random moments."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faces import LONG, config
from tests.programs import Program
from tests.servers import wait_until
from tests.stores_under_test import Store

KILLS = 6
ROUNDS = 400


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["write_behind", "write_through"])
def test_killed_workers_lose_nothing_that_was_acknowledged(
    new_store: Callable[[str], Store], tmp_path: Path, mode: str
) -> None:
    store = new_store("tiered")
    logs = [tmp_path / f"log {worker}" for worker in "01"]
    errors = tmp_path / "errors"
    options = json.dumps({**store.options, "mode": mode})

    def start(worker: int, rounds: int) -> Program:
        command = [sys.executable, "-m", "tests.crash.tiered_worker", store.url, options]
        with errors.open("ab") as told:
            return Program([*command, str(worker), str(rounds), str(logs[worker])], stderr=told)

    for log in logs:
        log.touch()
    for _ in range(KILLS):
        workers = [start(0, ROUNDS), start(1, ROUNDS)]
        aims = [len(log.read_text().splitlines()) + random.randint(3, 25) for log in logs]

        def reached() -> bool:
            return all(
                len(log.read_text().splitlines()) >= aim or worker.poll() is not None
                for log, aim, worker in zip(logs, aims, workers, strict=True)
            )

        wait_until(reached, "some puts")
        for worker in workers:
            worker.kill()
            worker.wait()
        assert [worker.returncode for worker in workers] == [-9, -9], errors.read_text()
        if mode == "write_through":
            _check(store, logs, lose_hot=False)
    assert [worker.wait() for worker in (start(0, 5), start(1, 5))] == [0, 0], errors.read_text()
    _check(store, logs, lose_hot=False)
    if mode == "write_through":
        _check(store, logs, lose_hot=True)


def _check(store: Any, logs: list[Path], *, lose_hot: bool) -> None:
    acknowledged: dict[str, list[tuple[str, int]]] = {}
    for line in "".join(log.read_text() for log in logs).splitlines():
        thread, id, number = line.split("\t")
        acknowledged.setdefault(thread, []).append((id, int(number)))
    if lose_hot:
        for path in store._hot._path.parent.glob(f"{store._hot._path.name}*"):
            path.unlink()
    with store.open() as saver:
        for thread, puts in acknowledged.items():
            found = {
                item.checkpoint["id"]: item.checkpoint["channel_values"]["log"] for item in saver.list(config(thread))
            }
            for id, number in puts:
                assert found[id] == [LONG, *range(1, number + 1)]
            assert [len(log) for log in found.values()] == [*range(len(found) + 1, 1, -1)]
