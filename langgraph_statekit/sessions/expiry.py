"""Sessions that nobody uses: warned of, ended as their policy says, and removed after a while."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellQuery, cell_ref
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.records import from_text
from langgraph_statekit.dice import RANDOM
from langgraph_statekit.errors import Conflict, DataError, SessionMissing, StatekitError
from langgraph_statekit.events import Event, SessionExpired, SessionExpires
from langgraph_statekit.sessions.core import WARNED, Core, Place
from langgraph_statekit.sessions.facts import thread_config
from langgraph_statekit.sessions.records import (
    ACTIVE,
    CLOSED,
    DELETING,
    EXPIRED,
    IDLE,
    IMPORTING,
    KIND,
    WAITING,
    Record,
    checked_metadata,
    group,
    session_of,
    unpack,
)

_LOG: Final = logging.getLogger(__name__)
_BATCH: Final = 100
_IMPORT_US: Final = 24 * 3600 * 1_000_000


class Cleaned(NamedTuple):
    """What a clean-up did.

    Attributes:
        warned: Sessions for which the event `SessionExpires` was told.
        expired: Sessions that have ended now, and whose policy was applied.
        deleted: Of these and of those that ended before, sessions that are gone.
        left: Sessions that should have ended and did not: somebody has their turn, their policy needs a function that
            this manager does not have, or it failed. The next clean-up tries again.
    """

    warned: int = 0
    expired: int = 0
    deleted: int = 0
    left: int = 0


@dataclass(slots=True)
class _Count:
    warned: int = 0
    expired: int = 0
    deleted: int = 0
    left: int = 0


async def clean(core: Core, tell: Callable[[Event], None], *, warns: bool) -> Cleaned:
    """Warn of sessions that will expire soon, end those that nobody used for too long, and remove old ones.

    Each is warned of once, so whoever has nobody to tell leaves it to others.
    """
    count, settings = _Count(), core.settings
    now_us = (await core.cells.cells(CellQuery(kind=KIND, refs=()))).now_us
    # Those of another agent may have another time to live, and then nothing can be passed over.
    bound = None if settings.agent is None else (now_us - settings.idle_us + settings.warn_us, "", "")
    soon: list[tuple[Cell, Record]] = []
    async with aclosing(core.merged(_listings(core, bound, IDLE, WAITING, ACTIVE))) as listed:
        async for cell, now_us in listed:
            try:
                record = unpack(cell)
            except DataError as error:  # of one session, which must not hold up all others
                _LOG.warning("a session was not looked at: %s", error)
                count.left += 1
                continue
            if record.dead_us is not None and record.dead_us <= now_us:
                await _end(core, from_text(cell.ref.thread), tell, count)
            elif warns and record.ends_us is not None and record.ends_us - settings.warn_us <= now_us:
                soon.append((cell, record))
            if len(soon) == _BATCH:
                await _warn(core, soon, tell, count)
                soon.clear()
    await _warn(core, soon, tell, count)
    async with aclosing(core.merged(_listings(core, None, DELETING))) as listed:
        async for cell, now_us in listed:  # somebody died over it
            if not _is_coming(cell, now_us):
                count.deleted += await core.remove(from_text(cell.ref.thread), _hidden)
    if settings.delete_after_us is not None:
        old = (now_us - settings.delete_after_us, "", "")
        async with aclosing(core.merged(_listings(core, old, CLOSED, EXPIRED))) as listed:
            async for cell, _ in listed:
                count.deleted += await core.remove(from_text(cell.ref.thread), _over)
    return Cleaned(count.warned, count.expired, count.deleted, count.left)


def _hidden(record: Record) -> bool:
    return record.hidden


def _over(record: Record) -> bool:
    # Somebody may have deleted it since it was listed, and imported it again.
    return record.state in (CLOSED, EXPIRED)


def _is_coming(cell: Cell, now_us: int) -> bool:
    """Say whether this is a session whose import may go on, or be repeated."""
    try:
        return unpack(cell).state == IMPORTING and now_us - cell.at_us < _IMPORT_US
    except DataError:
        return False


def _listings(core: Core, before: Place | None, *states: str) -> list[tuple[str | None, Place | None]]:
    agent = core.settings.agent
    return [(group(state=state) if agent is None else group(agent=agent, state=state), before) for state in states]


async def _warn(core: Core, soon: list[tuple[Cell, Record]], tell: Callable[[Event], None], count: _Count) -> None:
    """Tell of sessions; of each once, whatever the number of processes that clean up."""
    if not soon:
        return
    refs = {cell.ref: cell_ref(WARNED, KIND, from_text(cell.ref.thread)) for cell, _ in soon}
    page = await core.cells.cells(CellQuery(kind=WARNED, refs=list(refs.values())))
    told = {cell.ref: cell for cell in page.cells}
    for cell, record in soon:
        mark, value = told.get(refs[cell.ref]), b"%d" % cell.rev
        if mark is not None and mark.value == value:
            continue
        change = CellChange(
            ref=refs[cell.ref],
            value=value,
            expect=mark.rev if mark else 0,
            ttl_us=2 * core.settings.warn_us + record.idle_us,
        )
        if (await core.cells.change_cell(change)).made:
            count.warned += 1
            in_s = ((record.ends_us or page.now_us) - page.now_us) / 1e6
            tell(
                SessionExpires(
                    store=core.store,
                    operation="clean",
                    thread_id=from_text(cell.ref.thread),
                    checkpoint_ns=None,
                    user_id=record.user,
                    in_s=max(0.0, in_s),
                )
            )


async def _end(core: Core, session_id: str, tell: Callable[[Event], None], count: _Count) -> None:
    """End one session under its lease, unless it was used meanwhile."""
    try:
        lease = await core.lease(session_id, "clean-up")
    except Conflict:  # a turn that takes longer than sessions live
        count.left += 1
        return
    try:
        cell, now_us = await core.read(session_id)
        record = unpack(cell)
        if record.dead_us is None or record.dead_us > now_us:
            return
        policy = record.on_expiry
        if policy == "delete":
            await core.change(session_id, _unless_used(Record.doomed))
            await core.release(lease)
            count.deleted += await core.remove(session_id, _hidden)
        elif policy == "summary":
            if not await _leave(core, session_id, cell, record, now_us):
                count.left += 1
                return
        else:
            await core.change(session_id, _unless_used(_expired))
        count.expired += 1
        tell(
            SessionExpired(
                store=core.store,
                operation="clean",
                thread_id=session_id,
                checkpoint_ns=None,
                user_id=record.user,
                policy=policy,
            )
        )
    except (SessionMissing, _Used):
        pass
    finally:
        await core.release(lease)


class _Used(Exception):
    """The session was used at the last moment."""


def _unless_used(become: Callable[[Record], Record]) -> Callable[[Record, int], Record]:
    """Return a plan that changes a record only if nobody used the session since it was found to have expired."""

    def plan(record: Record, now_us: int) -> Record:
        if record.dead_us is None or record.dead_us > now_us:
            raise _Used
        return become(record)

    return plan


def _expired(record: Record) -> Record:
    return replace(record, state=EXPIRED, device="")


async def _leave(core: Core, session_id: str, cell: Cell, record: Record, now_us: int) -> bool:
    """Keep what the policy makes of a session in its record, and remove its thread; say whether that was done."""
    if record.left is None:
        if core.settings.leave is None:
            return False
        try:
            found = await core.side.call("get_tuple", thread_config(session_id))
            values = {} if found is None else found.checkpoint["channel_values"]
            made = core.settings.leave(session_of(session_id, cell, now_us), values)
            left = checked_metadata(made, "what on_expiry returned")
        except Exception:
            _LOG.exception("on_expiry failed for session %s; it is asked again", session_id)
            return False
        # Before the thread goes, so that a crash between the two loses nothing.
        await core.change(session_id, _unless_used(lambda record: replace(record, left=left)))
    await core.drop_thread(session_id, record.user)
    await core.change(session_id, _unless_used(_expired))
    return True


class Cleaner:
    """Cleans up now and then, in a thread of its own.

    Args:
        work: What it does.
        every_s: Seconds between two times.
    """

    def __init__(self, work: Callable[[], object], every_s: float) -> None:
        self._work, self._every_s = work, every_s
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin without a thread: a parent's is not its child's."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread if there is none."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="statekit-clean-up", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the thread when its work is done."""
        with self._changed:
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                # Workers that were started together do not all clean up at the same time.
                self._changed.wait_for(lambda: self._thread is not me, self._every_s * RANDOM.uniform(0.5, 1.0))
                if self._thread is not me:
                    return
            try:
                self._work()
            except StatekitError as error:
                _LOG.warning("sessions were not cleaned up: %s", error)
            except Exception:
                _LOG.exception("sessions were not cleaned up")
