"""Kill, hang, stop and upgrade the price monitor while it works, and show that each price was changed exactly once."""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from price_monitor import CATALOGUE
from pricing import BATCH
from shop import Item, read_catalogue

from langgraph_statekit import open_saver

KILLS = 1
THREAD = "demo"
FIRST_CHANGE = 3
"""An item whose price is changed."""
SHOWN = 8
LEASE_S = 1.5
SLOW_S = 0.03
"""Pause before each item where a process is to be stopped before it is through."""
TOO_LONG_S = 200.0
STUCK_S = 2.0


@dataclass
class Story:
    """One run of the monitor by several processes, and what it is told with.

    Attributes:
        store: URL of the store.
        folder: Where the files are.
        provider: `strict` or `plain`.
        catalogue: The items.
        processes: All that were started.
    """

    store: str
    folder: Path
    provider: str
    catalogue: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def prices(self) -> Path:
        return self.folder / "prices.db"

    def start(self, *more: object) -> subprocess.Popen[str]:
        script = str(Path(__file__).with_name("price_monitor.py"))
        given = {"store": self.store, "prices": self.prices, "catalogue": self.catalogue, "provider": self.provider}
        given |= {"thread": THREAD, "lease-s": LEASE_S, "stuck-s": STUCK_S, "delay-s": 0.01}
        options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
        command = [sys.executable, script, *options, *map(str, more)]
        self.processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return self.processes[-1]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def until(process: subprocess.Popen[str], item: int, *said: str) -> list[str]:
    """Read what a process says until it reports the item or a later one, or says one of some words."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if reported(line) >= item or any(word in line for word in said):
            break
    return lines


def reported(line: str) -> int:
    """Return the item that a line of the monitor is about, or 0."""
    number = re.match(r" *(\d+)/", line)
    return int(number[1]) if number else 0


def show(title: str, lines: Sequence[str], then: str = "") -> None:
    """Print what a process said: what is not about items, and the last item."""
    items = [line for line in lines if reported(line)]
    others = [line for line in lines if line and not reported(line) and not line.startswith("batch")]
    print(f"{title}:")
    for line in (*others[:4], *(["..."] if len(items) > 1 else []), *items[-1:], *([then] if then else [])):
        print(f"  {line.strip() if line.startswith(' ') else line}"[:116])
    print(flush=True)


def tell(story: Story, count: int) -> None:
    """Let it all happen, over a catalogue of so many items."""
    kills = sorted(random.SystemRandom().sample(range(5, count // 4), KILLS))
    hang, upgrade, stop = count * 5 // 16, count // 2, count * 3 // 4
    worker = story.start("--release", 1, "--die-at", FIRST_CHANGE)
    show(f"A worker changes the price of item {FIRST_CHANGE}", worker.communicate()[0].splitlines(), "SIGKILL")
    for item in kills:
        worker = story.start("--release", 1)
        lines = until(worker, item)
        worker.kill()
        worker.wait()
        show(f"A worker is killed at item {item}", lines, "SIGKILL")
    hung = story.start("--release", 1, "--hang-at", hang)
    lines = until(hung, count, "does not answer")
    show(f"Another goes on, and the page of item {hang} does not answer", lines)
    first = story.start("--watch", "--release", 1, "--delay-s", SLOW_S)
    lines = until(first, upgrade)
    first.terminate()
    show(f"A supervisor ({STUCK_S:g} s without progress are a hang) takes the thread over", lines)
    show("The code is upgraded: release 1 is asked to stop", first.communicate()[0].splitlines())
    Path(f"{story.prices}.answers").touch()
    show("Now the page answers, and the worker that hung wants to go on", hung.communicate()[0].splitlines())
    second = story.start("--watch", "--release", 2, "--delay-s", SLOW_S)
    lines = until(second, stop)
    second.send_signal(signal.SIGSTOP)
    show("Release 2 goes on, in which a node has another name", lines, "SIGSTOP")
    third = story.start("--watch")
    lines = until(third, count)
    lines += until(third, count + 1, "finished")
    show(f"It stands still; its lease ends after {LEASE_S:g} s, and another supervisor takes over", lines)
    second.send_signal(signal.SIGCONT)
    third.terminate()
    lines = until(second, count, "fenced") if second.poll() is None else []
    second.terminate()
    show("It is let go on, too late", lines or ["it was killed, as it held the lock of the SQLite file"])


def states_of(store: str) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return time, metadata and state of every checkpoint, oldest first."""
    with open_saver(store) as saver:
        found = list(saver.list({"configurable": {"thread_id": THREAD}}))
    return [(each.checkpoint["ts"], dict(each.metadata), each.checkpoint["channel_values"]) for each in reversed(found)]


