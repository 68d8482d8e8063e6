"""Processes that are killed around their effects: none is made twice, and none is forgotten."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from langgraph_statekit import EffectLedger
from tests.effects.worker import AFTER_CLAIM, AFTER_MARK, FENCED, POINTS, Charges, work
from tests.servers import wait_until
from tests.stores_under_test import Store

ITEMS = 200
KILLS = [(20 + 20 * number, POINTS[number % 3]) for number in range(9)]
SPAWN = multiprocessing.get_context("forkserver")
BACKENDS = [f"langgraph_statekit.checkpoint.backends.{name}" for name in ("sqlite", "redis", "postgres", "objects")]
SPAWN.set_forkserver_preload(["tests.effects.worker", *BACKENDS])


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
@pytest.mark.parametrize("policy", ["verify", "stop"])
def test_no_effect_is_made_twice_however_often_its_process_is_killed(
    new_store: Callable[[str], Store], killed_name: str, tmp_path: Path, durability: str, policy: str
) -> None:
    store = new_store(killed_name)
    path = tmp_path / "charges"
    for dies in (*KILLS, None):
        ends = dies and (*dies, signal.SIGKILL)
        given = (store.url, store.options, ITEMS, path, durability, policy, ends)
        process = SPAWN.Process(target=work, args=given)
        process.start()
        process.join(120)
        assert process.exitcode == (0 if dies is None else -9), dies
    made = Charges(path).made()
    assert set(made.values()) == {1}, "made twice"
    with store.open() as saver:
        ledger = EffectLedger(saver)
        effects = ledger.list("t")
        unknown = {int(effect.key.split()[1]) for effect in effects if effect.state == "unknown"}
        assert len(effects) == ITEMS
        assert {effect.state for effect in effects} <= {"sent", "unknown"}
    missing = {*range(ITEMS)} - made.keys()
    if policy == "verify":
        assert (missing, unknown) == (set(), set())
    else:
        assert missing == {item for item, point in KILLS if point == AFTER_CLAIM}
        assert unknown == {item for item, point in KILLS if point != AFTER_MARK}


@pytest.mark.parametrize(
    ("durability", "point", "policy"),
    [("sync", AFTER_MARK, "stop"), ("async", AFTER_MARK, "stop"), ("sync", AFTER_CLAIM, "retry")],
)
def test_a_worker_that_was_stopped_and_taken_over_makes_no_effect_when_it_goes_on(
    new_store: Callable[[str], Store], killed_name: str, tmp_path: Path, durability: str, point: str, policy: str
) -> None:
    """Stopped between claim and effect it still tries: there the provider's refusal of a repeated key is needed."""
    store, path = new_store(killed_name), tmp_path / "charges"

    def start(ends: tuple[int, str, int] | None) -> multiprocessing.process.BaseProcess:
        process = SPAWN.Process(target=work, args=(store.url, store.options, 20, path, durability, policy, ends))
        process.start()
        return process

    stopped = start((7, point, signal.SIGSTOP))
    assert stopped.pid is not None
    status = Path(f"/proc/{stopped.pid}/stat")
    wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T", "stopped")
    second = start(None)
    second.join(60)
    assert second.exitcode == 0
    os.kill(stopped.pid, signal.SIGCONT)
    stopped.join(60)
    assert stopped.exitcode == FENCED
    assert Charges(path).made() == dict.fromkeys(range(20), 1)
    with store.open() as saver:
        history = list(saver.list({"configurable": {"thread_id": "t"}}))
        parents = [item.parent_config["configurable"]["checkpoint_id"] for item in history if item.parent_config]
        assert len(parents) == len(set(parents)), "forked"
        assert history[0].checkpoint["channel_values"]["item"] == 20
