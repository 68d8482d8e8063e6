"""The two fixtures that put a Statekit saver under LangGraph's own tests; each test gets a store of its own."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import langchain_core.language_models.base
import pytest

from langgraph_statekit.checkpoint.saver import StatekitSaver

_PATH = Path(__file__).resolve().parents[1] / "stores_under_test.py"
_SPEC = importlib.util.spec_from_file_location("stores_under_test", _PATH)
assert _SPEC is not None
assert _SPEC.loader is not None
_stores = importlib.util.module_from_spec(_SPEC)
sys.modules["stores_under_test"] = _stores
_SPEC.loader.exec_module(_stores)
if os.environ.get("STATEKIT_SUITE_ALL_FEATURES"):
    _stores.DEFAULTS.update(_stores.all_features())
    if os.environ["STATEKIT_SUITE_STORE"] != "memory":
        _stores.DEFAULTS["tenant"] = "tests"

# LangGraph's tests expect that langchain is not installed: models tell its version in their metadata.
if hasattr(langchain_core.language_models.base, "_get_langchain_version"):
    langchain_core.language_models.base._get_langchain_version = lambda: None


def _new_store(directory: Path) -> Any:
    return _stores.STORES[os.environ["STATEKIT_SUITE_STORE"]](
        lambda kind: os.environ[f"STATEKIT_TEST_{kind.upper()}_URL"], directory
    )


@pytest.fixture(params=["memory"])  # the id is part of the names of the recorded snapshots
def sync_checkpointer(tmp_path: Path) -> Iterator[StatekitSaver]:
    store = _new_store(tmp_path)
    with store.open() as saver:
        yield saver
    store.clean()


@pytest.fixture(params=["memory"])
async def async_checkpointer(tmp_path: Path) -> AsyncIterator[StatekitSaver]:
    store = _new_store(tmp_path)
    async with store.open() as saver:
        yield saver
    store.clean()
