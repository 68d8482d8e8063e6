"""Kill the price monitor at random items, resume it each time, and show that nothing was lost or done twice."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from price_monitor import CATALOGUE
from shop import Item, read_catalogue

from langgraph_statekit import open_saver

KILLS = 5
THREAD = "demo"
SHOWN = 10


def command(folder: Path) -> list[str]:
    script = str(Path(__file__).with_name("price_monitor.py"))
    store = f"sqlite:///{folder / 'checkpoints.db'}"
    return [sys.executable, script, "--store", store, "--prices", str(folder / "prices.db"), "--thread", THREAD]


def run_until(item: int, folder: Path) -> None:
    """Start the monitor and kill it with SIGKILL when it reports the item or a later one."""
    slowly = [*command(folder), "--delay-s", "0.01"]
    with subprocess.Popen(slowly, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = next(process.stdout, "").rstrip()
        last = next((line for line in process.stdout if reported(line) >= item), "finished before the kill").rstrip()
        process.send_signal(signal.SIGKILL)
    print(f"  {first}\n  ...\n  {last}\n  SIGKILL", flush=True)


def reported(line: str) -> int:
    """Return the item that a line of the monitor is about, or 0."""
    number = re.match(r" *(\d+)/", line)
    return int(number[1]) if number else 0


def read_states(folder: Path) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return time, metadata and state of every checkpoint, oldest first."""
    with open_saver(f"sqlite:///{folder / 'checkpoints.db'}") as saver:
        found = list(saver.list({"configurable": {"thread_id": THREAD}}))
    return [(each.checkpoint["ts"], dict(each.metadata), each.checkpoint["channel_values"]) for each in reversed(found)]


def verify(states: Sequence[dict[str, Any]], items: Sequence[Item], folder: Path) -> list[str]:
    """Return what is wrong with the finished run."""
    wrong = []
    positions = [state["position"] for state in states if "position" in state]
    if positions[0] != 0 or positions[-1] != len(items) or {b - a for a, b in pairwise(positions)} != {0, 1}:
        wrong.append("an item was left out or repeated")
    with closing(sqlite3.connect(folder / "prices.db")) as prices:
        changes = prices.execute("SELECT key, sku FROM price_changes ORDER BY rowid").fetchall()
    order = {item.sku: place for place, item in enumerate(items)}
    places = [order[sku] for _, sku in changes]
    if len(set(changes)) != len(changes) or places != sorted(set(places)):
        wrong.append("a price was changed twice or out of order")
    last = states[-1]
    if len(changes) != last["changed"] or last["changed"] + last["kept"] + len(last["skipped"]) != len(items):
        wrong.append("the report does not match the price table")
    return wrong


def show(states: Sequence[tuple[str, dict[str, Any], dict[str, Any]]], items: Sequence[Item], folder: Path) -> None:
    print(f"\nThe last {SHOWN} of {len(states)} checkpoints of thread {THREAD!r}:")
    print("   step  item           at")
    for at, metadata, state in states[-SHOWN:]:
        position = state["position"]
        sku = items[position].sku if position < len(items) else "(end)"
        print(f"  {metadata['step']:5}  {sku:<13}  {at}")
    size_bytes = sum(file.stat().st_size for file in folder.glob("checkpoints.db*"))
    print(f"\nStore: {size_bytes / 1e6:.1f} MB in SQLite, {size_bytes / len(states):.0f} bytes a checkpoint.")


def main() -> int:
    """Return 0 if every item was handled exactly once and in order."""
    items = read_catalogue(CATALOGUE)
    kills = sorted(random.SystemRandom().sample(range(2, len(items) - 20), KILLS))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="statekit-demo-") as name:
        folder = Path(name)
        print(f"{len(items)} items; the monitor will be killed at items {', '.join(map(str, kills))}.\n", flush=True)
        for item in kills:
            run_until(item, folder)
        done = subprocess.run(command(folder), stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        end = next(place for place, line in enumerate(done) if line.startswith("items handled"))
        print("\n".join(["  " + line for line in (done[0], "...", *done[end - 1 :])]), flush=True)
        history = read_states(folder)
        show(history, items, folder)
        wrong = verify([state for _, _, state in history], items, folder)
    verdict = "; ".join(wrong) or "every item was handled exactly once and in order"
    print(f"\n{KILLS} kills, {time.monotonic() - began:.0f} s: {verdict}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
