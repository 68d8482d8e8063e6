"""Processes and servers that are killed with SIGKILL lose nothing that was acknowledged."""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit.checkpoint.opening import open_saver
from langgraph_statekit.errors import Unavailable
from tests.crash.worker import graph
from tests.faces import LONG, checkpoint, config, metadata
from tests.programs import Program, run
from tests.servers import Server, postgres_server, redis_server, s3_server, wait_until
from tests.stores.verbs import deltas
from tests.stores_table import STORES
from tests.stores_under_test import Store

ITEMS = 60
KILLS = 5


@pytest.mark.slow
def test_a_killed_process_goes_on_where_it_stopped(durable_store: Store, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    effects.touch()
    command = [
        *(sys.executable, "-m", "tests.crash.worker", durable_store.url, json.dumps(durable_store.options)),
        *("t", str(ITEMS), str(effects)),
    ]
    errors = tmp_path / "errors"
    for _ in range(KILLS):
        aim = len(effects.read_text().splitlines()) + random.randint(1, ITEMS // KILLS - 2)
        with errors.open("w") as log, Program(command, stderr=log) as process:

            def reached() -> bool:
                return len(effects.read_text().splitlines()) >= aim or process.poll() is not None

            wait_until(reached, f"{aim} items")
            process.kill()
        assert process.returncode == -9, errors.read_text()
        with durable_store.open() as saver:
            done = graph(ITEMS, effects).compile(checkpointer=saver).get_state(config()).values.get("done", [])
            noted = [int(line) for line in effects.read_text().splitlines()]
            assert done == list(range(len(done)))
            assert max(noted) in (len(done) - 1, len(done))
    run(command, check=True, timeout=120)
    noted = [int(line) for line in effects.read_text().splitlines()]
    assert all(new - old in (0, 1) for old, new in pairwise(noted))
    assert len(noted) <= ITEMS + KILLS
    with durable_store.open() as saver:
        assert (deltas(saver.backend, "t") > 0) == saver.backend.deltas
        assert graph(ITEMS, effects).compile(checkpointer=saver).get_state(config()).values["done"] == list(
            range(ITEMS)
        )


SERVERS: dict[str, Callable[[], AbstractContextManager[Server]]] = {
    "redis": redis_server,
    "postgres": postgres_server,
    "s3": s3_server,
}


def test_a_killed_server_keeps_what_it_acknowledged(served_name: str) -> None:
    with tempfile.TemporaryDirectory() as directory, SERVERS[served_name]() as server:
        store = STORES[served_name](lambda _: server.url, Path(directory))
        hasty = open_saver(store.url, **store.options, retry_s=1.0)
        # A store that answers again may refuse a while longer.
        with open_saver(store.url, **store.options, retry_s=60.0) as saver, hasty:
            at: Any = config()
            for number in range(20):
                made = checkpoint({"a": [LONG, number]}, {"a": number})
                at = saver.put(at, made, metadata(number), {"a": number})
                saver.put_writes(at, [("a", number), ("b", number)], "task")
            assert (deltas(saver.backend, "t") > 0) == saver.backend.deltas
            for how in (server.kill, server.stop):
                before = list(saver.list(config()))
                how()
                with pytest.raises(Unavailable) as failed:
                    hasty.put(at, checkpoint({"a": "lost"}, {"a": "lost"}), metadata(), {"a": "lost"})
                assert failed.value.__cause__ is not None
                server.start()
                assert list(saver.list(config())) == before
                at = saver.put(at, checkpoint({"a": 99}, {"a": "99"}), metadata(), {"a": "99"})
                assert next(saver.list(config())).config == at
