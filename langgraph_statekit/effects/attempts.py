"""How an effect is claimed, made and marked in the cells of a saver; bodies for sync and for async callers."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from inspect import (
    isasyncgenfunction,
    isawaitable,
    iscoroutine,
    iscoroutinefunction,
    isgeneratorfunction,
    signature,
)
from typing import Any, Final, NamedTuple

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config

from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellQuery, CellRef, Cells, cell_ref
from langgraph_statekit.checkpoint.claims import token_of
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.checkpoint.results import SerializableResult
from langgraph_statekit.checkpoint.run import aside
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.effects.rules import (
    CLAIM,
    COMPENSATED,
    CONFLICT,
    DONE,
    FAILED,
    FOR_EVER,
    KIND,
    PENDING,
    SENT,
    UNKNOWN,
    WAIT,
    Asked,
    Record,
    decode,
    encode,
    fingerprint,
    idempotency_key,
    judge,
    left_us,
    name_in_store,
)
from langgraph_statekit.errors import Conflict, Corrupt, DataError, EffectUnknown, Misuse, StatekitError
from langgraph_statekit.rehearsal import is_rehearsal, not_made

_LOG: Final = logging.getLogger(__name__)
_SECRET: Final = cell_ref("effect-key", "names")
_POLL_S: Final = 0.25
_ERROR_CHARS: Final = 500
THREAD: Final = "thread"


class Side(NamedTuple):
    """Cells for sync or for async callers, and how these call functions."""

    cells: Cells
    is_async: bool

    async def call(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return what a function gives; a plain one of an async caller does not block the event loop."""
        plain = self.is_async and not _is(iscoroutinefunction, fn)
        result = await aside(partial(fn, *args, **options)) if plain else fn(*args, **options)
        if not isawaitable(result):
            return result
        if self.is_async:
            return await result
        if iscoroutine(result):
            result.close()
        raise Misuse(f"{name_of(fn)} is asynchronous: use arun, or an async node")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call of `run` wishes to be done, checked.

    Attributes:
        key: Business identity.
        fn: Makes the effect.
        args: Its arguments.
        request: What is compared.
        verify: Asks the provider.
        on_unknown: What to do about an unknown effect.
        failed_on: Errors after which it was certainly not made.
        compensation: Name of what undoes it.
        compensates: Whether it undoes another one.
    """

    key: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    request: object
    verify: Callable[[str], Any] | None = None
    on_unknown: str = "stop"
    failed_on: tuple[type[Exception], ...] = ()
    compensation: str = ""
    compensates: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a ledger; times in microseconds, None: for ever."""

    scope: str
    lease_us: int
    keep_us: int | None
    gone_us: int | None
    owner: str


class Place(NamedTuple):
    """Where an effect is made."""

    thread: str
    ns: str
    checkpoint: str
    token: int | None
    is_rehearsal: bool = False


