"""The Redis saver on a server that loses answers, dies, or is full."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from select import select
from typing import Any

import pytest
import redis
from redis import exceptions as failures
from redis.backoff import NoBackoff
from redis.retry import Retry

from langgraph_statekit.checkpoint.backends.redis import RedisBackend, RedisSaver
from langgraph_statekit.checkpoint.backends.redis_connections import opener
from langgraph_statekit.checkpoint.records import Change, Ref, SaveRow, SaveWrites, Write, is_made
from langgraph_statekit.errors import Unavailable
from tests.faces import config
from tests.servers import Server, wait_until
from tests.stores.redis_nodes import DURABLE, ask, node, port_of, redis_binary, started
from tests.stores.redis_threads import chat
from tests.stores.verbs import frame, row, save


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """Yield a server that the test may kill and configure."""
    made = node(tmp_path, redis_binary(), *DURABLE)
    with started(made):
        yield made


def test_a_repeated_verb_changes_nothing_more(own: Server) -> None:
    heard: set[bytes] = set()

    class Deaf(redis.Connection):
        """Loses the first answer to everything that it sends."""

        sent = b""

        def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            self.sent = b"".join(command)
            super().send_packed_command(command, check_health)

        def read_response(self, *args: Any, **options: Any) -> Any:
            answer = super().read_response(*args, **options)
            if b"EVAL" in self.sent and self.sent not in heard:
                heard.add(self.sent)
                self.disconnect()
                raise failures.ConnectionError("the answer is lost")
            return answer

    pool = redis.ConnectionPool(connection_class=Deaf, port=port_of(own), retry=Retry(NoBackoff(), 0))
    with redis.Redis.from_pool(pool) as deaf:
        store = RedisBackend(deaf)
        ref = Ref("t", "", "3")
        whole = frame(bytes(16), b"abcd")
        frames = [whole, frame(bytes(15) + b"1", b"efgh", whole), frame(bytes(16), b"new ")]
        for id, each in zip(("1", "2", "3"), frames, strict=True):
            assert save(store, row("t", id), [each]) is True
        writes = SaveWrites(ref, [Write("a", 0, "m", "", b"1"), Write("a", -1, "m", "", b"2")])
        assert all(map(is_made, store.save([SaveRow(row("t", "2"), frames[1:2]), writes, writes])))
        assert store.fill("t", [frames[1].key], [])[0].keys() == {frames[1].key, whole.key + whole.check}
        assert [each.seq for each in store.outline("t").rows] == [1, 2, 3]
        assert store.apply("t", store.outline("t").rev, Change(drop=[Ref("t", "", "1")])) is True
        assert store.copy_thread("t", "u", "one copy") is True
        assert [each.seq for each in store.outline("u").rows] == [2, 3]
        loaded = store.load("u", "", None)
        assert loaded is not None
        assert len(loaded.writes) == 2
        store.drop_thread("t")
        assert store.load("t", "", None) is None


def test_an_answer_that_nobody_read_is_not_that_of_the_next_call(own: Server) -> None:
    with opener(own.url)() as asked:
        assert isinstance(asked, redis.Redis)
        assert asked.ping() is True
        conn = asked.connection_pool.get_connection()
        conn.send_command("ECHO", "nobody's")
        assert select([conn._get_socket()], [], [], 30)[0]
        asked.connection_pool.release(conn)
        assert asked.ping() is True


def test_a_killed_server_that_comes_back_is_survived(own: Server) -> None:
    with RedisSaver.from_url(own.url, retry_s=60) as saver, ThreadPoolExecutor(4) as pool:
        chats = [pool.submit(chat, saver, 300, f"t{i}") for i in range(4)]
        wait_until(lambda: len(list(saver.list(config("t0"), limit=20))) == 20, "the chats are on their way")
        own.kill()
        own.start()
        for i, each in enumerate(chats):
            ids = each.result()
            assert [item.checkpoint["id"] for item in saver.list(config(f"t{i}"))] == ids[::-1]


def test_a_server_that_is_gone_is_unavailable_and_the_thread_usable_afterwards(own: Server) -> None:
    with RedisSaver.from_url(own.url, retry_s=0) as saver:
        ids = chat(saver, 1)
        own.kill()
        for call in (lambda: chat(saver, 1), lambda: saver.get_tuple(config()), lambda: list(saver.list(None))):
            with pytest.raises(Unavailable, match="Redis did not answer") as caught:
                call()
            assert isinstance(caught.value.__cause__, failures.ConnectionError)
        own.start()
        assert [item.checkpoint["id"] for item in saver.list(config())] == ids
        assert len(chat(saver, 2)) == 2


def test_a_full_server_is_unavailable_at_once_and_can_be_pruned(own: Server) -> None:
    with RedisSaver.from_url(own.url, retry_s=600) as saver:
        ids = chat(saver, 3)
        ask(own, "CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(Unavailable, match="full") as caught:
            chat(saver, 1)
        assert isinstance(caught.value.__cause__, failures.OutOfMemoryError)
        assert [item.checkpoint["id"] for item in saver.list(config())] == ids[::-1]
        saver.prune(["t"])
        assert [item.checkpoint["id"] for item in saver.list(config())] == ids[2:]
        saver.delete_thread("t")
        ask(own, "CONFIG", "SET", "maxmemory", 0)
        assert len(chat(saver, 1)) == 1