def verify(states: Sequence[dict[str, Any]], items: Sequence[Item], prices: Path) -> list[str]:
    """Return what is wrong with the finished run."""
    wrong = []
    positions = [state["position"] for state in states if "position" in state]
    if positions[0] != 0 or positions[-1] != len(items) or {b - a for a, b in pairwise(positions)} != {0, 1}:
        wrong.append("an item was left out or repeated")
    with closing(sqlite3.connect(prices)) as db:
        changes = db.execute("SELECT key, sku FROM price_changes ORDER BY rowid").fetchall()
    order = {item.sku: place for place, item in enumerate(items)}
    places = [order[sku] for _, sku in changes]
    if len(set(changes)) != len(changes) or places != sorted(set(places)):
        wrong.append("a price was changed twice or out of order")
    last = states[-1]
    if len(changes) != last["changed"] or last["changed"] + last["kept"] + len(last["skipped"]) != len(items):
        wrong.append("the report does not match the price table")
    return wrong


def show_history(states: Sequence[tuple[str, dict[str, Any], dict[str, Any]]], items: Sequence[Item]) -> None:
    print(f"The last {SHOWN} of {len(states)} checkpoints of thread {THREAD!r}:")
    print("   step  item           at")
    for at, metadata, state in states[-SHOWN:]:
        position = state["position"]
        sku = items[position].sku if position < len(items) else "(end)"
        print(f"  {metadata['step']:5}  {sku:<13}  {at}")
    last = states[-1][2]
    print(
        f"\n{-(-len(items) // BATCH)} batches of {BATCH}: changed {last['changed']}, kept {last['kept']}, skipped "
        f"{len(last['skipped'])} (empty, old or missing pages).\nRepeats avoided: {last['repeats']}, of which "
        f"{last['refused']} were refused by the price system and {last['asked']} were unknown and asked for."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if every item was handled exactly once and in order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="URL of an empty store (default: SQLite in a folder that is removed)")
    parser.add_argument("--provider", default="strict", choices=("strict", "plain"))
    parser.add_argument("--items", type=int, help="how many of the catalogue's items (default: all)")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="statekit-demo-") as name:
        folder = Path(name)
        lines = CATALOGUE.read_text(encoding="utf-8").splitlines(keepends=True)
        catalogue = folder / "catalogue.csv"
        catalogue.write_text("".join(lines[: options.items and options.items + 1]), encoding="utf-8")
        items = read_catalogue(catalogue)
        store = options.store or f"sqlite:///{folder / 'checkpoints.db'}"
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        story = Story(store, folder, options.provider, catalogue)
        print(f"{len(items)} items, in batches of {BATCH}; a {options.provider} price system.\n", flush=True)
        timer = threading.Timer(TOO_LONG_S, story.close)  # whoever waits for what a process says goes on then
        timer.start()
        with closing(story):
            tell(story, len(items))
        timer.cancel()
        history = states_of(store)
        show_history(history, items)
        wrong = verify([state for _, _, state in history], items, story.prices)
    verdict = "; ".join(wrong) or "each price was changed exactly once, and every item handled once and in order"
    print(f"\n{time.monotonic() - began:.0f} s: {verdict}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
