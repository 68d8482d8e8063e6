"""A change that a crash may undo does not wait for the disk, and what is saved after it does."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend
from langgraph_statekit.checkpoint.backends.sqlite import SqliteBackend
from langgraph_statekit.checkpoint.records import Change, Ref
from tests.stores.pg import frames, numbered, query
from tests.stores.verbs import row, save

WAITS, WAITS_NOT = 2, 1


def test_in_sqlite(tmp_path: Path) -> None:
    with closing(SqliteBackend(tmp_path / "state.db")) as store:
        store.setup()
        save(store, row("t", "1"), [])
        with store._writing(durable=False) as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (WAITS_NOT,)
        assert store.apply("t", store.outline("t").rev, Change(drop=[Ref("t", "", "1")], durable=False))
        with store._writing() as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (WAITS,)


@pytest.mark.parametrize(("durable", "waits"), [(True, "on"), (False, "off")])
def test_in_postgres(store: PostgresBackend, url: str, schema: str, durable: bool, waits: str) -> None:
    for number in range(2):
        save(store, numbered("t", number), frames(number))
    query(url, f"CREATE TABLE {schema}.told (waits text)")
    told = f"INSERT INTO {schema}.told VALUES (current_setting('synchronous_commit'))"
    query(url, f"CREATE RULE told AS ON DELETE TO {schema}.rows DO ALSO {told}")
    change = Change(drop=[store.outline("t").rows[0].ref], durable=durable)
    assert store.apply("t", store.outline("t").rev, change)
    assert set(query(url, f"SELECT waits FROM {schema}.told")) == {(waits,)}
    assert store._run("SELECT current_setting('synchronous_commit')") == [("on",)]
