"""Where the Postgres backend borrows its connections: its own, or the caller's pool or connection."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Protocol

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.errors import DataError, Misuse, StatekitError, Unavailable

Connection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]

TRANSIENT: Final = (psycopg.OperationalError, psycopg.InterfaceError, pg.ReadOnlySqlTransaction)
"""Errors after which a repeat may help."""
_REMEDIES: Final = {
    r'database "[^"]*" does not exist|no such database': "create the database or correct its name",
    r'role "[^"]*" does not exist|no such user|not permitted to log in': "create the role or correct the user",
    r"authentication failed|no password supplied|password is missing": "correct the user and the password",
    r"pg_hba\.conf": "let this user, host and database in",
    r"permission denied for database": "grant CONNECT",
    r"is not currently accepting connections": "use another database, or let this one accept connections",
    r"does not support SSL|SSL was required|certificate|private key": "correct the ssl settings of URL and server",
    r"invalid [\w ]*(value|port|option)": "correct this setting in the URL",
}
"""What a server or libpq says, in English, when no repeat lets a connection in, and what to do about it."""
_PROBE_S: Final = 1.0
# Without these a server that vanished is noticed after minutes; all of them may be set in the URL.
_DEFAULTS: Final[dict[str, Any]] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "client_encoding": "UTF8",
    "fallback_application_name": "langgraph-statekit",
}


def final_error(error: psycopg.Error) -> StatekitError | None:
    """Return what to raise at once for an error that a repeat cannot mend.

    A server that cannot be reached, is starting, is shutting down or has no free place may answer later; so may one
    that refuses a connection in another language than English.
    """
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, psycopg.OperationalError) and (error.sqlstate or "28").startswith(("28", "3D")):
        for refusal, remedy in _REMEDIES.items():
            if re.search(refusal, str(error)):
                return Misuse(f"PostgreSQL cannot be used so, {remedy}: {text}")
    match error:
        case PoolClosed():
            return Misuse(f"the connection pool given is not open: {error}")
        case PoolTimeout():
            return Unavailable(f"PostgreSQL: {text}")
        case pg.ProgramLimitExceeded() | psycopg.DataError():
            return DataError(f"PostgreSQL cannot store this: {text}")
        case pg.InsufficientPrivilege():
            return Misuse(f"the PostgreSQL role lacks a right, have it granted: {text}")
        case pg.UndefinedFunction() | pg.UndefinedTable() | pg.InvalidSchemaName():
            return Misuse(f"the PostgreSQL schema is incomplete, call setup(): {text}")
        case psycopg.ProgrammingError():
            return Misuse(f"PostgreSQL: {text}")
    return None if isinstance(error, TRANSIENT) else Unavailable(f"PostgreSQL: {text}")


def is_lost(error: BaseException | None) -> bool:
    """Whether the connection, and not the statement, is at fault."""
    state = getattr(error, "sqlstate", None)
    return state is None or state.startswith(("08", "57P")) or state == pg.ReadOnlySqlTransaction.sqlstate


class Lender(Protocol):
    """Where a verb borrows a connection in autocommit mode; one that comes back closed is replaced."""

    def lend(self) -> AbstractContextManager[Connection]: ...

    def close(self) -> None: ...

    def spare(self) -> Client:
        """What makes a lender of one connection to the same database; where that is not known, the same again."""
        ...


class Connections:
    """Connections of our own: made when needed, never more than `max_size`, the one used last is lent first.

    Works behind PgBouncer in transaction mode.

    Args:
        url: URL or conninfo string.
        min_size: So many stay open while they are not used; the others for `idle_s`.
        max_size: More callers than this wait.
        idle_s: Seconds.
        wait_s: Seconds after which a waiting caller gets `PoolTimeout`.
    """

    _pid = 0

    def __init__(
        self, url: str, *, min_size: int = 1, max_size: int = 10, idle_s: float = 300.0, wait_s: float = 30.0
    ) -> None:
        require_numbers(int, 0, min_size=min_size)
        require_numbers(int, 1, max_size=max_size)
        if min_size > max_size:
            raise Misuse(f"the option min_size={min_size} must be at most max_size={max_size}")
        require_numbers(float, 0, idle_s=idle_s, wait_s=wait_s)
        self._conninfo = make_conninfo("", **{**_DEFAULTS, **_settings(url)})
        self._min_size, self._max_size = min_size, max_size
        self._idle_s, self._wait_s = idle_s, wait_s
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._free = threading.Semaphore(self._max_size)
        self._idle: list[tuple[float, Connection]] = []

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        if self._pid != os.getpid():
            self._inherited = self._idle  # kept: closing them would end the parent's connections
            self._start()
        free = self._free
        if not free.acquire(timeout=self._wait_s):
            raise PoolTimeout(f"no connection became free within {self._wait_s:g} s (max_size={self._max_size})")
        try:
            with self._lock:
                idle = self._idle
                conn = idle.pop()[1] if idle else None
            conn = conn or psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
            try:
                yield conn
            finally:
                self._take_back(conn, idle)
        finally:
            free.release()

    def _take_back(self, conn: Connection, idle: list[tuple[float, Connection]]) -> None:
        if conn.closed:
            self.close()  # what else is idle is likely dead too
            return
        now = time.monotonic()
        surplus = conn
        with self._lock:
            if idle is self._idle and conn.info.transaction_status == TransactionStatus.IDLE:
                idle.append((now, conn))
                if len(idle) <= self._min_size or now - idle[0][0] < self._idle_s:
                    return
                surplus = idle.pop(0)[1]
        surplus.close()

    def spare(self) -> Client:
        return Connections(self._conninfo, min_size=0, max_size=1)

    def close(self) -> None:
        """Close what is not lent now; the rest is closed when it comes back."""
        if self._pid != os.getpid():
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for _, conn in idle:
            conn.close()

    __del__ = close


class _Pool:
    """A pool of the caller's; it stays his to close."""

    def __init__(self, pool: ConnectionPool[Connection]) -> None:
        self._pool = pool
        self._failed = 0

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        conn = self._borrow()
        try:
            with _autocommit(conn):
                yield conn
        finally:
            lost = conn.closed
            self._pool.putconn(conn)
            if lost:
                self._pool.check()

    def _borrow(self) -> Connection:
        """Return a connection of the pool; raise what keeps the pool from connecting, which only its log tells."""
        pool = self._pool
        first_s = min(_PROBE_S, pool.timeout)
        for wait_s in (first_s, pool.timeout - first_s):
            try:
                return pool.getconn(wait_s)
            except PoolTimeout:
                self._probe()
        raise PoolTimeout(f"no connection of the pool given became free within {pool.timeout:g} s")

    def _probe(self) -> None:
        failed = self._pool.get_stats().get("connections_errors", 0)
        if failed == self._failed:
            return  # it is only busy
        conninfo, kwargs = self._pool.conninfo, self._pool.kwargs
        given = _settings((conninfo() if callable(conninfo) else conninfo) or "")
        self._pool.connection_class.connect(**{**given, **((kwargs() if callable(kwargs) else kwargs) or {})}).close()
        self._failed = failed

    def spare(self) -> Client:
        pool = self._pool
        ours = pool.connection_class is psycopg.Connection and pool._configure is None
        if not ours or callable(pool.conninfo) or callable(pool.kwargs):
            return pool  # only it knows how to connect
        return _as_pool(pool.conninfo, pool.kwargs, 1)

    def close(self) -> None:
        """The pool is not ours."""


