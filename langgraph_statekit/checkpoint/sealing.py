"""Encryption at rest: data keys, the headers that hold them, and sealed records. Pure.

Each thread has a random data key. Its header holds it, wrapped by a master key with AES-256-GCM: id (8 bytes), format
(1 byte), length of the master key's name (1 byte), name, nonce (12), wrapped key. Tenant and thread id are associated
data, so a header is of use to its own thread only. Master keys change, and threads are copied, by wrapping the data key
anew; the header's id stays.

A sealed record begins with the format, flags and, of a frame, the check and the base as stores read them (see
`frames`), then the nonce (12), then the record's envelope, encrypted with the data key. Its address, the header's id
and those first bytes are associated data. The checks that stores see are made with the data key, since a plain checksum
would tell a short value. What is encrypted is compressed before, so its length depends on its content.

What a row has outside of its body is read without the body, and retention changes some of it. So `via` begins with a
tag of all that and of `seq`: a hash with a key made of the data key. The store gives the `seq` in the step of the save,
so a saver seals the one that it expects, and is refused if that is another one. Rows of before, whose tag does not
cover it, have another mark.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from os import urandom
from typing import Final

import ormsgpack
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from langgraph_statekit.checkpoint.cells import CellRef
from langgraph_statekit.checkpoint.frames import DELTA, FORMAT, PADDED, SEALED
from langgraph_statekit.checkpoint.labels import is_label
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.records import (
    HEAD_BYTES,
    HEADER_ID_BYTES,
    KEY_BYTES,
    Frame,
    Ref,
    Row,
    Write,
    from_text,
    to_text,
)
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew

_KEY: Final = 32
_NONCE: Final = 12
_CHECK: Final = 4
_NAME: Final = HEADER_ID_BYTES + 2
_PAD: Final = b"\x80"
_TAGGED: Final = "\\@"
"""What a tagged `via` begins with, and no storage text."""
_UNPLACED: Final = "\\!"
"""The same, where the tag does not cover `seq`."""
_TAG_BYTES: Final = 12
_TAG_END: Final = len(_TAGGED) + _TAG_BYTES * 4 // 3


@dataclass(frozen=True, slots=True)
class Encryption:
    """Master keys, and how records are encrypted: what a saver needs as its option `encryption`.

    Args:
        keys: Name to key: 32 bytes from a secret store, made by `secrets.token_bytes(32)`. The name of the key that
            wraps a thread's data key is stored in plain beside it.
        active: Name of the key for new threads, and for all after `rotate_keys`.
        delta: False: store each version of a value whole. The length of a delta tells how much a value changed.
        pad_bytes: Pad what is encrypted to a multiple of so many bytes, which hides lengths up to that; 0: not.

    Raises:
        Misuse: A key is not 32 bytes long, the active one is missing, or a name or number cannot be used.
    """

    keys: Mapping[str, bytes] = field(repr=False)
    active: str
    delta: bool = True
    pad_bytes: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.keys, Mapping) or not self.keys:
            raise Misuse("keys must be a mapping of names to keys of 32 bytes")
        for name, key in self.keys.items():
            if not isinstance(name, str) or not 0 < len(name.encode(errors="replace")) < 256 or not name.isprintable():
                raise Misuse("the name of a key must be a printable text of 1 to 255 bytes")
            if not isinstance(key, bytes) or len(key) != _KEY:
                raise Misuse(f"key {name!r} must be {_KEY} bytes: make one with secrets.token_bytes({_KEY})")
        if self.active not in self.keys:
            raise Misuse(f"the active key {self.active!r} is none of the keys {sorted(self.keys)}")
        if not isinstance(self.delta, bool):
            raise Misuse(f"delta must be True or False, not {self.delta!r}")
        require_numbers(int, 0, pad_bytes=self.pad_bytes)
        object.__setattr__(self, "keys", dict(self.keys))

    def of(self, tenant: str | None) -> MasterKeys:
        """Return the keys as they are used for the threads of a tenant."""
        return MasterKeys(self, tenant)


class MasterKeys:
    """Master keys at work: they make, wrap and unwrap the data keys of a tenant's threads."""

    def __init__(self, encryption: Encryption, tenant: str | None) -> None:
        self._keys, self._active, self._pad_bytes = encryption.keys, encryption.active, encryption.pad_bytes
        self._tenant = None if tenant is None else to_text(tenant)

    def new(self, thread: str) -> DataKey:
        """Return a data key for a thread without one."""
        return self._made(thread, urandom(HEADER_ID_BYTES), urandom(_KEY))

    def wrapped(self, thread: str, key: DataKey) -> DataKey:
        """Return a data key with a header for this thread, by the active master key."""
        return self._made(thread, key.id, key.secret)

    def unwrapped(self, thread: str, header: bytes) -> DataKey:
        """Return the data key of a thread's header.

        Raises:
            Misuse: Its master key is none of these.
            Corrupt: It was altered, or moved from another thread.
            SchemaTooNew: A later release made it.
        """
        if header[HEADER_ID_BYTES : HEADER_ID_BYTES + 1] > bytes((FORMAT,)):
            raise SchemaTooNew(f"the header of thread {from_text(thread)!r} is of a later release: upgrade this one")
        name, at = _name_in(header)
        master = self._keys.get(name)
        if master is None and name:
            raise Misuse(
                f"thread {from_text(thread)!r} is encrypted with key {name!r}, which is none of the keys"
                f" {sorted(self._keys)}: add it, or delete the thread"
            )
        try:
            nonce, sealed = header[at : at + _NONCE], header[at + _NONCE :]
            secret = AESGCM(master or b"").decrypt(nonce, sealed, _address(header[:at], self._tenant, thread))
        except (InvalidTag, ValueError) as error:
            raise _corrupt(thread, "the header") from error
        return DataKey(header, secret, self._pad_bytes, stored=True)

    def wraps(self, header: bytes) -> bool:
        """Say whether a header is of the active master key."""
        return _name_in(header)[0] == self._active

    def _made(self, thread: str, id: bytes, secret: bytes) -> DataKey:
        name, nonce = self._active.encode(), urandom(_NONCE)
        start = b"".join((id, bytes((FORMAT, len(name))), name))
        sealed = AESGCM(self._keys[self._active]).encrypt(nonce, secret, _address(start, self._tenant, thread))
        return DataKey(b"".join((start, nonce, sealed)), secret, self._pad_bytes)


