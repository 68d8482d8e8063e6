"""Ask some or all questions of some or all savers, and keep the answers.

Each (saver, workload, repeat) runs in a process of its own, on a fresh store. Repeats are interleaved: every saver
has its first run before any has its second, so what else the machine does meanwhile touches all alike.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks import WORKLOADS
from benchmarks.machine import commit, load, machine
from benchmarks.peers import ROOT, python_of, versions_of
from benchmarks.results import Run, summary
from benchmarks.runner import Failed, Worker, measure
from benchmarks.savers import MEMORY, SAVERS, Saver
from benchmarks.stores import Stores
from benchmarks.worker import FLOOR, versions

RESULTS = Path(__file__).parent / "results"
REPEATS = 3
STORES = ("sqlite", "redis", "postgres", "s3")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; 1 if one of our own savers failed."""
    given = _arguments(arguments)
    savers, left_out = _savers(given.peers, given.stores)
    stores, runs, started, load_before = Stores(), [], datetime.now(UTC), load()
    clock, asked = monotonic(), []
    every = RESULTS / f"{started:%Y%m%dT%H%M%S}.json"
    latest = RESULTS / "latest.json"
    before = _read(latest)
    peers = {saver.name: versions_of(saver, python) for saver, python in savers if saver.needs}
    RESULTS.mkdir(exist_ok=True)
    try:
        for name in given.names or WORKLOADS:
            for run in _ask(name, savers, stores, quick=given.quick, repeats=given.repeats):
                runs.append(run)
                _tell(run)
            asked.append(name)
            results = {
                "started": started.isoformat(timespec="seconds"),
                "took_s": round(monotonic() - clock),
                "commit": commit(ROOT),
                "quick": given.quick,
                "machine": machine(),
                "load": {"before": load_before, "after": load()},
                "versions": versions(),
                "servers": stores.settings,
                "peers": peers,
                "left out": left_out,
                "sizes": {name: _size(name, quick=given.quick) for name in asked},
                "summary": summary(runs),
            }
            # After each question, so that a run which is broken off has kept what it asked.
            _write(every, {**results, "runs": [asdict(run) for run in runs]})
            if given.keep:
                _write(latest, _kept(before, results))
    finally:
        stores.close()
    print(f"all runs: {every.relative_to(ROOT)}")
    if given.keep:
        print(f"kept as {latest.relative_to(ROOT)}; `python -m benchmarks.table` puts it into the pages")
    ours = {saver.name for saver, _ in savers if saver.group == "ours"}
    return int(any(run.error for run in runs if run.saver in ours))


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"quick": None}


def _write(path: Path, results: dict[str, Any]) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _kept(old: dict[str, Any], results: dict[str, Any]) -> dict[str, Any]:
    """Return results with the answers to other questions that were kept before on such a machine.

    Each has its own time, commit and kernel.
    """
    about = _about(results)
    asked = {**results, "asked": dict.fromkeys(results["summary"], about)}
    if old["quick"] != results["quick"] or _hardware(old) != _hardware(results):
        return asked
    old_about = _about(old)
    old = {"asked": dict.fromkeys(old["summary"], old_about), **old}
    merged = ("asked", "summary", "sizes", "servers", "peers")
    return {**asked, **{key: {**old[key], **asked[key]} for key in merged}}


def _about(results: dict[str, Any]) -> dict[str, Any]:
    return {**{key: results[key] for key in ("started", "commit", "load")}, "kernel": results["machine"]["kernel"]}


def _hardware(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.get("machine", {}).items() if key != "kernel"}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    peers = [saver.name for saver in SAVERS.values() if saver.group == "peer"]
    parser.add_argument("names", nargs="*", metavar="name", help=f"questions: {', '.join(WORKLOADS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one repeat: does it run at all?")
    parser.add_argument("--peers", default="all", help=f"all, none, or some of {','.join(peers)}")
    parser.add_argument("--stores", default=",".join(STORES), help=f"some of {','.join(STORES)}")
    parser.add_argument("--repeats", type=int, help=f"of each run; {REPEATS} by default")
    parser.add_argument("--keep", action="store_true", help="keep the summary as results/latest.json")
    given = parser.parse_args(arguments)
    given.stores = [name for name in given.stores.split(",") if name]
    given.peers = {"all": peers, "none": []}.get(given.peers, given.peers.split(","))
    for unknown in {*given.names} - {*WORKLOADS} | {*given.peers} - {*peers} | {*given.stores} - {*STORES}:
        parser.error(f"unknown: {unknown}")
    return given


