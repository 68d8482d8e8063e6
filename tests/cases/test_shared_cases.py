"""Runs the case collection beside this repository over every store; where it is absent there is nothing to run."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.context.policy import ContextPolicy
from langgraph_statekit.context.summarize import SessionSummarizer
from tests.stores_under_test import Store

CASES = Path(os.environ.get("STATEKIT_CASES") or Path(__file__).resolve().parents[3] / "shared/cases")
CAPS = frozenset({"raw", "chaos", "prune", "copy_thread", "delete_for_runs", "redact", "ttl"})

if not (CASES / "run_cases.py").exists():
    pytest.skip(f"no case collection at {CASES}; STATEKIT_CASES names another place", allow_module_level=True)

sys.path.insert(0, str(CASES))
harness = importlib.import_module("harness")
run_cases = importlib.import_module("run_cases")
CASES_OF_SAVERS = [
    pytest.param(name, marks=[pytest.mark.skip(f"needs what savers lack: {', '.join(sorted(lack))}")] if lack else [])
    for name, case in harness.REGISTRY.items()
    if case.kind == "saver"
    for lack in [case.needs - CAPS]
]
CASES_OF_COMPRESSORS = [name for name, case in harness.REGISTRY.items() if case.kind == "compressor"]


class MakeSaver:
    """What a case opens its savers with."""

    caps = CAPS

    def __init__(self, name: str, store: Store) -> None:
        self.name, self._store = name, store

    @asynccontextmanager
    async def __call__(self, *, serde: Any = None, ttl_seconds: Any = None) -> AsyncIterator[StatekitSaver]:
        async with self._store.open(serde=serde, ttl_s=ttl_seconds) as saver:
            yield saver

    async def advance(self, seconds: float) -> None:
        await asyncio.to_thread(self._store.advance, seconds)

    async def raw_dump(self) -> bytes:
        return await asyncio.to_thread(self._store.raw_dump)

    async def break_connections(self) -> None:
        await asyncio.to_thread(self._store.break_connections)


@pytest.mark.parametrize("name", CASES_OF_SAVERS)
async def test_case(name: str, store: Store, store_name: str) -> None:
    outcome, why = await run_cases.run_one(harness.REGISTRY[name], MakeSaver(store_name, store))
    assert outcome == "pass", why


def make_compressor(model: Any, *, keep_messages: int, trigger_messages: int) -> Any:
    """Return the summarizer as a case calls it: alone, with a state of messages only."""
    policy = ContextPolicy(
        trigger=("messages", trigger_messages), slice=None, keep=("messages", keep_messages), fanout=1
    )
    node = SessionSummarizer(model, policy, mode="replace")

    async def summarize(state: Any) -> Any:
        return await node.ainvoke(state)

    return summarize


@pytest.mark.parametrize("name", CASES_OF_COMPRESSORS)
async def test_case_of_a_compressor(name: str, new_store: Any) -> None:
    make = MakeSaver("sqlite", new_store("sqlite"))
    outcome, why = await run_cases.run_one(harness.REGISTRY[name], make, make_compressor)
    assert outcome == "pass", why
