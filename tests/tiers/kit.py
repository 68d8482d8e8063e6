"""Two real tiers of each kind, processes on them that may be killed, and a look at what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from langgraph_statekit import TieredSaver, open_saver
from tests.faces import LONG, checkpoint, config, id_of, metadata
from tests.servers import wait_until
from tests.stores_table import STORES
from tests.stores_under_test import SqliteStore, Store, unique
from tests.tiered_under_test import HOT

CRASHES = int(os.environ.get("STATEKIT_TEST_CRASHES", "8"))
"""How often processes are killed; 100 and more take minutes."""

PAIRS = ["sqlite-file", "sqlite-s3", "redis-s3", "postgres-file"]
if CRASHES >= 100:
    PAIRS = [f"{hot}-{cold}" for hot in HOT for cold in ("file", "s3")]
ROOT = Path(__file__).parents[2]


class Tiers:
    """A fresh hot store above a fresh cold one."""

    def __init__(self, hot: Store, cold: Store, directory: Path) -> None:
        self.hot, self.cold = hot, cold
        self._directory = directory
        query = f"{'&' if '?' in cold.url else '?'}{urlencode({**cold.options, 'retry_s': 20})}"
        self.cold_url = f"{cold.url}{query}"

    @classmethod
    def of(cls, pair: str, url: Callable[[str], str], directory: Path) -> Tiers:
        """Return those that a name of `PAIRS` tells."""
        hot, cold = pair.split("-")
        return cls(HOT[hot](url, directory), STORES[cold](url, directory), directory)

    def options(self, **options: Any) -> dict[str, Any]:
        """Return what `open_saver` takes beside the URL of the hot store."""
        return {**self.hot.options, **self._shared(**options)}

    def _shared(self, **options: Any) -> dict[str, Any]:
        return {"cold": self.cold_url, "grace_s": 0.0, "max_lag_s": 3600.0, **options}

    def open(self, **options: Any) -> TieredSaver:
        """Return a new saver on both."""
        return cast(TieredSaver, open_saver(self.hot.url, **self.options(**options)))

    def open_below(self, **options: Any) -> TieredSaver:
        """Return a saver that has the cold store only, as when the hot one was lost."""
        empty = SqliteStore(lambda kind: "", self._directory)
        return cast(TieredSaver, open_saver(empty.url, **self._shared(**options)))

    def lose_hot(self) -> None:
        """Lose all that the hot store holds."""
        self.hot.lose()

    def clean(self) -> None:
        """Remove both."""
        self.hot.clean()
        self.cold.clean()


class Workers:
    """Starts processes in a moment, as children of one that has loaded all they need and opened nothing."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        self._started: list[Worker] = []
        with errors.open("ab") as told:
            self._mother = subprocess.Popen(
                [sys.executable, "-m", "tests.tiers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
                cwd=ROOT,
            )

    def start(self, job: str, tiers: Tiers, options: dict[str, Any], log: Path, **given: Any) -> Worker:
        """Start a job of `tests.tiers.worker`."""
        log.touch()
        what = {"job": job, "url": tiers.hot.url, "options": options, "log": str(log), "given": given}
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.write(json.dumps(what) + "\n")
        self._mother.stdin.flush()
        self._started.append(Worker(int(self._mother.stdout.readline()), log, self._errors))
        return self._started[-1]

    @property
    def errors(self) -> str:
        """What the processes complained of."""
        return self._errors.read_text()

    def end(self) -> None:
        """End all of them, and forget what they complained of."""
        for worker in self._started:
            worker.end()
            worker.wait()
        self._started.clear()
        self._errors.write_text("")

    def close(self) -> None:
        """Start no more."""
        self._mother.communicate()


class Worker:
    """One process; each line of its log is one thing that it has done, or `...` and one that it began."""

    def __init__(self, pid: int, log: Path, errors: Path) -> None:
        self._pid, self._log, self._errors = pid, log, errors

    @property
    def lines(self) -> list[str]:
        """What it did; a line that it was killed in is left out."""
        return self._log.read_text().rpartition("\n")[0].splitlines()

    @property
    def ended(self) -> int | None:
        """How it ended: its exit code, or the negative number of a signal; None while it runs."""
        told = Path(f"{self._log}.{self._pid}")
        return int(told.read_text()) if told.exists() else None

    def kill(self, after_lines: int) -> None:
        """Kill it once it has written so many lines."""
        wait_until(lambda: self.ended is not None or len(self.lines) >= after_lines, f"{after_lines} lines")
        self.end()
        assert self.wait() == -9, self._errors.read_text()

    def end(self) -> None:
        """Kill it if it runs."""
        if self.ended is None:
            os.kill(self._pid, 9)

    def wait(self) -> int:
        """Wait for its end."""
        wait_until(lambda: self.ended is not None, "the end of a process")
        return cast(int, self.ended)


@contextmanager
def workers(directory: Path) -> Iterator[Workers]:
    """Yield what starts processes."""
    made = Workers(directory / "errors")
    try:
        yield made
    finally:
        made.close()


def content(number: int) -> dict[str, Any]:
    """Return the values of the checkpoint with this number."""
    return {"log": [LONG, *range(number)], "last": number}


def grow(saver: Any, count: int, thread: str) -> Iterator[tuple[str, str]]:
    """Put checkpoints with writes below the latest one; yield `begin`, `put` and `written` with the id as they are."""
    found = saver.get_tuple(config(thread))
    number = found.checkpoint["channel_values"]["last"] + 1 if found else 0
    at = found.config if found else config(thread)
    for each in range(number, number + count):
        made = checkpoint(content(each), dict.fromkeys(("log", "last"), f"{each:06}.{unique()}"))
        yield "begin", made["id"]
        at = saver.put(at, made, metadata(each), made["channel_versions"])
        yield "put", made["id"]
        saver.put_writes(at, [("log", each), ("last", each)], "task")
        yield "written", made["id"]


def put(saver: Any, count: int, thread: str = "t") -> list[str]:
    """Put checkpoints as `grow` does; return their ids."""
    return [id for what, id in grow(saver, count, thread) if what == "put"]


def history(saver: Any, thread: str) -> dict[str, Any]:
    """Return values, parent and writes of each checkpoint, oldest first; fail if any of them is not what was put."""
    found = {
        id_of(item.config): (
            item.checkpoint["channel_values"],
            item.parent_config and id_of(item.parent_config),
            sorted(item.pending_writes or ()),
        )
        for item in saver.list(config(thread))
    }
    for values, parent, writes in found.values():
        number = values["last"]
        assert values == content(number)
        assert parent in found or parent is None or number > 0
        assert writes in ([], sorted([("task", "log", number), ("task", "last", number)]))
    return dict(reversed(found.items()))


def sample(steps: int) -> Sequence[int]:
    """Return which of the steps of a process to kill it at: all of them, or as many as were asked for."""
    import random

    return sorted(random.sample(range(1, steps + 1), min(CRASHES, steps)))
