"""What the price monitor is given is used as it stands, or refused in one clear line before anything is done."""

from __future__ import annotations

import csv
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.examples.job import EXAMPLES, Job, monitor, shop
from tests.servers import free_ports


def test_output_that_cannot_be_written_is_one_clear_line(job: Job) -> None:
    command = [sys.executable, str(EXAMPLES / "price_monitor.py"), *job.options()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "error: [Errno 28] No space left on device\n")


def test_names_may_hold_what_the_output_cannot_show(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    job.thread = "nächtlich\n"
    command = [sys.executable, str(EXAMPLES / "price_monitor.py"), *job.options()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "starting at item 1" in done.stdout


def test_help_shows_defaults_and_exit_codes(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    code, out, _ = job.run("--help")
    assert code == 0
    for default in ("sqlite:///price_monitor.db", "catalogue.csv", "prices.db", "strict", "price-monitor", "0.0"):
        assert f"{default})" in out
    assert "Exit codes: 0 every item is done; 2 " in out


def test_a_price_system_that_refuses_for_another_reason_is_not_taken_for_a_repeat(job: Job) -> None:
    job.signal_at(20, signal.SIGKILL)
    with closing(sqlite3.connect(job.prices)) as db:
        db.execute("CREATE TRIGGER shut BEFORE INSERT ON price_changes BEGIN SELECT RAISE(ABORT, 'shut'); END")
    before = job.changes()
    code, _, err = job.run()
    assert (code, err) == (2, f"error: prices file {job.prices} cannot be used: shut\n")
    assert job.changes() == before


def test_a_prices_file_with_repeated_keys_says_what_to_do_instead_of_strict(job: Job) -> None:
    job.provider = "plain"
    job.finish()
    with closing(sqlite3.connect(job.prices)) as db, db:
        db.execute("INSERT INTO price_changes SELECT * FROM price_changes LIMIT 1")
    job.provider = "strict"
    code, _, err = job.run()
    assert (code, err.count("\n")) == (2, 1)
    assert "keys that were used twice" in err
    assert "--provider plain" in err


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
        ("prices", "", "unable to open"),
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
        ([["A", "mug", " blue", "x", "1", "0.5", "u"]], "line 2: more fields than columns"),
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


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "no column sku, name, category, our_price, cost, competitor_ref"),
        (b"sku,price\nA,1.00\n", "no column name, category, our_price, cost, competitor_ref"),
        (b"sku,sku,name,category,our_price,cost,competitor_ref\nA,B,mug,x,1,0.5,u\n", "more than one column sku"),
        (b"sku,name,category,our_price,cost,competitor_ref\nA,\xff,x,1,0.5,u\n", "cannot be read"),
        (b'sku,name,category,our_price,cost,competitor_ref\nA,"mug,x,1,0.5,u\n', "cannot be read"),
    ],
)
def test_a_file_that_is_no_catalogue_is_refused(tmp_path: Path, text: bytes, says: str) -> None:
    (tmp_path / "bad.csv").write_bytes(text)
    code, _, err = Job(tmp_path, tmp_path / "bad.csv", "memory://").run()
    assert (code, err.count("\n")) == (2, 1)
    assert says in err


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\n\n"])
def test_line_ends_empty_lines_and_a_byte_order_mark_change_nothing(tmp_path: Path, start: bytes, end: bytes) -> None:
    lines = [b"sku,name,category,our_price,cost,competitor_ref", b"A,mug,x,1,0.5,u", b"B,cup,x,2.5,0.5,v"]
    (tmp_path / "good.csv").write_bytes(start + b"".join(line + end for line in lines))
    items = shop.read_catalogue(tmp_path / "good.csv")
    assert [(item.sku, item.our_price, item.competitor_ref) for item in items] == [("A", 100, "u"), ("B", 250, "v")]


@pytest.mark.parametrize("option", ["--thread", "--store"])
def test_an_option_that_is_not_utf_8_is_refused(job: Job, option: str) -> None:
    code, out, err = job.run(option, "sqlite:///\udcff")
    assert (code, out) == (2, "")
    assert f"argument {option}: invalid utf_8 value" in err


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
