"""What the tests of the Postgres saver share: records to store, and a proxy that counts round trips."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend
from langgraph_statekit.checkpoint.backends.postgres_connections import Connections
from langgraph_statekit.checkpoint.records import Frame, Row, Write
from tests.stores.verbs import frame, key, row

T = TypeVar("T")


@contextmanager
def backend(
    url: str, schema: str = "statekit", *, max_size: int = 10, retry_s: float = 10.0
) -> Iterator[PostgresBackend]:
    """Yield a backend that is set up, with connections of its own."""
    made = PostgresBackend(Connections(url, max_size=max_size), schema=schema, retry_s=retry_s)
    try:
        made.setup()
        yield made
    finally:
        made.close()


def numbered(thread: str, number: int, ns: str = "", **fields: Any) -> Row:
    """Return the row of the checkpoint of this number, with two channels of that version."""
    parent = f"{number - 1:06}" if number else None
    return row(thread, f"{number:06}", ns, **{"parent": parent, "keys": (key(1, number), key(2, number)), **fields})


def frames(number: int) -> list[Frame]:
    """Return the values of the channels of a numbered row."""
    return [frame(key(1, number), b"one %d" % number), frame(key(2, number), b"two %d" % number)]


def write(task: str, idx: int, data: bytes = b"value") -> Write:
    """Return a pending write."""
    return Write(task, idx, f"channel {idx}", "path", data)


def together(count: int, call: Callable[[int], T]) -> list[T]:
    """Call with 0, 1, ... in that many threads at once; the first error is raised."""
    start = threading.Barrier(count)

    def run(number: int) -> T:
        start.wait()
        return call(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class Trips:
    """Counts how often a client hands the turn to the server: messages Sync and Query."""

    def __init__(self) -> None:
        self.count = 0

    def of(self, call: Callable[[], object]) -> int:
        """Return how many round trips the call makes."""
        before = self.count
        call()
        return self.count - before

    def relay(self, client: socket.socket, server: socket.socket) -> None:
        """Pass the client's messages on until it ends."""
        with suppress(OSError), client.makefile("rb") as stream:
            head = stream.read(4)
            server.sendall(head + stream.read(int.from_bytes(head, "big") - 4))
            while kind := stream.read(1):
                size = stream.read(4)
                message = stream.read(int.from_bytes(size, "big") - 4)
                self.count += kind in b"SQ"
                server.sendall(kind + size + message)
        with suppress(OSError):
            server.shutdown(socket.SHUT_WR)


@contextmanager
def counting_proxy(url: str) -> Iterator[tuple[str, Trips]]:
    """Yield a conninfo string that leads through a proxy, and its counter."""
    target = conninfo_to_dict(url)
    address = (str(target.get("host") or "127.0.0.1"), int(target.get("port") or 5432))
    trips, sockets = Trips(), list[socket.socket]()

    def back(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, server = listener.accept()[0], socket.create_connection(address)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sockets.extend((client, server))
                pool.submit(trips.relay, client, server)
                pool.submit(back, server, client)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(32) as pool:
        pool.submit(accept)
        try:
            yield make_conninfo(url, host="127.0.0.1", port=listener.getsockname()[1], sslmode="disable"), trips
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for each in sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
    for each in sockets:
        each.close()


def query(url: str, text: str, *args: Any) -> list[Any]:
    """Return the rows of a statement on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as db:
        cursor = db.execute(text.encode(), args)
        return cursor.fetchall() if cursor.description else []


def terminate(url: str, application: str) -> int:
    """End all connections of an application; return their number."""
    found = query(
        url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", application
    )
    return len(found)
