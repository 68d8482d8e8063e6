"""A proxy on 127.0.0.1 that counts how often its clients wait for the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Counter:
    """Counts requests that went out after an answer, or first, on a connection: what a client waits for."""

    def __init__(self, port: int) -> None:
        self.trips = 0
        self._server = ("127.0.0.1", port)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut all connections."""
        for link in (self._listener, *self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            answered = threading.Event()
            answered.set()
            self._links += (client, server)
            for link in (client, server):
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._pump, args=(client, server, answered, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, answered, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, answered: threading.Event, out: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if not out:
                    answered.set()
                elif answered.is_set():
                    answered.clear()
                    with self._lock:
                        self.trips += 1
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass


@contextmanager
def counting(port: int) -> Iterator[Counter]:
    """Count what passes to the server on this port of 127.0.0.1."""
    counter = Counter(port)
    try:
        yield counter
    finally:
        counter.close()
