"""Turns: one client at a time goes on with a session, whatever the number of its devices."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import TracebackType
from typing import Final, Literal, Self, get_args

from langchain_core.runnables import RunnableConfig

from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.run import run_sync, until
from langgraph_statekit.errors import Conflict, Fenced, Misuse, SessionMissing, StatekitError
from langgraph_statekit.leases import Lease
from langgraph_statekit.sessions.core import Core, missing, require_going, require_open
from langgraph_statekit.sessions.facts import with_facts
from langgraph_statekit.sessions.records import ACTIVE, Record, Session, is_session_id

OnBusy = Literal["wait", "reject", "interrupt"]
_LOG: Final = logging.getLogger(__name__)
_Ticket = Future[None]


class Queues:
    """Who waits in this process for which session, in the order in which they came.

    Only the first of each session asks the store for its lease, so that many waiting clients cost no requests.
    """

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin without anybody."""
        self._lock = threading.Lock()
        self._lines: dict[str, deque[_Ticket]] = {}

    def enter(self, session_id: str) -> _Ticket:
        """Return a ticket, which is done when it is its turn."""
        ticket = _Ticket()
        with self._lock:
            line = self._lines.setdefault(session_id, deque())
            line.append(ticket)
            if line[0] is ticket:
                ticket.set_result(None)
        return ticket

    def leave(self, session_id: str, ticket: _Ticket) -> None:
        """Give a ticket back, used or not, and call the next one."""
        with self._lock:
            line = self._lines.get(session_id, deque())
            if ticket not in line:
                return  # of the process that forked
            line.remove(ticket)
            if not line:
                del self._lines[session_id]
            elif not line[0].done():
                with suppress(InvalidStateError):  # it gives up at this moment, and will leave
                    line[0].set_result(None)


class Turn:
    """The right to go on with a session until the `with` or `async with` block ends.

    Attributes:
        session: The session as it was when the turn began.
        config: Pass it to the graph: it names the thread and carries the token of the turn's lease.
    """

    session: Session
    config: RunnableConfig

    def __init__(
        self,
        cores: tuple[Core, Core],
        queues: Queues,
        session_id: str,
        user_id: str | None,
        agent: str | None,
        version: int | str | None,
        on_busy: OnBusy,
        wait_s: float,
        device: str,
    ) -> None:
        if on_busy not in get_args(OnBusy):
            raise Misuse(f"on_busy must be one of {', '.join(get_args(OnBusy))}, not {on_busy!r}")
        if not isinstance(device, str):
            raise Misuse(f"device must be a text, not {device!r}")
        self._sync, self._async = cores
        self._queues = queues
        self._session_id = session_id
        self._opened_as = user_id, agent, version
        self._on_busy, self._wait_s, self._device = on_busy, wait_s, device
        self._ticket: _Ticket | None = None
        self._lease: Lease | None = None

    @property
    def lost(self) -> bool:
        """Whether another client took the session over, as far as this process knows, or the turn is over."""
        return self._lease is None or self._lease.lost

    def check(self) -> None:
        """Return while the turn goes on, as far as this process knows: a loss shows within a third of `lease_s`.

        Raises:
            Fenced: Another client took the session over; stop.
        """
        if self._lease is None:
            raise Misuse("the turn has not begun, or is over: use it in its with block")
        self._lease.check()

    def __enter__(self) -> Self:
        return run_sync(self._begin(self._sync))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_sync(self._end(self._sync))

    async def __aenter__(self) -> Self:
        return await self._begin(self._async)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # In a thread, which goes on when the caller is cancelled once more.
        await self._async.io(self.__exit__, kind, error, trace)

    async def _begin(self, core: Core) -> Self:
        if self._lease is not None or self._ticket is not None:
            raise Misuse("a turn is used once: begin another one")
        give_up_s = time.monotonic() + self._wait_s
        steal = self._on_busy == "interrupt"
        if self._on_busy == "wait":
            if not is_session_id(self._session_id):
                raise missing()
            # Before anything is awaited: the order is that of the calls.
            self._ticket = self._queues.enter(self._session_id)
        try:
            await core.open(self._session_id, *self._opened_as)
            if self._ticket is not None and not self._ticket.done():
                await until(self._ticket, max(0.0, give_up_s - time.monotonic()), core.is_async)
            left_s = max(0.0, give_up_s - time.monotonic()) if self._on_busy == "wait" else 0.0
            try:
                self._lease = await core.lease(self._session_id, self._device, steal=steal, wait_s=left_s)
            except Conflict as error:
                raise _busy() from error

            def plan(record: Record, now_us: int) -> Record:
                require_open(record, now_us)
                if not steal and record.dead_us is not None and record.dead_us <= now_us:
                    return record.abandoned()  # its process died long ago: it has expired
                return core.settings.applied(record).used(state=ACTIVE, device=self._device)

            self.session = require_going(await core.change(self._session_id, plan, self._lease.token))
        except BaseException as error:
            await self._give_back(core)
            if isinstance(error, TimeoutError | Fenced):  # nobody gave way in time, or somebody took over at once
                raise _busy() from None
            raise
        self.config = {"configurable": {**self._lease.config["configurable"], "user_id": self.session.user_id}}
        return self

    async def _end(self, core: Core) -> None:
        lease = self._lease
        try:
            if lease is not None and not lease.lost:
                facts = await core.facts(self._session_id)

                def plan(record: Record, now_us: int) -> Record:
                    if record.state != ACTIVE:  # closed meanwhile
                        return with_facts(record, facts)
                    return with_facts(record.abandoned(), facts).used()

                await core.change(self._session_id, plan, lease.token)
        except (Fenced, SessionMissing):
            pass  # another client tells what becomes of it
        except StatekitError as error:  # what the turn did is saved, and its caller must not do it again
            _LOG.warning("what is told of session %s is out of date: %s", self._session_id, error)
        finally:
            await self._give_back(core)

    async def _give_back(self, core: Core) -> None:
        try:
            if self._lease is not None:
                await core.give_back(self._lease, self._session_id)
        finally:
            if self._ticket is not None:
                self._queues.leave(self._session_id, self._ticket)


async def touch(core: Core, session_id: str, user_id: str | None) -> Session:
    """Tell that a session is used; one that is marked as active may be left from a process that died."""
    session, lease = require_going(await core.get(session_id, user_id)), None
    facts = await core.facts(session_id)
    with suppress(Conflict):  # its turn is under way
        lease = await core.lease(session_id, "touch") if session.status == ACTIVE else None

    def plan(record: Record, now_us: int) -> Record:
        require_open(record, now_us)
        if lease is not None:
            record = record.abandoned()
        if record.ends_us is not None and record.ends_us <= now_us:
            return record  # its process died long ago: it has expired
        return with_facts(record, facts).used()

    try:
        return require_going(await core.change(session_id, plan, None if lease is None else lease.token))
    except Fenced:  # somebody took over at once
        return await touch(core, session_id, user_id)
    finally:
        if lease is not None:
            await core.give_back(lease, session_id)


def _busy() -> Conflict:
    return Conflict(
        "another client goes on with this session: wait longer (wait_s=...), try again later, or take it over"
        " (on_busy='interrupt')"
    )
