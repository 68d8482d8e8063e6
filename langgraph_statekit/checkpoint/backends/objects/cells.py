"""Cells in an object store: an object each, changed by compare-and-set, and an empty one for each group that it is in.

A removed cell leaves an object without value, since objects cannot be removed on condition; `sweep` removes it. The
names of a group's objects end with the change that put them there, so whoever removes them takes no later one's away.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ormsgpack

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.layout import FORMAT, digest
from langgraph_statekit.checkpoint.backends.objects.reader import Reader
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.cells import (
    Cell,
    CellChange,
    CellPage,
    CellQuery,
    CellRef,
    Changed,
    decide,
    is_news,
    page_of,
)
from langgraph_statekit.checkpoint.claims import fenced, is_late
from langgraph_statekit.checkpoint.expiry import is_over
from langgraph_statekit.checkpoint.frames import seal, unseal
from langgraph_statekit.errors import Corrupt, SchemaTooNew

_OLD_US: Final = 24 * 3600 * 1_000_000
"""Since when what is of no use must be so: longer than any clocks differ, and than any change takes."""
_SWEPT_US: Final = 600_000_000
_DELETED_S: Final = 300.0
"""A swept object is deleted within so many seconds, and not written over for twice as long."""


@dataclass(frozen=True, slots=True)
class _Record:
    """What an object holds.

    Attributes:
        cell: The cell as it is, or as it was.
        there: Whether it has not been removed.
        until_us: When it ends; None: it does not.
        mark: Ends the names of the objects of its groups.
        swept_us: When somebody began to remove the object; 0 if nobody did.
        nonce: Random, so that no two writes are of equal bytes.
    """

    cell: Cell
    there: bool = True
    until_us: int | None = None
    mark: str = ""
    swept_us: int = 0
    nonce: bytes = field(default_factory=lambda: os.urandom(8))

    def alive(self, now_us: int) -> Cell | None:
        """Return the cell if it exists."""
        return self.cell if self.there and not is_over(self.until_us, now_us) else None


class ObjectCells:
    """Changes and reads cells.

    Args:
        bucket: Makes the requests.
        reader: Reads the leases.
    """

    def __init__(self, bucket: Bucket, reader: Reader) -> None:
        self._bucket, self._reader = bucket, reader
        self._root = f"{reader.root.removesuffix('t')}c"

    def change(self, change: CellChange) -> Changed | Exception:
        """See `Backend.change_cells`."""
        if self._is_late(change):
            return fenced(change)
        for pause_s in pauses(change.thread):
            record, tag = self._read(change.ref)
            now_us, asked_s = self._reader.now_us(), time.monotonic()
            before = record.alive(now_us) if record else None
            if record is not None and now_us - record.swept_us < _SWEPT_US:
                time.sleep(pause_s)
                continue
            last = record.cell.rev + 1 if record else 0
            changed = decide(change, before, max(now_us, last))
            if not is_news(changed, before):
                return changed._replace(now_us=now_us)
            new = self._record(change, changed, record, now_us)
            tag_after = self._swap(new, tag)
            if tag_after is None:
                time.sleep(pause_s)
                continue
            if self._is_late(change):
                self._take_back(new, tag_after, record, before)
                return fenced(change)
            late_us = now_us + int((time.monotonic() - asked_s) * 1e6)
            if change.deadline_us is not None and late_us >= change.deadline_us:
                self._take_back(new, tag_after, record, before)
                continue
            if record is not None and record.mark != new.mark:
                self._bucket.delete(self._marks(record))
            return changed._replace(now_us=now_us)
        raise AssertionError("pauses end with an error")

    def _is_late(self, change: CellChange) -> bool:
        return change.token is not None and is_late(change.token, self._reader.fresh(change.thread)[0].lease)

    def _record(self, change: CellChange, changed: Changed, before: _Record | None, now_us: int) -> _Record:
        cell = changed.cell
        if cell is None:
            rev = max(now_us, before.cell.rev + 1 if before else 0)
            return _Record(Cell(change.ref, b"", (), rev, change.operation), there=False)
        until_us = None if change.ttl_us is None else now_us + change.ttl_us
        if before is not None and before.mark and before.cell.groups == cell.groups:
            return _Record(cell, until_us=until_us, mark=before.mark)
        return _Record(cell, until_us=until_us, mark=change.operation)

    def _swap(self, record: _Record, tag: str) -> str | None:
        """Write a record, the objects of its groups first."""
        self._bucket.all(lambda key: self._bucket.put(key, b""), self._marks(record))
        return self._bucket.swap(self._key(record.cell.ref), _encode(record), tag)

    def _take_back(self, made: _Record, tag: str, record: _Record | None, before: Cell | None) -> None:
        """Undo a change that came too late, unless somebody went on from it."""
        rev = made.cell.rev + 1
        if before is None or record is None:
            old = _Record(Cell(made.cell.ref, b"", (), rev, ""), there=False)
        else:
            old = replace(record, cell=before._replace(rev=rev), nonce=os.urandom(8))
        self._swap(old, tag)

    def read(self, query: CellQuery) -> CellPage:
        """See `Backend.cells`."""
        root = f"{self._root}/{digest(query.kind)}"
        if query.refs is not None:
            keys = [self._key(ref) for ref in query.refs]
        elif query.group is None:
            keys = list(self._bucket.list(f"{root}/v"))
        else:
            listed = self._bucket.list(f"{root}/g/{digest(query.group)}")
            keys = list(dict.fromkeys(f"{root}/v/{_name_in(key)}" for key in listed))
        found = self._bucket.get_many(keys) if keys else {}
        now_us = self._reader.now_us()
        cells = [cell for item in found.values() if (cell := _decode(item.data).alive(now_us))]
        return CellPage(cells if query.refs is not None else page_of(query, cells), now_us)

    def any_of(self, query: CellQuery) -> bool:
        """Say in one request whether the group of a query has cells; those that have ended may count."""
        assert query.group is not None
        return bool(self._bucket.list(f"{self._root}/{digest(query.kind)}/g/{digest(query.group)}"))

    def sweep(self) -> None:
        """Remove objects that have been of no use for long."""
        now_us = self._reader.now_us()
        for kind in self._bucket.folders(self._root):
            for key in self._bucket.list(f"{self._root}/{kind}/v"):
                found = self._bucket.get(key)
                if found is not None:
                    self._sweep(key, _decode(found.data), found.tag, now_us)
            for group in self._bucket.folders(f"{self._root}/{kind}/g"):
                stats = self._bucket.stats(f"{self._root}/{kind}/g/{group}")
                old = [key for key, stat in stats.items() if stat.modified_s * 1e6 < now_us - _OLD_US]
                cells = self._bucket.get_many({f"{self._root}/{kind}/v/{_name_in(key)}" for key in old}) if old else {}
                marks = {key.rpartition("/")[2] + "-" + _decode(item.data).mark for key, item in cells.items()}
                if unused := [key for key in old if key.rpartition("/")[2] not in marks]:
                    self._bucket.delete(unused)

    def _sweep(self, key: str, record: _Record, tag: str, now_us: int) -> None:
        since_us = max(record.cell.rev, record.until_us or 0, record.swept_us)
        if record.alive(now_us) is not None or now_us - since_us < _OLD_US:
            return
        begun_s = time.monotonic()
        dying = replace(record, there=False, swept_us=now_us, nonce=os.urandom(8))
        if self._bucket.swap(key, _encode(dying), tag) is not None and time.monotonic() - begun_s < _DELETED_S:
            self._bucket.delete([key, *self._marks(record)])

    def _read(self, ref: CellRef) -> tuple[_Record | None, str]:
        found = self._bucket.get(self._key(ref))
        return (None, ABSENT) if found is None else (_decode(found.data), found.tag)

    def _key(self, ref: CellRef) -> str:
        return f"{self._root}/{digest(ref.kind)}/v/{digest(ref.thread, ref.key)}"

    def _marks(self, record: _Record) -> list[str]:
        kind, thread, key = record.cell.ref
        root, name = f"{self._root}/{digest(kind)}/g", digest(thread, key)
        return [f"{root}/{digest(group)}/{name}-{record.mark}" for group in dict.fromkeys(record.cell.groups)]


def _name_in(key: str) -> str:
    return key.rpartition("/")[2].partition("-")[0]


def _encode(record: _Record) -> bytes:
    cell = record.cell
    plain = (*cell.ref, cell.value, cell.groups, cell.rev, cell.operation)
    more = (record.there, record.until_us, record.mark, record.swept_us, record.nonce)
    return seal(ormsgpack.packb((FORMAT, *plain, *more)))


def _decode(data: bytes) -> _Record:
    try:
        version, *parts = ormsgpack.unpackb(unseal(data))
        if version > FORMAT:
            raise SchemaTooNew(f"a stored cell has layout {version}, this release reads up to {FORMAT}: upgrade it")
        return _record(*parts)
    except (ormsgpack.MsgpackDecodeError, TypeError, ValueError) as error:
        if isinstance(error, Corrupt | SchemaTooNew):
            raise
        raise Corrupt(f"a stored cell of {len(data)} bytes cannot be read: {error}") from error


def _record(
    kind: str, thread: str, key: str, value: bytes, groups: Sequence[str], rev: int, operation: str, *more: Any
) -> _Record:
    return _Record(Cell(CellRef(kind, thread, key), value, tuple(groups), rev, operation), *more)
