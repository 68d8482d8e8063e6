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

# Under another name, as LangGraph's own tests have that of ours.
_TESTS = Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location(
    "statekit_tests", _TESTS / "__init__.py", submodule_search_locations=[str(_TESTS)]
)
assert _SPEC is not None
sys.modules["statekit_tests"] = importlib.util.module_from_spec(_SPEC)
_stores: Any = importlib.import_module("statekit_tests.stores_under_test")
_table: Any = importlib.import_module("statekit_tests.stores_table")
if os.environ.get("STATEKIT_SUITE_ALL_FEATURES"):
    _stores.DEFAULTS.update(_stores.all_features())
    if os.environ["STATEKIT_SUITE_STORE"] != "memory":
        _stores.DEFAULTS["tenant"] = "tests"

# LangGraph's tests expect that langchain is not installed: models tell its version in their metadata.
if hasattr(langchain_core.language_models.base, "_get_langchain_version"):
    langchain_core.language_models.base._get_langchain_version = lambda: None


def _new_store(directory: Path) -> Any:
    return {**_table.STORES, **_table.ON_REQUEST}[os.environ["STATEKIT_SUITE_STORE"]](
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
