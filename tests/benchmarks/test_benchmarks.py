"""The benchmarks run, a saver that loses something does not score, and the pages say what was measured."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from benchmarks import WORKLOADS
from benchmarks.__main__ import main
from benchmarks.bench import Bench, Numbers, run
from benchmarks.results import Run, summary
from benchmarks.savers import MEMORY, SAVERS, forget
from benchmarks.table import LATEST, PAGES, rendered
from benchmarks.worker import one_run

WITHOUT_SERVERS = sorted({*WORKLOADS} - {"import_time", "roundtrips"})


@pytest.fixture(autouse=True)
def _nothing_is_held() -> Iterator[None]:
    yield
    forget()


def _no_store(question: str) -> Any:
    return {"stored": {"stored_bytes": 1_000}, "copy": None, "trips": 0}[question]


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in WITHOUT_SERVERS
        for mode in getattr(import_module(f"benchmarks.{name}"), "MODES", ("sync", "async"))
    ],
)
def test_every_question_is_answered(name: str, mode: str, tmp_path: Path) -> None:
    workload = import_module(f"benchmarks.{name}")
    saver = SAVERS["statekit-sqlite"]
    numbers = one_run(workload, saver, f"sqlite:///{tmp_path}/bench.db", mode, workload.QUICK, _no_store, thorough=True)
    assert numbers
    assert all(number >= 0 for found, number in numbers.items() if not found.endswith("_bytes"))


def _forgets_a_message(values: dict[str, Any]) -> None:
    if len(values.get("messages", [])) > 2:
        values["messages"] = values["messages"][1:]


def _forgets_a_channel(values: dict[str, Any]) -> None:
    for name in ("seen", "document", "note", "count", "channel 1", "messages"):
        if name in values:
            del values[name]
            return


def _losing(lose: Any) -> Any:
    class Losing(InMemorySaver):
        def get_tuple(self, config: Any) -> Any:
            found = super().get_tuple(config)
            if found:
                lose(found.checkpoint["channel_values"])
            return found

        def list(self, config: Any, **options: Any) -> Iterator[Any]:
            for found in super().list(config, **options):
                lose(found.checkpoint["channel_values"])
                yield found

    held = Losing()

    @contextmanager
    def opened(url: str) -> Iterator[Any]:
        yield held

    @asynccontextmanager
    async def opened_async(url: str) -> AsyncIterator[Any]:
        yield held

    return replace(MEMORY, open_sync=opened, open_async=opened_async)


def _run_losing(name: str, lose: Any) -> None:
    workload = import_module(f"benchmarks.{name}")
    mode = getattr(workload, "MODES", ("sync",))[0]
    run(mode, workload.run(Bench(_losing(lose), "", mode, workload.QUICK, _no_store, thorough=False)))


@pytest.mark.parametrize("name", WITHOUT_SERVERS)
def test_a_saver_that_loses_a_value_does_not_score(name: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        _run_losing(name, _forgets_a_channel)


def test_a_saver_that_loses_the_first_message_does_not_score() -> None:
    with pytest.raises(AssertionError):
        _run_losing("chat", _forgets_a_message)


def test_one_failed_run_takes_all_numbers_away() -> None:
    numbers: Numbers = {"wall_s": 1.0}
    runs = [Run("chat", "a", "sync", 0, 0.0, numbers), Run("chat", "a", "sync", 1, 0.0, error="lost a value")]
    assert summary(runs) == {"chat": {"a": {"sync": {"fails": "lost a value"}}}}


def test_the_command_runs_workers_and_keeps_every_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.__main__.RESULTS", tmp_path)
    monkeypatch.setattr("benchmarks.__main__.ROOT", tmp_path)
    assert main(["chat", "--quick", "--peers", "none", "--stores", "sqlite"]) == 0
    (kept,) = tmp_path.glob("*.json")
    results = json.loads(kept.read_text(encoding="utf-8"))
    assert {"machine", "versions", "load", "started"} <= results.keys()
    assert {run["saver"] for run in results["runs"]} == {"InMemorySaver", "statekit-sqlite", "floor-sqlite"}
    assert not [run for run in results["runs"] if run["error"]]
    assert results["summary"]["chat"]["statekit-sqlite"]["sync"]["stored_bytes"][0] > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_say_what_was_measured(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert rendered(text, json.loads(LATEST.read_text(encoding="utf-8"))) == text
