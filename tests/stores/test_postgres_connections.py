"""PostgreSQL: connections given and our own, PgBouncer, lost connections, and a server that is gone."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend, PostgresSaver
from langgraph_statekit.checkpoint.backends.postgres_connections import Connections
from langgraph_statekit.checkpoint.cells import CellChange, CellQuery, cell_ref
from langgraph_statekit.errors import Misuse, Unavailable
from tests.servers import Server, Servers, _ordinary_user, free_ports, postgres_server, wait_until
from tests.stores.pg import backend, frames, numbered, query, terminate, together
from tests.stores.verbs import save


@pytest.fixture
def name() -> str:
    return f"test_{uuid4().hex}"


@pytest.fixture
def url(servers: Servers, name: str) -> Iterator[str]:
    """Yield an address whose connections can be told from those of others."""
    plain = servers.url("postgres")
    yield make_conninfo(plain, application_name=name)
    query(plain, f'DROP SCHEMA IF EXISTS "{name}" CASCADE')


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    with postgres_server() as server:
        yield server


def connections(url: str, name: str) -> int:
    """Return how many connections of this name the server has."""
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
    return int(query(make_conninfo(url, application_name="observer"), count, name)[0][0])


def all_closed(url: str, name: str) -> None:
    wait_until(lambda: connections(url, name) == 0, "the server has seen all connections end")


def at(thread: str) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def put_and_get(saver: PostgresSaver, thread: str) -> None:
    saver.put(at(thread), empty_checkpoint(), {}, {})
    assert saver.get_tuple(at(thread)) is not None


async def aput_and_get(saver: PostgresSaver, thread: str) -> None:
    await saver.aput(at(thread), empty_checkpoint(), {}, {})
    assert await saver.aget_tuple(at(thread)) is not None


def test_a_given_pool_is_used_as_it_is_and_left_as_it_was(url: str, name: str) -> None:
    kwargs = {"row_factory": dict_row, "cursor_factory": psycopg.ClientCursor}
    with ConnectionPool(url, min_size=1, max_size=2, kwargs=kwargs) as pool:
        with PostgresSaver(pool, schema=name) as saver:
            put_and_get(saver, "t")
            terminate(make_conninfo(url, application_name="admin"), name)
            put_and_get(saver, "u")
        with pool.connection() as conn:
            assert conn.autocommit is False
            assert conn.execute("SELECT 1 AS one").fetchone() == {"one": 1}


def test_a_given_connection_serves_many_threads_and_is_left_open(url: str, name: str) -> None:
    with psycopg.connect(url, row_factory=dict_row) as conn:
        with PostgresSaver(conn, schema=name) as saver:
            together(8, lambda number: put_and_get(saver, f"t{number}"))
        assert conn.autocommit is False
        assert conn.execute("SELECT 1 AS one").fetchone() == {"one": 1}
        with pytest.raises(Misuse, match="transaction"):
            saver.get_tuple(at("t0"))
        conn.rollback()
        conn.close()
        with pytest.raises(Unavailable, match="closed") as caught:
            saver.get_tuple(at("t0"))
        assert isinstance(caught.value.__cause__, psycopg.OperationalError)


async def test_async_clients_lend_their_address(url: str, name: str) -> None:
    kwargs = {"autocommit": True, "row_factory": dict_row, "prepare_threshold": 0, "application_name": f"{name}x"}
    async with AsyncConnectionPool(url, min_size=1, max_size=2, open=False, kwargs=kwargs) as pool:
        async with PostgresSaver(pool, schema=name) as saver:
            await asyncio.gather(*(aput_and_get(saver, f"t{number}") for number in range(20)))
            assert connections(url, f"{name}x") <= 1 + 2, "one of the pool itself"
    async with await psycopg.AsyncConnection.connect(url) as conn:
        async with PostgresSaver(conn, schema=name) as saver:
            await aput_and_get(saver, "t")


def test_wrong_settings_are_refused_with_a_remedy(url: str) -> None:
    with pytest.raises(Misuse, match="from_url"):
        PostgresSaver(url)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="conninfo"):
        PostgresSaver.from_url("postgresql://localhost/x?nonsense=1")
    with pytest.raises(Misuse, match="max_size"):
        PostgresSaver.from_url(url, max_size=0)
    with pytest.raises(Misuse, match="not open"):
        PostgresSaver(ConnectionPool(url, open=False)).setup()


def test_many_threads_share_few_connections(url: str, name: str) -> None:
    with PostgresSaver.from_url(url, schema=name, max_size=4) as saver:
        together(64, lambda number: [put_and_get(saver, f"{number}.{n}") for n in range(3)])
        assert 1 <= connections(url, name) <= 4
    all_closed(url, name)


async def test_a_wide_fan_out_shares_few_connections(url: str, name: str) -> None:
    async with PostgresSaver.from_url(url, schema=name, max_size=4, workers=32) as saver:
        await asyncio.gather(*(aput_and_get(saver, f"{number}") for number in range(100)))
        assert 1 <= connections(url, name) <= 4
    all_closed(url, name)


def test_a_caller_that_waits_too_long_for_a_connection_is_told(url: str, name: str) -> None:
    pool = Connections(url, max_size=1, wait_s=0.05)
    store = PostgresBackend(pool, schema=name)
    with pool.lend(), pytest.raises(Unavailable, match="max_size") as caught:
        store.setup()
    assert isinstance(caught.value.__cause__, PoolTimeout)
    store.setup()
    store.close()


def test_connections_beyond_min_size_are_closed_when_they_were_idle_for_long(url: str, name: str) -> None:
    pool = Connections(url, min_size=2, max_size=8, idle_s=0)
    barrier = threading.Barrier(6)

    def hold(_: int) -> None:
        with pool.lend():
            barrier.wait()

    together(6, hold)
    wait_until(lambda: connections(url, name) == 2, "surplus connections end")
    pool.close()


def test_a_closed_saver_opens_new_connections_when_it_is_used_again(url: str, name: str) -> None:
    saver = PostgresSaver.from_url(url, schema=name)
    put_and_get(saver, "t")
    saver.close()
    saver.close()
    all_closed(url, name)
    put_and_get(saver, "u")
    saver.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_uses_connections_of_its_own(url: str, name: str) -> None:
    with PostgresSaver.from_url(url, schema=name) as saver:
        put_and_get(saver, "t")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                put_and_get(saver, "child")
                saver.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert saver.get_tuple(at("child")) is not None


@pytest.mark.parametrize("given", [False, True], ids=["own", "given"])
def test_connections_ended_by_the_server_in_mid_run_are_replaced(url: str, name: str, given: bool) -> None:
    admin = make_conninfo(url, application_name="admin")
    pool = ConnectionPool(url, min_size=4, max_size=4, open=given, kwargs={"autocommit": True})
    client: Any = pool if given else Connections(url, max_size=4)
    ended = threading.Event()
    with PostgresSaver(client, schema=name) as saver:

        def run(number: int) -> int:
            if number == 0:
                total = 0
                while total < 20:
                    total += terminate(admin, name)
                ended.set()
                return 0
            done = 0
            while not ended.is_set() or done < 20:
                put_and_get(saver, f"{number}.{done}")
                done += 1
            return done

        counts = together(5, run)
        for number, count in enumerate(counts):
            assert all(saver.get_tuple(at(f"{number}.{n}")) for n in range(count))
    pool.close()


def test_a_server_that_is_gone_is_unavailable_and_used_again_when_it_is_back(own_server: Server) -> None:
    with PostgresSaver.from_url(own_server.url, schema="gone", retry_s=0) as saver:
        put_and_get(saver, "t")
        own_server.kill()
        try:
            for call in (lambda: saver.get_tuple(at("t")), lambda: put_and_get(saver, "t"), saver.setup):
                with pytest.raises(Unavailable) as caught:
                    call()
                assert isinstance(caught.value.__cause__, psycopg.OperationalError)
                assert caught.value.retryable
        finally:
            own_server.start()
        assert saver.get_tuple(at("t")) is not None


@pytest.mark.parametrize("given", [False, True], ids=["own", "given"])
def test_a_crash_and_restart_within_retry_s_loses_nothing(own_server: Server, given: bool) -> None:
    pool = ConnectionPool(own_server.url, min_size=2, max_size=2, open=given, kwargs={"autocommit": True})
    client: Any = pool if given else Connections(own_server.url, max_size=2)
    with closing(PostgresBackend(client, schema="crash", retry_s=60)) as store:
        store.setup()
        restarted = threading.Event()

        def run(number: int) -> int:
            if number == 0:
                own_server.kill()
                own_server.start()
                restarted.set()
                return 0
            done = 0
            while not restarted.is_set() or done < 20:
                save(store, numbered(f"{given}{number}", done), frames(done))
                done += 1
            return done

        for number, count in enumerate(together(3, run)):
            assert [each.seq for each in store.outline(f"{given}{number}").rows] == list(range(1, count + 1))
    pool.close()


@pytest.fixture(scope="module")
def pgbouncer(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a private PgBouncer in transaction mode with two server connections."""
    binary = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if binary is None:
        pytest.skip("no pgbouncer program: install the package `pgbouncer` of the system (apt, dnf or brew)")
    target = conninfo_to_dict(servers.url("postgres"))
    (port,) = free_ports(1)
    directory = tmp_path_factory.mktemp("pgbouncer")
    user = _ordinary_user()
    secret = f" password={target['password']}" if target.get("password") else ""
    config = (
        f"[databases]\n* = host={target['host']} port={target.get('port', 5432)} user={target['user']}{secret}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 100\n"
    )
    (directory / "pgbouncer.ini").write_text(config)
    for path in (directory, *directory.parents[:-1]):
        if not path.stat().st_mode & 0o001:
            path.chmod(0o755)
    url = f"postgresql://{target['user']}@127.0.0.1:{port}/{target.get('dbname') or target['user']}"

    def answers() -> bool:
        try:
            psycopg.connect(url, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    server = Server("pgbouncer", [binary, f"{directory}/pgbouncer.ini"], url, answers, directory, user=user)
    server.start()
    yield url
    server.stop()


@pytest.fixture
async def behind_pgbouncer(url: str, name: str, pgbouncer: str) -> AsyncIterator[PostgresSaver]:
    async with PostgresSaver.from_url(pgbouncer, schema=name, max_size=8) as saver:
        yield saver


async def test_every_operation_works_behind_pgbouncer_in_transaction_mode(behind_pgbouncer: PostgresSaver) -> None:
    saver = behind_pgbouncer

    async def use(thread: str) -> None:
        for _ in range(3):
            await aput_and_get(saver, thread)
        latest = await saver.aget_tuple(at(thread))
        assert latest is not None
        await saver.aput_writes(latest.config, [("a", 1)], "task")
        assert len([item async for item in saver.alist(at(thread))]) == 3
        await saver.acopy_thread(thread, f"{thread} copy")
        await saver.aprune([thread])
        assert len([item async for item in saver.alist(at(thread))]) == 1
        await saver.adelete_thread(thread)
        assert await saver.aget_tuple(at(thread)) is None
        lease = await saver.alease(thread)
        asked = CellChange(ref=cell_ref("test", "k", thread), value=b"v", groups=("g",), expect=0, token=lease.token)
        assert (await saver.async_cells.change_cell(asked)).made
        await lease.arelease()

    await asyncio.gather(*(use(f"t{number}") for number in range(20)))
    assert len({item.config["configurable"]["thread_id"] async for item in saver.alist(None)}) == 20
    assert len((await saver.async_cells.cells(CellQuery(kind="test", group="g"))).cells) == 20


def test_many_workers_may_set_up_at_once_behind_pgbouncer(url: str, name: str, pgbouncer: str) -> None:
    def start(number: int) -> None:
        with backend(pgbouncer, name) as store:
            save(store, numbered(f"t{number}", 0), frames(0))

    together(16, start)
    assert query(url, f'SELECT count(*) FROM "{name}".threads') == [(16,)]
