"""One run of the price monitor: its files, how to start it, and what it did."""

from __future__ import annotations

import re
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from langgraph_statekit import open_saver
from tests.programs import PIPE, Program

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
demo = import_module("demo")
monitor = import_module("price_monitor")
shop = import_module("shop")

ITEMS = 200

Outcome = tuple[list[tuple[str, int, int]], dict[str, Any]]
"""Price changes and report of a run."""


@dataclass
class Job:
    """One run's files, and how to start it."""

    folder: Path
    catalogue: Path
    store: str
    provider: str = "strict"
    thread: str = "night run"

    @property
    def prices(self) -> Path:
        return self.folder / "prices.db"

    def options(self) -> list[str]:
        given = {"store": self.store, "catalogue": self.catalogue, "prices": self.prices}
        given |= {"provider": self.provider, "thread": self.thread}
        return [text for name, value in given.items() for text in (f"--{name}", str(value))]

    def start(self, *more: str) -> Program:
        command = [sys.executable, str(EXAMPLES / "price_monitor.py"), *self.options(), *more]
        return Program(command, stdout=PIPE, stderr=PIPE, text=True, cwd=self.folder)

    def run(self, *more: str) -> tuple[int, str, str]:
        with self.start(*more) as process:
            out, err = process.communicate()
        return process.returncode, out, err

    def signal_at(self, item: int, number: int, *more: str) -> int:
        """Start, send a signal when the item (or a later one) is reported, and return the exit code."""
        with self.start(*more) as process:
            assert process.stdout is not None
            for line in process.stdout:
                reported = re.match(r" *(\d+)/", line)
                if reported and int(reported[1]) >= item:
                    process.send_signal(number)
                    break
            process.communicate()
        return process.returncode

    def finish(self) -> str:
        code, out, err = self.run()
        assert (code, err) == (0, "")
        return out

    def changes(self) -> list[tuple[str, int, int]]:
        """Changes in the order in which they were made; every key is used once."""
        with closing(sqlite3.connect(self.prices)) as db:
            rows = db.execute("SELECT key, sku, old_price, new_price FROM price_changes ORDER BY rowid").fetchall()
            assert len({key for key, *_ in rows}) == len(rows)
            current = dict(db.execute("SELECT sku, price FROM prices"))
        assert all(current[sku] == new for _, sku, _, new in rows)
        return [change for _, *change in rows]

    def states(self) -> list[dict[str, Any]]:
        """The thread's states, oldest first."""
        with open_saver(self.store) as saver:
            found = list(saver.list({"configurable": {"thread_id": self.thread}}))
        return [item.checkpoint["channel_values"] for item in reversed(found)]

    def outcome(self) -> Outcome:
        """What must not depend on kills."""
        last = self.states()[-1]
        return self.changes(), {name: last[name] for name in ("position", "changed", "kept", "skipped")}
