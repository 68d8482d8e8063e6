"""The disk of either store is full: a clear error, all that was acknowledged stays, and work goes on with more room."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.servers import Servers
from tests.stores_under_test import SqliteStore
from tests.tiered_under_test import HOT
from tests.tiers.kit import ROOT


def run(before: Sequence[str], *arguments: str) -> str:
    command = [*before, sys.executable, "-m", "tests.tiers.full_disk", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", HOT)
def test_a_store_that_may_not_grow_says_so_and_loses_nothing(kind: str, servers: Servers, tmp_path: Path) -> None:
    hot = HOT[kind](servers.url, tmp_path)
    told = run([], hot.url, json.dumps(hot.options), str(tmp_path / "cold"), "quota")
    hot.clean()
    assert ("nothing of this call was saved" if kind == "sqlite" else "File too large") in told


@pytest.fixture(scope="module")
def own_mounts() -> Sequence[str]:
    """Return what starts a program that may mount what only it sees."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        probe = [*command, "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
        if shutil.which("unshare") and subprocess.run(probe, capture_output=True).returncode == 0:
            return command
    pytest.skip("this system lets nobody mount a disk of their own")


@pytest.mark.parametrize("full", ["hot", "cold"])
def test_a_full_disk_is_named_and_takes_nothing_along(
    own_mounts: Sequence[str], new_directory: Callable[[], Path], full: str
) -> None:
    small, large = new_directory(), new_directory()
    hot = SqliteStore(lambda kind: "", small if full == "hot" else large)
    cold = (small if full == "cold" else large) / "cold"
    told = run(own_mounts, hot.url, "{}", str(cold), str(small))
    assert ("disk is full" if full == "hot" else "No space left on device") in told


@pytest.fixture
def new_directory(tmp_path: Path) -> Callable[[], Path]:
    def make() -> Path:
        made = tmp_path / f"{len([*tmp_path.iterdir()])}"
        made.mkdir()
        return made

    return make