def _savers(peers: Sequence[str], stores: Sequence[str]) -> tuple[list[tuple[Saver, str]], dict[str, str]]:
    """Return the savers with their interpreters, and why others are left out."""
    found: list[tuple[Saver, str]] = []
    left_out = {}
    for saver in SAVERS.values():
        kind = saver.store.removesuffix("-stack")
        if (kind and kind not in stores) or (saver.group == "peer" and saver.name not in peers):
            continue
        try:
            python = python_of(saver)
        except (OSError, RuntimeError) as error:
            left_out[saver.name] = str(error)
        else:
            if saver.group in ("ours", "before") and find_spec(saver.home.partition(":")[0]) is None:
                left_out[saver.name] = "this release has no such saver"
            else:
                found.append((saver, python))
    for name, why in left_out.items():
        print(f"{name} is left out: {why}", file=sys.stderr)
    return found, left_out


def _size(name: str, *, quick: bool) -> dict[str, int]:
    size: dict[str, int] = getattr(import_module(f"benchmarks.{name}"), "QUICK" if quick else "FULL")
    return size


def _ask(
    name: str, savers: Sequence[tuple[Saver, str]], stores: Stores, *, quick: bool, repeats: int | None
) -> Iterator[Run]:
    """Yield the runs of one question: all savers once, then all again."""
    workload: Any = import_module(f"benchmarks.{name}")
    size = _size(name, quick=quick)
    taking_part = [(saver, python) for saver, python in savers if _takes_part(saver, workload)]
    if getattr(workload, "FLOOR", False):
        kinds = dict.fromkeys(saver.store for saver, _ in taking_part if saver.group == "ours")
        taking_part += [(replace(MEMORY, name=f"{FLOOR}{kind}", store=kind), sys.executable) for kind in kinds]
    modes: Sequence[str] = getattr(workload, "MODES", ("sync", "async"))
    broken: set[tuple[str, str]] = set()
    for repeat in range(1 if quick else min(repeats or REPEATS, getattr(workload, "REPEATS", REPEATS))):
        for saver, python in taking_part:
            left = [mode for mode in (modes[::-1] if repeat % 2 else modes) if (saver.name, mode) not in broken]
            while left:
                with Worker(python) as worker:
                    while left:
                        mode = left.pop(0)
                        run = Run(name, saver.name, mode, repeat, load())
                        thorough = repeat == 0 and mode == modes[0]
                        try:
                            numbers = measure(worker, stores, saver, workload, mode, size, thorough=thorough)
                        except (Failed, OSError, RuntimeError) as error:
                            broken.add((saver.name, mode))
                            yield replace(run, error=str(error))
                            break  # the next mode gets a process that this one has not harmed
                        yield replace(run, numbers=numbers)


def _takes_part(saver: Saver, workload: Any) -> bool:
    if saver.group == "before":
        return getattr(workload, "BEFORE", False)
    if getattr(workload, "PROXIED", False):
        return saver.store not in ("", "sqlite")
    only: str = getattr(workload, "ONLY_STORE", "")
    if only:
        return saver.store in ("", only)
    if saver.group == "base":
        return getattr(workload, "BASE", True)
    # Object stores take a millisecond for each request: they are asked less, and those of others only `objects`.
    if saver.store == "s3":
        return saver.group == "ours" and getattr(workload, "ON_OBJECTS", False)
    return saver.group == "ours" or not getattr(workload, "ONLY_OURS", False)


def _tell(run: Run) -> None:
    numbers = "  ".join(f"{name} {value:.4g}" for name, value in run.numbers.items())
    told = f"fails: {run.error}" if run.error else numbers
    print(f"{run.workload:<12} {run.repeat + 1} {run.saver:<20} {run.mode:<5} {told}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
