"""Clients that the Redis backend opens itself: bounded pools that wait, and no retries of their own."""

# mypy: untyped-calls-exclude="redis"

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final, TypeGuard
from urllib.parse import unquote, urlsplit

import redis
from redis import asyncio as aredis
from redis import exceptions as failures
from redis.asyncio.sentinel import SentinelConnectionPool as AsyncSentinelPool
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.connection import SSLConnection, UnixDomainSocketConnection, parse_url
from redis.retry import Retry
from redis.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.urls import settings_of
from langgraph_statekit.errors import Misuse

Client = redis.Redis | RedisCluster
AsyncClient = aredis.Redis | aredis.RedisCluster

_LENT: Final = frozenset(
    (
        *("host", "port", "path", "db", "username", "password", "credential_provider", "client_name"),
        *("protocol", "socket_timeout", "socket_connect_timeout", "socket_keepalive", "socket_keepalive_options"),
    )
)
_SETTINGS: Final = (
    *("db", "username", "password", "client_name", "protocol", "health_check_interval", "timeout"),
    *("socket_timeout", "socket_connect_timeout", "socket_keepalive", "socket_read_size"),
)
_SENTINEL_PORT: Final = 26379
_FRESH_S: Final = 1.0


class _Reset:
    """A connection that is closed by a reset.

    Else the kernel would go on to deliver what was sent before a timeout, and a save that was repeated meanwhile could
    arrive once more, after what came next.
    """

    def disconnect(self, *args: Any, **options: Any) -> None:
        conn: Any = self
        if conn._sock is not None and conn.pid == os.getpid() and os.name == "posix":
            with suppress(OSError):  # it is closed already, or no TCP
                conn._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        super().disconnect(*args, **options)  # type: ignore[misc]


class _Blocking(_Reset):
    """A connection whose timeout the kernel keeps.

    A socket with a timeout of Python's asks before each call whether it would block: two system calls, and twice the
    interpreter given up, where one does. For the same reason a connection used a moment ago is not asked whether
    it still stands; a call that finds it closed is repeated.
    """

    _used_s = 0.0

    def _connect(self) -> socket.socket:
        sock: socket.socket = super()._connect()  # type: ignore[misc]
        timeout_s = sock.gettimeout()
        if timeout_s:
            limit = struct.pack("ll", int(timeout_s), int(timeout_s % 1 * 1e6))
            sock.settimeout(None)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        return sock

    def send_packed_command(self, *args: Any, **options: Any) -> None:
        self._used_s = 0.0  # until it is answered: one interrupted in between has an answer that is nobody's
        super().send_packed_command(*args, **options)  # type: ignore[misc]

    def can_read(self, timeout: float = 0) -> bool:
        if monotonic() - self._used_s < _FRESH_S:
            return False
        return bool(super().can_read(timeout))  # type: ignore[misc]

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            reply = super().read_response(*args, **options)  # type: ignore[misc]
        except failures.ConnectionError as error:
            if isinstance(error.__context__, BlockingIOError):
                raise failures.TimeoutError("Timeout reading from socket") from error
            raise
        self._used_s = monotonic()
        return reply


class _BlockingConnection(_Blocking, redis.Connection):
    pass


class _PlainConnection(_Reset, redis.Connection):
    pass


class _TlsConnection(_Reset, SSLConnection):
    pass


class _SentinelConnection(_Reset, SentinelManagedConnection):
    pass


class _SentinelTlsConnection(_Reset, SentinelManagedSSLConnection):
    pass


class _SentinelPool(SentinelConnectionPool, redis.BlockingConnectionPool):
    """A pool that asks Sentinel for the primary, is bounded and waits."""


def require_bytes(client: Client) -> Client:
    """Return the client.

    Raises:
        Misuse: It decodes responses.
    """
    if client.get_encoder().decode_responses:
        raise Misuse("the client has decode_responses=True, but checkpoints are bytes: pass one without it")
    return client


