"""Cells in Redis; `redis_cells.lua` describes the layout.

A cell lies in the bucket of its thread, beside the lease, so a listing asks the index of each bucket: by one command,
or on a cluster in one pipeline.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final

import ormsgpack
from redis import RedisCluster

from langgraph_statekit.checkpoint.backends.redis_calls import Calls, Script
from langgraph_statekit.checkpoint.backends.redis_format import BUCKETS, FENCED, FORMAT, Argument, address, too_new
from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellPage, CellQuery, CellRef, Changed
from langgraph_statekit.checkpoint.claims import fenced
from langgraph_statekit.errors import Corrupt

_SCRIPT: Final = Script(files(__package__).joinpath("redis_cells.lua").read_text())
_LIST_BYTES: Final = 12
_REV_BYTES: Final = 8
_FIRST: Final = 4
"""Cells to ask of each bucket at first: few of them hold more of a page."""


class RedisCells:
    """The cells of a prefix."""

    def __init__(self, calls: Calls, prefix: str) -> None:
        self._calls = calls
        self._prefix = prefix

    def change(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        """See `Backend.change_cells`."""
        replies = self._calls.eval_all([(self._keys(each.ref), _change(each)) for each in changes], _SCRIPT)
        return [_changed(change, reply) for change, reply in zip(changes, replies, strict=True)]

    def read(self, query: CellQuery) -> CellPage:
        """See `Backend.cells`."""
        if query.refs is not None:
            found, now_us = self._read(query.refs)
            return CellPage([cell for cell in found if cell is not None], now_us)
        cells: list[Cell] = []
        before, now_us = query.before, 0
        while True:
            places = self._places(query, before, query.limit - len(cells))
            found, now_us = self._read([CellRef(query.kind, thread, key) for _, thread, key in places])
            # One that was changed since has another place.
            cells += [
                cell for cell, place in zip(found, places, strict=True) if cell is not None and cell.place == place
            ]
            if not places or len(cells) >= query.limit:
                return CellPage(cells, now_us)
            before = places[-1]

    def _read(self, refs: Sequence[CellRef]) -> tuple[list[Cell | None], int]:
        calls: list[tuple[Sequence[bytes], Sequence[Argument]]] = [(self._keys(ref), ["read"]) for ref in refs]
        replies = self._calls.eval_all(calls or [(self._keys(CellRef("", "", "")), ["read"])], _SCRIPT)
        cells, now_us = [], 0
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
            cells.append(_cell(reply[2:]))
            now_us = max(now_us, int(reply[1]))
        return cells if refs else [], now_us

    def _places(self, query: CellQuery, before: tuple[int, str, str] | None, limit: int) -> list[tuple[int, str, str]]:
        """Return the next places of a listing, also some of cells that have expired."""
        name = list_name(query)
        if before is None:
            top = b"(" + name + b"\xff"
        else:
            rev, thread, key = before
            top = b"".join((b"(", name, rev.to_bytes(_REV_BYTES, "big"), thread.encode(), b"\0", key.encode()))

        first = min(limit, _FIRST)
        found = self._members(range(BUCKETS), top, b"[" + name, first)
        newest = sorted((member for members in found.values() for member in members), reverse=True)[:limit]
        end = newest[-1] if len(newest) == limit else b""
        deeper = [bucket for bucket, members in found.items() if len(members) == first and members[-1] >= end]
        if deeper and first < limit:
            found |= self._members(deeper, top, b"[" + name, limit)
            newest = sorted((member for members in found.values() for member in members), reverse=True)[:limit]
        return [_place(member) for member in newest]

    def _members(self, buckets: Sequence[int], top: bytes, end: bytes, most: int) -> dict[int, list[bytes]]:
        """Return some of the members of the indexes of buckets: by one command, if that may span slots."""
        keys = [self._index(bucket) for bucket in buckets]
        if self._calls.ask(lambda client: isinstance(client, RedisCluster)):
            span = (top, end, "LIMIT", 0, most)
            found = self._calls.pipeline([("ZREVRANGEBYLEX", key, *span) for key in keys])
            return {bucket: members for bucket, members in zip(buckets, found, strict=True) if members}
        [reply] = self._calls.eval_all([(keys, ["list", top, end, most])], _SCRIPT)
        if isinstance(reply, Exception):
            raise reply
        return {buckets[at - 1]: members for at, members in reply}

    def sweep(self) -> None:
        """Take what has expired out of the indexes."""
        for first in range(0, BUCKETS, 64):
            calls = [(self._of_bucket(bucket, "", ""), ["sweep"]) for bucket in range(first, first + 64)]
            for reply in self._calls.eval_all(calls, _SCRIPT):
                if isinstance(reply, Exception):
                    raise reply

    def _index(self, bucket: int) -> bytes:
        return f"{self._prefix}:{{{bucket}}}:g".encode()

    def _keys(self, ref: CellRef) -> list[bytes]:
        name = _hash(*ref, size_bytes=16)
        bucket, thread = address(ref.thread) if ref.thread else (int.from_bytes(name[:2], "big") % BUCKETS, "")
        return self._of_bucket(bucket, urlsafe_b64encode(name).rstrip(b"=").decode(), thread)

    def _of_bucket(self, bucket: int, cell: str, thread: str) -> list[bytes]:
        start = f"{self._prefix}:{{{bucket}}}"
        return [
            f"{start}:c:{cell}".encode(),
            self._index(bucket),
            f"{start}:u".encode(),
            f"{start}:l:{thread}".encode(),
        ]


def _hash(*texts: str, size_bytes: int) -> bytes:
    return blake2b("\0".join(texts).encode(), digest_size=size_bytes).digest()


def list_name(query: CellQuery) -> bytes:
    """Return the name of the list that a query asks for: of a group, or of all of a kind."""
    return _named(query.kind, query.group)


def _named(kind: str, group: str | None) -> bytes:
    return _hash(kind, *(() if group is None else (group,)), size_bytes=_LIST_BYTES)


def _change(change: CellChange) -> list[Argument]:
    kind, thread, key = change.ref
    lists = b"".join(_named(kind, group) for group in (None, *dict.fromkeys(change.groups)))
    data = b""
    if change.value is not None:
        data = bytes((FORMAT,)) + ormsgpack.packb((kind, thread, key, change.groups, change.value))
    token = "" if change.token is None else change.token
    expect = "" if change.expect is None else change.expect
    ttl_ms = "" if change.ttl_us is None else max(1, -(-change.ttl_us // 1000))
    deadline = "" if change.deadline_us is None else change.deadline_us
    return ["change", f"{thread}\0{key}", token, expect, change.operation, ttl_ms, lists, data, deadline]


def _changed(change: CellChange, reply: Any) -> Changed | Exception:
    if isinstance(reply, Exception):
        return reply
    if reply == FENCED:
        return fenced(change)
    made, now_us, *cell = reply
    return Changed(bool(made), _cell(cell), int(now_us))


def _cell(parts: Sequence[Any]) -> Cell | None:
    if len(parts) < 3 or parts[0] is None:
        return None
    rev, operation, data = parts
    if data[0] > FORMAT:
        raise too_new(data[0])
    try:
        kind, thread, key, groups, value = ormsgpack.unpackb(data[1:])
    except (ormsgpack.MsgpackDecodeError, ValueError) as error:
        raise Corrupt(f"a stored cell of {len(data)} bytes cannot be read: {error}") from error
    return Cell(CellRef(kind, thread, key), value, tuple(groups), int(rev), operation.decode())


def _place(member: bytes) -> tuple[int, str, str]:
    at = _LIST_BYTES + _REV_BYTES
    thread, _, key = member[at:].partition(b"\0")
    return int.from_bytes(member[_LIST_BYTES:at], "big"), thread.decode(), key.decode()
