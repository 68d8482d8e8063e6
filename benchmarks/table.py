"""Write the tables of the README and of the pages in docs/ from the kept results: `python -m benchmarks.table`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cells import Results, about, cell, notes, ratio, value
from benchmarks.tiered_table import tiered_table

ROOT: Final = Path(__file__).parents[1]
LATEST: Final = ROOT / "benchmarks/results/latest.json"
PAGES: Final = tuple(ROOT / page for page in ("README.md", "docs/performance.md", "docs/peers.md", "docs/tiered.md"))
BASE: Final = "InMemorySaver"


def rendered(page: str, results: Results) -> str:
    """Return a page with everything between its markers written anew."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if begin in page:
            before, _, rest = page.partition(begin)
            _, _, after = rest.partition(end)
            page = f"{before}{begin}\n{table(results)}\n{end}{after}"
    return page


@dataclass(frozen=True)
class Goal:
    """A number to reach.

    Attributes:
        what: In words.
        limit: The worst value that reaches it.
        unit: Shown after the numbers.
        measured: Takes the results and a mode.
        least: Whether more is better.
        strict: Whether the limit itself is not enough.
        modes: In which it is measured.
    """

    what: str
    limit: float
    unit: str
    measured: Callable[[Results, str], float | None]
    least: bool = False
    strict: bool = False
    modes: Sequence[str] = ("sync", "async")

    def reached(self, measured: float) -> bool:
        if self.strict:
            return measured < self.limit
        return measured >= self.limit if self.least else measured <= self.limit


def _of(workload: str, store: str, number: str, scale: float = 1) -> Callable[[Results, str], float | None]:
    def measured(results: Results, mode: str) -> float | None:
        found = value(results, workload, f"statekit-{store}", mode, number)
        return None if found is None else found / scale

    return measured


def _per(workload: str, store: str, number: str, other: str = BASE) -> Callable[[Results, str], float | None]:
    def measured(results: Results, mode: str) -> float | None:
        ours = value(results, workload, f"statekit-{store}", mode, number)
        return ratio(ours, value(results, workload, other, mode, number))

    return measured


def _added(workload: str, store: str, more: str, less: str) -> Callable[[Results, str], float | None]:
    def measured(results: Results, mode: str) -> float | None:
        found = [value(results, workload, f"statekit-{store}", mode, name) for name in (more, less)]
        return None if None in found else found[0] - found[1]

    return measured


def _within(workload: str, store: str, above: str, below: str) -> Callable[[Results, str], float | None]:
    def measured(results: Results, mode: str) -> float | None:
        saver = f"statekit-{store}"
        return ratio(value(results, workload, saver, mode, above), value(results, workload, saver, mode, below))

    return measured


def _grown(store: str, number: str, other: str = "") -> Callable[[Results, str], float | None]:
    """Return by how much a number grew from `growth`'s first mark to its second, or that by another's growth."""

    def grown(results: Results, mode: str, name: str) -> float | None:
        size = results["sizes"].get("growth", {})
        first, second = (
            value(results, "growth", f"statekit-{store}", mode, f"{name}_{size.get(f'mark {index}')}")
            for index in (1, 2)
        )
        return ratio(second, first)

    def measured(results: Results, mode: str) -> float | None:
        found = grown(results, mode, number)
        return ratio(found, grown(results, mode, other)) if other else found

    return measured


