"""What the runs gave, put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.bench import Numbers


@dataclass(frozen=True)
class Run:
    """One run of a workload with a saver."""

    workload: str
    saver: str
    mode: str
    repeat: int
    load: float
    numbers: Numbers = field(default_factory=dict)
    error: str = ""


def summary(runs: Iterable[Run]) -> dict[str, Any]:
    """Return workload -> saver -> mode -> number -> [median, least, most], or {"fails": why} for one failed run."""
    groups: dict[tuple[str, str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.workload, run.saver, run.mode].append(run)
    found: dict[str, Any] = {}
    for (workload, saver, mode), group in groups.items():
        place = found.setdefault(workload, {}).setdefault(saver, {})
        place[mode] = _together(group)
    return found


def _together(group: list[Run]) -> dict[str, Any]:
    for run in group:
        if run.error:
            return {"fails": run.error}
    together = {}
    for name in group[0].numbers:
        values = [run.numbers[name] for run in group if name in run.numbers]
        together[name] = [_short(median(values)), _short(min(values)), _short(max(values))]
    return together


def _short(value: float) -> float:
    """Return four digits of a number: more are noise."""
    return float(f"{value:.4g}") if abs(value) < 1e6 else round(value)
