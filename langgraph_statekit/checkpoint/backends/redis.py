"""Checkpoints in Redis (7.0 or later) or Valkey: one script call a verb; no modules, no admin rights.

A thread is five keys, and one for its lease, named by a hash of its id. The hash tag in the names is one of 1,024
buckets, so that the index of a bucket's threads shares their slot of a cluster. `redis.lua` describes the layout.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha1
from importlib.resources import files
from os import urandom
from typing import Any, Final, Self, TypeVar

from redis import exceptions as failures
from redis.cluster import RedisCluster

from langgraph_statekit.checkpoint.backends import redis_facts
from langgraph_statekit.checkpoint.backends.redis_connections import (
    AsyncClient,
    Client,
    close,
    exchange,
    is_own,
    lender,
    lone_connection,
    opener,
    require_bytes,
)
from langgraph_statekit.checkpoint.backends.redis_errors import DRIVER, TRANSIENT, explained
from langgraph_statekit.checkpoint.backends.redis_format import (
    BUCKETS,
    REKEYED,
    Argument,
    address_of,
    claim_arguments,
    encoded,
    links_of,
    member_of,
    optional,
    save_arguments,
    saved,
    unpack_frames,
    unpack_lease,
    unpack_outline,
    unpack_row,
    unpack_rows,
    unpack_writes,
)
from langgraph_statekit.checkpoint.backends.redis_line import RedisLine
from langgraph_statekit.checkpoint.claims import Claim, Held, rekeyed
from langgraph_statekit.checkpoint.facts import Fact, Usage
from langgraph_statekit.checkpoint.options import require_numbers, require_texts
from langgraph_statekit.checkpoint.records import (
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    Stored,
    Write,
)
from langgraph_statekit.checkpoint.repeating import retrying
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.tenants import of_tenant
from langgraph_statekit.checkpoint.urls import query_options
from langgraph_statekit.errors import Misuse

T = TypeVar("T")

_PAGE_BUCKETS: Final = 64
_PAGE_THREADS: Final = 1000
_SCRIPT: Final = "\n".join(files(__package__).joinpath(name).read_text() for name in ("redis.lua", "redis_change.lua"))
_SHA: Final = sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


class RedisBackend:
    """Threads in Redis or Valkey, single, behind Sentinel, or in a cluster.

    Args:
        client: A sync client; an asyncio client, whose settings the backend uses for connections of its own; or
            a function that opens a sync client, which the backend closes.
        prefix: Start of the name of every key; followed by a colon.
        retry_s: Seconds during which a call is repeated that the network or a failover broke.

    Raises:
        Misuse: The client decodes responses, an option has a wrong value, or the prefix has a brace in it.
    """

    deltas = True

    def __init__(
        self,
        client: Client | AsyncClient | Callable[[], Client],
        *,
        prefix: str = "statekit",
        retry_s: float = 10.0,
    ) -> None:
        require_numbers(float, 0, retry_s=retry_s)
        require_texts(prefix=prefix)
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
            if isinstance(client, AsyncClient):
                client = lender(client)
            if not callable(client):
                raise Misuse(f"a client of redis-py is needed, not {type(client).__name__}; for a URL use from_url")
            self._open = client

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

    def spare(self) -> RedisBackend:
        return RedisBackend(self._open or self._connected(), prefix=self._prefix, retry_s=0)

    def exists(self) -> bool:
        return self._ask(lambda client: bool(client.ping()))

    def facts(self) -> Sequence[Fact]:
        return self._ask(redis_facts.ask)

    def usage(self, thread: str) -> Usage:
        keys = self._keys(thread)[:5]
        asked = [("MEMORY USAGE", key, "SAMPLES", 0) for key in keys]
        *sizes, meta = self._pipeline([*asked, ("HKEYS", keys[0])], errors=True)
        return redis_facts.usage(sizes, meta)

    def save(self, saves: Sequence[Save]) -> Sequence[bool | Exception]:
        replies = self._eval_all([self._call(save) for save in saves])
        return [saved(save, reply) for save, reply in zip(saves, replies, strict=True)]

    def _call(self, save: Save) -> tuple[Sequence[bytes], Sequence[Argument]]:
        return self._keys(save.thread), save_arguments(save)

    def line(self) -> RedisLine[Save] | None:
        """Return a connection for saves from an event loop's own thread; None if the client is not our own."""

        def command(save: Save) -> tuple[Argument, ...]:
            return _evalsha(*self._call(save))

        conn = lone_connection(self._connected()) if self._open is not None else None
        return None if conn is None else RedisLine(conn, command, saved, conn.socket_timeout or 10.0)

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        replies = self._eval_all([(self._keys(claim.thread), claim_arguments(claim)) for claim in claims])
        return [reply if isinstance(reply, Exception) else unpack_lease(reply) for reply in replies]

    def load(self, thread: str, ns: str, id: str | None) -> Stored | None:
        found = self._run("load", thread, ns, optional(id))
        if found is None:
            return None
        name, head, body, frames, batches, header = found
        return Stored(unpack_row(thread, name, head, body), unpack_frames(*frames), unpack_writes(batches), header)

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
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        frames, batches = self._run("fill", thread, len(keys), *keys, *map(member_of, refs))
        writes = {ref: unpack_writes(blobs) for ref, blobs in zip(refs, batches, strict=True) if blobs is not None}
        return unpack_frames(*frames), writes

    def outline(self, thread: str, ns: str | None = None) -> Outline:
        rev, flat = self._run("outline", thread)
        return unpack_outline(thread, rev, ns, flat)

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        keep, refs, keys = change.shorter
        members = list(dict.fromkeys(map(member_of, refs)))
        links = [
            part
            for ref, (parent, via, hidden) in change.relink.items()
            for part in (member_of(ref), bytes((hidden,)), links_of(parent, via))
        ]
        named = (thread, len(members), len(keys), "keep" if keep else "drop", *members, *keys)
        return bool(self._run("apply", thread, urandom(8), rev, *named, *links))

    def drop_thread(self, thread: str) -> None:
        self._run("drop", thread, thread)

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        if self._apart(source, target):
            parts = self._run("export", source)
            done = self._run("import", target, operation, target, header, *parts)
        else:
            keys = [*self._keys(target), *self._keys(source)[:5]]
            done = self._eval(keys, "copy", operation, target, header)
        if done == REKEYED:
            raise rekeyed(source)
        return bool(done)

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        found = self._pipeline([("HGET", self._keys(thread)[0], "k") for thread in threads])
        return {thread: header for thread, header in zip(threads, found, strict=True) if header}

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        replies = self._eval_all([(self._keys(thread), ["rewrap", *headers]) for thread, *headers in changes])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [reply == 1 for reply in replies]

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
        buckets = {address_of(source)[0], address_of(target)[0]}
        return len(buckets) > 1 and self._ask(lambda client: isinstance(client, RedisCluster))

    def _index(self, bucket: int) -> bytes:
        return f"{self._prefix}:{{{bucket}}}:i".encode()

    def _keys(self, thread: str) -> list[bytes]:
        bucket, name = address_of(thread)
        keys = [f"{self._prefix}:{{{bucket}}}:{part}:{name}".encode() for part in "mohdw"]
        return [*keys, self._index(bucket), f"{self._prefix}:{{{bucket}}}:l:{name}".encode()]

    def _run(self, verb: str, thread: str, *args: Argument) -> Any:
        return self._eval(self._keys(thread), verb, *args)

    def _eval(self, keys: Sequence[bytes], *args: Argument) -> Any:
        plain = encoded(args)

        def call(client: Client) -> Any:
            try:
                return client.evalsha(_SHA, len(keys), *keys, *plain)
            except failures.NoScriptError:
                return client.eval(_SCRIPT, len(keys), *keys, *plain)

        return self._ask(call)

    def _eval_all(self, calls: Sequence[tuple[Sequence[bytes], Sequence[Argument]]]) -> list[Any]:
        """Return the reply or the error of each call."""
        replies: list[Any] = [failures.NoScriptError()] * len(calls)
        commands = [_evalsha(keys, args) for keys, args in calls]
        left = list(range(len(calls)))
        while left:
            for at, reply in zip(left, self._pipeline([commands[at] for at in left], errors=True), strict=True):
                replies[at] = reply
            left = [at for at in left if isinstance(replies[at], failures.NoScriptError)]
            if left:  # the first loads the script for the others, on a cluster for those of its node
                commands[left[0]] = ("EVAL", _SCRIPT, *commands[left[0]][2:])
        return replies

    def _pipeline(self, commands: Sequence[tuple[Argument, ...]], *, errors: bool = False) -> list[Any]:
        """Return the replies; with `errors` an error of the server stands in its place, else the first is raised."""

        def call(client: Client) -> list[Any]:
            if errors and is_own(client):
                return [self._reply(each) for each in exchange(client, commands)]
            with client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return [self._reply(each) for each in pipe.execute(raise_on_error=not errors)]

        return self._ask(call)

    def _reply(self, reply: Any) -> Any:
        if not isinstance(reply, Exception) or isinstance(reply, failures.NoScriptError):
            return reply
        told = self._explained(reply)
        if isinstance(told, TRANSIENT):
            raise told
        return told

    def _ask(self, call: Callable[[Client], T]) -> T:
        def attempt() -> T:
            try:
                return call(self._connected())
            except DRIVER as error:
                told = self._explained(error)
            raise told  # outside of the handler, or it would carry what the driver said

        return retrying(attempt, TRANSIENT, self._retry_s, "Redis")

    def _explained(self, error: Exception) -> Exception:
        return explained(error, self._prefix, cluster=isinstance(self._client, RedisCluster))

    def _connected(self) -> Client:
        with self._lock:
            if self._client is None:
                assert self._open is not None
                self._client = require_bytes(self._open())
            return self._client