_SYNC: Final = ("sync",)
GOALS: Final = (
    Goal("chat, bytes on Redis", 2, "MB", _of("chat", "redis", "stored_bytes", 1e6)),
    Goal("chat, bytes on Postgres", 2.5, "MB", _of("chat", "postgres", "stored_bytes", 1e6)),
    Goal("chat, time on Redis / InMemorySaver", 1.0, "x", _per("chat", "redis", "wall_s"), strict=True),
    Goal("chat, time on Postgres / InMemorySaver", 1.2, "x", _per("chat", "postgres", "wall_s")),
    Goal("chat, time on SQLite / InMemorySaver", 1.0, "x", _per("chat", "sqlite", "wall_s")),
    *(
        Goal(f"cold read of the chat, {store} / InMemorySaver", 1.1, "x", _per("resume", store, "cold_ms"))
        for store in ("redis", "postgres", "sqlite")
    ),
    *(
        Goal(f"bytes a turn, 1,000 turns / 200, {store}", 1.4, "x", _grown(store, "bytes_per_turn"), modes=_SYNC)
        for store in ("redis", "postgres", "sqlite")
    ),
    *(
        Goal(
            f"growth of a turn's time / of a read's time, {store}",
            1.0,
            "x",
            _grown(store, "turn_ms", "read_ms"),
            modes=_SYNC,
        )
        for store in ("redis", "postgres", "sqlite")
    ),
    *(
        Goal(f"round trips of {call}, {store}", most, "", _of("roundtrips", store, call), modes=_SYNC)
        for store in ("redis", "postgres")
        for call, most in (
            ("put", 1),
            ("put_writes", 1),
            ("leased_put", 1),
            ("leased_put_writes", 1),
            ("get", 1),
            ("list_50", 2),
            ("delete", 1),
        )
    ),
    *(
        Goal(f"what a lease adds to a put, {store}", 0.3, "ms", _added("life", store, "leased_put_ms", "put_ms"))
        for store in ("redis", "postgres", "sqlite")
    ),
    *(
        Goal(
            f"a put of 1,000 with keep_last=100 / without, {store}",
            1.1,
            "x",
            _within("life", store, "retained_put_ms", "growing_put_ms"),
        )
        for store in ("redis", "postgres", "sqlite")
    ),
    *(
        Goal(f"1,000 {kind}, watched / not, {store}", 1.05, "x", _of("watchdog", store, number), modes=("async",))
        for store in ("redis", "postgres", "sqlite")
        for kind, number in (("empty steps", "ratio"), ("steps with an effect", "effect_ratio"))
    ),
    Goal("one of 20 channels of 50 KB, Redis / floor", 2, "x", _per("wide", "redis", "wall_s", "floor-redis")),
    Goal(
        "one of 20 channels of 50 KB, Postgres / floor", 1.5, "x", _per("wide", "postgres", "wall_s", "floor-postgres")
    ),
    Goal(
        "concurrent calls a second, Redis / floor",
        0.5,
        "x",
        _per("concurrency", "redis", "calls_per_s", "floor-redis"),
        least=True,
    ),
    Goal(
        "concurrent calls a second, Postgres / floor",
        0.6,
        "x",
        _per("concurrency", "postgres", "calls_per_s", "floor-postgres"),
        least=True,
    ),
    Goal(
        "chat, bytes below with write_behind", 1, "MB", _of("tiered", "tiered", "chat_stored_bytes", 1e6), modes=_SYNC
    ),
    Goal("chat, objects below with write_behind", 30, "", _of("tiered", "tiered", "chat_objects"), modes=_SYNC),
    Goal(
        "a put with write_behind / of the hot store alone",
        1.05,
        "x",
        _within("tiered", "tiered", "put_ms", "hot_put_ms"),
        modes=_SYNC,
    ),
    *(
        Goal(f"100 parallel tasks, {store} / InMemorySaver", 2, "x", _per("fanout", store, "run_ms"))
        for store in ("redis", "postgres", "sqlite")
    ),
    *(
        Goal(f"first view of 10,000 checkpoints, {store}", 150, "ms", _of("timetravel", store, "view_ms"), modes=_SYNC)
        for store in ("redis", "postgres", "sqlite")
    ),
    *(
        Goal(f"{call} of 1,000 checkpoints, {store}", most, unit, _of("maintenance", store, number))
        for store in ("redis", "postgres", "sqlite")
        for call, number, most, unit in (
            ("prune", "prune_ms", 5, "ms"),
            ("delete", "delete_ms", 3, "ms"),
            ("copy / the store's own copy", "copy_per_own_copy", 1.5, "x"),
        )
    ),
)


def chat_table(results: Results) -> str:
    """Return the README's table: the chat with every saver."""
    size = results["sizes"].get("chat", {})
    lines = [
        about(results, f"A chat of {size.get('turns', 0)} turns, plain `add_messages`, medians. "),
        "",
        f"| saver | time / {BASE} (sync, async) | stored | 100 parallel tasks / {BASE} (sync, async) |",
        "|---|---|---|---|",
    ]
    found = results["summary"].get("chat", {})
    for saver in found:
        if saver.startswith("floor-"):
            continue
        cells = [
            _pair(results, "chat", saver, "wall_s"),
            _stored(results, saver),
            _pair(results, "fanout", saver, "run_ms"),
        ]
        lines.append(f"| {saver} | {' | '.join(cells)} |")
    return "\n".join((*lines, *notes(results, ("chat", "fanout"))))


