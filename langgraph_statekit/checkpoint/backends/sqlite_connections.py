"""One SQLite file's connections: how many, who waits for whom, what crosses a fork, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakSet

from langgraph_statekit.dice import RANDOM
from langgraph_statekit.errors import Corrupt, DataError, Misuse, StatekitError, Unavailable

T = TypeVar("T")

REFUSED: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)
"""What SQLite and its driver raise for a value that they do not take; the transaction goes on."""
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_CLOSED: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_DISK: Final = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def _code(error: BaseException | None) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_disk_error(error: BaseException | None) -> bool:
    """Whether the disk took no more, which may be the fault of one large value."""
    return _code(error) in _DISK


def explained(path: Path, error: Exception) -> StatekitError:
    """Return what to raise for an error of the driver."""
    text = f"{path}: {type(error).__name__}: {error}"
    code = _code(error)
    if isinstance(error, REFUSED):
        return DataError(f"{text}; SQLite cannot store this")
    if code in _DAMAGED:
        return Corrupt(f"{text}; the file is damaged or not a database")
    if code in _CLOSED:
        return Misuse(f"{text}; the file cannot be opened or written: check its folder and its permissions")
    if code == sqlite3.SQLITE_ERROR:
        return Misuse(f"{text}; the file lacks its tables or holds those of another program")
    return Unavailable(f"{text}; nothing of this call was saved")


class _Turns:
    """A semaphore that serves in the order of arrival, so that a busy thread cannot starve the others."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._queue: deque[threading.Lock] = deque()

    def take(self, deadline: float) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._queue.append(turn)
        try:
            if turn.acquire(timeout=max(deadline - time.monotonic(), 0)):
                return True
        except BaseException:
            if not self._leave(turn):
                self.give()
            raise
        return not self._leave(turn)

    def _leave(self, turn: threading.Lock) -> bool:
        """Leave the queue; False says that the turn had come already."""
        with self._lock:
            if turn in self._queue:
                self._queue.remove(turn)
                return True
            return False

    def give(self) -> None:
        with self._lock:
            if self._queue:
                self._queue.popleft().release()
            else:
                self._free += 1


class _Pool:
    """At most `size` connections, made when needed; the one used last is lent first."""

    def __init__(self, size: int, connect: Callable[[float], sqlite3.Connection], busy: str) -> None:
        self._size, self._connect, self._busy = size, connect, busy
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._turns = _Turns(size)
        self._idle: list[sqlite3.Connection] = []
        self._paused = 0

    @contextmanager
    def lend(self, deadline: float) -> Iterator[sqlite3.Connection]:
        if not self._turns.take(deadline):
            raise Unavailable(self._busy)
        try:
            with self._lock:
                idle = self._idle
                db = idle.pop() if idle else None
            db = db or self._connect(deadline)
            try:
                yield db
            except BaseException:
                try:
                    if db.in_transaction:
                        db.execute("ROLLBACK")
                finally:
                    db.close()
                raise
            with self._lock:
                if idle is self._idle:
                    idle.append(db)
                    return
            db.close()  # the pool was closed meanwhile
        finally:
            self._turns.give()

    def close(self) -> None:
        """Close what is not lent now; the rest is closed when it comes back."""
        if self._pid == os.getpid():
            with self._lock:
                idle, self._idle = self._idle, []
            for db in idle:
                db.close()

    __del__ = close

    def pause(self, deadline: float) -> None:
        while self._paused < self._size and self._turns.take(deadline):
            self._paused += 1
        self.close()

    def resume(self) -> None:
        for _ in range(self._paused):
            self._turns.give()
        self._paused = 0


class Connections:
    """One connection that writes and a few that read, for all threads of a process and for its forks.

    Args:
        path: The file.
        lock_wait_s: Seconds to wait for a connection and for the write lock, then `Unavailable`.
        readers: So many read at once at most; others wait.
    """

    def __init__(self, path: Path, lock_wait_s: float, readers: int) -> None:
        self._path, self._wait_s, self._most_readers = path, lock_wait_s, readers
        self._pools: dict[int, tuple[_Pool, _Pool]] = {}
        with _FORKING:
            _ALL.add(self)

    def _here(self) -> tuple[_Pool, _Pool]:
        """Return this process's pools: for writing and for reading."""
        pools = self._pools.get(os.getpid())
        if pools is None:
            _INHERITED.extend(self._pools.values())
            wait = f"for {self._wait_s:g} s"
            writer = _Pool(1, self._connect, f"another thread held the write lock of {self._path} {wait}")
            busy = f"all {self._most_readers} read connections of {self._path} were in use {wait}"
            pools = self._pools.setdefault(os.getpid(), (writer, _Pool(self._most_readers, self._connect, busy)))
        return pools

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection that writes, in a transaction that is committed at the end."""
        deadline = time.monotonic() + self._wait_s
        with self._errors(), self._here()[0].lend(deadline) as db:
            self._patiently(lambda: db.execute("BEGIN IMMEDIATE"), deadline)
            yield db
            db.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that sees one state of the file."""
        deadline = time.monotonic() + self._wait_s
        with self._errors(), self._here()[1].lend(deadline) as db:
            db.execute("BEGIN")
            # The snapshot is taken here, and not by the first query, since another process may be mending the file.
            self._patiently(lambda: db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall(), deadline)
            yield db
            db.execute("COMMIT")

    def cut_log(self) -> bool:
        """Move all of the log into the file and leave none of it; False if somebody reads from it."""
        with self._errors(), self._here()[0].lend(time.monotonic() + self._wait_s) as db:
            return not db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]

    def close(self) -> None:
        """Close all connections; those in use are closed by their users."""
        for pool in self._here():
            pool.close()

    def pause(self) -> None:
        """Wait for the calls under way, close all connections and let no new call begin until `resume`."""
        for pool in self._here():
            pool.pause(time.monotonic() + self._wait_s)

    def resume(self) -> None:
        """Undo `pause`."""
        for pool in self._here():
            pool.resume()

    def _connect(self, deadline: float) -> sqlite3.Connection:
        return self._patiently(self._connect_once, deadline)

    def _connect_once(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = FAST")
        except BaseException:
            db.close()
            raise
        if mode != "wal":
            db.close()
            raise Misuse(f"{self._path} cannot use write-ahead logging (mode {mode!r}): put it on a local disk")
        return db

    def _patiently(self, call: Callable[[], T], deadline: float) -> T:
        """Repeat a call that needs a lock of the file, in short steps, so that each waiting process gets its turn."""
        while True:
            try:
                return call()
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY:
                    raise
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"another process held the write lock of {self._path} for {self._wait_s:g} s"
                    ) from error
            time.sleep(RANDOM.uniform(0.001, 0.004))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, *REFUSED) as error:
            raise explained(self._path, error) from error


# SQLite keeps what it has locked in memory, so a child that inherits an open file believes that it holds its parent's
# locks: it would wait for ever for a write that was under way, and lose what it saves when the parent closes the file.
# So no connection crosses a fork. Where one does, since a program forks without telling Python, nobody closes it.
_ALL: Final[WeakSet[Connections]] = WeakSet()
_INHERITED: Final[list[tuple[_Pool, _Pool]]] = []
_FORKING: Final = threading.Lock()


def _before_fork() -> None:
    _FORKING.acquire()
    for each in _ALL:
        each.pause()


def _after_fork() -> None:
    for each in _ALL:
        each.resume()
    _FORKING.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_FORKING.release)
