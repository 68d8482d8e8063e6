"""The table of docs/tiered.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchmarks.cells import Results, about, cell, notes, ratio, value

_PUTS_USD: Final = 5.0
_GETS_USD: Final = 0.4
_STORED_USD: Final = 0.023
"""What S3 Standard took in 2025 for a million puts, a million gets, and a gigabyte a month."""


def tiered_table(results: Results) -> str:
    """Return what two tiers leave and cost, in both modes and beside others on object storage."""
    size = results["sizes"].get("tiered", {})
    turns, checkpoints = size.get("turns", 0), size.get("checkpoints", 0)
    lines = [about(results), "", f"| {turns} turns of chat | `write_behind` | `write_through` |", "|---|---|---|"]
    count = 5 * turns

    def row(what: str, number: Callable[[Callable[[str], float | None]], float | None], unit: str = "") -> None:
        cells = []
        for saver in ("statekit-tiered", "statekit-tiered-through"):
            found = number(lambda name, saver=saver: value(results, "tiered", saver, "sync", name))  # type: ignore[misc]
            cells.append("" if found is None else f"{cell(found)} {unit}".strip())
        lines.append(f"| {what} | {' | '.join(cells)} |")

    row("objects at the end", lambda of: of("chat_objects"))
    row("bytes at the end", lambda of: _times(of("chat_stored_bytes"), 1e-6), "MB")
    row("puts per checkpoint", lambda of: of("puts_per_checkpoint"))
    row("gets per checkpoint", lambda of: of("gets_per_checkpoint"))
    row("bytes sent per checkpoint", lambda of: _times(of("sent_bytes_per_checkpoint"), 1e-3), "kB")
    row("a put / one of the hot store alone", lambda of: ratio(of("put_ms"), of("hot_put_ms")))
    row("a million checkpoints: puts", lambda of: _times(of("puts_per_checkpoint"), _PUTS_USD), "USD")
    row("a million checkpoints: gets", lambda of: _times(of("gets_per_checkpoint"), _GETS_USD), "USD")
    row(
        "a million checkpoints: a month of storage",
        lambda of: _times(of("chat_stored_bytes"), _STORED_USD / 1e9 * 1e6 / count if count else 0),
        "USD",
    )
    found = results["summary"].get("tiered", {})
    names = ("resume_ms", "history_ms", "thaw_ms", "plain_get_ms")
    lines += [
        "",
        f"| {checkpoints:,} checkpoints, none of them here | latest | all | thawed | the same objects by plain gets |",
        "|---|---|---|---|---|",
    ]
    for saver in found:
        milliseconds = [cell(value(results, "tiered", saver, "sync", name)) for name in names]
        cells = [each and f"{each} ms" for each in milliseconds]
        lines.append(f"| {saver} | {' | '.join(cells)} |")
    return "\n".join((*lines, *notes(results, ("tiered",), left_out=False)))


def _times(number: float | None, factor: float) -> float | None:
    return None if number is None else number * factor