class Attempts:
    """Attempts at effects on one saver."""

    def __init__(self, saver: StatekitSaver, settings: Settings) -> None:
        self._saver, self._settings = saver, settings
        self._known_secret: bytes | None = None

    async def run(self, side: Side, wish: Wish, config: RunnableConfig | None) -> Any:
        """Return what an effect gives; see `EffectLedger.run`."""
        at = place_of(config)
        if not side.is_async and _is(iscoroutinefunction, wish.fn):
            raise Misuse(f"{name_of(wish.fn)} is asynchronous: use arun, or an async node")
        for fn in (wish.fn, wish.verify):
            if fn is not None and (_is(isgeneratorfunction, fn) or _is(isasyncgenfunction, fn)):
                raise Misuse(
                    f"{name_of(fn)} is a generator: nothing of it has run when it returns; use return, not yield"
                )
        if self._settings.scope == THREAD and not at.thread:
            raise Misuse(
                f"effect {wish.key!r} has no thread: make it in a node, or pass config=; or use scope='global'"
            )
        if at.is_rehearsal:
            return await self._recorded(side, wish, at)
        if self._saver.require_lease and at.token is None:
            raise Misuse(f"effect {wish.key!r} has no lease, and the saver has require_lease=True: use lease.config")
        secret = await self._secret(side.cells)
        ref = self._ref(secret, wish.key, at.thread)
        new = self._record(secret, wish, at)
        made = await self._claim(side, wish, ref, self._handing(secret, new))
        if isinstance(made, Record):
            return self._result(made, wish.key)
        cell, record = made
        await self._fence(side.cells, ref, cell, record)
        try:
            result = await side.call(wish.fn, *wish.args, **_taking(wish.fn, record.handed))
        except Exception as error:
            state = FAILED if isinstance(error, wish.failed_on) else UNKNOWN
            with suppress(StatekitError):  # then it is pending until its time is over
                await self._mark(side.cells, cell, replace(record, state=state, error=_told(error)))
            raise
        marked = await self._mark(side.cells, cell, replace(record, state=SENT, result=self._dumped(result)))
        return self._result(marked, wish.key)

    async def _recorded(self, side: Side, wish: Wish, at: Place) -> Any:
        """Return what an effect gave, for a replay, which makes none and stores nothing."""
        if not (await side.cells.cells(CellQuery(kind=_SECRET.kind, refs=[_SECRET]))).cells:
            raise not_made(wish.key)
        secret = await self._secret(side.cells)
        page = await side.cells.cells(CellQuery(kind=KIND, refs=[self._ref(secret, wish.key, at.thread)]))
        new = self._record(secret, wish, at)
        for known in map(decode, page.cells):
            verdict = judge(known, Asked(new.request, new.thread, new.token), page.now_us)
            if verdict == CONFLICT:
                raise _other_request(wish.key)
            if verdict == DONE:
                return self._result(known, wish.key)
        raise not_made(wish.key)

    def _record(self, secret: bytes, wish: Wish, at: Place) -> Record:
        try:
            request = fingerprint(secret, wish.request, self._saver.serde.dumps_typed)
        except Exception as error:
            raise DataError(
                f"what effect {wish.key!r} is asked to do cannot be compared: {error}; pass request=, the part of its"
                " arguments that matters"
            ) from error
        return Record(
            state=PENDING,
            request=request,
            claim=os.urandom(8).hex(),
            lease_us=self._settings.lease_us,
            token=at.token,
            key=to_text(wish.key),
            thread=at.thread,
            ns=at.ns,
            checkpoint=at.checkpoint,
            owner=to_text(self._settings.owner),
            compensation=wish.compensation,
            compensates=wish.compensates,
            gone_us=FOR_EVER if self._settings.gone_us is None else self._settings.gone_us,
        )

    async def _claim(self, side: Side, wish: Wish, ref: CellRef, new: Record) -> tuple[Cell, Record] | Record:
        """Return the claimed cell with its record, or the record of an effect that was made before."""
        asked = Asked(new.request, new.thread, new.token)
        rev, record, seen_s = 0, new, dict[str, float]()
        while True:
            cell, now_us, made = await self._change(side.cells, ref, record, rev, fenced=True)
            if made and cell is not None:
                return cell, replace(record, claimed_us=cell.at_us)
            if cell is None:  # it has expired
                rev, record = 0, new
                continue
            known = decode(cell)
            verdict = judge(known, asked, now_us)
            if verdict == DONE:
                used = known.used(new.thread, new.checkpoint)
                if used is known or (await self._change(side.cells, ref, used, cell.rev))[2]:
                    return known
            if verdict == CONFLICT:
                raise _other_request(wish.key)
            if verdict == WAIT:  # no longer than it may take, whatever a clock says that was set back meanwhile
                over_s = seen_s.setdefault(known.claim, time.monotonic()) + known.lease_us / 1e6
                left_s = min(left_us(known, asked, now_us) / 1e6, over_s - time.monotonic())
                if left_s <= 0:
                    verdict = UNKNOWN
                await side.cells.sleep(max(0.0, min(_POLL_S, left_s)))
            if verdict == UNKNOWN and (found := await self._unknown(side, wish, cell, known, new)) is not None:
                return found
            if verdict in (CLAIM, UNKNOWN):
                generation = known.generation + (known.outcome == COMPENSATED)
                record = replace(new, attempts=known.attempts + 1, generation=generation)
                rev, record = cell.rev, self._handing(await self._secret(side.cells), record)
            else:
                rev, record = 0, new

    async def _unknown(self, side: Side, wish: Wish, cell: Cell, known: Record, new: Record) -> Record | None:
        """Return the record of an effect that turns out to be made, or None if it may be made again."""
        if wish.on_unknown == "retry":
            return None
        if wish.on_unknown == "verify" and wish.verify is not None:
            result = await side.call(wish.verify, self._handing(await self._secret(side.cells), known, wish.key).handed)
            if result is None:
                return None
            if result is False:  # would it be what the effect gave, or does it say that there is none?
                raise Misuse(
                    f"verify of effect {wish.key!r} returned False, which may mean either: return None if the effect"
                    " was not made, else what it gave"
                )
            if known.forgotten:  # its thread is used anew
                known = replace(new, claim=known.claim, attempts=known.attempts, generation=known.generation)
            known = known.used(new.thread, new.checkpoint)
            sent = replace(known, state=SENT, result=self._dumped(result), error="")
            return await self._mark(side.cells, cell, sent)
        if known.state == PENDING:
            await self._change(side.cells, cell.ref, replace(known, state=UNKNOWN), cell.rev)
        raise EffectUnknown(
            f"nobody knows whether effect {wish.key!r} was made: attempt {known.attempts} by {from_text(known.owner)!r}"
            f" ended without a mark{known.error and f' ({known.error})'}; look at the provider, then call"
            " resolve(key, 'sent') or resolve(key, 'not_sent'), or use verify="
        )

    async def _fence(self, cells: Cells, ref: CellRef, cell: Cell, record: Record) -> None:
        """After a claim that could not look at the lease: take it back if the lease was lost.

        A cell without a value says beside the thread, whose cells a store may keep apart, that it has effects.
        """
        if ref.thread or not record.thread:
            return
        ask = CellChange(
            ref=CellRef(KIND, record.thread, ""), value=b"", groups=record.groups[:1], expect=0, token=record.token
        )
        try:
            await cells.change_cell(ask)
        except StatekitError:
            with suppress(StatekitError):
                await self._mark(cells, cell, replace(record, state=FAILED, error="the lease was lost before it began"))
            raise

    async def _change(
        self, cells: Cells, ref: CellRef, record: Record, rev: int, *, fenced: bool = False
    ) -> tuple[Cell | None, int, bool]:
        keep_us = self._settings.keep_us if record.state != PENDING and record.state != UNKNOWN else None
        changed = await cells.change_cell(
            CellChange(
                ref=ref,
                value=encode(record),
                groups=record.groups,
                expect=rev,
                token=record.token if fenced and ref.thread else None,
                ttl_us=record.life_us if record.forgotten else keep_us,
            )
        )
        return changed.cell, changed.now_us, changed.made

    async def _mark(self, cells: Cells, cell: Cell, record: Record) -> Record:
        """Record how an attempt ended, unless another one has begun since; return what is recorded."""
        rev, new = cell.rev, record
        while True:
            found, _, made = await self._change(cells, cell.ref, new, rev)
            if made:
                return record
            known = None if found is None else decode(found)
            if found is None or known is None or known.claim != record.claim or known.state not in (PENDING, UNKNOWN):
                _LOG.warning("effect %r is %s, though its attempt was resolved meanwhile", record.key, record.state)
                return record
            rev, new = found.rev, record.without_content() if known.forgotten else record

    def _handing(self, secret: bytes, record: Record, key: str | None = None) -> Record:
        """Return a record with the idempotency key of its generation; the key of a forgotten one must be given."""
        scope = record.thread if self._settings.scope == THREAD else ""
        named = record.key if key is None else to_text(key)
        return replace(record, handed=idempotency_key(secret, scope, named, record.generation))

    def _dumped(self, result: Any) -> tuple[str, bytes]:
        try:
            return self._saver.serde.dumps_typed(result)
        except Exception:  # the effect was made, whatever it gave
            with suppress(Exception):
                return self._saver.serde.dumps_typed(SerializableResult.of(result))
            return self._saver.serde.dumps_typed(SerializableResult.of(repr(result)))

    def _result(self, record: Record, key: str) -> Any:
        if record.forgotten:
            raise EffectUnknown(f"effect {key!r} was made before its thread was deleted; what it gave was deleted too")
        return None if record.result is None else self._saver.serde.loads_typed(record.result)

    def _ref(self, secret: bytes, key: str, thread: str) -> CellRef:
        scope = thread if self._settings.scope == THREAD else ""
        return CellRef(KIND, scope, name_in_store(secret, scope, to_text(key)))

    async def _secret(self, cells: Cells) -> bytes:
        """Return the key of the hashes under which effects are stored; the first ledger of a store makes it."""
        if self._known_secret is None:
            stored = (await cells.cells(CellQuery(kind=_SECRET.kind, refs=[_SECRET]))).cells
            if not stored:
                others = (await cells.cells(CellQuery(kind=KIND, limit=1))).cells
                made = await cells.change_cell(CellChange(ref=_SECRET, value=b"\0" + os.urandom(32), expect=0))
                if others and made.made:
                    await cells.change_cell(CellChange(ref=_SECRET, value=None))
                    raise Corrupt("the key of the effects' names is gone; restore the store from a copy")
                stored = [made.cell] if made.cell else []
            self._known_secret = stored[0].value[1:]
        return self._known_secret


