"""How long does it take to import a saver, in a process that has LangGraph already?"""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from benchmarks.bench import Bench, Numbers, check

FULL = {"starts": 5}
QUICK = {"starts": 1}
MODES = ("sync",)
REPEATS = 1
ON_OBJECTS = True

_PROGRAM = """
import sys, time
import langgraph.graph, langgraph.checkpoint.base
had, started = len(sys.modules), time.perf_counter()
import {module}
getattr({module}, {name!r})
print((time.perf_counter() - started) * 1e3, len(sys.modules) - had)
"""


def _import(home: str) -> tuple[float, float]:
    """Return the milliseconds of an import in a new process, and the modules that it loaded."""
    module, _, name = home.partition(":")
    program = _PROGRAM.format(module=module, name=name)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    taken_ms, modules = done.stdout.split()
    return float(taken_ms), float(modules)


async def run(bench: Bench) -> Numbers:
    found = [_import(bench.of.home) for _ in range(bench.size["starts"])]
    async with bench.open() as saver:
        check(bench.of.home.endswith(f":{type(saver.saver).__name__}"), "this is not the saver that was imported")
    return {"import_ms": median(taken_ms for taken_ms, _ in found), "modules": found[-1][1]}