def _evalsha(keys: Sequence[bytes], args: Sequence[Argument]) -> tuple[Argument, ...]:
    return ("EVALSHA", _SHA, len(keys), *keys, *encoded(args))


class RedisSaver(StatekitSaver):
    """A checkpointer on Redis 7.0 or later, or Valkey.

    Args:
        client: A sync client (single, Sentinel or cluster), which keeps its own retries: make it with
            `Retry(NoBackoff(), 0)`, or its re-sends come before those of `retry_s`. Or an asyncio client, whose
            settings the saver uses for connections of its own. Or a function that opens a sync client, which the
            saver closes.
        prefix: Start of the name of every key; followed by a colon.
        tenant: Whose threads these are, any text; a saver sees those of its tenant only. Their keys begin
            with `statekit@acme:`. None: of none.
        retry_s: Seconds during which a call is repeated that the network, a failover, a start or a full disk of the
            server broke. What waiting cannot mend raises `Misuse` at once, from any call: a refused login or
            certificate, a missing right, a database number that the server has not, a server that is none or no
            cluster or no Sentinel.
        options: As in `StatekitSaver`.

    Raises:
        Misuse: The client is none of these or decodes responses, an option has a wrong value, or the prefix has a brace
            or an `@` in it.
    """

    def __init__(
        self,
        client: Client | AsyncClient | Callable[[], Client],
        *,
        prefix: str = "statekit",
        tenant: str | None = None,
        retry_s: float = 10.0,
        **options: Any,
    ) -> None:
        require_texts(prefix=prefix)
        backend = RedisBackend(client, prefix=of_tenant(prefix, tenant), retry_s=retry_s)
        super().__init__(backend, tenant=tenant, **options)

    @classmethod
    @query_options
    def from_url(
        cls,
        url: str,
        *,
        max_connections: int = 16,
        connect_timeout_s: float = 5.0,
        socket_timeout_s: float = 10.0,
        **options: Any,
    ) -> Self:
        """Return a saver with connections of its own, opened on first use.

        Args:
            url: `redis://`, `rediss://`, `unix://`, `redis+cluster://host:port`, or
                `redis+sentinel://host:port[,host:port]/service[/db]`; `rediss+...` for TLS. Options may stand in its
                query; what is none goes to redis-py.
            max_connections: At most so many connections (to each node of a cluster), and with `redis://` one more for
                each event loop that saves often; callers wait for one, as long as both timeouts together.
            connect_timeout_s: Seconds to open a connection.
            socket_timeout_s: Seconds to wait for a reply.
            options: As in the class.

        Raises:
            Misuse: The URL is none of these or cannot be read, or an option is unknown or has a wrong value.
        """
        return cls(opener(url, max_connections, connect_timeout_s, socket_timeout_s), **options)
