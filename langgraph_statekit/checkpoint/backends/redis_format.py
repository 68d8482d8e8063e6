"""Rows and writes as the bytes that `redis.lua` reads and writes; it describes the layout."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from langgraph_statekit.checkpoint.claims import Claim, Held, Misplaced, fenced, rekeyed
from langgraph_statekit.checkpoint.order import RACE_US
from langgraph_statekit.checkpoint.records import (
    KEY_BYTES,
    NAME_BYTES,
    Frame,
    Heads,
    Outline,
    Ref,
    Row,
    Save,
    SaveWrites,
    Write,
)
from langgraph_statekit.errors import Corrupt, SchemaTooNew

BUCKETS: Final = 1024
FORMAT: Final = 1
REKEYED: Final = 3
FENCED: Final = 2
Argument = str | bytes | int
_FORMAT_BYTE: Final = bytes((FORMAT,))
_ROW: Final = Struct(">BBII")
_BATCH_BYTES: Final = 22
_ENTRY: Final = Struct(">iIII")


def member_of(ref: Ref) -> str:
    """Return the name of a checkpoint in its thread."""
    return f"{ref.ns}\0{ref.id}"


def optional(text: str | None) -> str:
    """Return a text that tells None from the empty text."""
    return "" if text is None else f"={text}"


def links_of(parent: str | None, via: str | None) -> str:
    """Return the texts of a row that `apply` may replace."""
    return f"{optional(parent)}\0{optional(via)}"


def head_of(row: Row) -> bytes:
    """Return what retention looks at of a row."""
    texts = f"{member_of(row.ref)}\0{links_of(row.parent, row.via)}\0{optional(row.run_id)}".encode()
    deltas = row.packed_deltas
    return b"".join((_ROW.pack(FORMAT, row.hidden, len(texts), len(deltas)), texts, deltas, row.packed_keys))


def save_arguments(save: Save) -> list[Argument]:
    """Return the arguments of the script that make a save."""
    if isinstance(save, SaveWrites):
        return _save_writes(save)
    row = save.row
    gone = [frame.key for frame in save.frames if frame.data is None]
    kept = [part for frame in save.frames if frame.data is not None for part in (frame.key, frame.data)]
    parent = member_of(row.ref._replace(id=row.parent or ""))
    names = (_token(save.token), save.header, member_of(row.ref), parent, row.ref.ns, row.ref.thread)
    texts = (head_of(row), row.body, optional(row.run_id))
    numbers = (save.at, save.at + RACE_US, len(gone), int(save.parent is not None), _life(save.ttl_us), save.seq)
    return ["save", *names, *texts, *numbers, *gone, *kept]


def _save_writes(save: SaveWrites) -> list[Argument]:
    tasks: dict[str, dict[int, bytes]] = {}
    for write in save.writes:
        batch = tasks.setdefault(write.task, {})
        if write.idx < 0 or write.idx not in batch:
            batch[write.idx] = pack_write(write)
    batches = (part for task, batch in tasks.items() for part in (task, b"".join(batch.values())))
    return ["save_writes", _token(save.token), save.header, save.thread, member_of(save.ref), *batches]


def _token(token: int | None) -> Argument:
    return "" if token is None else token


def _life(ttl_us: int | None) -> Argument:
    """Milliseconds."""
    return "" if ttl_us is None else int(ttl_us / 1000)


def encoded(args: Sequence[Argument]) -> list[bytes | int]:
    """Return arguments as they are sent."""
    return [arg.encode() if isinstance(arg, str) else arg for arg in args]


def claim_arguments(claim: Claim) -> list[Argument]:
    """Return the arguments of the script that decide a claim."""
    term = (claim.ttl_us // 1000, _token(claim.token), int(claim.steal), _token(claim.instead))
    told = (claim.about, claim.idle_us, optional(claim.control), claim.thread)
    return ["claim", claim.holder, claim.owner, *term, *told]


LEASE_FIELDS: Final = ("holder", "owner", "token", "until", "about", "beat", "progress", "control")


def unpack_lease(reply: Sequence[bytes | None] | None) -> Held | None:
    """Return a lease."""
    if reply is None or reply[0] is None:
        return None
    holder, owner, token, until_us, about, beat_us, progress_us, control = (field or b"" for field in reply)
    times = int(beat_us or 0), int(progress_us or 0)
    return Held(holder.decode(), owner.decode(), int(token), int(until_us), about.decode(), *times, control.decode())


def pack_write(write: Write) -> bytes:
    """Return a write as an entry of a batch."""
    channel, path = write.channel.encode(), write.path.encode()
    size = 8 + len(channel) + len(path) + len(write.data)
    return b"".join((_ENTRY.pack(write.idx, size, len(channel), len(path)), channel, path, write.data))


def unpack_row(thread: str, name: bytes, head: bytes, body: bytes = b"") -> Row:
    """Return a stored row.

    Raises:
        Corrupt: The bytes were altered or cut.
        SchemaTooNew: A later release wrote them.
    """
    if head[:1] > _FORMAT_BYTE:
        raise too_new(head[0])
    try:
        _, hidden, texts_size, deltas_size = _ROW.unpack_from(head)
        deltas = _ROW.size + texts_size
        keys = deltas + deltas_size
        ns, id, parent, via, run = head[_ROW.size : deltas].decode().split("\0")
        seq = int(name, 16)
    except (StructError, ValueError) as error:
        raise Corrupt(f"a stored checkpoint of {len(head)} bytes cannot be read: {error}") from error
    if len(head) < keys or (len(head) - keys) % KEY_BYTES or deltas_size % NAME_BYTES:
        raise Corrupt(f"a stored checkpoint of {len(head)} bytes is cut off")
    return Row(
        Ref(thread, ns, id),
        parent[1:] if parent else None,
        via[1:] if via else None,
        seq,
        head[keys:],
        head[deltas:keys],
        run[1:] if run else None,
        bool(hidden),
        body,
    )


def unpack_rows(thread: str, flat: Sequence[bytes]) -> list[Row]:
    """Return rows from a flat list of name, head and body."""
    return [unpack_row(thread, *flat[at : at + 3]) for at in range(0, len(flat), 3)]


def unpack_outline(
    thread: str, rev: bytes, ns: str | None, flat: Sequence[bytes], all_rows: int = 0, all_heads: int = 0
) -> Outline:
    """Return a thread's outline from a flat list of name and head of a row, or key and head of a frame.

    If it holds not all of them, `all_rows` and `all_heads` (of rows and frames) tell how many there are.
    """
    rows: list[Row] = []
    heads: dict[bytes, bytes] = {}
    pairs = iter(flat)
    for name, head in zip(pairs, pairs, strict=True):
        if len(name) < KEY_BYTES:
            rows.append(unpack_row(thread, name, head))
        else:
            heads[name] = head
    rows.sort(key=attrgetter("seq"))
    more_rows = max(all_rows - len(rows), 0)
    more_frames = max(all_heads - all_rows - len(heads), 0)
    shown = [row for row in rows if ns is None or row.ref.ns == ns]
    return Outline(int(rev), shown, Heads(heads), more_rows, more_frames)


def unpack_frames(keys: Sequence[bytes], found: Sequence[bytes]) -> dict[bytes, Frame]:
    """Return frames by key."""
    return {key: Frame(key, data) for key, data in zip(keys, found, strict=True)}


def unpack_writes(blobs: Sequence[bytes]) -> list[Write]:
    """Return the writes of batches that are given newest first, oldest first.

    Raises:
        Corrupt: The bytes were altered or cut.
        SchemaTooNew: A later release wrote them.
    """
    writes = []
    for blob in reversed(blobs):
        if blob[:1] > _FORMAT_BYTE:
            raise too_new(blob[0])
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


def scored(reply: Sequence[Any]) -> list[tuple[str, int]]:
    """Return members and scores, of which each version of the protocol makes a list of its own."""
    flat = [part for pair in reply for part in pair] if reply and isinstance(reply[0], list) else reply
    return [(flat[at].decode(), int(float(flat[at + 1]))) for at in range(0, len(flat), 2)]


def too_new(format: int) -> SchemaTooNew:
    """Return the error for a later format."""
    return SchemaTooNew(f"a stored value has format {format}, this release reads {FORMAT}: upgrade it")


def saved(save: Save, reply: Any) -> int | Exception:
    """Return the result of a save."""
    if isinstance(reply, Exception):
        return reply
    if reply == REKEYED:
        return rekeyed(save.thread)
    if reply < 0:
        return Misplaced(save.thread, -reply)
    return fenced(save) if reply == FENCED else int(reply)


def address(thread: str) -> tuple[int, str]:
    """Return the bucket of a thread, and its name in it."""
    digest = blake2b(thread.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:2], "big") % BUCKETS, urlsafe_b64encode(digest).rstrip(b"=").decode()
