"""What the tests of the object store share: watched drivers, small records, and a look at all that a backend shows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from zlib import crc32

import pytest

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver, Found, Stat
from langgraph_statekit.checkpoint.backends.objects.obstore_driver import connect
from langgraph_statekit.checkpoint.claims import Claim
from langgraph_statekit.checkpoint.records import KEY_BYTES, Frame, Query, Row, Save, Stored, Write
from tests.servers import Absent, Servers
from tests.stores.verbs import key, ordered, row, save, save_writes


def bucket_url(servers: Servers, kind: str) -> str:
    """Return the URL of a bucket; skip the test if there is no such server."""
    try:
        return servers.url(kind)
    except Absent as absent:
        pytest.skip(str(absent))


def bucket_driver(servers: Servers, kind: str) -> Driver:
    """Return a driver of a bucket; skip the test if there is no such server."""
    given = urlsplit(bucket_url(servers, kind))
    return connect(kind, given.netloc, **dict(parse_qsl(given.query)))


class Died(Exception):
    """The process had died by then."""


class Watched(Driver):
    """Counts requests and fails some, before or after they act.

    Args:
        inner: Makes the requests.
        fail_at: Number of the first request that fails, from 1; 0 for none.
        acts: Whether that request still acts, as when only its reply is lost.
        once: Fail once, as a broken connection does; else from then on, as a process that died.
    """

    def __init__(self, inner: Driver, fail_at: int = 0, acts: bool = False, once: bool = False) -> None:
        self.name, self.transient = inner.name, inner.transient
        self._inner, self._fail_at, self._acts, self._once = inner, fail_at, acts, once
        self._lock = threading.Lock()
        self.requests: list[tuple[str, Any]] = []

    def _do(self, verb: str, *args: Any) -> Any:
        with self._lock:
            self.requests.append((verb, args[0]))
            number = len(self.requests)
        call = getattr(self._inner, verb)
        if not self._fail_at or number < self._fail_at or (self._once and number > self._fail_at):
            return call(*args)
        if number == self._fail_at and self._acts:
            call(*args)
        raise self.transient[0]("the connection broke") if self._once else Died(f"request {number}: {verb}")

    def get(self, key: str) -> Found | None:
        return self._do("get", key)  # type: ignore[no-any-return]

    def put(self, key: str, data: bytes, expect: str | None = None) -> str:
        return self._do("put", key, data, expect)  # type: ignore[no-any-return]

    def list(self, prefix: str) -> Sequence[str]:
        return self._do("list", prefix)  # type: ignore[no-any-return]

    def folders(self, prefix: str) -> Sequence[str]:
        return self._do("folders", prefix)  # type: ignore[no-any-return]

    def now_us(self, key: str) -> int:
        return self._do("now_us", key)  # type: ignore[no-any-return]

    def stats(self, prefix: str) -> Mapping[str, Stat]:
        return self._do("stats", prefix)  # type: ignore[no-any-return]

    def copy(self, source: str, target: str) -> bool:
        return self._do("copy", source, target)  # type: ignore[no-any-return]

    def delete(self, keys: Sequence[str]) -> None:
        self._do("delete", keys)


class Leased:
    """A backend; one of `share` saves, chosen by its content, is made under the thread's lease."""

    def __init__(self, inner: Any, share: int) -> None:
        self._inner, self._share = inner, share

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        return self._inner.save([self._leased(save) for save in saves])  # type: ignore[no-any-return]

    def _leased(self, save: Save) -> Save:
        if not self._share or crc32(repr(save).encode()) % self._share:
            return save
        (held,) = self._inner.claim([Claim(save.thread, "holder", "owner", 10**12)])
        if isinstance(held, Exception):
            raise held
        assert held is not None
        return replace(save, token=held.token)


class Rounds:
    """How many requests had to wait for each other: those started together count as one round."""

    def __init__(self, bucket: Any) -> None:
        self.count = 0
        self._caller = threading.current_thread()
        self._start, self._request = bucket.start, bucket._request
        bucket.start, bucket._request = self.start, self.request

    def start(self, call: Callable[..., Any], *args: Any) -> Any:
        return _Awaited(self._start(call, *args), self, self.count + 1)

    def request(self, call: Callable[..., Any], *args: Any) -> Any:
        if threading.current_thread() is self._caller:
            self.count += 1
        return self._request(call, *args)


class _Awaited:
    def __init__(self, future: Future[Any], rounds: Rounds, round: int) -> None:
        self._future, self._rounds, self._round = future, rounds, round

    def result(self) -> Any:
        self._rounds.count = max(self._rounds.count, self._round)
        return self._future.result()


def chain(backend: Backend, count: int, *, thread: str = "a", ns: str = "", start: int = 0) -> list[Row]:
    """Store a line of checkpoints: channel `x` changes each time, `y` only once; each has the writes of a task."""
    made: list[Row] = []
    for number in range(start, start + count):
        keys = (key("x", number), key("y", start))
        parent = made[-1].ref.id if made else None
        item = row(thread, f"{number:06}", ns, keys=keys, parent=parent, run_id=f"r{number % 3}")
        frames = [Frame(key("x", number), f"x{number}".encode() * 20)]
        if number == start:
            frames.append(Frame(key("y", start), b"y" * 500))
        save(backend, item, frames)
        save_writes(backend, item.ref, [Write("task", 0, "x", "", f"w{number}".encode())])
        made.append(item)
    return made


def look(backend: Backend, threads: Sequence[str]) -> Any:
    """Return all that a backend shows of threads, but `rev`."""
    return {thread: _look(backend, thread) for thread in threads}


def _look(backend: Backend, thread: str) -> Any:
    outline = backend.outline(thread)
    refs = [item.ref for item in outline.rows]
    namespaces = sorted({ref.ns for ref in refs})
    rows = backend.rows(Query(thread))
    frames, writes = backend.fill(thread, {key for item in outline.rows for key in item.keys}, refs)
    return {
        "outline": (list(outline.rows), sorted(key for key in outline.frames if len(key) == KEY_BYTES)),
        "rows": list(rows),
        "page": [list(backend.rows(Query(thread, ns, limit=3))) for ns in namespaces],
        "next page": list(backend.rows(Query(thread, below_seq=rows[1].seq, limit=4))) if len(rows) > 1 else [],
        "before": [
            list(backend.rows(Query(thread, before=ref.id, limit=4))) for ref in refs[:: max(len(refs) // 4, 1)]
        ],
        "by id": [list(backend.rows(Query(thread, id=ref.id))) for ref in refs[:: max(len(refs) // 4, 1)]],
        "fill": (dict(frames), {ref: ordered(items) for ref, items in writes.items()}),
        "heads": [_stored(backend.load(thread, ns, None)) for ns in namespaces],
        "loads": [_stored(backend.load(thread, ref.ns, ref.id)) for ref in refs],
        "listed": [name for page in backend.threads() for name in page if name == thread],
    }


def _stored(stored: Stored | None) -> Any:
    return stored and (stored.row, dict(stored.frames), ordered(stored.writes))
