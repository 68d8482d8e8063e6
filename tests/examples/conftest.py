"""Fixtures: a catalogue of 200 items, a run over it that nobody disturbed, and a run to disturb."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.job import ITEMS, Job, Outcome, monitor


@pytest.fixture(scope="session")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = monitor.CATALOGUE.read_text(encoding="utf-8").splitlines(keepends=True)
    path: Path = tmp_path_factory.mktemp("catalogue") / "catalogue.csv"
    path.write_text("".join(lines[: ITEMS + 1]), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def finished(catalogue: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    job = Job(folder, catalogue, f"sqlite:///{folder / 'store.db'}")
    assert "starting at item 1 of 200" in job.finish()
    return job


@pytest.fixture(scope="session")
def undisturbed(finished: Job) -> Outcome:
    return finished.outcome()


@pytest.fixture
def job(tmp_path: Path, catalogue: Path) -> Job:
    return Job(tmp_path, catalogue, f"sqlite:///{tmp_path / 'store.db'}")
