"""Checkpoints in Redis (7.0 or later) or Valkey: one script call a verb; no modules, no admin rights.

A thread is five keys, named by a hash of its id. The hash tag in the names is one of 1,024 buckets, so that
the index of a bucket's threads shares their slot of a cluster. `redis.lua` describes the layout.
"""

from __future__ import annotations

import threading
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b, sha1
from importlib.resources import files
from os import urandom
from typing import Any, Final, Self, TypeVar, cast

from langgraph.checkpoint.serde.base import SerializerProtocol
from redis import exceptions as failures
from redis.cluster import RedisCluster

from langgraph_statekit.checkpoint.backends.redis_connections import (
    AsyncClient,
    Client,
    close,
    lender,
    opener,
    require_bytes,
)
from langgraph_statekit.checkpoint.backends.redis_format import (
    FORMAT,
    member_of,
    optional,
    pack_links,
    pack_row,
    pack_write,
    present,
    unpack_row,
    unpack_rows,
    unpack_writes,
)
from langgraph_statekit.checkpoint.codec import SECRET_KEYS
from langgraph_statekit.checkpoint.records import Change, Frame, Outline, Query, Ref, Row, Stored, Write
from langgraph_statekit.checkpoint.run import retrying
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew, StatekitError, Unavailable

T = TypeVar("T")

BUCKETS: Final = 1024
_PAGE_BUCKETS: Final = 64
_PAGE_THREADS: Final = 1000
_SCRIPT: Final = files(__package__).joinpath("redis.lua").read_text()
_SHA: Final = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()

_TRANSIENT: Final = (
    failures.ConnectionError,
    failures.TimeoutError,
    failures.ReadOnlyError,
    failures.ClusterError,
    failures.RedisClusterException,
    failures.TryAgainError,
    failures.AskError,
)
_DENIED: Final = (failures.AuthenticationError, failures.AuthorizationError, failures.NoPermissionError)


