"""SQLite: the writes of parallel tasks that are saved together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from langgraph_statekit.checkpoint.backends.sqlite import SqliteBackend
from langgraph_statekit.checkpoint.records import Ref, Save, SaveWrites, Write
from langgraph_statekit.errors import DataError
from tests.stores.verbs import row, save


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteBackend]:
    with closing(SqliteBackend(tmp_path / "state.db")) as made:
        made.setup()
        yield made


def of(id: str, tasks: int) -> list[Save]:
    """Return the writes of so many tasks to one checkpoint."""
    return [SaveWrites(Ref("t", "", id), [Write(f"{n}", i, "c", "", b"v") for i in (0, 1, -1)]) for n in range(tasks)]


def statements(store: SqliteBackend, saves: list[Save]) -> list[str]:
    """Return the first words of the statements that make the saves."""
    seen: list[str] = []
    with store._connections.writing() as db:
        db.set_trace_callback(lambda statement: seen.append(statement.split()[0]))
    seen.clear()
    assert store.save(saves) == [True] * len(saves)
    with store._connections.writing() as db:
        db.set_trace_callback(None)
    return seen[:-1]  # that BEGIN


def test_writes_of_parallel_tasks_take_as_many_statements_as_those_of_one(store: SqliteBackend) -> None:
    save(store, row("t", "1"), [])
    assert statements(store, of("1", 10)) == statements(store, of("1", 1))
    assert statements(store, of("2", 10)).count("COMMIT") == 1


def test_all_writes_of_many_parallel_tasks_are_stored(store: SqliteBackend) -> None:
    save(store, row("t", "1"), [])
    assert store.save(of("1", 50)) == [True] * 50
    found = store.fill("t", [], [Ref("t", "", "1")])[1][Ref("t", "", "1")]
    assert {(each.task, each.idx) for each in found} == {(f"{n}", i) for n in range(50) for i in (0, 1, -1)}


def test_of_writes_saved_together_the_first_of_a_place_stays_and_a_special_one_is_replaced(
    store: SqliteBackend,
) -> None:
    ref = Ref("t", "", "1")
    save(store, row("t", "1"), [])
    store.save([SaveWrites(ref, [Write("a", i, "c", "", value) for i in (0, -1)]) for value in (b"first", b"second")])
    found = store.fill("t", [], [ref])[1][ref]
    assert {each.idx: each.data for each in found} == {0: b"first", -1: b"second"}


def test_a_write_that_sqlite_refuses_fails_alone_among_those_of_parallel_tasks(store: SqliteBackend) -> None:
    ref = Ref("t", "", "1")
    save(store, row("t", "1"), [])
    results = store.save([SaveWrites(ref, [Write(f"{idx}", idx, "c", "", b"v")]) for idx in (0, 1 << 70, 2)])
    assert [results[0], results[2]] == [True, True]
    assert isinstance(results[1], DataError)
    assert {each.task for each in store.fill("t", [], [ref])[1][ref]} == {"0", "2"}
