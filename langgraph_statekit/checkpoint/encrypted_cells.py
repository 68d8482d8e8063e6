"""Cells whose values are encrypted, with one data key for all of a store; addresses and groups stay readable.

The data key's header is a cell itself, so that a rotation of master keys changes one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellPage, CellQuery, Changed, cell_ref, only
from langgraph_statekit.checkpoint.frames import is_sealed
from langgraph_statekit.checkpoint.records import from_text
from langgraph_statekit.checkpoint.sealing import DataKey, MasterKeys
from langgraph_statekit.errors import Conflict, Corrupt

_KEY: Final = cell_ref("key", "cells")
_PLACE: Final = "\0cells"
"""In place of a thread id, which has no NUL."""
_ATTEMPTS: Final = 8


class EncryptedCells:
    """The cells of a store, encrypted on their way in.

    Args:
        inner: Where they are stored.
        keys: Wrap the data key.
        require: Refuse cells in plain.
    """

    def __init__(self, inner: Backend, keys: MasterKeys, *, require: bool) -> None:
        self._inner, self._keys, self._require = inner, keys, require
        self._known: DataKey | None = None

    def change(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        """See `Backend.change_cells`."""
        key = self._known or self._learned()
        sealed = [
            each if each.value is None else replace(each, value=key.seal_cell(each.ref, each.value)) for each in changes
        ]
        return [
            result if isinstance(result, Exception) else result._replace(cell=result.cell and self._opened(result.cell))
            for result in self._inner.change_cells(sealed)
        ]

    def read(self, query: CellQuery) -> CellPage:
        """See `Backend.cells`."""
        page = self._inner.cells(query)
        return page._replace(cells=[self._opened(cell) for cell in page.cells])

    def rotate(self) -> int:
        """Wrap the data key with the active master key; return 1 if it had another one."""
        for _ in range(_ATTEMPTS):
            stored = self._stored()
            if stored is None or self._keys.wraps(stored.value[1:]):
                return 0
            wrapped = self._keys.wrapped(_PLACE, self._keys.unwrapped(_PLACE, stored.value[1:]))
            change = CellChange(ref=_KEY, value=b"\0" + wrapped.header, expect=stored.rev)
            if only(self._inner.change_cells([change])).made:
                self._known = wrapped
                return 1
        raise Conflict("the key of the cells kept changing; rotate again")

    def _stored(self) -> Cell | None:
        cells = self._inner.cells(CellQuery(kind=_KEY.kind, refs=[_KEY])).cells
        return cells[0] if cells else None

    def _learned(self) -> DataKey:
        stored = self._stored()
        if stored is None:
            header = self._keys.new(_PLACE).header
            stored = only(self._inner.change_cells([CellChange(ref=_KEY, value=b"\0" + header, expect=0)])).cell
            assert stored is not None
        self._known = self._keys.unwrapped(_PLACE, stored.value[1:])
        return self._known

    def _opened(self, cell: Cell) -> Cell:
        if not is_sealed(cell.value):
            if self._require:
                raise Corrupt(
                    f"the record {from_text(cell.ref.key)!r} ({cell.ref.kind}) is not encrypted, and"
                    " require_encryption=True refuses it: open the saver without it"
                )
            return cell
        key = self._known
        if key is None or not key.sealed_cell(cell.value):
            key = self._learned()
        return cell._replace(value=key.open_cell(cell.ref, cell.value))
