"""A prefix of Redis as the upper one of two tiers: every script notes what it changes, whoever calls it.

`redis_tier.lua` describes what is noted, and has the verbs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha1
from typing import Any, Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.redis import RedisBackend
from langgraph_statekit.checkpoint.backends.redis_format import (
    BUCKETS,
    FORMAT,
    Argument,
    head_of,
    member_of,
    optional,
    pack_write,
    scored,
    unpack_rows,
    unpack_writes,
)
from langgraph_statekit.checkpoint.backends.tiered.hot import Changes, State
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack, Place
from langgraph_statekit.checkpoint.records import HEAD_BYTES, Row, Write

_PAGE_BUCKETS: Final = 64
_BEGUN: Final = b"\0"
_DONE: Final = b"\0\0"
_NONE: Final = b"-" * 17


class RedisTier:
    """What `Tier` asks of a prefix.

    Args:
        backend: The prefix; from now on it notes what it changes, also where nobody has begun to.
    """

    def __init__(self, backend: RedisBackend) -> None:
        self._backend, self._calls = backend, backend._calls
        self._calls.note_changes()

    def setup(self) -> None:
        known = self._of_buckets(lambda bucket: [("ZSCORE", self._tiers(bucket), _DONE)])
        new = [bucket for bucket, [score] in known if score is None]
        self._calls.pipeline([("ZADD", self._tiers(bucket), 0, _BEGUN) for bucket in new])
        for first in range(0, len(new), _PAGE_BUCKETS):
            buckets = new[first : first + _PAGE_BUCKETS]
            listed = self._calls.pipeline([("ZRANGE", self._backend._index(bucket), 0, -1) for bucket in buckets])
            threads = [thread.decode() for each in listed for thread in each]
            for reply in self._calls.eval_all([(self._backend._keys(each), ["tier_state", each]) for each in threads]):
                if isinstance(reply, Exception):
                    raise reply
            self._calls.pipeline([("ZADD", self._tiers(bucket), 0, _DONE) for bucket in buckets])

    def now_us(self) -> int:
        return self._calls.now_us()

    def state(self, thread: str) -> State | None:
        return _state(self._run("tier_state", thread))

    def ended(self) -> Sequence[str]:
        now_ms = self.now_us() // 1000
        found = self._of_buckets(lambda bucket: [("ZRANGEBYSCORE", self._backend._index(bucket), 1, now_ms)])
        return [thread.decode() for _, [each] in found for thread in each]

    def dirty(self, before_us: int, limit: int) -> Sequence[str]:
        self.setup()  # all may have been deleted since
        before_us = min(before_us, self.now_us() + 1)
        most = ("WITHSCORES", "LIMIT", 0, limit)
        found: dict[str, int] = {}
        for _, [changed, ended] in self._of_buckets(
            lambda bucket: [
                ("ZRANGEBYSCORE", self._tiers(bucket), 1, f"({before_us}", *most),
                ("ZRANGEBYSCORE", self._backend._index(bucket), 1, f"({before_us // 1000}", *most),
            ]
        ):
            for thread, at_us in [*scored(changed), *((each, 1000 * at_ms) for each, at_ms in scored(ended))]:
                found[thread] = min(at_us, found.get(thread, at_us))
        return sorted(found, key=lambda thread: found[thread])[:limit]

    def idle(self, before_us: int, limit: int) -> Sequence[str]:
        most = ("WITHSCORES", "LIMIT", 0, limit)
        pages = self._of_buckets(
            lambda bucket: [("ZREVRANGEBYSCORE", self._tiers(bucket), -1, f"({-before_us}", *most)]
        )
        found = [item for _, [page] in pages for item in scored(page)]
        return [thread for thread, _ in sorted(found, key=lambda item: -item[1])[:limit]]

    def changes(self, thread: str, whole: bool = False) -> Changes | None:
        reply = self._run("tier_changes", thread, int(whole))
        if reply is None:
            return None
        told, fields, mark, order, rows, gone, keys, frames, members, batches = reply
        seq, copied_by, ttl_ms, until_ms, header = fields
        state = _state(told)
        assert state is not None
        frame_of = dict(zip(keys, frames, strict=True))
        pack = Pack(
            {(row.ref.ns, row.ref.id): row for row in unpack_rows(thread, rows)},
            {key: data for key, data in frame_of.items() if data is not None},
            {_place(member): unpack_writes(blobs) for member, blobs in zip(members, batches, strict=True)},
            frozenset(map(_place, gone)),
            frozenset(key for key, data in frame_of.items() if data is None),
        )
        places = {_place(member.encode()): at for member, at in scored(order)}
        until_us = None if until_ms is None else 1000 * int(until_ms)
        texts = header or b"", int(seq or 0), (copied_by or b"").decode()
        return Changes(state, int(mark), pack, places, *texts, 1000 * int(ttl_ms or 0), until_us)

    def uploaded(self, thread: str, born: int, mark: Any, epoch: str, gen: int, complete: bool) -> None:
        self._run("tier_uploaded", thread, born, mark, epoch, gen, int(complete))

    def evict(self, thread: str, born: int, gen: int, leased: bool) -> bool:
        return bool(self._run("tier_evict", thread, born, gen, int(leased)))

    def restore(self, thread: str, epoch: str, gen: int, held: Thread) -> bool:
        parts = _parts(held)
        counts = [len(part) for part in parts]
        return bool(self._run("tier_restore", thread, epoch, gen, *counts, *(each for part in parts for each in part)))

    def end(self, thread: str) -> bool:
        return bool(self._calls.eval(self._backend._lease_keys(thread), "tier_end", thread))

    def buried(self, thread: str, born: int, gen: int) -> None:
        self._run("tier_buried", thread, born, gen)

    def forget(self, thread: str, born: int) -> None:
        self._run("tier_forget", thread, born)

    def _run(self, verb: str, thread: str, *args: Argument) -> Any:
        return self._backend._run(verb, thread, thread, *args)

    def _tiers(self, bucket: int) -> bytes:
        return self._backend._index(bucket, "y")

    def _of_buckets(self, ask: Any) -> Iterator[tuple[int, list[Any]]]:
        """Yield each bucket with the replies to what is asked of it."""
        for first in range(0, BUCKETS, _PAGE_BUCKETS):
            commands = [ask(bucket) for bucket in range(first, first + _PAGE_BUCKETS)]
            replies = iter(self._calls.pipeline([command for each in commands for command in each]))
            for bucket, each in enumerate(commands, first):
                yield bucket, [next(replies) for _ in each]


def _state(told: Sequence[Any]) -> State | None:
    born, epoch, complete, rows, ended, gen, here, touched = told
    over = ended is not None
    if here:
        return State(int(born), (epoch or b"").decode(), over or complete == b"1", not touched, over, gen=int(gen or 0))
    if over or (born and (rows or complete == b"1")):
        return State(max(int(born or 0), int(ended or 0)), ended=True, here=False, over=not over and bool(rows))
    return None


def _place(member: bytes) -> Place:
    ns, id = member.decode().split("\0")
    return ns, id


def _parts(held: Thread) -> list[list[Argument]]:
    """Return what `redis.lua` keeps of a thread: fields of meta, writes without a row, order, heads, data, writes."""
    rows = sorted(held.rows.values(), key=lambda row: row.seq)
    until_ms = None if held.until_us is None else held.until_us // 1000
    times = {"t": held.ttl_us // 1000 or None, "u": until_ms}
    texts = {"v": FORMAT if rows else None, "seq": held.seq, "by": held.copied_by or None, "k": held.header or None}
    meta: dict[str, Argument] = {name: value for name, value in (texts | times).items() if value is not None}
    runs: dict[str, int] = {}
    for row in rows:
        if not row.hidden:
            meta[f"h:{row.ref.ns}"] = _name(row)
        if row.run_id is not None:
            runs[f"r:{optional(row.run_id)}"] = runs.get(f"r:{optional(row.run_id)}", 0) + 1
    heads: dict[Argument, Argument] = {_name(row): head_of(row) for row in rows}
    data: dict[Argument, Argument] = {_name(row): row.body for row in rows}
    for frame in held.frames.values():
        heads[frame.key], data[frame.key] = frame.stored[:HEAD_BYTES], frame.stored
    return [
        [part for item in (*meta.items(), *runs.items()) for part in item],
        [member_of(ref) for ref in held.writes.keys() - held.rows.keys()],
        [part for row in rows for part in (row.seq, member_of(row.ref))],
        [part for item in heads.items() for part in item],
        [part for item in data.items() for part in item],
        [part for ref, each in held.writes.items() for part in _batches(member_of(ref), list(each.values()))],
    ]


def _name(row: Row) -> str:
    return f"{row.seq:x}"


def _batches(member: str, writes: Sequence[Write]) -> list[Argument]:
    """Return the fields that hold the writes of a checkpoint."""
    tasks: dict[str, list[bytes]] = {}
    for write in writes:
        tasks.setdefault(write.task, []).append(pack_write(write))
    fields: list[Argument] = []
    older = _NONE
    for task, entries in tasks.items():
        text = task.encode()
        blob = b"".join((bytes((FORMAT,)), older, len(text).to_bytes(4, "big"), text, *entries))
        older = _hex(f"{member}\0{task}")[:17].encode()
        fields += (older, blob)
    return [*fields, _hex(member)[:16], older] if fields else []


def _hex(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
