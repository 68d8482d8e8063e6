"""Checkpoints in Redis (7.0 or later) or Valkey: one script call a verb; no modules, no admin rights.

A thread is five keys, one for its lease, and with a cold store two for what changed, named by a hash of its id. The
hash tag in the names is one of 1,024 buckets, so that the index of a bucket's threads shares their slot of a cluster.
`redis.lua` describes the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from os import urandom
from typing import Any, Final, Self

from redis import RedisCluster

from langgraph_statekit.checkpoint.backends import redis_facts
from langgraph_statekit.checkpoint.backends.redis_bell import RedisBell
from langgraph_statekit.checkpoint.backends.redis_calls import Calls, evalsha
from langgraph_statekit.checkpoint.backends.redis_cells import RedisCells, list_name
from langgraph_statekit.checkpoint.backends.redis_connections import (
    AsyncClient,
    Client,
    lone_connection,
    opener,
)
from langgraph_statekit.checkpoint.backends.redis_format import (
    BUCKETS,
    LEASE_FIELDS,
    REKEYED,
    Argument,
    address,
    claim_arguments,
    links_of,
    member_of,
    optional,
    save_arguments,
    saved,
    scored,
    unpack_frames,
    unpack_lease,
    unpack_outline,
    unpack_row,
    unpack_rows,
    unpack_writes,
)
from langgraph_statekit.checkpoint.backends.redis_line import RedisLine
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, effects_of
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery, is_listed, rekeyed
from langgraph_statekit.checkpoint.expiry import Swept
from langgraph_statekit.checkpoint.facts import Fact, Usage
from langgraph_statekit.checkpoint.labels import NAMESPACE as LABELS
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
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.tenants import of_tenant
from langgraph_statekit.checkpoint.urls import query_options
from langgraph_statekit.errors import Misuse

_PAGE_BUCKETS: Final = 64
_PAGE_THREADS: Final = 1000


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
    sweeps = False

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
        self._calls = Calls(client, prefix, retry_s)
        self._cells = RedisCells(self._calls, prefix)
        self.bell = RedisBell(self._calls, prefix)

    def setup(self) -> None:
        """Nothing to create."""

    def close(self) -> None:
        """Close the connections that the backend opened; a later call opens new ones."""
        self._calls.close()

    def spare(self) -> RedisBackend:
        return RedisBackend(self._calls.open or self._calls.connected(), prefix=self._prefix, retry_s=0)

    def exists(self) -> bool:
        return self._calls.ask(lambda client: bool(client.ping()))

    def facts(self) -> Sequence[Fact]:
        return self._calls.ask(redis_facts.ask)

    def usage(self, thread: str) -> Usage:
        keys = self._keys(thread)[:5]
        asked = [("MEMORY USAGE", key, "SAMPLES", 0) for key in keys]
        *sizes, meta = self._calls.pipeline([*asked, ("HKEYS", keys[0])], errors=True)
        return redis_facts.usage(sizes, meta)

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        replies = self._calls.eval_all([self._call(save) for save in saves])
        return [saved(save, reply) for save, reply in zip(saves, replies, strict=True)]

    def _call(self, save: Save) -> tuple[Sequence[bytes], Sequence[Argument]]:
        return self._keys(save.thread), save_arguments(save)

    def line(self) -> RedisLine[Save] | None:
        """Return a connection for saves from an event loop's own thread; None if the client is not our own."""

        def command(save: Save) -> tuple[Argument, ...]:
            return evalsha(*self._call(save), self._calls.script)

        conn = lone_connection(self._calls.connected()) if self._calls.open is not None else None
        return None if conn is None else RedisLine(conn, command, saved, conn.socket_timeout or 10.0)

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        replies = self._calls.eval_all([(self._lease_keys(claim.thread), claim_arguments(claim)) for claim in claims])
        return [reply if isinstance(reply, Exception) else unpack_lease(reply) for reply in replies]

    def leases(self, query: LeaseQuery) -> LeasePage:
        now_us, first, found = self._calls.now_us(), int(query.after or 0), list[str]()
        ends = (1, "+inf") if query.ended is None else (1, now_us) if query.ended else (f"({now_us}", "+inf")
        while first < BUCKETS and len(found) < query.limit:
            buckets = range(first, min(first + _PAGE_BUCKETS, BUCKETS))
            replies = self._calls.pipeline([("ZRANGEBYSCORE", self._index(bucket, "j"), *ends) for bucket in buckets])
            for reply in replies:
                if len(found) < query.limit:
                    found += (thread.decode() for thread in reply)
                    first += 1
        held = self._calls.pipeline([("HMGET", self._keys(thread)[6], *LEASE_FIELDS) for thread in found])
        leases = [(thread, lease) for thread, reply in zip(found, held, strict=True) if (lease := unpack_lease(reply))]
        page = [(thread, lease) for thread, lease in leases if is_listed(query, lease, now_us)]
        return LeasePage(page, now_us, str(first) if first < BUCKETS else "")

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        return self._cells.change(changes)

    def cells(self, query: CellQuery) -> CellPage:
        return self._cells.read(query)

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        found = self._run("load", thread, ns, optional(id), int(refresh))
        if found is None:
            return None
        name, head, body, frames, batches, header = found
        return Stored(unpack_row(thread, name, head, body), unpack_frames(*frames), unpack_writes(batches), header)

    def rows(self, query: Query) -> Sequence[Row]:
        below = "" if query.below_seq is None else query.below_seq
        wanted = optional(query.ns), optional(query.id), optional(query.before), below, query.limit
        flags = int(query.refresh), int(query.hidden)
        return unpack_rows(query.thread, self._run("rows", query.thread, *wanted, *flags))

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        frames, batches = self._run("fill", thread, len(keys), *keys, *map(member_of, refs))
        writes = {ref: unpack_writes(blobs) for ref, blobs in zip(refs, batches, strict=True) if blobs is not None}
        return unpack_frames(*frames), writes

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        rev, flat, *all_of = self._run("heads", thread, LABELS) if heads else self._run("outline", thread)
        return unpack_outline(thread, rev, ns, flat, *all_of)

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        keep, refs, keys = change.shorter
        members = list(dict.fromkeys(map(member_of, refs)))
        links = [
            part
            for row in change.relink
            for part in (member_of(row.ref), bytes((row.hidden,)), links_of(row.parent, row.via))
        ]
        named = (thread, len(members), len(keys), "keep" if keep else "drop", *members, *keys)
        return bool(self._run("apply", thread, urandom(8), rev, *named, *links))

    def drop_thread(self, thread: str) -> bool:
        keys = [*self._lease_keys(thread), self._index(address(thread)[0], "g")]
        return bool(self._calls.eval(keys, "drop", thread, list_name(effects_of(thread))))

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        if self._apart(source, target):
            parts = self._run("export", source)
            done = self._run("import", target, operation, target, header, *parts)
        else:
            keys = [*self._keys(target), *self._keys(source)[:5]]
            done = self._calls.eval(keys, "copy", operation, target, header)
        if done == REKEYED:
            raise rekeyed(source)
        return bool(done)

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        found = self._calls.pipeline([("HGET", self._keys(thread)[0], "k") for thread in threads])
        return {thread: header for thread, header in zip(threads, found, strict=True) if header}

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        replies = self._calls.eval_all([(self._keys(thread), ["rewrap", *headers]) for thread, *headers in changes])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return [reply == 1 for reply in replies]

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        for ends in self._indexed():
            mortal = [thread for thread, end in ends.items() if end]
            stored = self._calls.pipeline([("HEXISTS", self._keys(thread)[0], "v") for thread in mortal])
            gone = {thread for thread, alive in zip(mortal, stored, strict=True) if not alive}
            found = [thread for thread in ends if thread not in gone]
            for at in range(0, len(found), _PAGE_THREADS):
                page = found[at : at + _PAGE_THREADS]
                if run_ids is not None:
                    page = self._with_runs(page, run_ids)
                if page:
                    yield page

    def _indexed(self) -> Iterator[dict[str, int]]:
        """Yield threads, also some that have expired, with their ends, or 0."""
        for first in range(0, BUCKETS, _PAGE_BUCKETS):
            buckets = range(first, first + _PAGE_BUCKETS)
            replies = self._calls.pipeline([("ZRANGE", self._index(bucket), 0, -1, "WITHSCORES") for bucket in buckets])
            yield {thread: end for reply in replies for thread, end in scored(reply)}

    def sweep(self, orphans_us: int) -> Swept:
        orphans = 0
        for ends in self._indexed():
            threads = list(ends)
            for at in range(0, len(threads), _PAGE_THREADS):
                calls = [(self._keys(each), ("sweep", each, orphans_us)) for each in threads[at : at + _PAGE_THREADS]]
                for reply in self._calls.eval_all(calls):
                    if isinstance(reply, Exception):
                        raise reply
                    orphans += reply
        self._cells.sweep()
        return Swept(orphans=orphans)

    def _with_runs(self, threads: Sequence[str], run_ids: Collection[str]) -> list[str]:
        fields = [f"r:{optional(run_id)}".encode() for run_id in run_ids]
        if not fields:
            return []
        counts = self._calls.pipeline([("HMGET", self._keys(thread)[0], *fields) for thread in threads])
        return [thread for thread, found in zip(threads, counts, strict=True) if any(found)]

    def _apart(self, source: str, target: str) -> bool:
        buckets = {address(source)[0], address(target)[0]}
        return len(buckets) > 1 and self._calls.ask(lambda client: isinstance(client, RedisCluster))

    def _index(self, bucket: int, part: str = "i") -> bytes:
        return f"{self._prefix}:{{{bucket}}}:{part}".encode()

    def _keys(self, thread: str) -> list[bytes]:
        return list(_keys(self._prefix, thread))

    def _lease_keys(self, thread: str) -> list[bytes]:
        return [*self._keys(thread), self._index(address(thread)[0], "j")]

    def _run(self, verb: str, thread: str, *args: Argument) -> Any:
        return self._calls.eval(self._keys(thread), verb, *args)


@lru_cache(maxsize=256)
def _keys(prefix: str, thread: str) -> Sequence[bytes]:
    bucket, name = address(thread)
    start = f"{prefix}:{{{bucket}}}"
    keys = [f"{start}:{part}:{name}".encode() for part in "mohdwltx"]
    return (*keys[:5], f"{start}:i".encode(), *keys[5:], f"{start}:y".encode())


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
