"""What only the Redis saver promises: round trips, pools, faults, rights, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import asyncio as aredis
from redis import exceptions as failures

from langgraph_statekit.checkpoint.backends.redis import RedisBackend, RedisSaver
from langgraph_statekit.checkpoint.records import Change, Query, Ref, SaveRow, Write, is_made
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew
from tests.conformance import conforms
from tests.faces import checkpoint, config, metadata
from tests.servers import Server, wait_until
from tests.stores.redis_nodes import ask, node, port_of, redis_binary, started, valkey_binary
from tests.stores.redis_threads import chat, contents, fresh, listed_threads
from tests.stores.verbs import frame, row, save, save_writes

HOSTILE = (
    "user*1",
    "user?1",
    "a:b",
    "{x}",
    "}{",
    "",
    " ",
    "a b",
    "\N{PILE OF POO}",
    "x" * 300,
    "nul\0",
    "\\u0000",
    "%s",
    "1",
)


@pytest.fixture(scope="module", params=[redis_binary, valkey_binary], ids=["redis", "valkey"])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = node(tmp_path_factory.mktemp("either"), request.param())
    with started(made):
        yield made


@pytest.fixture
def backend(saver: RedisSaver) -> RedisBackend:
    assert isinstance(saver.backend, RedisBackend)
    return saver.backend


async def test_a_user_without_admin_rights_who_may_touch_only_the_prefix_suffices(either: Server) -> None:
    ask(either, "ACL", "SETUSER", "app", "on", ">pw", "~mine:*", "+@all", "-@admin", "-@dangerous")
    url = f"redis://app:pw@127.0.0.1:{port_of(either)}"
    await conforms(lambda: RedisSaver.from_url(url, prefix=f"mine:{fresh()}"))
    with RedisSaver.from_url(url, prefix="theirs") as saver, pytest.raises(Misuse, match="theirs") as caught:
        saver.get_tuple(config())
    assert isinstance(caught.value.__cause__, failures.NoPermissionError)
    with RedisSaver.from_url(url.replace("pw", "wrong")) as saver, pytest.raises(Misuse, match="refused the login"):
        saver.get_tuple(config())


@pytest.mark.parametrize("steps", [10, 500])
def test_round_trips_do_not_depend_on_the_length_of_the_thread(
    saver: RedisSaver, trips: Counter[str], steps: int
) -> None:
    ids = chat(saver, steps)
    middle, head = config(id=ids[steps // 2]), config(id=ids[-1])

    def count(call: Callable[[], Any]) -> int:
        trips.clear()
        call()
        return trips["trips"]

    version = f"{steps:032}.0"
    made = checkpoint({"m": [1]}, {"m": version})
    assert count(lambda: saver.put(head, made, metadata(), {"m": version})) == 1
    assert count(lambda: saver.put_writes(head, [("m", 1)], "one more")) == 1
    assert count(lambda: saver.get_tuple(config())) == 1
    assert count(lambda: saver.get_tuple(middle)) == 1
    assert count(lambda: list(saver.list(config(), limit=50))) == 2
    assert count(lambda: list(saver.list(config(), limit=50, before=middle))) <= 2
    assert count(lambda: saver.get_delta_channel_history(config=config(), channels=["m"])) <= 2
    assert count(lambda: saver.copy_thread("t", "copy")) == 1
    assert count(lambda: saver.delete_for_runs(["run 1"])) == 16 + 2 + 2 * 2, "pages, runs of threads, two changes"
    assert [len(list(saver.list(config(name)))) for name in ("t", "copy")] == [steps, steps]
    assert count(lambda: saver.prune(["t"])) == 2
    assert count(lambda: saver.delete_thread("copy")) == 1
    assert [item.checkpoint["id"] for item in saver.list(config())] == [made["id"]]


async def test_async_calls_make_no_more_round_trips(saver: RedisSaver, trips: Counter[str]) -> None:
    head = config(id=chat(saver, 10)[-1])
    made = checkpoint({"m": [1]}, {"m": "1"})
    calls: list[Callable[[], Any]] = [
        lambda: saver.aput(head, made, metadata(), {"m": "1"}),
        lambda: saver.aput_writes(head, [("m", 1)], "one more"),
        lambda: saver.aget_tuple(config()),
        lambda: saver.aget_tuple(head),
    ]
    for call in calls:
        trips.clear()
        await call()
        assert trips["trips"] == 1


def test_all_threads_are_listed_in_a_fixed_order_whatever_their_number(saver: RedisSaver, trips: Counter[str]) -> None:
    names = [f"thread {i}" for i in range(300)]
    for name in names:
        saver.put(config(name), checkpoint(), metadata(run_id=f"run {name}"), {})
    saver.put_writes(config("only writes", id="1"), [("m", 1)], "task")
    trips.clear()
    pages = [list(page) for page in saver.backend.threads()]
    assert trips["trips"] <= 16
    assert all(pages)
    assert sorted(name for page in pages for name in page) == sorted(names)
    assert [list(page) for page in saver.backend.threads()] == pages
    assert listed_threads(saver.backend, ["run thread 7", "unknown"]) == ["thread 7"]
    assert list(saver.backend.threads([])) == []


def test_the_runs_of_a_thread_are_those_of_its_rows(backend: RedisBackend) -> None:
    def has(run: str) -> bool:
        return listed_threads(backend, [run]) == ["t"]

    save(backend, row("t", "1", run_id="a"))
    save(backend, row("t", "2", run_id="a"))
    save(backend, row("t", "2", run_id="b"))
    save(backend, row("t", "3", run_id=""))
    assert (has("a"), has("b"), has("")) == (True, True, True)
    assert backend.apply("t", backend.outline("t").rev, Change(drop=[Ref("t", "", "1"), Ref("t", "", "3")]))
    assert (has("a"), has("b"), has("")) == (False, True, False)


def test_hostile_ids_stay_apart_and_a_deleted_one_leaves_nothing(saver: RedisSaver, client: redis.Redis) -> None:
    for name in HOSTILE:
        for other in HOSTILE:
            at = saver.put(config(name, other), checkpoint({"m": name + other}, id=other or "0"), metadata(), {"m": 1})
            saver.put_writes(at, [("m", name + other)], other)
    assert sum(map(len, saver.backend.threads())) == len(HOSTILE)
    for name in HOSTILE:
        found = list(saver.list({"configurable": {"thread_id": name}}))
        assert sorted(item.checkpoint["channel_values"]["m"] for item in found) == sorted(name + x for x in HOSTILE)
    before = contents(client)
    for name in HOSTILE:
        saver.copy_thread(name, "gone *")
        assert contents(client).keys() > before.keys()
        saver.delete_thread("gone *")
        assert contents(client) == before
    for left in range(len(HOSTILE), 0, -1):
        assert len(contents(client)) > 5 * (left - 1)
        saver.delete_thread(HOSTILE[left - 1])
        for name in HOSTILE[: left - 1]:
            kept = saver.get_tuple(config(name, "a:b"))
            assert kept is not None
            assert kept.pending_writes == [("a:b", "m", name + "a:b")]
    assert contents(client) == {}


def test_a_thread_is_five_keys(saver: RedisSaver, client: redis.Redis) -> None:
    chat(saver, 100)
    assert len(contents(client)) == 6


def test_flushed_scripts_are_sent_again(saver: RedisSaver, client: redis.Redis) -> None:
    ids = chat(saver, 2)
    client.script_flush()
    assert [item.checkpoint["id"] for item in saver.list(config())] == ids[::-1]
    client.script_flush()
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None


def test_cut_connections_are_survived(saver: RedisSaver, backend: RedisBackend, client: redis.Redis) -> None:
    _, rows, *_ = backend._keys("t0")
    with ThreadPoolExecutor(8) as pool:
        chats = [pool.submit(chat, saver, 60, f"t{i}") for i in range(8)]
        for steps in range(5, 60, 5):
            wait_until(lambda steps=steps: client.zcard(rows) >= steps, "the chat goes on")
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        for i, each in enumerate(chats):
            ids = each.result()
            found = list(saver.list(config(f"t{i}")))
            assert [item.checkpoint["id"] for item in found] == ids[::-1]
            assert all(item.pending_writes for item in found)


def test_threads_and_tasks_wait_for_the_few_connections(server: Server, client: redis.Redis) -> None:
    with RedisSaver.from_url(server.url, max_connections=4, workers=32) as saver:
        with ThreadPoolExecutor(64) as pool:
            assert all(len(ids) == 5 for ids in pool.map(lambda i: chat(saver, 5, f"t{i}"), range(64)))

        async def fan_out() -> None:
            at = config(id="1")
            await asyncio.gather(*(saver.aput_writes(at, [("m", i)], f"task {i}") for i in range(100)))

        asyncio.run(fan_out())
        saver.put(config(), checkpoint(id="1"), metadata(), {})
        found = saver.get_tuple(config())
        assert found is not None
        assert sorted(value for _, _, value in found.pending_writes or []) == list(range(100))
        assert len(client.client_list()) <= 6  # with the loop's own, and this client


def test_the_log_of_a_fan_out_grows_in_proportion(backend: RedisBackend, client: redis.Redis) -> None:
    ref, size = Ref("t", "", "1"), []
    for i in range(1000):
        if i % 500 == 0:
            size.append(client.info("persistence")["aof_current_size"])
        save_writes(backend, ref, [Write(f"task {i:36}", 0, "m", "", b"x" * 40)])
    size.append(client.info("persistence")["aof_current_size"])
    assert size[2] - size[1] < 1.1 * (size[1] - size[0])
    save(backend, row("t", "1"))
    _, writes = backend.fill("t", [], [ref])
    assert [write.task for write in writes[ref]] == [f"task {i:36}" for i in range(1000)]


def test_a_change_of_thousands_of_rows_is_one_step(backend: RedisBackend) -> None:
    keys = [i.to_bytes(16, "big") for i in range(5100)]
    saves = [SaveRow(row("t", str(i), keys=(key,)), [frame(key, b"abcd")]) for i, key in enumerate(keys)]
    assert all(is_made(done) for at in range(0, 5100, 100) for done in backend.save(saves[at : at + 100]))
    outline = backend.outline("t")
    assert [each.seq for each in outline.rows] == list(range(1, 5101))
    dropped, hidden = outline.rows[:5000], outline.rows[5000:5099]
    change = Change(
        drop=[each.ref for each in dropped],
        drop_frames=[each.keys[0] for each in dropped],
        relink=[each._replace(parent="p", via="v", hidden=True) for each in hidden],
    )
    assert not backend.apply("t", outline.rev - 1, change)
    assert backend.apply("t", outline.rev, change)
    left = backend.outline("t")
    assert [(each.seq, each.parent, each.via, each.hidden) for each in left.rows] == [
        *((each.seq, "p", "v", True) for each in hidden),
        (5100, None, None, False),
    ]
    assert len(left.frames) == 100
    assert [each.seq for each in backend.rows(Query("t"))] == [5100]


def test_a_later_format_is_refused(saver: RedisSaver, client: redis.Redis) -> None:
    at = config(id=chat(saver, 1)[0])
    meta, heads = (next(key for key in client.scan_iter() if part in key) for part in (b":m:", b":h:"))
    (name,) = (each for each in client.hkeys(heads) if len(each) < 16)
    client.hset(heads, name, b"\x02" + client.hget(heads, name)[1:])
    with pytest.raises(SchemaTooNew):
        saver.get_tuple(at)
    client.hset(meta, "v", 2)
    calls: list[Callable[[], Any]] = [
        lambda: saver.put(at, checkpoint(), metadata(), {}),
        lambda: saver.put_writes(at, [("m", 1)], "task"),
        lambda: saver.get_tuple(at),
        lambda: saver.delete_thread("t"),
        lambda: saver.copy_thread("t", "u"),
    ]
    for call in calls:
        with pytest.raises(SchemaTooNew, match="upgrade"):
            call()


def test_foreign_and_damaged_values_are_reported(saver: RedisSaver, client: redis.Redis) -> None:
    chat(saver, 1)
    heads = next(key for key in client.scan_iter() if b":h:" in key)
    (name,) = (each for each in client.hkeys(heads) if len(each) < 16)
    client.hset(heads, name, client.hget(heads, name)[:-1])
    with pytest.raises(Corrupt):
        list(saver.list(config()))
    client.set(heads, "ours")
    with pytest.raises(Corrupt, match="prefix"):
        saver.get_tuple(config())


def test_clients_of_any_kind_are_taken(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    socket = tmp_path / "s"
    unix = node(tmp_path, redis_binary(), "--unixsocket", socket)
    with started(unix), RedisSaver.from_url(f"unix://{socket}") as saver:
        chat(saver, 1)
        with RedisSaver(aredis.Redis(unix_socket_path=str(socket))) as lent:
            assert lent.get_tuple(config()) == saver.get_tuple(config())
    with RedisSaver(aredis.Redis(port=port_of(server), db=3, decode_responses=True)) as saver:
        ids = chat(saver, 2)
        before = len(client.client_list())
    wait_until(lambda: len(client.client_list()) < before, "the saver's own connections are closed")
    given = redis.Redis(port=port_of(server), db=3)
    with RedisSaver(given) as saver:
        assert [item.checkpoint["id"] for item in saver.list(config())] == ids[::-1]
    assert given.ping()
    given.close()
    with pytest.raises(Misuse, match="decode_responses"):
        RedisSaver(redis.Redis(decode_responses=True))


def test_a_closed_saver_opens_new_connections(saver: RedisSaver) -> None:
    chat(saver, 1)
    saver.close()
    saver.close()
    assert saver.get_tuple(config()) is not None


@pytest.mark.parametrize(
    "url", ["http://h", "redis+other://h:1", "redis+sentinel://h:1", "redis+sentinel://h:x/s", "redis://h:port", ""]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(Misuse):
        RedisSaver.from_url(url)


def test_a_prefix_that_chooses_a_slot_is_refused(server: Server) -> None:
    with pytest.raises(Misuse, match="brace"):
        RedisSaver.from_url(server.url, prefix="{x}")


@pytest.mark.parametrize("part", "mohdw")
def test_a_thread_of_which_the_server_lost_a_key_is_reported_and_not_gone_on_with(
    saver: RedisSaver, client: redis.Redis, part: str
) -> None:
    at = config(id=chat(saver, 2)[-1])
    saver.put_writes(at, [("m", 1)], "task")
    client.delete(next(key for key in client.scan_iter() if f":{part}:".encode() in key))
    calls: list[Callable[[], Any]] = [
        lambda: saver.get_tuple(config()),
        lambda: saver.get_tuple(at),
        lambda: list(saver.list(config())),
        lambda: saver.put(at, checkpoint(), metadata(), {}),
        lambda: saver.put_writes(at, [("m", 2)], "other"),
    ]
    for call in calls:
        with pytest.raises(Corrupt, match="noeviction"):
            call()
    saver.delete_thread("t")
    assert saver.get_tuple(config()) is None
    assert chat(saver, 2)
    assert len(list(saver.list(config()))) == 2


def test_no_flag_of_writes_outlives_them(saver: RedisSaver, client: redis.Redis) -> None:
    last = saver.put(config(id=chat(saver, 4)[-1]), checkpoint(), metadata(), {})
    saver.prune(["t"], strategy="keep_latest")
    meta = next(key for key in client.scan_iter() if b":m:" in key)
    assert client.hget(meta, "w") is None
    assert saver.get_tuple(config()) is not None
    saver.put_writes(last, [("m", 1)], "task")
    assert client.hget(meta, "w") == b"1"
    saver.copy_thread("t", "u")
    assert saver.get_tuple(config("u")) is not None


def test_neither_a_sweep_nor_a_copy_hides_that_writes_were_lost(saver: RedisSaver, client: redis.Redis) -> None:
    chat(saver, 2)
    client.delete(next(key for key in client.scan_iter() if b":w:" in key))
    saver.sweep()
    saver.copy_thread("t", "u")
    for thread in ("t", "u"):
        with pytest.raises(Corrupt, match="noeviction"):
            saver.get_tuple(config(thread))