class RedisBackend:
    """Threads in Redis or Valkey, single, behind Sentinel, or in a cluster.

    Args:
        client: A sync client; an asyncio client, whose settings the backend uses for connections of its own; or
            a function that opens a sync client, which the backend closes.
        prefix: Start of the name of every key; followed by a colon.
        retry_s: Seconds during which a call is repeated that the network or a failover broke.

    Raises:
        Misuse: The client decodes responses, or the prefix has a brace in it.
    """

    def __init__(
        self,
        client: Client | AsyncClient | Callable[[], Client],
        *,
        prefix: str = "statekit",
        retry_s: float = 10.0,
    ) -> None:
        if "{" in prefix or "}" in prefix:
            raise Misuse(f"prefix {prefix!r} has a brace in it, which would choose the slot of a cluster")
        self._prefix = prefix
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._open: Callable[[], Client] | None = None
        if isinstance(client, Client):
            self._client = require_bytes(client)
        else:
            self._open = lender(client) if isinstance(client, AsyncClient) else client

    def setup(self) -> None:
        """Nothing to create."""

    def close(self) -> None:
        """Close the connections that the backend opened; a later call opens new ones."""
        if self._open is None:
            return
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            close(client)

    def save(self, row: Row, frames: Sequence[Frame]) -> None:
        data = {frame.key: frame.data for frame in frames}
        gone = [key for key, value in data.items() if value is None]
        kept = [part for key, value in data.items() if value is not None for part in (key, value)]
        thread, ns = row.ref.thread, row.ref.ns
        self._run("save", thread, thread, ns, member_of(row.ref), pack_row(row), len(gone), *gone, *kept)

    def save_writes(self, ref: Ref, writes: Sequence[Write]) -> None:
        tasks: dict[str, dict[int, Write]] = {}
        for write in writes:
            batch = tasks.setdefault(write.task, {})
            if write.idx < 0 or write.idx not in batch:
                batch[write.idx] = write
        batches = [
            part
            for task, batch in tasks.items()
            for part in (task, b"".join(pack_write(write) for write in batch.values()))
        ]
        self._run("save_writes", ref.thread, member_of(ref), *batches)

    def load(self, thread: str, ns: str, id: str | None) -> Stored | None:
        found = self._run("load", thread, ns, optional(id))
        if found is None:
            return None
        member, seq, blob, values, batches = found
        row = unpack_row(thread, member, seq, blob)
        return Stored(row, present(row.keys, values), unpack_writes(batches))

    def rows(self, query: Query) -> Sequence[Row]:
        below = "" if query.below_seq is None else query.below_seq
        flat = self._run(
            "rows",
            query.thread,
            optional(query.ns),
            optional(query.id),
            optional(query.before),
            below,
            query.limit,
        )
        return unpack_rows(query.thread, flat)

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, bytes], Mapping[Ref, Sequence[Write]]]:
        values, batches = self._run("fill", thread, len(keys), *keys, *map(member_of, refs))
        writes = {ref: unpack_writes(blobs) for ref, blobs in zip(refs, batches, strict=True) if blobs}
        return present(keys, values), writes

    def outline(self, thread: str, ns: str | None = None) -> Outline:
        rev, flat, keys = self._run("outline", thread, optional(ns))
        return Outline(int(rev), unpack_rows(thread, flat), frozenset(keys))

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        drop = dict.fromkeys(map(member_of, change.drop))
        links = [
            part
            for ref, (parent, via, hidden) in change.relink.items()
            for part in (member_of(ref), bytes((hidden,)), pack_links(parent, via))
        ]
        gone = change.drop_frames
        sizes = len(drop), len(gone)
        return bool(self._run("apply", thread, urandom(8), rev, thread, *sizes, *drop, *gone, *links))

    def drop_thread(self, thread: str) -> None:
        self._run("drop", thread, thread)

    def copy_thread(self, source: str, target: str, operation: str) -> bool:
        if self._apart(source, target):
            parts = self._run("export", source)
            return bool(self._run("import", target, operation, target, *parts))
        keys = [*self._keys(target), *self._keys(source)[:5]]
        return bool(self._eval("copy", keys, operation, target))

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        for first in range(0, BUCKETS, _PAGE_BUCKETS):
            buckets = range(first, first + _PAGE_BUCKETS)
            replies = self._pipeline([("ZRANGE", self._index(bucket), 0, -1) for bucket in buckets])
            found = [member.decode() for members in replies for member in members]
            for at in range(0, len(found), _PAGE_THREADS):
                page = found[at : at + _PAGE_THREADS]
                if run_ids is not None:
                    page = self._with_runs(page, run_ids)
                if page:
                    yield page

    def _with_runs(self, threads: Sequence[str], run_ids: Collection[str]) -> list[str]:
        fields = [f"r:{optional(run_id)}".encode() for run_id in run_ids]
        if not fields:
            return []
        counts = self._pipeline([("HMGET", self._keys(thread)[0], *fields) for thread in threads])
        return [thread for thread, found in zip(threads, counts, strict=True) if any(found)]

    def _apart(self, source: str, target: str) -> bool:
        buckets = {_address(source)[0], _address(target)[0]}
        return len(buckets) > 1 and self._ask(lambda client: isinstance(client, RedisCluster))

    def _index(self, bucket: int) -> bytes:
        return f"{self._prefix}:{{{bucket}}}:i".encode()

    def _keys(self, thread: str) -> list[bytes]:
        bucket, name = _address(thread)
        keys = [f"{self._prefix}:{{{bucket}}}:{part}:{name}".encode() for part in "morfw"]
        return [*keys, self._index(bucket)]

    def _run(self, verb: str, thread: str, *args: str | bytes | int) -> Any:
        return self._eval(verb, self._keys(thread), *args)

    def _eval(self, verb: str, keys: Sequence[bytes], *args: str | bytes | int) -> Any:
        plain = [arg.encode() if isinstance(arg, str) else arg for arg in (verb, *args)]

        def call(client: Client) -> Any:
            try:
                return client.evalsha(_SHA, len(keys), *keys, *plain)
            except failures.NoScriptError:
                return client.eval(_SCRIPT, len(keys), *keys, *plain)

        return self._ask(call)

    def _pipeline(self, commands: Sequence[tuple[str | bytes | int, ...]]) -> list[Any]:
        def call(client: Client) -> list[Any]:
            with client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return cast("list[Any]", pipe.execute())

        return self._ask(call)

    def _ask(self, call: Callable[[Client], T]) -> T:
        def attempt() -> T:
            try:
                return call(self._connected())
            except _DENIED as error:
                raise Misuse(
                    f"Redis refused the user: {error}; it needs the keys {self._prefix}:* and the commands on "
                    "data and scripts (none of @admin or @dangerous)"
                ) from error
            except failures.ResponseError as error:
                if isinstance(error, _TRANSIENT):
                    raise
                raise _refusal(error) from error

        return retrying(attempt, _TRANSIENT, self._retry_s, "Redis")

    def _connected(self) -> Client:
        with self._lock:
            if self._client is None:
                assert self._open is not None
                self._client = require_bytes(self._open())
            return self._client


