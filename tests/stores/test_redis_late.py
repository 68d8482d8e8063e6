"""Saves whose first sending arrives after they were repeated, and after what came next."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
from redis.connection import SSLConnection

from langgraph_statekit.checkpoint.backends.redis import RedisSaver
from langgraph_statekit.checkpoint.backends.redis_connections import _Reset, close, opener
from tests.faces import checkpoint, config, metadata
from tests.servers import Server, wait_until
from tests.stores.redis_nodes import port_of

FIRST = checkpoint({}, {})
MARK = FIRST["id"].encode()


class Network:
    """Connections to a server; the first one that carries the mark is delayed, and what was reset is not delivered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.delayed, self.let_go, self.over = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self.listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._connect, args=(near, far), daemon=True).start()

    def _connect(self, near: socket.socket, far: socket.socket) -> None:
        with near, far:
            answers = threading.Thread(target=self._answer, args=(near, far), daemon=True)
            answers.start()
            self._send(near, far)
            answers.join()

    def _send(self, near: socket.socket, far: socket.socket) -> None:
        late = False
        with suppress(OSError):
            while there := near.recv(65536, socket.MSG_PEEK):
                if MARK in there and not self.delayed.is_set():
                    late = True
                    self.delayed.set()
                    self.let_go.wait(60)
                    if near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        break
                far.sendall(near.recv(len(there)))
            far.shutdown(socket.SHUT_WR)
        if late:
            far.settimeout(60)
            with suppress(OSError):
                while far.recv(65536):
                    pass
            self.over.set()

    def _answer(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while answer := far.recv(65536):
                near.sendall(answer)
        with suppress(OSError):
            near.shutdown(socket.SHUT_WR)


@pytest.fixture
def network(server: Server, client: redis.Redis) -> Iterator[Network]:
    made = Network(port_of(server))
    yield made
    made.let_go.set()
    made.listener.close()


@pytest.fixture
def far_saver(network: Network) -> Iterator[RedisSaver]:
    with RedisSaver.from_url(f"redis://127.0.0.1:{network.port}", socket_timeout_s=2.0) as made:
        yield made


@pytest.mark.parametrize("kind", ["redis", "rediss", "redis+sentinel", "rediss+sentinel"])
def test_every_connection_that_is_opened_here_is_closed_by_a_reset(kind: str) -> None:
    opened = opener(f"{kind}://127.0.0.1:1/{'main' if 'sentinel' in kind else '0'}")()
    assert isinstance(opened, redis.Redis)
    assert issubclass(opened.connection_pool.connection_class, _Reset)
    assert issubclass(opened.connection_pool.connection_class, SSLConnection) == kind.startswith("rediss")
    close(opened)


def stored_steps(saver: RedisSaver) -> list[int]:
    return [item.metadata["step"] for item in saver.list(config("t"))]


def test_a_late_save_of_a_thread_does_not_undo_the_next_one(network: Network, far_saver: RedisSaver) -> None:
    far_saver.put(config("t"), FIRST, metadata(1), {})
    assert network.delayed.is_set()
    far_saver.put(config("t"), FIRST, metadata(2), {})
    network.let_go.set()
    assert network.over.wait(60)
    assert stored_steps(far_saver) == [2]


async def test_a_late_save_of_a_loop_does_not_bring_a_deleted_thread_back(
    network: Network, far_saver: RedisSaver
) -> None:
    assert far_saver._lines is not None
    for step in range(1000):
        await far_saver.aput(config("u"), checkpoint({}, {}), metadata(step), {})
        if far_saver._lines._senders:
            break
    await far_saver.aput(config("t"), FIRST, metadata(1), {})
    assert network.delayed.is_set()
    await far_saver.adelete_thread("t")
    network.let_go.set()
    wait_until(network.over.is_set, "the late save")
    assert stored_steps(far_saver) == []