def close(client: Client) -> None:
    """Close every connection of a client."""
    client.close()
    if isinstance(client, redis.Redis) and isinstance(client.connection_pool, SentinelConnectionPool):
        client.connection_pool.sentinel_manager.close()


def is_own(client: Client) -> TypeGuard[redis.Redis]:
    """Whether the client's connections are plain ones that were opened here."""
    return isinstance(client, redis.Redis) and client.connection_pool.connection_class is _BlockingConnection


def lone_connection(client: Client) -> redis.Connection | None:
    """Return a connection like those of the client's pool, not opened yet; None if the client is not our own."""
    make: Callable[..., redis.Connection] = _BlockingConnection
    return make(**client.connection_pool.connection_kwargs) if is_own(client) else None


def exchange(client: redis.Redis, commands: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the reply or the error of each command, all sent at once: a pipeline at half the cost, for own clients."""
    pool = client.connection_pool
    conn = pool.get_connection()
    try:
        conn.send_packed_command(conn.pack_commands(commands))
        return [_reply(conn) for _ in commands]
    except BaseException:
        conn.disconnect()
        raise
    finally:
        pool.release(conn)


def _reply(conn: redis.Connection) -> Any:
    try:
        return conn.read_response()
    except failures.ResponseError as error:
        return error


def opener(
    url: str, max_connections: int = 16, connect_timeout_s: float = 5.0, socket_timeout_s: float = 10.0
) -> Callable[[], Client]:
    """Return a function that opens a client for a URL.

    Raises:
        Misuse: The URL is none that is supported.
    """
    require_numbers(int, 1, max_connections=max_connections)
    require_numbers(float, 0.001, connect_timeout_s=connect_timeout_s, socket_timeout_s=socket_timeout_s)
    options = _options(max_connections, connect_timeout_s, socket_timeout_s)
    try:
        return _opener(url, options)
    except ValueError as error:
        said = str(error)
    raise Misuse(f"not a URL of Redis: {said}")  # without the error, which may show what could not be read


def _opener(url: str, options: dict[str, Any]) -> Callable[[], Client]:
    tls, kind = urlsplit(url).scheme.startswith("rediss"), urlsplit(url).scheme.partition("+")[2]
    plain = f"redis{'s' * tls}://{url.partition('://')[2]}" if kind else url
    _check_settings(settings_of(plain), () if kind == "sentinel" else _SETTINGS)
    if kind == "sentinel":
        nodes, service, db, login = _sentinel_parts(url)
        return lambda: _sentinel(nodes, service, {}, {"db": db, "ssl": tls, **login, **options})
    db = _checked_db(plain)
    if kind == "cluster":
        if db:
            raise ValueError(f"a cluster has no numbered databases, leave the number {db} away")
        return lambda: _cluster(plain, [], options)
    pool = redis.BlockingConnectionPool
    if tls:
        options = {**options, "connection_class": _TlsConnection}
    elif urlsplit(plain).scheme == "redis" and os.name == "posix":  # Windows' sockets have other options
        options = {**options, "connection_class": _BlockingConnection}
    return lambda: redis.Redis.from_pool(pool.from_url(plain, retry=_once(), **options))


def _checked_db(url: str) -> int:
    if not url.startswith("unix://") and not re.fullmatch(r"/?|/\d+/?", urlsplit(url).path):
        raise ValueError("what follows the host must be the number of a database: redis://host:6379/0")
    return parse_url(url).get("db") or 0


def _check_settings(names: Iterable[str], known: Sequence[str]) -> None:
    if unknown := [name for name in names if name not in known and not (known and name.startswith("ssl_"))]:
        raise ValueError(f"unknown setting {', '.join(map(repr, unknown))}")


def lender(client: AsyncClient) -> Callable[[], Client]:
    """Return a function that opens a sync client with the settings of an asyncio client."""
    if isinstance(client, aredis.RedisCluster):
        return lambda: _cluster_twin(client)
    return lambda: _twin(client.connection_pool)


def _cluster_twin(client: aredis.RedisCluster) -> Client:
    settings = client.connection_kwargs
    nodes = [(node.host, int(node.port)) for node in client.nodes_manager.startup_nodes.values()]
    tls = _is_tls(settings.get("connection_class"))
    lent = {key: value for key, value in _lent(settings).items() if key not in ("host", "port", "db")}
    return _cluster(f"redis{'s' * tls}://{nodes[0][0]}:{nodes[0][1]}", nodes[1:], {**_options(), **lent})


def _twin(pool: aredis.ConnectionPool) -> Client:
    options = {**_options(), **_lent(pool.connection_kwargs)}
    if isinstance(pool, AsyncSentinelPool):
        settings = [each.connection_pool.connection_kwargs for each in pool.sentinel_manager.sentinels]
        nodes = [(each["host"], each["port"]) for each in settings]
        login = {key: value for key, value in _lent(settings[0]).items() if key not in ("host", "port")}
        return _sentinel(nodes, pool.service_name, login, {"ssl": _is_tls(pool.connection_class), **options})
    kind = _TlsConnection if _is_tls(pool.connection_class) else _PlainConnection
    options["connection_class"] = UnixDomainSocketConnection if "path" in options else kind
    return redis.Redis.from_pool(redis.BlockingConnectionPool(retry=_once(), **options))


def _lent(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in settings.items() if value is not None and (key in _LENT or key.startswith("ssl_"))
    }


def _is_tls(connection_class: type[Any] | None) -> bool:
    return connection_class is not None and issubclass(connection_class, aredis.SSLConnection)


def _options(
    max_connections: int = 16, connect_timeout_s: float = 5.0, socket_timeout_s: float = 10.0
) -> dict[str, Any]:
    return {
        "max_connections": max_connections,
        # A caller waits for a free connection for as long as a busy one may take to fail.
        "timeout": connect_timeout_s + socket_timeout_s,
        "socket_connect_timeout": connect_timeout_s,
        "socket_timeout": socket_timeout_s,
        "protocol": 2,
    }


def _once() -> Retry:
    return Retry(NoBackoff(), 0)


def _cluster(url: str, nodes: list[tuple[str, int]], options: dict[str, Any]) -> RedisCluster:
    scheme, rest = url.split("://", 1)
    return RedisCluster(
        url=f"redis://{rest}",  # the scheme of TLS would bring a connection class of its own
        startup_nodes=[ClusterNode(host, port) for host, port in nodes],
        connection_pool_class=redis.BlockingConnectionPool,
        connection_class=_TlsConnection if scheme == "rediss" else _PlainConnection,
        retry=_once(),
        **options,
    )


def _sentinel(
    nodes: list[tuple[str, int]], service: str, login: Mapping[str, Any], options: dict[str, Any]
) -> redis.Redis:
    timeouts = {key: value for key, value in options.items() if key.startswith("socket_")}
    manager = Sentinel(nodes, sentinel_kwargs={**timeouts, **login, "retry": _once()})
    kind = _SentinelTlsConnection if options.pop("ssl", False) else _SentinelConnection
    client: redis.Redis = manager.master_for(
        service, connection_pool_class=_SentinelPool, connection_class=kind, retry=_once(), **options
    )
    return client


def _sentinel_parts(url: str) -> tuple[list[tuple[str, int]], str, int, dict[str, str]]:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    nodes = []
    for host in hosts.split(","):
        name, colon, port = host.rpartition(":")
        nodes.append((name, int(port)) if colon else (port, _SENTINEL_PORT))
    service, _, db = parts.path.strip("/").partition("/")
    if not service or not re.fullmatch(r"\d*", db):
        raise ValueError("redis+sentinel:// needs the service, then a number or nothing: redis+sentinel://host/main/0")
    user, _, password = login.partition(":")
    given = {"username": unquote(user), "password": unquote(password)}
    return nodes, unquote(service), int(db or 0), {key: value for key, value in given.items() if value}