class DataKey:
    """The key of one thread, which seals and opens its records.

    Args:
        header: As stored, or to be stored.
        secret: 32 bytes.
        pad_bytes: As in `Encryption`.
        stored: Whether the thread is known to have the header.
    """

    def __init__(self, header: bytes, secret: bytes, pad_bytes: int, *, stored: bool = False) -> None:
        self.header, self.id, self.secret = header, header[:HEADER_ID_BYTES], secret
        self.stored = stored
        self._pad_bytes = pad_bytes
        self._cipher = AESGCM(secret)
        self._checks = blake2b(key=secret, digest_size=_KEY, person=b"statekit checks").digest()
        self._tags = blake2b(key=secret, digest_size=_KEY, person=b"statekit tags").digest()

    @property
    def sent(self) -> bytes:
        """The header as a save brings it along."""
        return self.id if self.stored else self.header

    def seal_row(self, row: Row) -> Row:
        """Return a row with a sealed body and a tag."""
        sealed = self._seal(bytes((FORMAT, SEALED)), row.body, *_of_row(row))
        return row._replace(body=sealed, via=self._tagged(row))

    def tag_row(self, row: Row) -> Row:
        """Return a row with a tag, whatever its body."""
        return row._replace(via=self._tagged(row))

    def seal_write(self, ref: Ref, write: Write) -> Write:
        """Return a write with sealed data."""
        data = self._seal(bytes((FORMAT, SEALED)), write.data, *_of_write(ref, write))
        return Write(write.task, write.idx, write.channel, write.path, data)

    def seal_frame(self, frame: Frame) -> Frame:
        """Return a frame with sealed data."""
        if frame.data is None:
            return frame
        flags = SEALED if frame.base is None else SEALED | DELTA
        head = bytes((FORMAT, flags)) + self._check(frame.key, frame.check)
        if frame.base is not None:
            key, check = frame.base
            head = b"".join((head, key, self._check(key, check)))
        return Frame(frame.key, self._seal(head, frame.data, "frame", frame.key))

    def seal_cell(self, ref: CellRef, value: bytes) -> bytes:
        """Return the sealed value of a cell, which shows the id of its key."""
        return self._seal(bytes((FORMAT, SEALED)) + self.id, value, "cell", *ref)

    def sealed_cell(self, value: bytes) -> bool:
        """Say whether the value of a cell is sealed with this key."""
        return value[2 : 2 + HEADER_ID_BYTES] == self.id

    def open_cell(self, ref: CellRef, value: bytes) -> bytes:
        """Undo `seal_cell`."""
        what = f"the record {from_text(ref.key)!r} ({ref.kind})"
        return self._open(2 + HEADER_ID_BYTES, value, ref.thread, what, "cell", *ref)

    def open_row(self, row: Row) -> Row:
        """Undo `seal_row`."""
        body = self._open(2, row.body, row.ref.thread, _named(row), *_of_row(row))
        return self.untag_row(row)._replace(body=body)

    def untag_row(self, row: Row) -> Row:
        """Undo `tag_row`."""
        tagged = row.via or ""
        plain = row._replace(via=tagged[_TAG_END + 1 :] if len(tagged) > _TAG_END else None)
        mark = _UNPLACED if tagged.startswith(_UNPLACED) else _TAGGED
        if not compare_digest(tagged.encode(), self._tagged(plain, mark).encode()):
            raise _corrupt(row.ref.thread, _named(row))
        return plain

    def open_write(self, ref: Ref, write: Write) -> Write:
        """Undo `seal_write`."""
        what = f"a write to channel {from_text(write.channel)!r} of checkpoint {from_text(ref.id)!r}"
        data = self._open(2, write.data, ref.thread, what, *_of_write(ref, write))
        return Write(write.task, write.idx, write.channel, write.path, data)

    def open_frame(self, thread: str, frame: Frame) -> Frame:
        """Undo `seal_frame`; one that was replaced gets the key and check that it has in plain."""
        key = frame.key[:KEY_BYTES]
        head = HEAD_BYTES if frame.base is not None else 2 + _CHECK
        data = self._open(head, frame.stored, thread, "a value", "frame", key)
        return Frame(key if len(frame.key) == KEY_BYTES else key + data[2 : 2 + _CHECK], data)

    def _tagged(self, row: Row, mark: str = _TAGGED) -> str:
        place = () if mark == _UNPLACED else (row.seq,)
        links = *row.ref[1:], row.parent, row.via, row.hidden
        told = _address(*links, row.packed_keys, row.packed_deltas, row.run_id, *place)
        tag = blake2b(told, key=self._tags, digest_size=_TAG_BYTES).digest()
        return f"{mark}{urlsafe_b64encode(tag).decode()}{'' if row.via is None else f'={row.via}'}"

    def _check(self, key: bytes, check: bytes) -> bytes:
        return blake2b(key + check, key=self._checks, digest_size=_CHECK).digest()

    def _seal(self, head: bytes, plain: bytes, *address: object) -> bytes:
        nonce = urandom(_NONCE)
        if self._pad_bytes:
            head = head[:1] + bytes((head[1] | PADDED,)) + head[2:]
            plain += _PAD + bytes(-(len(plain) + 1) % self._pad_bytes)
        return b"".join((head, nonce, self._cipher.encrypt(nonce, plain, _address(head, self.id, *address))))

    def _open(self, head_bytes: int, data: bytes, thread: str, what: str, *address: object) -> bytes:
        head, nonce = data[:head_bytes], data[head_bytes : head_bytes + _NONCE]
        try:
            plain = self._cipher.decrypt(nonce, data[head_bytes + _NONCE :], _address(head, self.id, *address))
        except (InvalidTag, ValueError) as error:
            raise _corrupt(thread, what) from error
        return plain.rstrip(b"\0")[: -len(_PAD)] if head[1] & PADDED else plain


