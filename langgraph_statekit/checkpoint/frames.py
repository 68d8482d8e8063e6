"""One channel's versions as keyframes and deltas, and the envelope around every stored value.

Envelope: format (1 byte), flags (1 byte: 1 compressed, 2 delta; 4 encrypted and 8 padded, see `sealing`), check (4
bytes), for a delta its base's key (16), the base's check (4) and its place in the chain (9), then the body. The check
is a CRC-32 of what the body holds before compression, for a delta together with the check of its base: so it stands for
the whole plain value, and tells two values of one key apart.

A delta holds what `splice.diff` finds between two versions, so a list that grew by one message costs that message. Two
levels (skip deltas): each version against the one before, and every so often one against the keyframe, so that a read
needs few frames. A new keyframe comes when the deltas weigh as much as the last one: that keeps the bytes of a
growing value near linear, where a fixed interval would make them quadratic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.claims import NEEDS_KEYS
from langgraph_statekit.checkpoint.records import KEY_BYTES, NAME_BYTES, Frame, Ref, Row
from langgraph_statekit.checkpoint.splice import COPY_BYTES, diff, patch
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMAT: Final = 1
CHAIN_FRAMES: Final = 24
"""Frames that a read of one version needs at most: a keyframe, a skip delta, and deltas from one to the next."""
DELTA_FROM_BYTES: Final = 1024
_COMPRESSED: Final = 1
DELTA: Final = 2
SEALED: Final = 4
PADDED: Final = 8
_FLAGS: Final = 15
_HEAD: Final = 6
_CHAIN: Final = _HEAD + KEY_BYTES + 4
_BODY: Final = _CHAIN + 9
_COMPRESS_FROM_BYTES: Final = 128
_LEVEL: Final = 1
_MAX_MISSES: Final = 2
_SETTLED_BYTES: Final = 1 << 20
_PRESENT_BYTES: Final = 4 << 20
_CONTEXT_BYTES: Final = 16384
"""How much of the base's end helps to compress a delta's insertions."""

_RECENT_BYTES: Final = range(4 << 10, 256 << 10)
_RECENT: Final[list[tuple[bytes | None, bytes]]] = [(None, b"")] * 16
"""Values sealed not long ago: a task's write is often the channel's next value. Replacing an entry is atomic."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A version's plain bytes with the key and the check that name it in the store."""

    key: bytes
    check: bytes
    data: bytes


@dataclass(frozen=True, slots=True)
class Chain:
    """What the next version of a channel can be stored against.

    Attributes:
        keyframe: The last version that was stored whole.
        latest: The last version.
        steps: Deltas from one version to the next since the last one against the keyframe.
        size: Stored bytes of the keyframe.
        spent: Stored bytes of all deltas since the keyframe.
        misses: Versions in a row that shared too little with the one before them.
        rest: Versions to store whole before a delta is tried again: twice as many after each miss.
    """

    keyframe: Plain
    latest: Plain
    steps: int
    size: int
    spent: int
    misses: int = 0
    rest: int = 0


def seal(plain: bytes) -> bytes:
    """Return plain bytes in an envelope of their own, compressed where that makes them smaller."""
    check = crc32(plain)
    slot = check % len(_RECENT)
    held, data = _RECENT[slot]
    if held != plain:
        flags, body = _pack(plain, b"")
        data = b"".join((bytes((FORMAT, flags)), check.to_bytes(4, "big"), body))
        if len(plain) in _RECENT_BYTES:
            _RECENT[slot] = plain, data
    return data


def unseal(data: bytes, base: bytes | None = None) -> bytes:
    """Return the plain bytes of an envelope; a delta needs the plain bytes of its base.

    Raises:
        Corrupt: The bytes were altered or cut.
        SchemaTooNew: A later release wrote them.
        Misuse: They are encrypted, and the saver has no keys.
    """
    if data and data[0] > FORMAT:
        raise SchemaTooNew(f"a stored value has format {data[0]}, this release reads up to {FORMAT}: upgrade it")
    if len(data) < _HEAD or not data[0]:
        raise Corrupt(f"a stored value of {len(data)} bytes has no envelope; restore the thread from a copy")
    flags, check = data[1], data[2:_HEAD]
    start, salt, context = (_BODY, data[_CHAIN - 4 : _CHAIN], base) if flags & DELTA else (_HEAD, b"", b"")
    if flags & ~(_COMPRESSED | DELTA) or context is None or len(data) < start:
        if is_sealed(data):
            raise Misuse(f"the thread is encrypted: {NEEDS_KEYS}")
        raise Corrupt(f"a stored value of {len(data)} bytes has unknown flags; restore the thread from a copy")
    try:
        body = data[start:]
        if flags & _COMPRESSED:
            body = zstd.decompress(body, zstd_dict=_prefix(context))
        if crc32(body, crc32(salt)).to_bytes(4, "big") == check:
            return _patched(context, body) if flags & DELTA else body
    except (zstd.ZstdError, ValueError) as error:
        raise Corrupt(f"a stored value of {len(data)} bytes cannot be read: {error}") from error
    raise Corrupt(f"a stored value of {len(data)} bytes fails its checksum; restore the thread from a copy")


