"""A cluster with TLS: a node that says it is where a proxy takes the TLS away."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from langgraph_statekit.checkpoint.backends.redis import RedisSaver
from langgraph_statekit.checkpoint.backends.redis_connections import _Reset
from tests.faces import checkpoint, config, listed, metadata
from tests.servers import free_ports, wait_until
from tests.stores.redis_nodes import SLOTS, ask, node, port_of, redis_binary, started


def with_certificate(directory: Path) -> ssl.SSLContext:
    key, day = ec.generate_private_key(ec.SECP256R1()), timedelta(days=1)
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")]), datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day).sign(key, SHA256())
    pem = directory / "tls.pem"
    pem.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    pem.write_bytes(pem.read_bytes() + made.public_bytes(Encoding.PEM))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem)
    return context


def pass_on(near: ssl.SSLSocket, far: socket.socket) -> None:
    with near, far, suppress(OSError):
        while True:
            for source in [near] if near.pending() else select.select([near, far], [], [])[0]:
                if not (data := source.recv(1 << 16)):
                    return
                (far if source is near else near).sendall(data)


@contextmanager
def without_tls(port: int, context: ssl.SSLContext, far: int) -> Iterator[None]:
    """Take TLS at a port, and pass on to another one what comes."""
    listener = socket.create_server(("127.0.0.1", port))
    threads, sides = list[threading.Thread](), list[socket.socket]()

    def serve() -> None:
        with suppress(OSError):
            while True:
                near = context.wrap_socket(listener.accept()[0], server_side=True)
                sides.append(socket.create_connection(("127.0.0.1", far)))
                threads.append(threading.Thread(target=pass_on, args=(near, sides[-1])))
                threads[-1].start()

    server = threading.Thread(target=serve)
    server.start()
    try:
        yield
    finally:
        for each in (listener, *sides):
            with suppress(OSError):  # it is closed
                each.shutdown(socket.SHUT_RDWR)
        for thread in (server, *threads):
            thread.join()
        listener.close()


async def test_connections_to_a_cluster_with_tls_are_closed_by_a_reset_too(tmp_path: Path) -> None:
    port, bus = free_ports(2)
    announced = ("--cluster-announce-port", port, "--cluster-announce-ip", "127.0.0.1")
    server = node(tmp_path, redis_binary(), "--cluster-enabled", "yes", "--cluster-port", bus, *announced)
    with started(server), without_tls(port, with_certificate(tmp_path), port_of(server)):
        ask(server, "CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        wait_until(lambda: "cluster_state:ok" in str(ask(server, "CLUSTER INFO")).replace("': '", ":"), "a cluster")
        async with RedisSaver.from_url(f"rediss+cluster://127.0.0.1:{port}?ssl_cert_reqs=none") as saver:
            at = await saver.aput(config(), checkpoint({}, {}), metadata(1), {})
            assert [item.config for item in await listed(saver, config())] == [at]
            pools = [each.redis_connection.connection_pool for each in saver.backend._calls.connected().get_nodes()]
            assert [issubclass(pool.connection_class, _Reset) for pool in pools] == [True]
