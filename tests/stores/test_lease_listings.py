"""Leases that ended are found without a look at all threads, and a crash between a lease and its index loses none."""

from __future__ import annotations

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from langgraph_statekit.checkpoint.backends import postgres_leases, sqlite_leases
from langgraph_statekit.checkpoint.backends.objects import ObjectBackend
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.redis import RedisSaver
from langgraph_statekit.checkpoint.backends.sqlite import SqliteBackend
from langgraph_statekit.checkpoint.claims import Claim, Held, LeaseQuery
from tests.servers import Servers
from tests.stores.objects_kit import Died, Watched
from tests.stores.pg import backend
from tests.stores.redis_nodes import cluster, port_of
from tests.stores.redis_threads import fresh

ENDED = LeaseQuery(True)


def test_sqlite_finds_them_by_an_index(tmp_path: Path) -> None:
    with closing(SqliteBackend(tmp_path / "store.db")) as store:
        store.setup()
        with closing(sqlite3.connect(store.path)) as db:
            asked: list[str] = []
            db.set_trace_callback(asked.append)
            sqlite_leases.listed(db, ENDED)
            plan = str(db.execute(f"EXPLAIN QUERY PLAN {asked[-1]}").fetchall())
    assert "SEARCH leases USING INDEX leases_by_end" in plan


def test_postgres_finds_them_by_an_index(servers: Servers) -> None:
    asked = []
    with backend(servers.url("postgres"), fresh()) as store:
        store._run(
            "INSERT INTO {schema}.leases SELECT 't' || n, 'h', 'o', n, CASE WHEN mod(n, 500) = 0 THEN n ELSE 0 END"
            " FROM generate_series(1, 20000) AS n RETURNING token"
        )
        assert len(store.leases(ENDED).leases) == 40
        store._use(lambda cursor: cursor.execute(store._sql("ANALYZE {schema}.leases")))
        postgres_leases.listed(lambda *call: asked.append(call) or store._run(*call), ENDED)  # type: ignore[func-returns-value]
        plan = str(store._run(f"EXPLAIN {asked[0][0]}", *asked[0][1:]))
    assert "leases_end" in plan
    assert "Seq Scan" not in plan


def test_a_cluster_lists_the_leases_of_all_its_nodes(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{port_of(nodes[0])}"
        with RedisSaver.from_url(url, prefix=fresh()) as saver:
            threads = {f"t{number}" for number in range(40)}
            saver.backend.claim([Claim(thread, "h", "o", 1_000) for thread in threads])
            saver.backend.claim([Claim(f"runs {number}", "h", "o", 10**9) for number in range(20)])
            found: set[str] = set()
            while found != threads:  # once their millisecond is over
                found, after = set(), ""
                while True:
                    page = saver.backend.leases(LeaseQuery(True, after, limit=7))
                    found |= {thread for thread, _ in page.leases}
                    assert found <= threads
                    after = page.after
                    if not after:
                        break


def test_an_object_store_reads_leased_threads_only(tmp_path: Path) -> None:
    driver = Watched(FileDriver(tmp_path))
    with closing(ObjectBackend(driver)) as store:
        for number in range(30):
            (held,) = store.claim([Claim(f"done {number}", "h", "o", 10**9)])
            assert isinstance(held, Held)
            store.claim([Claim(f"done {number}", "h", "o", 0, held.token)])
        store.claim([Claim("lost", "h", "o", 1)])
        driver.requests.clear()
        assert [thread for thread, _ in store.leases(ENDED).leases] == ["lost"]
        assert sorted(verb for verb, _ in driver.requests if verb != "now_us") == ["get", "get", "stats"]


@pytest.mark.parametrize("acts", [False, True])
def test_a_crash_at_any_request_of_a_claim_leaves_no_lease_that_is_not_listed(tmp_path: Path, acts: bool) -> None:
    for fail_at in range(1, 20):
        folder = tmp_path / str(fail_at)
        dying = Watched(FileDriver(folder), fail_at, acts)
        store = ObjectBackend(dying, retry_s=0)
        after = ObjectBackend(FileDriver(folder))
        with closing(store), closing(after):
            with suppress(Died):
                token = None
                for holder in ("one", "two", "two"):
                    (held,) = store.claim([Claim("t", holder, "o", int(token is None), token, steal=True)])
                    if not isinstance(held, Held):
                        raise held or AssertionError(holder)
                    token = held.token if holder == "two" else None
            (held,) = after.claim([Claim("t", "", "", 0, token=-1)])
            listed = dict(after.leases(LeaseQuery()).leases)
            orphan = isinstance(held, Held) and held.until_us > 0
            assert listed == ({"t": held} if orphan else {})
            if len(dying.requests) < fail_at:
                return
    raise AssertionError("never done")
