"""A store whose records are encrypted on their way in and decrypted on their way out; the engine does not notice.

What stays readable in the store is told in the design's section on encryption.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.claims import Misplaced, Rekeyed
from langgraph_statekit.checkpoint.encrypted_cells import EncryptedCells
from langgraph_statekit.checkpoint.frames import is_sealed
from langgraph_statekit.checkpoint.places import Places
from langgraph_statekit.checkpoint.records import (
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    SaveRow,
    SaveWrites,
    Stored,
    Write,
    from_text,
    is_made,
)
from langgraph_statekit.checkpoint.sealing import DataKey, Encryption, is_tagged, moved, unsealed
from langgraph_statekit.errors import Conflict, Corrupt, DataError, Misuse, StatekitError

T = TypeVar("T")
Filled = tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]

_KEYS_BYTES: Final = 8 << 20
_ENTRY_BYTES: Final = 1024
_ATTEMPTS: Final = 32


class EncryptedBackend:
    """Another backend with encryption; data keys that were used lately are held in memory.

    Args:
        inner: Where records are stored.
        encryption: Master keys.
        tenant: Whose threads these are.
        require: Refuse records in plain, which else are read as they are.

    Raises:
        Misuse: `encryption` is none.
    """

    def __init__(
        self, inner: Backend, encryption: Encryption, *, tenant: str | None = None, require: bool = False
    ) -> None:
        if not isinstance(encryption, Encryption):
            raise Misuse(f"the option encryption must be an Encryption, not {type(encryption).__name__}")
        self.inner = inner
        self.deltas = inner.deltas and encryption.delta
        self._encryption, self._require = encryption.of(tenant), require
        self._keys = Cache[str, DataKey](_KEYS_BYTES)
        self._places = Places()
        self.setup, self.close, self.spare = inner.setup, inner.close, inner.spare
        self.exists, self.facts, self.usage = inner.exists, inner.facts, inner.usage
        self.claim, self.leases, self.threads = inner.claim, inner.leases, inner.threads
        self._cells = EncryptedCells(inner, self._encryption, require=require)
        self.change_cells, self.cells = self._cells.change, self._cells.read
        self.sweep, self.sweeps = inner.sweep, inner.sweeps
        self.headers, self.rewrap = inner.headers, inner.rewrap

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        keys = {thread: self._key(thread) for thread in {save.thread for save in saves}}
        results = list(self.inner.save([self._sealed(save, keys[save.thread]) for save in saves]))
        for at, save in enumerate(saves):
            if is_made(results[at]):
                keys[save.thread].stored = True
            elif isinstance(refusal := results[at], Rekeyed | Misplaced):
                results[at] = self._save_again(save, keys[save.thread], refusal)
        return results

    def _save_again(self, save: Save, key: DataKey, refusal: Rekeyed | Misplaced) -> int | Exception:
        """Save with the key, or the place, that the store has for it now; an error is of this save only."""
        before = 0
        try:
            for attempt in range(_ATTEMPTS):
                if isinstance(refusal, Misplaced) and isinstance(save, SaveRow):
                    # Nobody else takes the place of a row that is stored, so that one stays the same.
                    self._places.correct(save, refusal.seq, key.id, 0 if refusal.seq == before else attempt)
                    before = refusal.seq
                elif self._keys.get(save.thread) in (key, None):
                    self._renew([save.thread])
                key = self._key(save.thread)
                [result] = self.inner.save([self._sealed(save, key)])
                key.stored = key.stored or is_made(result)
                if not isinstance(result, Rekeyed | Misplaced):
                    return result
                refusal = result
        except StatekitError as error:
            return error
        return refusal if isinstance(refusal, Misplaced) else _changing(save.thread)

    def _sealed(self, save: Save, key: DataKey) -> Save:
        if isinstance(save, SaveWrites):
            return replace(save, writes=[key.seal_write(save.ref, write) for write in save.writes], header=key.sent)
        row = save.row._replace(seq=self._places.propose(save, key.id))
        frames = [key.seal_frame(frame) for frame in save.frames]
        return replace(save, row=key.seal_row(row), frames=frames, header=key.sent)

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        def opened(found: Stored | None, key: DataKey | None) -> Stored | None:
            if found is None:
                return None
            if found.header and (key is None or not found.header.startswith(key.id)):
                key = self._learned(thread, found.header)
            row = self._row(key, found.row, ns, id)
            frames = self._frames(thread, key, found.frames)
            return Stored(row, frames, self._writes(key, row.ref, found.writes))

        return self._opened(thread, lambda: self.inner.load(thread, ns, id, refresh), opened)

    def rows(self, query: Query) -> Sequence[Row]:
        def opened(found: Sequence[Row], key: DataKey | None) -> Sequence[Row]:
            return [self._row(key, row, query.ns, query.id) for row in found]

        return self._opened(query.thread, lambda: self.inner.rows(query), opened)

    def fill(self, thread: str, keys: Collection[bytes], refs: Collection[Ref]) -> Filled:
        def opened(found: Filled, key: DataKey | None) -> Filled:
            writes = {ref: self._writes(key, ref, own) for ref, own in found[1].items()}
            return self._frames(thread, key, found[0]), writes

        return self._opened(thread, lambda: self.inner.fill(thread, keys, refs), opened)

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        def opened(found: Outline, key: DataKey | None) -> Outline:
            # Checks of frames are those that the store compares.
            rows = [self._untagged(key, row) for row in found.rows]
            if key is not None and rows:
                self._places.note(rows[-1].ref, rows[-1].seq, key.id)
            return replace(found, rows=rows)

        return self._opened(thread, lambda: self.inner.outline(thread, ns), opened)

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        if change.relink:
            key = self._keys.get(thread)
            if key is None or not key.stored:
                key = self._renew([thread]).get(thread)
            if key is not None:  # else all of the thread is in plain
                change = replace(change, relink=[key.tag_row(row) for row in change.relink])
        return self.inner.apply(thread, rev, change)

    def drop_thread(self, thread: str) -> bool:
        left = self.inner.drop_thread(thread)
        self._forget(thread)
        return left

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        for _ in range(_ATTEMPTS):
            key = self._renew([source]).get(source)
            if key is not None:
                header = self._encryption.wrapped(target, key).header
            try:
                done = self.inner.copy_thread(source, target, operation, header)
            except Rekeyed:
                continue
            self._forget(target)
            return done
        raise _changing(source)

    def key_of(self, thread: str) -> DataKey | None:
        """Return the data key of a thread; None if it has none."""
        return self._renew([thread]).get(thread)

    def placed(self, header: bytes, row: Row, seq: int) -> Row:
        """Return a stored row of a thread with this header as it is stored in another place of the order."""
        key = self._encryption.unwrapped(row.ref.thread, header) if is_tagged(row) and row.seq != seq else None
        if key is None:
            return row._replace(seq=seq)
        return key.tag_row(key.untag_row(row)._replace(seq=seq))

    def header_for(self, thread: str, key: DataKey) -> bytes:
        """Return a header with which a thread has this data key."""
        return self._encryption.wrapped(thread, key).header

    def rotate(self) -> int:
        """Wrap all data keys with the active master key, and return how many had another one.

        Raises:
            Misuse: A thread has a master key that is not known; the others are done.
            Corrupt: A header was altered or moved; the others are done.
        """
        count, failed = self._cells.rotate(), None
        for page in self.inner.threads():
            threads = page
            while threads:
                changes = []
                for thread, header in self.inner.headers(threads).items():
                    try:
                        if not self._encryption.wraps(header):
                            key = self._encryption.unwrapped(thread, header)
                            changes.append((thread, header, self._encryption.wrapped(thread, key).header))
                    except (Misuse, DataError) as error:
                        failed = failed or error
                done = self.inner.rewrap(changes) if changes else ()
                count += sum(done)
                # Another worker rotates them too, or they were deleted.
                threads = [change[0] for change, made in zip(changes, done, strict=True) if not made]
        if failed is not None:
            raise failed
        return count

    def _key(self, thread: str) -> DataKey:
        return self._keys.get(thread) or self._keys.hold(thread, self._encryption.new(thread), _ENTRY_BYTES)

    def _renew(self, threads: Collection[str]) -> dict[str, DataKey]:
        """Return the data keys that threads have now."""
        headers = self.inner.headers(list(threads))
        for thread in threads:
            if thread not in headers:
                self._forget(thread)
        return {thread: self._learned(thread, header) for thread, header in headers.items()}

    def _learned(self, thread: str, header: bytes) -> DataKey:
        key = self._keys.get(thread)
        if key is None or not header.startswith(key.id):
            key = self._encryption.unwrapped(thread, header)
            self._keys.put(thread, key, _ENTRY_BYTES)
        key.stored = True
        return key

    def _forget(self, thread: str) -> None:
        self._keys.put(thread, None, 0)

    def _opened(self, thread: str, read: Callable[[], T], opened: Callable[[T, DataKey | None], T]) -> T:
        """Return what was read with its records open, also of a thread that has another key by now."""
        key = self._keys.get(thread)
        found, since = read(), True  # whether the key was known before
        for _ in range(_ATTEMPTS):
            try:
                return opened(found, key)
            except Corrupt:
                now = self._renew([thread]).get(thread)
                same = now is key or (now is not None and key is not None and now.id == key.id)
                if same and since:
                    raise
            key = now
            if same:
                found = read()
            since = same
        raise _changing(thread)

    def _row(self, key: DataKey | None, row: Row, ns: str | None, id: str | None) -> Row:
        """Return a row that was asked for by these as it is in plain."""
        if self._is_sealed(row.ref.thread, row.body):
            row = self._known(key, row.ref.thread).open_row(row)
        else:
            row = self._untagged(key, row)
        if ns not in (None, row.ref.ns) or id not in (None, row.ref.id):
            raise moved(row)
        if key is not None:
            self._places.note(row.ref, row.seq, key.id)
        return row

    def _untagged(self, key: DataKey | None, row: Row) -> Row:
        if is_tagged(row):
            return self._known(key, row.ref.thread).untag_row(row)
        if self._require:
            raise unsealed(row.ref.thread)
        return row

    def _frames(self, thread: str, key: DataKey | None, frames: Mapping[bytes, Frame]) -> Mapping[bytes, Frame]:
        found = [
            self._known(key, thread).open_frame(thread, frame) if self._is_sealed(thread, frame.stored) else frame
            for frame in frames.values()
        ]
        return {frame.key: frame for frame in found}

    def _writes(self, key: DataKey | None, ref: Ref, writes: Sequence[Write]) -> Sequence[Write]:
        return [
            self._known(key, ref.thread).open_write(ref, write) if self._is_sealed(ref.thread, write.data) else write
            for write in writes
        ]

    def _is_sealed(self, thread: str, data: bytes) -> bool:
        sealed = is_sealed(data)
        if self._require and data and not sealed:
            raise unsealed(thread)
        return sealed

    def _known(self, key: DataKey | None, thread: str) -> DataKey:
        if key is None:
            raise Corrupt(
                f"thread {from_text(thread)!r} has encrypted records, but no key to read them with; restore the thread"
                " from a copy"
            )
        return key


def _changing(thread: str) -> Conflict:
    return Conflict(f"thread {from_text(thread)!r} kept being deleted and begun anew meanwhile; try again")
