"""Rows and writes as the bytes that `redis.lua` reads and writes; it describes the layout."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final

from langgraph_statekit.checkpoint.records import Ref, Row, Write
from langgraph_statekit.errors import Corrupt, SchemaTooNew

FORMAT: Final = 1
_ROW: Final = Struct(">BBIIII")
_BATCH_BYTES: Final = 22
_ENTRY: Final = Struct(">iIII")
_KEY_BYTES: Final = 16
_NAME_BYTES: Final = 8


def member_of(ref: Ref) -> str:
    """Return the name of a checkpoint in its thread."""
    return f"{ref.ns}\0{ref.id}"


def optional(text: str | None) -> str:
    """Return a text that tells None from the empty text."""
    return "" if text is None else f"={text}"


def _text(optional: bytes) -> str | None:
    return optional[1:].decode() if optional else None


def pack_links(parent: str | None, via: str | None) -> bytes:
    """Return the part of a row that `apply` may replace."""
    return f"{optional(parent)}\0{optional(via)}".encode()


def present(keys: Collection[bytes], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Return the keys that have a value."""
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def pack_row(row: Row) -> bytes:
    """Return a row without its address and `seq`."""
    parts = (
        pack_links(row.parent, row.via),
        optional(row.run_id).encode(),
        b"".join(row.deltas),
        b"".join(row.keys),
    )
    return b"".join((_ROW.pack(FORMAT, row.hidden, *map(len, parts)), *parts, row.body))


def unpack_row(thread: str, member: bytes, seq: bytes, blob: bytes) -> Row:
    """Return a stored row.

    Raises:
        Corrupt: The bytes were altered or cut.
        SchemaTooNew: A later release wrote them.
    """
    _check(blob)
    try:
        _, hidden, *sizes = _ROW.unpack_from(blob)
        parts, at = [], _ROW.size
        for size in sizes:
            parts.append(blob[at : at + size])
            at += size
        links, run, deltas, keys = parts
        parent, via = links.split(b"\0")
        ns, id = member.decode().split("\0")
    except (StructError, ValueError) as error:
        raise Corrupt(f"a stored checkpoint of {len(blob)} bytes cannot be read: {error}") from error
    return Row(
        ref=Ref(thread, ns, id),
        parent=_text(parent),
        via=_text(via),
        seq=int(seq),
        keys=_pieces(keys, _KEY_BYTES),
        deltas=_pieces(deltas, _NAME_BYTES),
        run_id=_text(run),
        hidden=bool(hidden),
        body=blob[at:],
    )


def unpack_rows(thread: str, flat: Sequence[bytes]) -> list[Row]:
    """Return rows from a flat list of member, `seq` and content."""
    return [unpack_row(thread, *flat[at : at + 3]) for at in range(0, len(flat), 3)]


def _pieces(data: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(data[at : at + size] for at in range(0, len(data), size))


def pack_write(write: Write) -> bytes:
    """Return a write as an entry of its task's batch."""
    channel, path = write.channel.encode(), write.path.encode()
    size = 8 + len(channel) + len(path) + len(write.data)
    return b"".join((_ENTRY.pack(write.idx, size, len(channel), len(path)), channel, path, write.data))


def unpack_writes(blobs: Sequence[bytes]) -> list[Write]:
    """Return the writes of batches that are given newest first, oldest first.

    Raises:
        Corrupt: The bytes were altered or cut.
        SchemaTooNew: A later release wrote them.
    """
    writes = []
    for blob in reversed(blobs):
        _check(blob)
        try:
            at = _BATCH_BYTES + int.from_bytes(blob[_BATCH_BYTES - 4 : _BATCH_BYTES], "big")
            task = blob[_BATCH_BYTES:at].decode()
            while at < len(blob):
                idx, size, channel_size, path_size = _ENTRY.unpack_from(blob, at)
                end, name = at + 8 + size, at + _ENTRY.size
                path = name + channel_size
                data = path + path_size
                texts = blob[name:path].decode(), blob[path:data].decode()
                writes.append(Write(task, idx, *texts, blob[data:end]))
                at = end
        except (StructError, ValueError) as error:
            raise Corrupt(f"stored writes of {len(blob)} bytes cannot be read: {error}") from error
    return writes


def _check(blob: bytes) -> None:
    if blob[:1] > bytes((FORMAT,)):
        raise SchemaTooNew(f"a stored value has format {blob[0]}, this release reads {FORMAT}: upgrade it")