def peers_table(results: Results) -> str:
    """Return what every saver that was asked for the chat took for the same questions, one row each."""
    asked = ("chat", "resume", "history", "maintenance", "roundtrips")
    savers = dict.fromkeys(saver for workload in asked for saver in results["summary"].get(workload, {}))
    calls = ("put", "put_writes", "get", "list_50")
    lines = [
        about(results),
        "",
        f"| saver | time | stored | cold read, ms | list, ms | delete, ms | round trips: {', '.join(calls)} |",
        "|---" * 7 + "|",
    ]
    for saver in savers:
        if saver.startswith("floor-") or saver not in results["summary"].get("chat", {}):
            continue
        numbers = (("resume", "cold_ms"), ("history", "page_ms"), ("maintenance", "delete_ms"))
        trips = [cell(value(results, "roundtrips", saver, "sync", call)) for call in calls]
        cells = [
            _pair(results, "chat", saver, "wall_s"),
            _stored(results, saver),
            *(cell(value(results, workload, saver, "sync", number)) for workload, number in numbers),
            ", ".join(trips) if any(trips) else "",
        ]
        lines.append(f"| {saver} | {' | '.join(cells)} |")
    return "\n".join((*lines, *notes(results, asked)))


def goals_table(results: Results) -> str:
    """Return each goal, what was measured, and whether it is reached."""
    lines = [about(results), "", "| what | goal | sync | async | reached |", "|---|---|---|---|---|"]
    for goal in GOALS:
        found = {mode: None if results["quick"] else goal.measured(results, mode) for mode in goal.modes}
        reached = "no"
        if all(number is None for number in found.values()):
            reached = "not measured"
        elif all(number is not None and goal.reached(number) for number in found.values()):
            reached = "yes"
        sign = "<" if goal.strict else ">=" if goal.least else "<="
        cells = [
            f"{sign} {goal.limit:g} {goal.unit}".strip(),
            cell(found.get("sync")),
            cell(found.get("async")),
            reached,
        ]
        lines.append(f"| {goal.what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def profile_table(results: Results) -> str:
    """Return the shares of the layers in the time of the chat."""
    found = {saver: next(iter(modes.values())) for saver, modes in results["summary"].get("profile", {}).items()}
    layers = [
        *dict.fromkeys(name for numbers in found.values() for name in numbers if name not in ("profiled_s", "fails"))
    ]
    lines = [f"| saver | seconds | {' | '.join(layers)} |", "|---" * (len(layers) + 2) + "|"]
    for saver, numbers in found.items():
        if "fails" not in numbers:
            shares = " | ".join(f"{numbers[layer][0]:.0%}" for layer in layers)
            lines.append(f"| {saver} | {cell(numbers['profiled_s'][0])} | {shares} |")
    return about(results) if results["quick"] or not found else "\n".join(lines)


def every_table(results: Results) -> str:
    """Return all numbers of all questions."""
    parts = [about(results)]
    for workload, savers in results["summary"].items():
        answers = [found for modes in savers.values() for found in modes.values() if "fails" not in found]
        numbers = list(dict.fromkeys(name for found in answers for name in found))
        size = ", ".join(f"{name} {count:,}" for name, count in results["sizes"].get(workload, {}).items())
        parts += ["", f"**{workload}** ({size})", ""]
        parts += [f"| saver | mode | {' | '.join(numbers)} |", "|---" * (len(numbers) + 2) + "|"]
        for saver, modes in savers.items():
            for mode, found in modes.items():
                cells = [cell(found[name][0] if name in found else None) for name in numbers]
                if "fails" in found:
                    cells = ["fails", *cells[1:]]
                parts.append(f"| {saver} | {mode} | {' | '.join(cells)} |")
        parts += notes(results, (workload,), left_out=False)
    return "\n".join(parts)


def _pair(results: Results, workload: str, saver: str, number: str) -> str:
    cells = []
    for mode in ("sync", "async"):
        fails = "fails" in results["summary"].get(workload, {}).get(saver, {}).get(mode, {})
        found = ratio(value(results, workload, saver, mode, number), value(results, workload, BASE, mode, number))
        cells.append("fails" if fails else cell(found))
    return ", ".join(cells)


def _stored(results: Results, saver: str) -> str:
    size_bytes = value(results, "chat", saver, "sync", "stored_bytes")
    return "" if size_bytes is None else f"{size_bytes / 1e6:.3g} MB"


TABLES: Final[dict[str, Callable[[Results], str]]] = {
    "benchmarks": chat_table,
    "peers": peers_table,
    "goals": goals_table,
    "profile": profile_table,
    "tiered": tiered_table,
    "every number": every_table,
}


def main() -> int:
    """Write the pages; 1 if a page has no place for a table."""
    results = json.loads(LATEST.read_text(encoding="utf-8"))
    without = 0
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        if not re.search(rf"<!-- ({'|'.join(TABLES)}): begin -->", before):
            print(f"{page.name} has no markers", file=sys.stderr)
            without = 1
        page.write_text(rendered(before, results), encoding="utf-8")
    return without


if __name__ == "__main__":
    raise SystemExit(main())