def is_sealed(data: bytes) -> bool:
    """Say whether an envelope is encrypted."""
    return len(data) > 1 and data[0] == FORMAT and bool(data[1] & SEALED) and data[1] <= _FLAGS


def _patched(base: bytes, body: bytes) -> bytes:
    start = 2 + int.from_bytes(body[:2], "big") * COPY_BYTES
    return patch(base, body[2:start], body[start:])


def encode(key: bytes, plain: bytes, chain: Chain | None) -> tuple[Frame, Chain | None]:
    """Return the frame of a channel's next version, and what the version after it can build on (None: nothing)."""
    if chain is None or len(plain) < DELTA_FROM_BYTES or chain.spent >= chain.size:
        return _keyframe(key, plain)
    if chain.rest:
        return _keyframe(key, plain, chain.misses, chain.rest - 1)
    skip = chain.steps >= CHAIN_FRAMES - 2
    base = chain.keyframe if skip else chain.latest
    steps = 0 if skip else chain.steps + 1
    found = diff(base.data, plain)
    if found is None:
        misses = min(chain.misses + 1, _MAX_MISSES)
        return _keyframe(key, plain, misses, 2**misses - 1)
    body = b"".join(((len(found[0]) // COPY_BYTES).to_bytes(2, "big"), *found))
    flags, packed = _pack(body, base.data)
    if len(packed) * 2 > chain.size:
        return _keyframe(key, plain)
    check = crc32(body, crc32(base.check)).to_bytes(4, "big")
    place = bytes((steps,)) + chain.size.to_bytes(4, "big") + chain.spent.to_bytes(4, "big")
    data = b"".join((bytes((FORMAT, flags | DELTA)), check, base.key, base.check, place, packed))
    return Frame(key, data), Chain(chain.keyframe, Plain(key, check, plain), steps, chain.size, chain.spent + len(data))


def _keyframe(key: bytes, plain: bytes, misses: int = 0, rest: int = 0) -> tuple[Frame, Chain | None]:
    data = seal(plain)
    if len(plain) < DELTA_FROM_BYTES:
        return Frame(key, data), None
    whole = Plain(key, data[2:_HEAD], plain)
    return Frame(key, data), Chain(whole, whole, 0, len(data), 0, misses, rest)


def decode(key: bytes, frames: Mapping[bytes, Frame], known: dict[bytes, bytes]) -> tuple[bytes, Chain | None]:
    """Return the plain bytes of a version, and what the next one can build on.

    Args:
        key: The version.
        frames: It and the frames that it needs, by key.
        known: Plain bytes of frames decoded before, by their envelope's identity; new ones are added.

    Raises:
        Corrupt: A frame is altered, cut, or missing.
    """
    path = [frames[key]]
    while (base := path[-1].base) is not None:
        found = find(frames, *base)
        if found is None or len(path) >= CHAIN_FRAMES:
            raise Corrupt("a stored value lacks the older version that it builds on; restore the thread from a copy")
        path.append(found)
    plain: bytes | None = None
    for frame in reversed(path):
        name = frame.key + frame.check
        if name not in known:
            known[name] = unseal(frame.stored, plain)
        plain = known[name]
    assert plain is not None
    if len(plain) < DELTA_FROM_BYTES:
        return plain, None
    first, last = path[-1], path[0]
    keyframe = Plain(first.key[:KEY_BYTES], first.check, known[first.key + first.check])
    place = last.stored[_CHAIN:_BODY] if len(path) > 1 else b""
    return plain, Chain(
        keyframe,
        Plain(key, last.check, plain),
        place[0] if place else 0,
        int.from_bytes(place[1:5], "big") if place else len(first.stored),
        int.from_bytes(place[5:9], "big") + len(last.stored) if place else 0,
    )


def find(frames: Mapping[bytes, Frame], key: bytes, check: bytes) -> Frame | None:
    """Return the frame of this key and check; one that was replaced since stands under key and check together."""
    frame = frames.get(key)
    return frame if frame is not None and frame.check == check else frames.get(key + check)


def with_bases(frames: Mapping[bytes, Frame], keys: Iterable[bytes]) -> set[bytes]:
    """Return those of `keys` that are stored, and the keys of all frames that they build on."""
    found: set[bytes] = set()
    for key in keys:
        frame = frames.get(key)
        while frame is not None and frame.key not in found:
            found.add(frame.key)
            base = frame.base
            frame = find(frames, *base) if base is not None else None
    return found


_SPARE: Final[list[zstd.ZstdCompressor]] = []
"""Compressors that nobody uses now; a new one costs more than the compression of a small value, and each run of
LangGraph saves from new threads."""


def _pack(plain: bytes, context: bytes) -> tuple[int, bytes]:
    """Flags and body: compressed where that makes it smaller."""
    if len(plain) >= _COMPRESS_FROM_BYTES:
        if len(context) < 8:
            try:
                compressor = _SPARE.pop()
            except IndexError:
                compressor = zstd.ZstdCompressor(_LEVEL)
            packed = compressor.compress(plain, zstd.ZstdCompressor.FLUSH_FRAME)
            _SPARE.append(compressor)
        else:
            packed = zstd.compress(plain, _LEVEL, zstd_dict=_prefix(context))
        if len(packed) < len(plain):
            return _COMPRESSED, packed
    return 0, plain


def _prefix(context: bytes) -> tuple[zstd.ZstdDict, int] | None:
    return zstd.ZstdDict(context[-_CONTEXT_BYTES:], is_raw=True).as_prefix if len(context) >= 8 else None


class Frames:
    """Turns plain values into frames and back, with the chains of one saver and its clones.

    Args:
        max_bytes: Plain bytes to hold as bases; the channels used longest ago go first.
    """

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._chains = Cache[tuple[str, bytes], Chain](max_bytes)
        self.settled = Cache[tuple[Ref, int], bool](_SETTLED_BYTES)
        """Checkpoints that were saved here under a state version, and so with all values that a migration changed."""
        self.present = Cache[Ref, frozenset[bytes]](_PRESENT_BYTES)
        """Keys of the values of checkpoints that were read or saved here."""

    def pack(
        self, thread: str, plains: Sequence[tuple[bytes, bytes | None]], *, whole: bool = False
    ) -> tuple[list[Frame], dict[bytes, Chain | None]]:
        """Return a frame for each plain value, and the chains to remember once they are stored.

        Args:
            thread: Their thread.
            plains: Key and plain value; None for a version without value.
            whole: Make no deltas, since the store lacks what they would build on.
        """
        frames: list[Frame] = []
        chains: dict[bytes, Chain | None] = {}
        for key, plain in plains:
            if plain is None:
                frames.append(Frame(key, None))
            else:
                chain = None if whole else self._chain(thread, key)
                again = chain is not None and chain.latest.key == key  # nothing builds on itself
                frame, chains[key] = encode(key, plain, None if again else chain)
                frames.append(frame)
        return frames, chains

    def note(self, row: Row, stored: Iterable[bytes]) -> None:
        """Remember that of a row these keys are stored, and those of its parent that it has, too."""
        parent = row.ref if row.parent is None else row.ref._replace(id=row.parent)
        keys = {*stored, *(self.present.get(parent) or ())}.intersection(row.keys)
        self.present.put(row.ref, frozenset(keys), KEY_BYTES * len(keys))

    def remember(self, thread: str, chains: Mapping[bytes, Chain | None]) -> None:
        """Let later versions build on these."""
        for key, chain in chains.items():
            self._remember(thread, key, chain)

    def reader(
        self, thread: str, frames: Mapping[bytes, Frame], *, remember: bool = False
    ) -> Callable[[bytes], bytes | None]:
        """Return what gives the plain value of a key, or None; each frame is decoded once.

        Args:
            thread: The thread of the frames.
            frames: Those that are read and those that they build on.
            remember: Let later versions build on the ones read.
        """
        known: dict[bytes, bytes] = {}

        def read(key: bytes) -> bytes | None:
            frame = frames.get(key)
            if frame is None:
                return None
            held = self._chain(thread, key)
            if held is not None and held.latest.key == key and held.latest.check == frame.check:
                return held.latest.data
            plain, chain = decode(key, frames, known)
            if remember:
                self._remember(thread, key, chain)
            return plain

        return read

    def _chain(self, thread: str, key: bytes) -> Chain | None:
        """Return the chain of the channel that `key` names, whatever its version."""
        return self._chains.get((thread, key[:NAME_BYTES]))

    def _remember(self, thread: str, key: bytes, chain: Chain | None) -> None:
        held = {} if chain is None else {id(plain.data): len(plain.data) for plain in (chain.keyframe, chain.latest)}
        self._chains.put((thread, key[:NAME_BYTES]), chain, sum(held.values()))
