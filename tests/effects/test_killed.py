"""Processes that are killed around their effects: none is made twice, and none is forgotten."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from langgraph_statekit import EffectLedger
from tests.effects.worker import AFTER_CLAIM, AFTER_MARK, POINTS, Charges, work
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
        given = (store.url, store.options, ITEMS, path, durability, policy, dies)
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