def _refusal(error: failures.ResponseError) -> Exception:
    """Return what to raise for an error that the server reports."""
    text = str(error)
    if "SCHEMA " in text:
        return SchemaTooNew(f"the thread has a later format ({text}), this release reads {FORMAT}: upgrade it")
    if isinstance(error, failures.OutOfMemoryError):
        return Unavailable(f"Redis is full, nothing was saved: raise maxmemory or prune threads ({text})")
    if text.startswith(("BUSY ", "NOREPLICAS ", "MISCONF ")):
        return failures.ConnectionError(text)
    if text.startswith("WRONGTYPE "):
        return Corrupt(f"a key of the thread is not ours: {text}; choose a prefix that nobody else uses")
    return StatekitError(f"Redis refused a command: {text}")


def _address(thread: str) -> tuple[int, str]:
    digest = blake2b(thread.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:2], "big") % BUCKETS, urlsafe_b64encode(digest).rstrip(b"=").decode()


class RedisSaver(StatekitSaver):
    """A checkpointer on Redis 7.0 or later, or Valkey.

    Args:
        client: A sync client (single, Sentinel or cluster); an asyncio client, whose settings the saver uses
            for connections of its own; or a function that opens a sync client, which the saver closes.
        prefix: Start of the name of every key; followed by a colon.
        retry_s: Seconds during which a call is repeated that the network or a failover broke.
        serde: Serializer of values and metadata; None for `StatekitSerializer`.
        secret_keys: Keys that are never stored in metadata, in lower case with `_`.
        workers: Threads that serve async callers.

    Raises:
        Misuse: The client decodes responses, or the prefix has a brace in it.
    """

    def __init__(
        self,
        client: Client | AsyncClient | Callable[[], Client],
        *,
        prefix: str = "statekit",
        retry_s: float = 10.0,
        serde: SerializerProtocol | None = None,
        secret_keys: Collection[str] = SECRET_KEYS,
        workers: int = 8,
    ) -> None:
        backend = RedisBackend(client, prefix=prefix, retry_s=retry_s)
        super().__init__(backend, serde=serde, secret_keys=secret_keys, workers=workers)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        max_connections: int = 16,
        connect_timeout_s: float = 5.0,
        socket_timeout_s: float = 10.0,
        prefix: str = "statekit",
        retry_s: float = 10.0,
        serde: SerializerProtocol | None = None,
        secret_keys: Collection[str] = SECRET_KEYS,
        workers: int = 8,
    ) -> Self:
        """Return a saver with connections of its own, opened on first use.

        Args:
            url: `redis://`, `rediss://`, `unix://`, `redis+cluster://host:port`, or
                `redis+sentinel://host:port[,host:port]/service[/db]`; `rediss+...` for TLS.
            max_connections: At most so many connections (to each node of a cluster); callers wait for one.
            connect_timeout_s: Seconds to open a connection.
            socket_timeout_s: Seconds to wait for a reply.
            prefix: As for the class.
            retry_s: As for the class.
            serde: As for the class.
            secret_keys: As for the class.
            workers: As for the class.

        Raises:
            Misuse: The URL is none of these.
        """
        open_client = opener(url, max_connections, connect_timeout_s, socket_timeout_s)
        return cls(open_client, prefix=prefix, retry_s=retry_s, serde=serde, secret_keys=secret_keys, workers=workers)
