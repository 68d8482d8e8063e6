"""What else is done about effects: they are listed, resolved, settled at a rollback, and forgotten."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langchain_core.runnables import RunnableConfig

from langgraph_statekit.checkpoint.cells import Cell, CellQuery, Cells
from langgraph_statekit.checkpoint.codec import config_of
from langgraph_statekit.checkpoint.records import Row, from_text, to_text
from langgraph_statekit.effects.attempts import Attempts, Side, Wish, place_of
from langgraph_statekit.effects.rules import (
    COMPENSATED,
    FAILED,
    KIND,
    NOT_SENT,
    PENDING,
    RESOLVED,
    STATES,
    UNKNOWN,
    Effect,
    Record,
    SettledEffects,
    as_seen,
    decode,
    is_behind,
)
from langgraph_statekit.errors import CheckpointMissing, Conflict, Fenced, Misuse, Unavailable

_LOG: Final = logging.getLogger(__name__)
_PAGE: Final = 200


class EffectEngine(Attempts):
    """The ledger of one saver."""

    async def find(self, side: Side, key: str, thread: str) -> tuple[Cell, Record, int] | None:
        """Return an effect, as it is stored, and the server's clock."""
        ref = self._ref(await self._secret(side.cells), key, thread)
        page = await side.cells.cells(CellQuery(kind=KIND, refs=[ref]))
        return (page.cells[0], decode(page.cells[0]), page.now_us) if page.cells else None

    async def stored(self, cells: Cells, group: str | None) -> AsyncIterator[tuple[Cell, Record, int]]:
        """Yield the effects of a group, newest first, each with the server's clock."""
        before = None
        while (page := await cells.cells(CellQuery(kind=KIND, group=group, before=before, limit=_PAGE))).cells:
            for cell in page.cells:
                if cell.value:  # else it says only that its thread has some
                    yield cell, decode(cell), page.now_us
            before = page.cells[-1].place

    async def listed(self, side: Side, thread: str | None, states: Collection[str]) -> list[Effect]:
        """Return the effects of a thread, or of all, that people see in one of these states, newest first."""
        groups: list[str | None] = [None if thread is None else f"thread {thread}"]
        if thread is None and set(states) != set(STATES):  # in this order, as pending ones become all others
            groups = [
                f"state {state}" for state in STATES if state in states or (state == PENDING and UNKNOWN in states)
            ]
        found = {
            cell.ref: self.shown(cell, record, now_us)
            for group in groups
            async for cell, record, now_us in self.stored(side.cells, group)
            if not record.forgotten and as_seen(record, now_us).state in states
        }
        return sorted(found.values(), key=lambda effect: -effect.changed_us)

    async def resolve(self, side: Side, key: str, thread: str, outcome: str, result: object, note: str) -> Effect:
        """Record what somebody found out about an unknown effect; see `EffectLedger.resolve`."""
        found = await self.find(side, key, thread)
        if found is None:
            raise Misuse(f"there is no effect {key!r}" + (f" of thread {from_text(thread)!r}" if thread else ""))
        cell, record, now_us = found
        state = as_seen(record, now_us).state
        if state != UNKNOWN:
            raise Conflict(f"effect {key!r} is {state}: only unknown ones are resolved")
        dumped = None if result is None else self._dumped(result)
        new = replace(record, state=RESOLVED, outcome=outcome, result=dumped, note=to_text(note))
        changed, _, made = await self._change(side.cells, cell.ref, new, cell.rev)
        if not made or changed is None:
            raise Conflict(f"effect {key!r} changed meanwhile: look at it again")
        return self.shown(changed, new, now_us)

    async def settle(
        self,
        side: Side,
        config: RunnableConfig,
        policy: str,
        compensations: Mapping[str, Callable[[Effect], Any]],
    ) -> SettledEffects:
        """Do what a policy says about effects behind a checkpoint; see `EffectLedger.on_rollback`."""
        at = place_of(config)
        checkpoint = to_text(config["configurable"].get("checkpoint_id") or "")
        rows = (await side.cells.outline(at.thread, "")).rows
        seqs = {row.ref.id: row.seq for row in rows}
        if checkpoint and checkpoint not in seqs:
            raise CheckpointMissing(f"thread {from_text(at.thread)!r} has no checkpoint {from_text(checkpoint)!r}")
        found = [each async for each in self.stored(side.cells, f"thread {at.thread}")]
        line = await self._line(side, {row.ref.id: row for row in rows}, checkpoint, found)
        kept: list[Effect] = []
        compensated: list[Effect] = []
        left: list[Effect] = []
        for cell, record, now_us in sorted(found, key=lambda each: -each[1].claimed_us):
            effect = self.shown(cell, record, now_us)
            over = record.state == FAILED or record.outcome in (NOT_SENT, COMPENSATED)
            if over or record.compensates or not is_behind(record, checkpoint, line, seqs):
                continue
            undo = compensations.get(record.compensation)
            if policy == "keep":
                kept.append(effect)
            elif policy == "ask" or not record.is_made or undo is None:
                left.append(effect)
            else:
                undone = await self._compensate(side, cell, record, effect, undo, config)
                (compensated if undone else left).append(effect)
        return SettledEffects(kept, compensated, left)

    async def _line(
        self,
        side: Side,
        rows: Mapping[str, Row],
        checkpoint: str,
        effects: Sequence[tuple[Cell, Record, int]],
    ) -> set[str]:
        """Return the checkpoints from which steps led to another one, as far as effects name them."""
        noted = {step for _, record, _ in effects for step in (record.checkpoint, *record.uses)}
        line = set[str]()
        row = rows.get(checkpoint)
        while row is not None and (above := rows.get(row.parent or "")) is not None and above.seq < row.seq:
            if above.ref.id in noted and row.packed_keys != above.packed_keys:  # else it is a fork of the one above
                at = config_of(row.ref)
                item = await self._saver.aget_tuple(at) if side.is_async else self._saver.get_tuple(at)
                if item is None or item.metadata.get("source") != "update":
                    line.add(above.ref.id)
            row = above
        return line

    async def _compensate(
        self,
        side: Side,
        cell: Cell,
        record: Record,
        effect: Effect,
        undo: Callable[[Effect], Any],
        config: RunnableConfig,
    ) -> bool:
        """Undo an effect, which is an effect itself, and say whether it is undone."""
        key = f"compensation {record.generation + 1} of {effect.key}"
        try:
            await self.run(side, Wish(key, undo, (effect,), request=effect.key, compensates=True), config)
        except (Fenced, Unavailable):
            raise
        except Exception:
            _LOG.exception("effect %r could not be compensated", effect.key)
            return False
        new = replace(record, state=RESOLVED, outcome=COMPENSATED)
        return (await self._change(side.cells, cell.ref, new, cell.rev))[2]

    def shown(self, cell: Cell, record: Record, now_us: int) -> Effect:
        """Return an effect as people and compensations see it."""
        seen = as_seen(record, now_us)
        return Effect(
            key=from_text(record.key),
            state=seen.state,
            outcome=record.outcome,
            thread_id=from_text(record.thread),
            checkpoint_ns=from_text(record.ns),
            checkpoint_id=from_text(record.checkpoint),
            idempotency_key=record.handed,
            attempts=record.attempts,
            claimed_us=record.claimed_us,
            changed_us=cell.at_us,
            owner=from_text(record.owner),
            result=None if record.result is None else self._saver.serde.loads_typed(record.result),
            error=record.error,
            note=record.note,
        )
