"""One process that uses one saver: takes requests as lines of JSON, answers with numbers or with what went wrong."""

from __future__ import annotations

import gc
import json
import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TextIO

from benchmarks.bench import Bench, Numbers, run
from benchmarks.savers import MEMORY, SAVERS, Saver, forget

FLOOR = "floor-"
"""What the name of a store's floor begins with; it is measured where a saver would be."""
PACKAGES = ("langgraph", "langgraph-checkpoint", "langchain-core", "ormsgpack", "redis", "psycopg", "obstore")


def serve(requests: TextIO, answers: TextIO) -> None:
    """Answer requests until there are no more."""

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def ask(question: str) -> Any:
        say({"ask": question})
        return json.loads(requests.readline())

    for line in iter(requests.readline, ""):
        request = json.loads(line)
        try:
            say({"numbers": measure(request, ask)})
        except Exception as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            say({"error": text[:300]})


def measure(request: dict[str, Any], ask: Any) -> Numbers:
    """Run the workload of a request once and return its numbers."""
    workload = import_module(f"benchmarks.{request['workload']}")
    name, url, mode, size = request["saver"], request["url"], request["mode"], request["size"]
    if name.startswith(FLOOR):
        return _floor(workload, name.removeprefix(FLOOR), url, mode, size)
    return one_run(workload, SAVERS[name], url, mode, size, ask, thorough=request["thorough"])


def one_run(
    workload: Any, saver: Saver, url: str, mode: str, size: dict[str, int], ask: Any, *, thorough: bool
) -> Numbers:
    """Run a workload after a small run of the same on memory, which loads what LangGraph loads late."""
    forget()
    run(mode, workload.run(Bench(MEMORY, "", mode, workload.QUICK, _no_store, thorough=False)))
    forget()
    gc.collect()
    gc.freeze()  # looking through all modules takes 55 ms, and whichever call happens to meet that would look dear
    numbers: Numbers = run(mode, workload.run(Bench(saver, url, mode, size, ask, thorough=thorough)))
    return numbers


def _floor(workload: Any, kind: str, url: str, mode: str, size: dict[str, int]) -> Numbers:
    from benchmarks.floors import Recorder, recording, replay

    recorder = Recorder()
    run("sync", workload.run(Bench(recording(recorder), "", "sync", size, _no_store, thorough=False)))
    concurrent = size["tasks"] if workload.__name__.endswith(".concurrency") else 1
    return replay(kind, url, recorder.sizes, mode, concurrent)


def _no_store(question: str) -> Any:
    return {"stored": {}, "copy": None, "trips": 0}[question]


def versions(*more: str) -> dict[str, str]:
    """Return the versions of the packages that are installed here."""
    found = {}
    for name in (*PACKAGES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["versions"]:
        print(json.dumps(versions(*sys.argv[2:])))
    else:
        private = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)  # what a saver prints is no answer
        serve(sys.stdin, private)