def _name_in(header: bytes) -> tuple[str, int]:
    """Return the name of the master key, empty in what is no header, and where it ends."""
    end = _NAME + int.from_bytes(header[_NAME - 1 : _NAME], "big")
    return header[_NAME:end].decode(errors="replace"), end


def unsealed(thread: str) -> Corrupt:
    """Return the error of a record in plain, where all must be encrypted."""
    return Corrupt(
        f"a record of thread {from_text(thread)!r} is not encrypted, and require_encryption=True refuses it: to read"
        " threads of before, open the saver without it, and copy them to an encrypted store with copy_threads"
    )


def moved(row: Row) -> Corrupt:
    """Return the error of a row that stands where another one belongs."""
    return _corrupt(row.ref.thread, _named(row))


def is_tagged(row: Row) -> bool:
    """Say whether a row has a tag."""
    return row.via is not None and row.via.startswith((_TAGGED, _UNPLACED))


def _named(row: Row) -> str:
    return f"{'label' if is_label(row) else 'checkpoint'} {from_text(row.ref.id)!r}"


def _of_row(row: Row) -> tuple[object, ...]:
    return "row", row.ref.ns, row.ref.id, row.packed_keys, row.packed_deltas, row.run_id


def _of_write(ref: Ref, write: Write) -> tuple[object, ...]:
    return "write", ref.ns, ref.id, write.task, write.idx, write.channel, write.path


def _address(*parts: object) -> bytes:
    return ormsgpack.packb(parts)


def _corrupt(thread: str, what: str) -> Corrupt:
    return Corrupt(
        f"{what} of thread {from_text(thread)!r} cannot be decrypted: it was altered or moved, or its key was; restore"
        " the thread from a copy"
    )
