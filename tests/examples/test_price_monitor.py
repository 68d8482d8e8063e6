"""The price monitor handles every item once and in order, whatever kills it."""

from __future__ import annotations

import random
import re
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from langgraph_statekit import EffectLedger, open_saver
from tests.examples.job import EXAMPLES, ITEMS, Job, Outcome, monitor, shop
from tests.programs import run
from tests.stores_table import DURABLE
from tests.stores_under_test import Store

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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "killed_on" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--stores").split(",")
        pairs = [(store, "plain") for store in DURABLE] + [
            (store, "strict") for store in ("sqlite", "redis", "postgres")
        ]
        metafunc.parametrize(("killed_on", "provider"), [pair for pair in pairs if pair[0] in chosen])


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
    kills = sorted(random.SystemRandom().sample(range(2, ITEMS // 2), KILLS))
    # The pause keeps a monitor whose killer gets no processor time from reaching the end.
    codes = [job.signal_at(item, signal.SIGKILL, "--delay-s", "0.03") for item in kills]
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
        assert run(command, capture_output=True).returncode == -signal.SIGKILL
    job.finish()
    assert job.outcome() == undisturbed
    assert job.states()[-1]["repeats"] == 3


def test_a_kill_between_a_steps_writes_and_its_checkpoint_ends_nothing(job: Job, undisturbed: Outcome) -> None:
    for nth in (1, 2, 3, 4, 5, 50):
        command = [sys.executable, "-c", KILL_AFTER_WRITES, str(EXAMPLES), str(nth), *job.options()]
        assert run(command, capture_output=True).returncode == -signal.SIGKILL
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


def test_processes_on_one_thread_take_turns_and_a_kill_hands_the_rest_to_the_next(
    job: Job, undisturbed: Outcome
) -> None:
    job.provider = "plain"  # it would act on a repeat
    with job.start("--delay-s", "0.05") as first:
        assert first.stdout is not None
        next(line for line in first.stdout if line.startswith("   20/"))
        with job.start() as second, job.start() as third:
            for waiting in (second, third):
                assert waiting.stdout is not None
                assert "waiting" in next(waiting.stdout)
            first.kill()
            outs = [process.communicate() for process in (second, third)]
    assert [process.returncode for process in (second, third)] == [0, 0]
    handled = [
        int(number) for out, _ in outs for number in re.findall(r"items handled: (\d+) in this run, 200 in", out)
    ]
    assert len(handled) == 2
    assert 0 in handled
    assert 0 < sum(handled) <= ITEMS - 19
    assert job.outcome() == undisturbed


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
        with job.start() as waiting:  # for its turn; it has nothing to finish
            assert waiting.stdout is not None
            assert "waiting" in next(waiting.stdout)
            waiting.send_signal(number)
            assert waiting.communicate() == ("", "")
        assert waiting.returncode == -number
        process.send_signal(number)
        out, err = process.communicate()
    assert (process.returncode, err) == (code, "")
    assert "the same command goes on" in out
    job.finish()
    assert job.changes() == undisturbed[0]


def test_a_reader_that_goes_away_stops_the_run_quietly_and_it_can_go_on(job: Job, undisturbed: Outcome) -> None:
    with job.start() as process:
        assert process.stdout is not None
        next(process.stdout)
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE
    job.finish()
    assert job.outcome() == undisturbed


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
    with closing(shop.PriceTable(folder / "prices.db", items, strict=True)) as prices:
        with open_saver("memory://") as saver:
            ledger = EffectLedger(saver)
            graph = monitor.build_graph(items, prices, ledger, crawler=crawler).compile(checkpointer=saver)
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
