"""The price monitor handles every item once and in order, whatever kills it."""

from __future__ import annotations

import csv
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from langgraph_statekit import open_saver
from tests.servers import free_ports
from tests.stores_under_test import DURABLE, Store

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
monitor = import_module("price_monitor")
shop = import_module("shop")

ITEMS = 200
KILLS = 9
KILL_AFTER_CHANGE = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import price_monitor, shop
class Table(shop.PriceTable):
    left = int(sys.argv[2])
    def change(self, *change):
        super().change(*change)
        Table.left -= 1
        if not Table.left:
            os.kill(os.getpid(), signal.SIGKILL)
price_monitor.PriceTable = Table
price_monitor.main(sys.argv[3:])
"""


KILL_AFTER_WRITES = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import price_monitor
from langgraph_statekit import StatekitSaver
left, put_writes = int(sys.argv[2]), StatekitSaver.put_writes
def counted(self, config, writes, task_id, task_path=""):
    global left
    put_writes(self, config, writes, task_id, task_path)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
StatekitSaver.put_writes = counted
price_monitor.main(sys.argv[3:])
"""


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

    def start(self, *more: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(EXAMPLES / "price_monitor.py"), *self.options(), *more]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)

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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "killed_on" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--stores").split(",")
        pairs = [(store, "plain") for store in DURABLE] + [
            (store, "strict") for store in ("sqlite", "redis", "postgres")
        ]
        metafunc.parametrize(("killed_on", "provider"), [pair for pair in pairs if pair[0] in chosen])


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = monitor.CATALOGUE.read_text(encoding="utf-8").splitlines(keepends=True)
    path: Path = tmp_path_factory.mktemp("catalogue") / "catalogue.csv"
    path.write_text("".join(lines[: ITEMS + 1]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(catalogue: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("finished")
    job = Job(folder, catalogue, f"sqlite:///{folder / 'store.db'}")
    assert "starting at item 1 of 200" in job.finish()
    return job


@pytest.fixture(scope="module")
def undisturbed(finished: Job) -> Outcome:
    return finished.outcome()


@pytest.fixture
def job(tmp_path: Path, catalogue: Path) -> Job:
    return Job(tmp_path, catalogue, f"sqlite:///{tmp_path / 'store.db'}")


@pytest.mark.slow
def test_killed_at_random_items_every_item_is_handled_once_and_in_order(
    new_store: Callable[[str], Store],
    killed_on: str,
    provider: str,
    tmp_path: Path,
    catalogue: Path,
    undisturbed: Outcome,
) -> None:
    store = new_store(killed_on)
    job = Job(tmp_path, catalogue, f"{store.url}?{urlencode(store.options)}", provider)
    kills = sorted(random.SystemRandom().sample(range(2, ITEMS - 60), KILLS))
    # The pause keeps a monitor whose killer gets no processor time from reaching the end.
    codes = [job.signal_at(item, signal.SIGKILL, "--delay-s", "0.05") for item in kills]
    assert codes == [-signal.SIGKILL] * KILLS, kills
    out = job.finish()
    assert "going on at item" in out
    assert job.outcome() == undisturbed, kills
    positions = [state["position"] for state in job.states() if "position" in state]
    steps = [after - before for before, after in pairwise(positions)]
    assert positions[0] == 0
    assert set(steps) == {0, 1}, kills
    assert sum(steps) == ITEMS


@pytest.mark.parametrize("provider", ["strict", "plain"])
def test_a_kill_between_a_change_and_its_checkpoint_changes_the_price_once(
    job: Job, provider: str, undisturbed: Outcome
) -> None:
    job.provider = provider
    for nth in (1, 2, 40):
        command = [sys.executable, "-c", KILL_AFTER_CHANGE, str(EXAMPLES), str(nth), *job.options()]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    job.finish()
    assert job.outcome() == undisturbed
    assert job.states()[-1]["repeats"] == 3


def test_a_kill_between_a_steps_writes_and_its_checkpoint_ends_nothing(job: Job, undisturbed: Outcome) -> None:
    for nth in (1, 2, 3, 4, 5, 50):
        command = [sys.executable, "-c", KILL_AFTER_WRITES, str(EXAMPLES), str(nth), *job.options()]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    job.finish()
    assert job.outcome() == undisturbed


@pytest.mark.parametrize("provider", ["strict", "plain"])
def test_a_run_whose_checkpoints_were_lost_cuts_no_price_again(job: Job, provider: str, finished: Job) -> None:
    job.provider = provider
    shutil.copyfile(finished.prices, job.prices)
    if provider == "plain":
        with closing(sqlite3.connect(job.prices)) as db:
            db.execute("DROP INDEX price_changes_once")
    assert "starting at item 1 of 200" in job.finish()
    assert job.outcome() == finished.outcome()
    last = job.states()[-1]
    assert last["repeats"] == last["changed"]


def test_a_finished_run_started_again_changes_nothing(finished: Job) -> None:
    before = finished.changes(), finished.states()
    assert "is finished" in finished.finish()
    assert (finished.changes(), finished.states()) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_signal_ends_after_the_step_and_says_how_to_go_on(
    job: Job, number: int, code: int, undisturbed: Outcome
) -> None:
    with job.start("--delay-s", "0.2") as process:
        assert process.stdout is not None
        next(line for line in process.stdout if "/200" in line)
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, err) == (code, "")
    assert "the same command goes on" in out
    job.finish()
    assert job.changes() == undisturbed[0]


@pytest.mark.parametrize("page", ["", "   ", "n/a", "0", "0.00", "-4.10", "NaN", "1e3", "12,90", "12.901"])
def test_a_page_without_a_price_is_tried_again_then_reported_and_never_priced(tmp_path: Path, page: str) -> None:
    tries: list[str] = []

    def crawler(item: Any, attempt: int) -> Any:
        tries.append(item.sku)
        return shop.Page(page if item.sku == "B" else "9.00", age_days=0)

    state, changed = walk(tmp_path, crawler)
    assert tries == ["A", *["B"] * monitor.TRIES, "C"]
    assert changed == ["A", "C"]
    assert [sku for sku, _ in state["skipped"]] == ["B"]
    assert state["position"] == 3


def test_an_old_page_is_not_believed(tmp_path: Path) -> None:
    state, changed = walk(tmp_path, lambda item, attempt: shop.Page("9.00", age_days=9 * (item.sku == "B")))
    assert changed == ["A", "C"]
    assert state["skipped"] == [["B", "the page is 9 days old"]]


def test_a_page_that_answers_at_the_last_try_counts(tmp_path: Path) -> None:
    def crawler(item: Any, attempt: int) -> Any:
        if attempt < monitor.TRIES:
            raise TimeoutError("no answer")
        return shop.Page("9.00", age_days=0)

    state, changed = walk(tmp_path, crawler)
    assert (changed, state["skipped"]) == (["A", "B", "C"], [])


def walk(folder: Path, crawler: Any) -> tuple[dict[str, Any], list[str]]:
    """Run three items of 10.00 with a crawler; return the last state and the changed items."""
    items = [shop.Item(sku, sku, 1000, 500, f"https://shop.example/{sku}") for sku in "ABC"]
    with closing(shop.PriceTable(str(folder / "prices.db"), items, strict=True)) as prices:
        with open_saver("memory://") as saver:
            graph = monitor.build_graph(items, prices, "t", crawler=crawler).compile(checkpointer=saver)
            state = graph.invoke(monitor.first_state(items), {"configurable": {"thread_id": "t"}}, durability="sync")
        return state, [item.sku for item in items if prices.price(item.sku) != item.our_price]


@pytest.mark.parametrize(
    ("old", "cost", "competitor", "new"),
    [
        (1000, 500, 950, 949),  # one cent below
        (1000, 900, 950, 990),  # never below cost and margin
        (1000, 500, 100, 850),  # one step at a time, down
        (1000, 500, 5000, 1150),  # and up
        (999, 333, 300, 850),
    ],
)
def test_the_price_rule(old: int, cost: int, competitor: int, new: int) -> None:
    assert monitor.new_price(old, cost, competitor) == new


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("store", "floppy://a", "store URL"),
        ("store", "no url", "store URL"),
        ("store", "redis://127.0.0.1:{port}/0?retry_s=0", "did not answer"),
        ("store", "postgresql://127.0.0.1:{port}/x?retry_s=0", "did not answer"),
        ("store", "sqlite:///{folder}", ""),
        ("catalogue", "{folder}/none.csv", "No such file"),
        ("catalogue", "{folder}", "cannot be read"),
        ("prices", "{folder}", "unable to open"),
        ("prices", "{folder}/none/prices.db", "unable to open"),
        ("prices", "{catalogue}", "not a database"),
    ],
)
def test_bad_input_is_one_clear_line_and_code_2(job: Job, option: str, value: str, says: str) -> None:
    value = value.format(folder=job.folder, catalogue=job.catalogue, port=free_ports(1)[0])
    code, out, err = job.run(f"--{option}", value)
    assert code == 2, err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err
    assert "changed" not in out


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "no items"),
        ([["A", "mug", "x", "1.00", "0.50"]], "no competitor_ref"),
        ([["A", "mug", "x", "", "0.50", "u"]], "'' is not a price"),
        ([["A", "mug", "x", "1.00", "0.505", "u"]], "line 2: '0.505' is not a price"),
        ([["A/B", "mug", "x", "1.00", "0.50", "u"]], "'A/B' is not a sku"),
        ([["A", "mug", "x", "1", ".5", "u"]], "not a price"),
        ([["A", "mug", "x", "1", "0.5", "u"], ["A", "cup", "x", "2", "0.5", "u"]], "line 3: sku A stands in it twice"),
    ],
)
def test_a_bad_catalogue_is_named_with_its_line(tmp_path: Path, rows: Sequence[Sequence[str]], says: str) -> None:
    path = tmp_path / "bad.csv"
    write_csv(path, [shop.COLUMNS, *rows])
    code, _, err = Job(tmp_path, path, f"sqlite:///{tmp_path / 'store.db'}").run()
    assert code == 2
    assert says in err
    assert not (tmp_path / "prices.db").exists()


def test_a_catalogue_with_wrong_columns_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "bad.csv", [["sku", "price"], ["A", "1.00"]])
    code, _, err = Job(tmp_path, tmp_path / "bad.csv", "memory://").run()
    assert code == 2
    assert "no column name, category, our_price, cost, competitor_ref" in err


def write_csv(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def test_a_thread_goes_on_only_with_its_own_catalogue_and_prices(job: Job, tmp_path: Path) -> None:
    job.signal_at(10, signal.SIGKILL)
    code, _, err = job.run("--catalogue", str(monitor.CATALOGUE))
    assert (code, "another catalogue" in err) == (2, True)
    code, _, err = job.run("--prices", str(tmp_path / "other.db"))
    assert (code, "lacks changes" in err) == (2, True)


def test_the_shipped_catalogue_is_several_hundred_items_with_exact_prices() -> None:
    items = shop.read_catalogue(monitor.CATALOGUE)
    assert len(items) >= 300
    assert all(0 < item.cost < item.our_price for item in items)
