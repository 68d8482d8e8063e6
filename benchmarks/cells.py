"""What every table says: a median, a ratio, where it was measured, and why there is no number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Results = dict[str, Any]


def value(results: Results, workload: str, saver: str, mode: str, number: str) -> float | None:
    """Return a median; None if it was not measured or the saver failed."""
    found = results["summary"].get(workload, {}).get(saver, {}).get(mode, {})
    return None if "fails" in found or number not in found else float(found[number][0])


def ratio(above: float | None, below: float | None) -> float | None:
    """Return a quotient; None if either is missing."""
    return None if above is None or not below else above / below


def about(results: Results, what: str = "") -> str:
    """Return where and when it was measured."""
    if results["quick"]:
        return f"{what}Quick sizes: these numbers only show that everything runs."
    machine = results["machine"]
    asked = [about["load"] for about in results["asked"].values()]
    loads = [one[when] for one in asked for when in ("before", "after")]
    servers = "; ".join(f"{name} {settings}" for name, settings in results["servers"].items())
    return (
        f"{what}Measured {results['started'][:10]} on {machine['cores']} cores ({machine['cpu']}),"
        f" {machine['memory_gib']} GiB, Python {machine['python']}, LangGraph {results['versions']['langgraph']},"
        f" load {min(loads)} to {max(loads)}. Servers: {servers or 'none'}. Trust ratios, not milliseconds."
    )


def notes(results: Results, workloads: Sequence[str], *, left_out: bool = True) -> list[str]:
    """Return why savers have no numbers."""
    notes = [
        f"- {saver}, {workload}, {mode}: fails: {found['fails']}"
        for workload in workloads
        for saver, modes in results["summary"].get(workload, {}).items()
        for mode, found in modes.items()
        if "fails" in found
    ]
    notes += [f"- {saver} is left out: {why}" for saver, why in results["left out"].items() if left_out]
    return ["", *notes] if notes else []


def cell(number: float | None) -> str:
    """Return a number as a table shows it."""
    if number is None:
        return ""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"
