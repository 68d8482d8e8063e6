"""Keep prompts short: ours beside other projects, each in an environment of its own: `python -m benchmarks.context`.

Writes results/context.json and the tables of docs/context-numbers.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks.context_peers import CONTESTANTS, FACTS, Home
from benchmarks.machine import commit, load, machine
from benchmarks.peers import ROOT, environment, python_of, versions_of

RESULTS: Final = ROOT / "benchmarks/results/context.json"
PAGE: Final = ROOT / "docs/context-numbers.md"
LIMIT_S: Final = 600
COLUMNS: Final = {
    "cost": ("cost", 1e3, "k"),
    "summarizer_calls": ("summarizer calls", 1, ""),
    "summarizer_tokens": ("summarizer reads", 1e3, "k"),
    "peak_tokens": ("peak prompt", 1, ""),
    "cached_share": ("cached", 0.01, " %"),
    "values_shown": ("values at hand", 0.01, " %"),
    "lost_questions": ("calls without the live question", 1, ""),
    "pair_errors": ("pair errors", 1, ""),
    "p50_ms": ("ms a call, p50", 1, ""),
    "p95_ms": ("p95", 1, ""),
    "no_op_ms_1000": ("ms at 1,000 messages", 1, ""),
    "no_op_ms_5000": ("at 5,000", 1, ""),
}
CHATS: Final = {"chat": (), "memory": ("memory",), "coding": ("coding",)}
"""Questions that each contestant is asked by itself, with the name of another conversation than the airline's."""
QUESTIONS: Final = (*CHATS, "facts", "kit")
KINDS: Final = ("safety_rule", "hard_constraint", "fact", "goal_state", "user_preference")


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the questions and write what was found; 1 if ours or a peer gave no numbers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context", description=__doc__)
    parser.add_argument("questions", nargs="*", default=[*QUESTIONS], help=f"some of {', '.join(QUESTIONS)}")
    parser.add_argument("--only", default="", help="of chats, those whose name has this in it; the others stay")
    given = parser.parse_args(arguments)
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    failed = 0
    for question in given.questions:
        talks = question in CHATS
        found: dict[str, Any] = dict(results.get(question, {})) if talks and given.only else {}
        chats = [(each.name, each.home) for each in CONTESTANTS if given.only in each.name]
        for name, home in chats if talks else [(question, FACTS)]:
            try:
                if talks:
                    found[name] = _asked(home, "benchmarks.context_chat", name, *CHATS[question])
                else:
                    found[name] = _asked(home, f"benchmarks.context_{question}")
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                found[name] = {"fails": str(error)[-300:]}
                failed = 1
            print(question, name, json.dumps(found[name])[:200], flush=True)
        results[question] = found if talks else found[question]
    homes = {each.home for each in CONTESTANTS} | {FACTS}
    results["about"] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(ROOT),
        "machine": machine(),
        "load": load(),
        "versions": {home.name: versions_of(home, python_of(home)) for home in homes},  # type: ignore[arg-type]
    }
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return failed


def _asked(home: Home, module: str, *arguments: str) -> Any:
    command = [python_of(home), "-m", module, *arguments]  # type: ignore[arg-type]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, env=environment(), cwd=ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"ended {done.returncode}")
    return json.loads(done.stdout)


def rendered(page: str, results: dict[str, Any]) -> str:
    """Return the page with the tables between its markers written anew; those of questions without an answer stay."""
    for name, table, questions in (
        ("prompts", prompts, {"chat"}),
        ("others", others, CHATS.keys() - {"chat"}),
        ("facts", facts, {"facts"}),
        ("parts", parts, {"facts"}),
        ("kit", kit, {"kit"}),
    ):
        if questions <= results.keys():
            begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
            before, _, rest = page.partition(begin)
            page = f"{before}{begin}\n{table(results)}\n{end}{rest.partition(end)[2]}"
    return page


def prompts(results: dict[str, Any]) -> str:
    """Return the table of the replayed conversation."""
    lines = [f"| | {' | '.join(title for title, _, _ in COLUMNS.values())} |", "|---" * (len(COLUMNS) + 1) + "|"]
    order = {each.name: place for place, each in enumerate(CONTESTANTS)}
    for name, numbers in sorted(results["chat"].items(), key=lambda found: order.get(found[0], len(order))):
        if "fails" in numbers:
            lines.append(f"| {name} | fails: {numbers['fails']} |" + " |" * (len(COLUMNS) - 1))
            continue
        cells = [_cell(numbers[key] / scale) + unit for key, (_, scale, unit) in COLUMNS.items()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join((_about(results), "", *lines))


def others(results: dict[str, Any]) -> str:
    """Return the table of the conversations on which nothing was tuned."""
    titles = {"memory": "chat of 323 turns, no tools", "coding": "one task, 11 calls of tools"}
    heads = [f"{title}: cost | peak prompt | without the live question | pair errors" for title in titles.values()]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (4 * len(titles) + 1) + "|"]
    keys = ("cost", "peak_tokens", "lost_questions", "pair_errors")
    for name in (each.name for each in CONTESTANTS if all(each.name in results[title] for title in titles)):
        cells = []
        for numbers in (results[title][name] for title in titles):
            cells += (
                [f"fails: {numbers['fails']}", "", "", ""] if "fails" in numbers else [_cell(numbers[k]) for k in keys]
            )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def facts(results: dict[str, Any]) -> str:
    """Return the table of the facts kept at equal sizes."""
    lines = ["| | 200 characters | 600 characters | 10 % | 20 % | ms a window |", "|---" * 6 + "|"]
    for name, numbers in results["facts"]["all"].items():
        cells = [f"{numbers[size]:.0%}" for size in ("200", "600", "0.1", "0.2")]
        lines.append(f"| {name} | {' | '.join(cells)} | {_cell(numbers['window_ms'])} |")
    return "\n".join(lines)


def parts(results: dict[str, Any]) -> str:
    """Return the table of the facts kept in each scenario."""
    found = results["facts"]["parts"]
    scenarios = list(next(iter(found.values())))
    lines = [f"| | {' | '.join(scenarios)} |", "|---" * (len(scenarios) + 1) + "|"]
    for name, shares in found.items():
        cells = [", ".join(f"{share:.0%}" for share in shares[scenario].values()) for scenario in scenarios]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def kit(results: dict[str, Any]) -> str:
    """Return the table of what survives the first and the fifth round."""
    lines = [f"| | characters | {' | '.join(kind.replace('_', ' ') for kind in KINDS)} |", "|---" * 7 + "|"]
    for name, budgets in results["kit"].items():
        for chars, kinds in budgets.items():
            cells = [" → ".join(f"{share:.0%}" for share in kinds[kind]) for kind in KINDS]
            lines.append(f"| {name} | {int(chars):,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _about(results: dict[str, Any]) -> str:
    about, calls = results["about"], max(found.get("calls", 0) for found in results["chat"].values())
    packages = {name: release for found in about["versions"].values() for name, release in found.items()}
    shown = ("langgraph", "langchain", "langmem", "deepagents", "agentstate-reducer", "lede")
    releases = ", ".join(f"{name} {packages[name]}" for name in shown if name in packages)
    return (
        f"{calls} calls of the model. Measured {about['started'][:10]} on {about['machine']['cores']} cores"
        f" ({about['machine']['cpu']}), Python {about['machine']['python']}, load {about['load']}; {releases}."
        " Trust ratios, not milliseconds."
    )


def _cell(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 99.5 or number == int(number) else f"{number:.2g}"


if __name__ == "__main__":
    sys.exit(main())