class _Single:
    """One connection of the caller's, for one verb at a time."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._lock = threading.Lock()

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        with self._lock:
            if self._conn.closed:
                raise Unavailable("the connection given is closed: pass a pool, which replaces it") from (
                    psycopg.OperationalError("the connection is closed")
                )
            with _autocommit(self._conn):
                yield self._conn

    def spare(self) -> Client:
        return _as_connection(self._conn)

    def close(self) -> None:
        """The connection is not ours."""


@contextmanager
def _autocommit(conn: Connection) -> Iterator[None]:
    was = conn.autocommit
    if not was:
        conn.autocommit = True
    try:
        yield
    finally:
        if not was and conn.info.transaction_status == TransactionStatus.IDLE:
            conn.autocommit = False


def _settings(url: str) -> dict[str, Any]:
    """Return what a URL or conninfo string says.

    Raises:
        Misuse: libpq does not understand it.
    """
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        text = str(error)
    # It quotes what it does not understand, which may be a piece of a password; not so the name of a URL's parameter.
    said = text if text.startswith("invalid URI query parameter") else "each value that has spaces must stand in ''"
    raise Misuse(f"not a PostgreSQL URL or conninfo string: {said}")


Client = ConnectionPool[Any] | Connection | AsyncConnectionPool[Any] | AsyncConnection | Connections


def lender(client: Client) -> Lender:
    """Return where to borrow connections, given what the user passed."""
    if isinstance(client, Connections):
        return client
    if isinstance(client, ConnectionPool):
        return _Pool(client)
    if isinstance(client, psycopg.Connection):
        return _Single(client)
    if isinstance(client, psycopg.AsyncConnection):
        return _as_connection(client)
    if isinstance(client, AsyncConnectionPool):
        if callable(client.conninfo) or callable(client.kwargs):
            raise Misuse("the pool's conninfo and kwargs must be values: pass a ConnectionPool, or use from_url")
        return _as_pool(client.conninfo, client.kwargs, client.max_size)
    raise Misuse(f"a psycopg pool or connection is needed, not {type(client).__name__}; for a URL use from_url")


def _as_connection(conn: Connection | AsyncConnection) -> Connections:
    info = conn.info
    return Connections(make_conninfo("", **info.get_parameters(), password=info.password or None))


def _as_pool(conninfo: str | None, kwargs: Mapping[str, Any] | None, max_size: int) -> Connections:
    ours = {"autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory"}
    more = {key: value for key, value in (kwargs or {}).items() if key not in ours}
    return Connections(make_conninfo("", **{**_settings(conninfo or ""), **more}), max_size=max_size)
