"""What stays of the effects of a deleted thread: a hash of each key, for a time, so that none is made again."""

from __future__ import annotations

import logging
from typing import Final

from langgraph_statekit.checkpoint.cells import EFFECT, CellChange, CellQuery, Cells, effects_of
from langgraph_statekit.checkpoint.records import from_text
from langgraph_statekit.effects.rules import decode, encode
from langgraph_statekit.errors import DataError, Misuse

_LOG: Final = logging.getLogger(__name__)
_PAGE: Final = 200


async def forget(cells: Cells, thread: str) -> None:
    """Take the content of a deleted thread's effects away, whoever deletes it; what cannot be read stays as it is."""
    group, before = effects_of(thread).group, None
    try:
        while found := (await cells.cells(CellQuery(kind=EFFECT, group=group, before=before, limit=_PAGE))).cells:
            for cell in found:
                left = decode(cell).without_content() if cell.value else None
                value, life_us = (None, None) if left is None else (encode(left), left.life_us)
                await cells.change_cell(CellChange(ref=cell.ref, value=value, expect=cell.rev, ttl_us=life_us))
            before = found[-1].place
    except (DataError, Misuse) as error:
        _LOG.warning("effects of the deleted thread %r stay as they are: %s", from_text(thread), error)