def place_of(config: RunnableConfig | None) -> Place:
    """Return where an effect is made: as a config tells, or the run that this is called in."""
    found = config or var_child_runnable_config.get() or {}
    configurable = found.get("configurable", {})
    thread = configurable.get("thread_id")
    checkpoint = (configurable.get("checkpoint_map") or {}).get("") or configurable.get("checkpoint_id") or ""
    return Place(
        "" if thread is None else to_text(thread),
        to_text(configurable.get("checkpoint_ns") or ""),
        to_text(checkpoint),
        token_of(configurable),
        is_rehearsal(configurable),
    )


def _other_request(key: str) -> Conflict:
    return Conflict(
        f"effect {key!r} was asked to do something else before: use another key for another effect, or pass request=, "
        "the part of its arguments that tells one effect from another"
    )


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name by which a function is known in the store."""
    plain = fn.func if isinstance(fn, partial) else fn
    module, name = getattr(plain, "__module__", None), getattr(plain, "__qualname__", type(plain).__qualname__)
    return f"{module}:{name}"


def _is(kind: Callable[[Any], bool], fn: Callable[..., Any]) -> bool:
    """Say whether a function, or what an object does when it is called, is of a kind."""
    plain: Any = fn.func if isinstance(fn, partial) else fn
    return kind(fn) or kind(type(plain).__call__)


def _taking(fn: Callable[..., Any], key: str) -> Mapping[str, str]:
    """Return the idempotency key for a function that takes it."""
    try:
        return {"idempotency_key": key} if "idempotency_key" in signature(fn).parameters else {}
    except (TypeError, ValueError):  # of a builtin
        return {}


def _told(error: Exception) -> str:
    return to_text(f"{type(error).__name__}: {error}"[:_ERROR_CHARS])
