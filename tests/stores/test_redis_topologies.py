"""The Redis saver in a cluster and behind a Sentinel."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from redis import asyncio as aredis
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.cluster import RedisCluster

from langgraph_statekit import Encryption, StatekitSaver, TieredSaver, open_saver
from langgraph_statekit.checkpoint.backends.redis import RedisBackend, RedisSaver
from langgraph_statekit.checkpoint.cells import CellChange, CellQuery, cell_ref
from langgraph_statekit.checkpoint.records import Outline, Query, Ref, Write
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.errors import Fenced, Unavailable
from tests.conformance import conforms
from tests.faces import config
from tests.servers import Server, wait_until
from tests.stores.redis_nodes import ask, cluster, port_of, sentinel
from tests.stores.redis_threads import chat, fresh, listed_threads
from tests.stores.verbs import frame, row, save, save_writes


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def url(nodes: list[Server]) -> str:
    return f"redis+cluster://127.0.0.1:{port_of(nodes[0])}"


PLAIN_OR_ENCRYPTED = pytest.mark.parametrize(
    "encryption", [None, Encryption({"one": b"k" * 32}, "one")], ids=["plain", "encrypted"]
)


@PLAIN_OR_ENCRYPTED
async def test_conforms_on_a_cluster(url: str, encryption: Encryption | None) -> None:
    await conforms(lambda: RedisSaver.from_url(url, prefix=fresh(), encryption=encryption))


@PLAIN_OR_ENCRYPTED
def test_threads_of_a_cluster_are_spread_listed_and_copied_between_nodes(
    url: str, nodes: list[Server], encryption: Encryption | None
) -> None:
    names = [f"t{i}" for i in range(60)]
    with RedisSaver.from_url(url, prefix=fresh(), encryption=encryption) as saver:
        for name in names:
            chat(saver, 2, name)
        assert all(int(str(ask(node, "DBSIZE"))) > 0 for node in nodes)
        assert sorted(listed_threads(saver.backend)) == sorted(names)
        assert len(list(saver.list(None))) == 2 * len(names)
        for name in names[1:]:
            saver.delete_thread(name)
        originals = [item.checkpoint for item in saver.list(config("t0"))]
        for name in names[1:]:
            saver.copy_thread("t0", name)
            assert [item.checkpoint for item in saver.list(config(name))] == originals


def test_threads_of_a_cluster_go_down_to_a_cold_store_and_come_back(url: str, tmp_path: Path) -> None:
    names, prefix = [f"t{i}" for i in range(6)], fresh()

    def read(saver: StatekitSaver, name: str) -> list[CheckpointTuple]:
        return list(saver.list(config(name)))

    with open_saver(url, prefix=prefix, cold=f"file://{tmp_path}/cold") as saver:
        assert isinstance(saver, TieredSaver)
        chat(saver, 2, "t0")
        for name in names[1:]:
            saver.copy_thread("t0", name)
        before = [[item.checkpoint for item in read(saver, name)] for name in names]
        assert all(saver.archive(name) for name in names)
        with RedisSaver.from_url(url, prefix=prefix) as plain:
            assert listed_threads(plain.backend) == []
            chat(plain, 1, "begun by another")
        assert [[item.checkpoint for item in read(saver, name)] for name in names] == before
        assert sorted(listed_threads(saver.backend)) == sorted([*names, "begun by another"])
        for name in (*names, "begun by another"):
            saver.put_writes(read(saver, name)[0].config, [("m", "more")], "more")
            assert saver.archive(name)
            assert ("more", "m", "more") in (read(saver, name)[0].pending_writes or [])
        for name in names[1:]:
            saver.delete_thread(name)
            assert saver.deleted(name)
        assert sorted(listed_threads(saver.backend)) == ["begun by another", "t0"]


@PLAIN_OR_ENCRYPTED
def test_cells_of_a_cluster_lie_beside_their_leases_and_are_listed_together(
    url: str, encryption: Encryption | None
) -> None:
    with RedisSaver.from_url(url, prefix=fresh(), encryption=encryption) as saver:
        made = []
        for number in range(40):
            lease = saver.lease(f"t{number}")
            asked = CellChange(
                ref=cell_ref("test", "k", f"t{number}"),
                value=b"%d" % number,
                groups=("g",),
                expect=0,
                token=lease.token,
            )
            made.append(run_sync(saver.cells.change_cell(asked)).cell)
        page = run_sync(saver.cells.cells(CellQuery(kind="test", group="g", limit=30)))
        rest = run_sync(saver.cells.cells(CellQuery(kind="test", group="g", before=page.cells[-1].place)))
        assert {*page.cells, *rest.cells} == {*made}
        found = run_sync(saver.cells.cells(CellQuery(kind="test", refs=[cell.ref for cell in made if cell])))
        assert {*found.cells} == {*made}
        saver.sweep()
        stolen = saver.lease("t0", steal=True)
        with pytest.raises(Fenced):
            run_sync(saver.cells.change_cell(CellChange(ref=cell_ref("test", "k", "t0"), value=None, token=1)))
        stolen.release()


def test_a_copy_between_nodes_expires_in_a_time_of_its_own_unless_it_is_interrupted(url: str) -> None:
    with RedisSaver.from_url(url, prefix=fresh(), ttl_s=100) as saver, RedisSaver.from_url(url, prefix="x") as other:
        client = other.backend._calls.connected()
        chat(saver, 2, "s")
        saver.put_writes(config("s ends", id=chat(saver, 2, "s ends")[-1]), [("m", 1)], "task")
        saver.put_writes(config("s", id=next(saver.list(config("s"))).checkpoint["id"]), [("__interrupt__", 1)], "task")
        for i in range(10):
            for source, mortal in (("s", False), ("s ends", True)):
                target = f"{source} {i}"
                saver.copy_thread(source, target)
                assert len(list(saver.list(config(target)))) == 2
                keys = saver.backend._keys(target)[:5]
                ends = {client.pexpiretime(key) for key in keys}
                assert len(ends) == 1, "all at one moment"
                assert (ends != {-1}) == mortal
        assert len(listed_threads(saver.backend)) == 22
        assert saver.sweep() == (0, 0, False)


def test_a_copy_between_nodes_is_whole_idempotent_and_keeps_writes_that_came_first(url: str) -> None:
    def content(thread: str) -> tuple[object, ...]:
        outline: Outline = store.outline(thread)
        stored = store.load(thread, "n", "2")
        assert stored is not None
        rows = [(row.ref.ns, row.ref.id, row.seq, row.keys) for row in outline.rows]
        return rows, outline.frames, stored.row.body, stored.frames, stored.writes

    key = b"k" * 16
    store = RedisBackend(lambda: RedisCluster.from_url(url.replace("+cluster", "")), prefix=fresh())
    try:
        for id in ("1", "2"):
            save(store, row("s", id, "n", keys=(key,), body=bytes(range(256))), [frame(key, b"\xff\0ab")])
            save_writes(store, Ref("s", "n", id), [Write("task", 0, "m", "", b"\0"), Write("task", -1, "m", "", b"")])
        for i in range(40):
            target = f"target {i}"
            early = [Write("other", 0, "m", "", b"early")]
            save_writes(store, Ref(target, "n", "1"), early)
            assert store.copy_thread("s", target, "one") is True
            assert content(target) == content("s")
            assert store.fill(target, [], [Ref(target, "n", "1")])[1] == {Ref(target, "n", "1"): early}
            assert store.copy_thread("s", target, "one") is True
            assert store.copy_thread("s", target, "two") is False
            assert store.copy_thread("missing", target, "two") is False
            assert store.copy_thread("missing", f"not there {i}", "two") is True
            assert store.rows(Query(f"not there {i}")) == []
    finally:
        store.close()


def test_an_asyncio_cluster_client_lends_its_settings(nodes: list[Server], url: str) -> None:
    prefix = fresh()
    with RedisSaver.from_url(url, prefix=prefix) as saver:
        ids = chat(saver, 2)
    with RedisSaver(aredis.RedisCluster(port=port_of(nodes[1]), host="127.0.0.1"), prefix=prefix) as lent:
        assert [item.checkpoint["id"] for item in lent.list(config())] == ids[::-1]


def test_a_cluster_node_that_comes_back_is_survived(tmp_path: Path) -> None:
    with cluster(tmp_path) as nodes:
        url = f"redis+cluster://127.0.0.1:{port_of(nodes[0])}"
        with RedisSaver.from_url(url, retry_s=60) as saver, ThreadPoolExecutor(3) as pool:
            chat(saver, 1, "warm")
            nodes[2].kill()
            with RedisSaver.from_url(url, retry_s=0) as hasty, pytest.raises(Unavailable):
                list(hasty.backend.threads())
            chats = [pool.submit(chat, saver, 3, f"t{i}") for i in range(30)]
            nodes[2].start()
            assert all(len(each.result()) == 3 for each in chats)


def test_a_failover_by_sentinel_is_survived(tmp_path: Path) -> None:
    with sentinel(tmp_path, "main") as (primary, replica, watcher):
        url = f"redis+sentinel://127.0.0.1:{port_of(watcher)},127.0.0.1:1/main/0"
        with RedisSaver.from_url(url, retry_s=60) as saver:
            ids = chat(saver, 5)
            made = run_sync(saver.cells.change_cell(CellChange(ref=cell_ref("test", "k"), value=b"v"))).cell
            ask(primary, "WAIT", 1, 0)
            wait_until(lambda: ask(replica, "DBSIZE") == ask(primary, "DBSIZE"), "the replica has it all")
            primary.kill()
            assert len(chat(saver, 2, "after")) == 2
            assert run_sync(saver.cells.cells(CellQuery(kind="test"))).cells == [made]
            assert [item.checkpoint["id"] for item in saver.list(config())] == ids[::-1]
            watchers = AsyncSentinel([("127.0.0.1", port_of(watcher))])
            with RedisSaver(watchers.master_for("main")) as lent:
                assert len(list(lent.list(config("after")))) == 2
