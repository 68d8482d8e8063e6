"""SQLite: locks among threads, processes and forks, what errors mean, deltas, and the answers of the reference store."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.sqlite import FORMAT, SqliteBackend
from langgraph_statekit.checkpoint.records import Change, Ref, Row, Save, SaveRow, SaveWrites, Write, is_made
from langgraph_statekit.errors import Corrupt, DataError, Misuse, SchemaTooNew, Unavailable
from tests.servers import wait_until
from tests.stores.verbs import frame, key, row, save

SCRIPT = """
import os, resource, sys, threading
from langgraph_statekit.checkpoint.backends.sqlite import SqliteBackend
from langgraph_statekit.checkpoint.records import *
from langgraph_statekit.errors import *
from tests.stores.verbs import frame, key, row, save
store = SqliteBackend(sys.argv[1], lock_wait_s=20)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[SqliteBackend]:
    with closing(SqliteBackend(path, **options)) as made:
        made.setup()
        yield made


@pytest.fixture
def store(path: Path) -> Iterator[SqliteBackend]:
    with opened(path) as made:
        yield made


def start(path: Path, code: str, *args: str) -> subprocess.Popen[str]:
    """Run code in another process; `store` is its backend."""
    command = [sys.executable, "-c", SCRIPT + dedent(code), str(path), *args]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(path: Path, code: str, *args: str, stdin: str = "") -> None:
    with start(path, code, *args) as process:
        try:
            process.communicate(stdin, timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0


def ids(store: Backend, thread: str = "t") -> list[str]:
    return [each.ref.id for each in store.outline(thread).rows]


def traced(store: SqliteBackend, call: Callable[[], object]) -> list[str]:
    """Return the first word of each statement that the writing connection runs during the call."""
    seen: list[str] = []
    with store._connections.writing() as db:
        db.set_trace_callback(lambda statement: seen.append(statement.split()[0]))
    seen.clear()
    call()
    with store._connections.writing() as db:
        db.set_trace_callback(None)
    return seen[:-1]  # that BEGIN


def in_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result()


BAD = {
    "too long": SaveRow(row("bad", "1", body=bytes(100_000)), []),
    "too large": SaveWrites(
        Ref("bad", "", "1"), [Write("task", 0, "c", "", b""), Write("task", 1 << 70, "c", "", b"")]
    ),
    "no text": SaveRow(Row(Ref("bad", "", "\ud800")), [frame(key("c", 1), b"x")]),
    "no value": SaveRow(row("bad", "1", body=None), [frame(key("c", 1), b"x")]),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_save_that_sqlite_refuses_fails_alone_and_the_batch_is_one_commit(store: SqliteBackend, bad: Save) -> None:
    with store._connections.writing() as db:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
    good: list[Save] = [SaveRow(row("t", "1"), []), SaveWrites(Ref("t", "", "1"), [Write("a", 0, "c", "", b"v")])]
    results: list[int | Exception] = []
    statements = traced(store, lambda: results.extend(store.save([good[0], bad, good[1], SaveRow(row("t", "2"), [])])))
    assert statements.count("COMMIT") == 1
    assert isinstance(results[1], DataError) and not isinstance(results[1], Corrupt)
    assert [*map(is_made, results)] == [True, False, True, True]
    assert all(isinstance(each, DataError) for each in store.save([bad, bad]))
    with pytest.raises(DataError):
        store.save([bad])
    assert ids(store) == ["1", "2"]
    assert store.outline("bad") == store.outline("none")
    assert len(store.fill("t", [], [Ref("t", "", "1")])[1]) == 1


def test_a_refused_save_changes_nothing(store: SqliteBackend, path: Path) -> None:
    base = frame(key("a", 0), b"base")
    new = [frame(key("b", 1), b"x"), frame(key("a", 1), b"delta", base)]
    assert save(store, row("t", "1"), new) is False
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM threads").fetchone() == (0,)
    save(store, row("t", "0"), [frame(base.key, b"other")])
    before = store.outline("t")
    assert store.save([SaveRow(row("t", "1"), new), SaveRow(row("t", "0", body=b"new"), new)]) == [False, False]
    assert store.outline("t") == before


def test_each_change_is_one_transaction_and_reads_are_none(store: SqliteBackend) -> None:
    for id in "12":
        save(store, row("t", id), [frame(key("c", int(id)), b"x")])
    saves: list[Save] = [SaveRow(row(f"t{n % 3}", f"{n}"), [frame(key("c", n), b"x")]) for n in range(20)]
    change = Change(drop=[Ref("t", "", "1")], drop_frames=[key("c", 1)])
    for call in (
        lambda: store.save(saves),
        lambda: store.save(saves[:1]),
        lambda: store.apply("t", store.outline("t").rev, change),
        lambda: store.copy_thread("t", "copy", "one"),
        lambda: store.drop_thread("t"),
    ):
        statements = traced(store, call)
        assert (statements[0], statements[-1]) == ("BEGIN", "COMMIT")
        assert statements.count("BEGIN") == statements.count("COMMIT") == 1
    assert traced(store, lambda: (store.load("t0", "", None), store.outline("t0"), list(store.threads()))) == []


def test_a_full_disk_refuses_what_does_not_fit_and_the_thread_goes_on(path: Path) -> None:
    code = """
        store.setup()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        big = SaveRow(row("t", "big", body=os.urandom(4 << 20)), [frame(key("c", 0), b"x")])
        small = [SaveRow(row("t", f"{n}"), []) for n in range(3)]
        assert is_made(*store.save(small[:1]))
        try:
            store.save([big])
        except Unavailable as error:
            assert "nothing of this call was saved" in str(error), error
        else:
            assert False
        first, failed, last = store.save([small[1], big, small[2]])
        assert (is_made(first), type(failed), is_made(last)) == (True, Unavailable, True)
        store.close()
    """
    run(path, code)
    with opened(path) as store:
        assert ids(store) == ["0", "1", "2"]
        assert store.outline("t").frames == {}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let another process hold the write lock."""
    code = """
        with store._connections.writing():
            print("held", flush=True)
            sys.stdin.read()
    """
    with start(path, code) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "held\n"
        try:
            yield
        finally:
            process.stdin.close()
            process.wait(60)


def test_a_lock_that_another_process_keeps_is_waited_for_and_then_named(path: Path) -> None:
    with opened(path, lock_wait_s=0.2) as store, opened(path) as patient, ThreadPoolExecutor(1) as pool:
        with locked(path):
            with pytest.raises(Unavailable, match=r"another process held the write lock of .*state\.db for 0\.2 s"):
                save(store, row("t", "1"))
            assert store.load("t", "", None) is None
            late = pool.submit(save, patient, row("t", "2"))
            wait_until(lambda: patient._connections._here()[0]._turns._free == 0, "the save waits")
            assert not late.done()
        assert late.result() is True
        assert save(store, row("t", "3")) is True


def test_threads_wait_a_bounded_time_for_a_connection(path: Path) -> None:
    with opened(path, lock_wait_s=0.1, readers=1) as store:
        with store._connections.writing():
            with pytest.raises(Unavailable, match="another thread held the write lock of"):
                in_thread(lambda: save(store, row("t", "1")))
        with store._connections.reading():
            with pytest.raises(Unavailable, match="all 1 read connections of"):
                in_thread(lambda: store.outline("t"))
        assert save(store, row("t", "1")) is True
        assert ids(store) == ["1"]


def test_threads_write_in_the_order_in_which_they_came(store: SqliteBackend) -> None:
    queue = store._connections._here()[0]._turns._queue
    with ThreadPoolExecutor(6) as pool:
        with store._connections.writing():
            for number in range(6):
                pool.submit(save, store, row("t", f"{number}"))
                wait_until(lambda: len(queue) == number + 1, "the thread waits")
    assert ids(store) == [f"{number}" for number in range(6)]


def test_no_more_connections_read_than_allowed(path: Path) -> None:
    with opened(path, readers=3) as store:
        used: set[int] = set()
        most = threading.Semaphore(3)

        def read(_: int) -> None:
            for _ in range(5):
                with store._connections.reading() as db:
                    assert most.acquire(blocking=False)
                    used.add(id(db))
                    db.execute("SELECT count(*) FROM rows").fetchall()
                    most.release()

        with ThreadPoolExecutor(30) as pool:
            list(pool.map(read, range(30)))
        assert len(used) <= 3


def test_a_call_under_way_closes_its_connection_after_close(path: Path) -> None:
    store = SqliteBackend(path)
    store.setup()
    with store._connections.writing() as db, store._connections.reading():
        store.close()
        db.execute("DELETE FROM rows")
    wal = path.with_name("state.db-wal")
    assert not wal.exists(), "SQLite removes it with the last connection"
    assert save(store, row("t", "1")) is True
    assert ids(store) == ["1"]
    store.close()
    assert not wal.exists()


def test_no_save_is_lost_when_processes_and_their_forks_write_to_one_file(path: Path) -> None:
    code = """
        def work(name, count):
            for n in range(count):
                assert save(store, row("t", f"{name} {n}"), [frame(key(name, n), b"x")])
        store.setup()
        other = threading.Thread(target=work, args=(f"{sys.argv[2]} thread", 60))
        other.start()
        children = []
        for n in range(6):
            child = os.fork()
            if not child:
                sys.stdin.readline()
                work(f"{sys.argv[2]} fork {n}", 10)
                os._exit(0)
            children.append(child)
        work(f"{sys.argv[2]} before", 10)
        other.join()
        store.close()
        print("closed", flush=True)
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 6
        work(f"{sys.argv[2]} after", 10)
        store.close()
    """
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: run(path, code, name, stdin="go\n" * 6), "ab"))
    with opened(path) as store:
        seqs = [each.seq for each in store.outline("t").rows]
        assert len(set(ids(store))) == len(set(seqs)) == 2 * (60 + 60 + 20)
        assert len(store.outline("t").frames) == len(seqs)


def test_a_child_reads_and_writes_whatever_threads_of_its_parent_did_and_keeps_its_saves(path: Path) -> None:
    code = """
        store.setup()
        go, done = os.pipe(), os.pipe()
        save(store, row("t", "parent"))
        child = os.fork()
        if not child:
            assert save(store, row("t", "1"))
            os.write(done[1], b"x")
            os.read(go[0], 1)
            assert save(store, row("t", "2"))
            assert len(store.outline("t").rows) == 3
            os._exit(0)
        os.read(done[0], 1)
        store.close()
        os.write(go[1], b"x")
        assert os.waitpid(child, 0)[1] == 0
    """
    run(path, code)
    with opened(path) as store:
        assert ids(store) == ["parent", "1", "2"]


def test_a_fork_that_python_did_not_see_inherits_no_lock_and_no_connection(path: Path) -> None:
    code = """
        import ctypes
        store.setup()
        pools = store._connections._here()
        with pools[0]._lock, pools[1]._lock:
            child = ctypes.PyDLL(None).fork()
            if not child:
                done = save(store, row("t", "1"))
                os._exit(0 if done and len(store.outline("t").rows) == 1 else 1)
            assert os.waitpid(child, 0)[1] == 0
        store.close()
    """
    run(path, code)


def test_saves_that_a_killed_process_acknowledged_are_there(path: Path) -> None:
    code = """
        store.setup()
        for n in range(int(sys.argv[2]), 10**6):
            saves = [SaveRow(row(thread, f"{n:07}", body=os.urandom(5000)), [frame(key("c", n), b"x")]) for thread in "tu"]
            assert all(map(is_made, store.save(saves)))
            print(n, flush=True)
    """
    last = -1
    for _ in range(6):
        with start(path, code, str(last + 1)) as process:
            assert process.stdout
            for _ in range(random.randint(1, 40)):
                last = int(process.stdout.readline())
            process.kill()
            last = max([last, *map(int, process.stdout.read().split("\n")[:-1])])
        assert process.returncode == -signal.SIGKILL
        with opened(path) as store:
            assert ids(store, "t") == ids(store, "u")
            assert ids(store)[: last + 1] == [f"{n:07}" for n in range(last + 1)]
            last = int(ids(store)[-1])
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    newer, text, other = tmp_path / "newer.db", tmp_path / "text.db", tmp_path / "other.db"
    SqliteBackend(newer).setup()
    for path, statement in ((newer, f"PRAGMA user_version = {FORMAT + 1}"), (other, "CREATE TABLE writes (value)")):
        with closing(sqlite3.connect(path)) as db:
            db.execute(statement)
    text.write_bytes(b"no database " * 500)
    for path, error in ((newer, SchemaTooNew), (text, Corrupt), (other, Misuse), (tmp_path, Misuse)):
        with closing(SqliteBackend(path)) as store, pytest.raises(error, match=str(path)):
            store.setup()
    assert text.read_bytes() == b"no database " * 500
    with closing(sqlite3.connect(other)) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("writes",)]
    with pytest.raises(Misuse, match="lacks its tables"):
        save(SqliteBackend(tmp_path / "new.db"), row("t", "1"))


def test_what_may_not_be_written_is_refused_by_name(path: Path) -> None:
    code = """
        import pathlib, tempfile
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            stores = [SqliteBackend(folder / "state.db"), SqliteBackend(folder / "none.db"), SqliteBackend(folder / "a/b.db")]
            stores[0].setup()
            stores[0].close()
            (folder / "state.db").chmod(0o444)
            folder.chmod(0o555)
            root = os.getuid() == 0
            if root:
                os.seteuid(65534)
            for store in stores:
                try:
                    store.setup()
                    save(store, row("t", "1"))
                except Misuse as error:
                    assert name in str(error), error
                else:
                    raise AssertionError(store.path)
            if root:
                os.seteuid(0)
            folder.chmod(0o755)
    """
    run(path, code)
