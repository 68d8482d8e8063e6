"""Runs the checkpointer tests of the installed LangGraph release over one of our stores.

python -m tests.langgraph_suite.run --store sqlite [--all-features]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

from tests.servers import Servers
from tests.stores_table import ON_REQUEST, STORES

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
EXPECTED = {"1.2.24": 654}
FILES = [
    f"tests/test_{name}.py"
    for name in (
        *("pregel", "pregel_async", "time_travel", "time_travel_async", "large_cases", "large_cases_async"),
        *("subgraph_persistence", "subgraph_persistence_async", "interruption", "interrupt_state", "strict_resume"),
        "checkpoint_migration",
        *("delta_channel_fork", "delta_channel_exit_mode", "delta_channel_parallel_order", "delta_channel_subgraph"),
        *("delta_channel_to_plain", "delta_channel_update_state"),
    )
]
TIMED = (
    *("test_imp_nested", "test_stream_subgraphs_during_execution", "test_stream_buffering_single_node"),
    "test_parent_command_goto",  # whose steps must not take a second
)
"""They compare times, or the order of what happens milliseconds apart, and fail on a busy machine with any saver, with
LangGraph's InMemorySaver as well: one of them that failed is tried again, alone."""
TRIES = 4
OTHERS = ("", "skipped")
"""What is no failure."""


@dataclass(frozen=True)
class Counts:
    """What became of the selected tests."""

    passed: int
    failed: int
    skipped: int
    failures: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join([f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", *self.failures])


def suite() -> Path:
    """Return a folder with the tests of the installed release, fetched when it is not there yet."""
    release = version("langgraph")
    folder = CACHE / f"langgraph-{release}"
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        archive = CACHE / f"langgraph-{release}.tar.gz"
        if not archive.exists():
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", f"langgraph=={release}"),
                    *("--no-deps", "--no-binary", "langgraph", "--dest", str(CACHE)),
                ],
                check=True,
            )
        with tempfile.TemporaryDirectory(dir=CACHE) as unpacked:
            with tarfile.open(archive) as tar:
                tar.extractall(unpacked, filter="data")
            source = Path(unpacked, folder.name)
            with open(source / "tests/conftest.py", "a") as conftest:
                conftest.write(
                    "\nfrom statekit_fixtures import async_checkpointer, sync_checkpointer  # noqa: E402, F811\n"
                )
            try:
                source.rename(folder)
            except OSError:
                if not folder.exists():  # else another process was first
                    raise
    return folder


def run(store: str, servers: Servers, extra: list[str] | None = None, *, all_features: bool = False) -> Counts:
    """Run the suite over a store in a subprocess."""
    folder = suite()
    kind = next((kind for kind in ("redis", "postgres", "s3") if kind in store.split("-")), None)
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "NO_DOCKER": "true",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), str(ROOT))),
        "STATEKIT_SUITE_STORE": store,
        "STATEKIT_SUITE_ALL_FEATURES": "yes" * all_features,
        "LANGSMITH_TRACING": "false",
    }
    if kind is not None:
        env[f"STATEKIT_TEST_{kind.upper()}_URL"] = servers.url(kind)
    with tempfile.TemporaryDirectory(prefix="statekit-") as scratch:
        report = Path(scratch, "report.xml")

        def outcomes(*which: str) -> dict[str, str]:
            report.unlink(missing_ok=True)
            subprocess.run(
                [
                    *(sys.executable, "-m", "pytest", *which, "-q", "-o", "addopts=", "-p", "no:cacheprovider"),
                    *("-p", "no:randomly", "--timeout", "120"),
                    *(f"--junitxml={report}", f"--basetemp={scratch}/tests"),
                ],
                cwd=folder,
                env=env,
                stdout=sys.stderr,
                check=False,
            )
            return dict(map(_outcome, ElementTree.parse(report).getroot().iter("testcase")))

        found = outcomes(*FILES, "-k", "sync_checkpointer or memory", "-n", "2", *(extra or ()))
        for _ in range(TRIES - 1):
            for id in [id for id, said in found.items() if said not in OTHERS and id.split("::")[1].startswith(TIMED)]:
                found |= outcomes(id)
        return _counts(found)


def _outcome(case: ElementTree.Element) -> tuple[str, str]:
    """Return the id of a test, and what it said when it failed: "" if it passed, "skipped" if it did not run."""
    id = f"{(case.get('classname') or '').replace('.', '/')}.py::{case.get('name')}"
    for bad in (*case.iter("failure"), *case.iter("error")):
        return id, (bad.get("message") or "failed")[:300]
    return id, "" if case.find("skipped") is None else "skipped"


def _counts(found: dict[str, str]) -> Counts:
    said = list(found.values())
    failures = tuple(f"{id}: {message}" for id, message in found.items() if message not in OTHERS)
    return Counts(said.count(""), len(failures), said.count("skipped"), failures)


def main() -> int:
    """Run it as a program; 0 when everything passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--store",
        choices=[*STORES, *ON_REQUEST],
        action="append",
        help=f"may be repeated; default: {', '.join(STORES)}",
    )
    parser.add_argument("--all-features", action="store_true", help="with all that a saver can do beside saving")
    options, extra = parser.parse_known_args()
    bad = 0
    with closing(Servers()) as servers:
        for store in options.store or STORES:
            counts = run(store, servers, extra, all_features=options.all_features)
            print(f"{store}: {counts}", flush=True)
            bad += counts.failed or counts.passed != EXPECTED.get(version("langgraph"), counts.passed)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
