"""Operations on sessions, written once for sync and for async callers."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, TypeVarTuple

from langgraph_statekit.checkpoint.cells import Cell, CellChange, CellQuery, cell_ref
from langgraph_statekit.checkpoint.observed import store_of
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.dice import RANDOM
from langgraph_statekit.errors import Conflict, DataError, SessionEnded, SessionMissing, StatekitError
from langgraph_statekit.leases import Lease
from langgraph_statekit.sessions.facts import Facts, thread_config, waits
from langgraph_statekit.sessions.feed import Bell, hint_of
from langgraph_statekit.sessions.records import (
    CLOSED,
    DELETING,
    EXPIRED,
    IDLE,
    KIND,
    WAITING,
    Record,
    Session,
    checked_metadata,
    group,
    groups_of,
    is_session_id,
    new_session_id,
    pack,
    ref_of,
    require_listing,
    required_user,
    session_of,
    sources,
    unpack,
    version_of,
)
from langgraph_statekit.sessions.search import MessageSearch
from langgraph_statekit.sessions.settings import FIRST_AGENT, FIRST_VERSION, Settings

_LOG: Final = logging.getLogger(__name__)
T = TypeVar("T")
A = TypeVarTuple("A")

WARNED: Final = "session-warned"
PAGE: Final = 100
_ATTEMPTS: Final = 64

Place = tuple[int, str, str]
"""Where a listing goes on, see `Cell.place`."""
NEWEST: Final[Place] = (1 << 62, "", "")


class Core:
    """The operations; with `is_async` they call the async methods of the saver, else nothing here suspends.

    Args:
        saver: Where threads and sessions are stored.
        settings: Of the manager.
        changed: Called after each change that was made here.
        bell: The store's, to tell other processes of it; None: it has none.
        search: Where messages are indexed; None: nowhere.
        is_async: Whether the caller awaits.
    """

    def __init__(
        self,
        saver: StatekitSaver,
        settings: Settings,
        changed: Callable[[], None],
        bell: Bell | None,
        search: MessageSearch | None,
        is_async: bool,
    ) -> None:
        self.side = Side(saver, is_async)
        self.saver, self.settings, self.is_async = saver, settings, is_async
        self.cells = saver.async_cells if is_async else saver.cells
        self._changed, self._bell, self.search = changed, bell, search
        self.store = store_of(saver.backend)

    async def create(
        self,
        user_id: str,
        agent: str | None,
        version: int | str | None,
        instance: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Session:
        agent, line = self._line(agent, version)
        session_id = new_session_id(agent, line, instance)
        record = Record(
            user=required_user(user_id),
            agent=agent,
            version=line,
            metadata=checked_metadata({} if metadata is None else metadata),
            messages=0,
        )
        made = await self.add(session_id, self.settings.applied(record))
        if made is None:
            raise Conflict("there is a session of this instance already: leave the instance out, or open that one")
        return made

    async def add(self, session_id: str, record: Record, expect: int = 0, token: int | None = None) -> Session | None:
        """Store a record in place of that of this `rev`, and return its session; None if there is another."""
        done = await self.cells.change_cell(self._cell_change(session_id, record, expect, token))
        if not done.made or done.cell is None:
            return None
        await self.changed(session_id)
        return session_of(session_id, done.cell, done.now_us)

    def _line(self, agent: str | None, version: int | str | None) -> tuple[str, int]:
        """Return agent and version line to create or open: as told, else the manager's, else the first of all."""
        agent = self.settings.agent if agent is None else agent
        line = self.settings.version if version is None else version_of(version)
        return FIRST_AGENT if agent is None else agent, FIRST_VERSION if line is None else line

    async def read(self, session_id: str) -> tuple[Cell, int]:
        """Return the cell of a session, and the store's clock."""
        if not is_session_id(session_id):  # nothing that could be guessed is looked up
            raise missing()
        page = await self.cells.cells(CellQuery(kind=KIND, refs=[ref_of(session_id)]))
        if not page.cells:
            raise missing()
        return page.cells[0], page.now_us

    async def get(self, session_id: str, user_id: str | None) -> Session:
        cell, now_us = await self.read(session_id)
        self.require(unpack(cell), user_id)
        return session_of(session_id, cell, now_us)

    def require(self, record: Record, user_id: str | None) -> None:
        """Refuse the session of another user, and of another agent or version line than the manager's."""
        if record.hidden or user_id not in (None, record.user):
            raise missing()
        self._require_line(record, self.settings.agent, self.settings.version)

    def _require_line(self, found: Record | Session, agent: str | None, line: int | None) -> None:
        if agent not in (None, found.agent) or line not in (None, found.version):
            raise SessionMissing(
                f"this is a session of agent {found.agent!r}, version line {found.version}, not of"
                f" {agent or found.agent!r}, version line {found.version if line is None else line}: start a new one,"
                f" or open it in a graph of these by a manager of agent={found.agent!r}, version={found.version}"
            )

    async def open(self, session_id: str, user_id: str | None, agent: str | None, version: int | str | None) -> Session:
        """Return a session to go on with, of the agent and version line that `create` would give one."""
        wanted = self._line(agent, version)
        session = await self.get(session_id, user_id)
        self._require_line(session, *wanted)
        return require_going(session)

    async def change(
        self,
        session_id: str,
        plan: Callable[[Record, int], Record | None],
        token: int | None = None,
    ) -> Session:
        """Change a record as planned, as often as it takes; a plan that returns None changes nothing.

        What is planned for a session that lives is done only while it does: the store refuses it once it has expired.
        """
        cell, now_us = await self.read(session_id)
        for attempt in range(_ATTEMPTS):
            before = unpack(cell)
            record = plan(before, now_us)
            if record is None:
                return session_of(session_id, cell, now_us)
            change = self._cell_change(session_id, record, cell.rev, token)
            if before.dead_us is not None and before.dead_us > now_us:
                change = replace(change, deadline_us=before.dead_us)
            done = await self.cells.change_cell(change)
            if done.cell is None:
                raise missing()
            if done.made:
                await self.changed(session_id)
                return session_of(session_id, done.cell, done.now_us)
            cell, now_us = done.cell, done.now_us
            await self.cells.sleep(RANDOM.uniform(0, 0.002 * min(attempt + 1, 20)))
        raise Conflict("the session kept changing meanwhile; call again")

    def _cell_change(self, session_id: str, record: Record, expect: int, token: int | None) -> CellChange:
        return CellChange(
            ref=ref_of(session_id),
            value=pack(record),
            groups=groups_of(record),
            expect=expect,
            token=token,
            ttl_us=self._ttl_us(record),
        )

    def _ttl_us(self, record: Record) -> int | None:
        """How long the store keeps a record that nobody uses: for ever unless it removes the thread too."""
        alone = record.on_expiry == "delete" and record.ends_us is not None and self.saver._sync.ttl_us
        return 2 * record.idle_us + 60_000_000 if alone else None

    async def changed(self, session_id: str) -> None:
        """Tell those who watch a session that it was changed."""
        self._changed()
        if self._bell is not None:
            try:
                await self.io(self._bell.ring, hint_of(session_id))
            except StatekitError:  # the change was made, and who does not hear of it asks
                return

    async def update_metadata(
        self, session_id: str, metadata: Mapping[str, Any], user_id: str | None, replaces: bool
    ) -> Session:
        changes = checked_metadata(metadata)

        def plan(record: Record, now_us: int) -> Record:
            self.require(record, user_id)
            new = checked_metadata(changes if replaces else {**record.metadata, **changes})
            over = record.state in (CLOSED, EXPIRED) or (record.dead_us is not None and record.dead_us <= now_us)
            return replace(record, metadata=new) if over else record.used(metadata=new)

        return await self.change(session_id, plan)

    async def close(self, session_id: str, user_id: str | None) -> Session:
        def plan(record: Record, now_us: int) -> Record | None:
            self.require(record, user_id)
            over = record.status(now_us) in (CLOSED, EXPIRED)
            return None if over else replace(record, state=CLOSED, device="")

        return await self.change(session_id, plan)

    async def delete(self, session_id: str, user_id: str | None) -> None:
        try:
            cell, _ = await self.read(session_id)
        except SessionMissing:
            return
        if not (record := unpack(cell)).hidden:
            self.require(record, user_id)
        elif user_id not in (None, record.user):
            raise missing()
        await self.remove(session_id)

    async def remove(self, session_id: str, still: Callable[[Record], bool] = lambda _: True) -> bool:
        """Remove a session with its thread, if that is still wanted; whoever has a turn can write no more."""

        def plan(record: Record, now_us: int) -> Record | None:
            if not still(record):
                raise missing()
            return None if record.state == DELETING else record.doomed()  # or somebody died over it

        user = None
        try:
            user = (await self.change(session_id, plan)).user_id
        except SessionMissing:
            return False
        except DataError:  # nobody can go on with what cannot be read
            pass
        # Marked first: a turn looks at the mark after it has the lease, and who had the lease before is fenced off.
        lease = await self.lease(session_id, "deletion", steal=True)
        try:
            await self.drop_thread(session_id, user)
        finally:
            await self.release(lease)
        for ref in (cell_ref(WARNED, KIND, session_id), ref_of(session_id)):
            await self.cells.change_cell(CellChange(ref=ref, value=None))
        await self.changed(session_id)
        return True

    async def drop_thread(self, session_id: str, user: str | None) -> None:
        """Remove the thread of a session, and what is indexed of it."""
        await self.side.call("delete_thread", session_id)
        if self.search is not None and user is not None:
            await self.search.drop(user, session_id, self.is_async)

    async def lease(self, session_id: str, owner: str, *, steal: bool = False, wait_s: float = 0.0) -> Lease:
        """Return the lease of a session's thread."""
        lease: Lease = await self.side.call(
            "lease", session_id, owner or None, ttl_s=self.settings.lease_s, steal=steal, wait_s=wait_s
        )
        return lease

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        if self.is_async:
            await lease.arelease()
        else:
            lease.release()

    async def give_back(self, lease: Lease, session_id: str) -> None:
        """Release a lease after what it was for is done: that stays done if the store does not answer."""
        try:
            await self.release(lease)
        except StatekitError as error:
            _LOG.warning("the lease of session %s ends by itself: %s", session_id, error)

    async def io(self, verb: Callable[[*A], T], *args: *A) -> T:
        """Return what a blocking call returns."""
        return await self.saver._threads.io(verb, *args) if self.is_async else verb(*args)

    async def facts(self, session_id: str) -> Facts:
        """Return what a thread tells of itself; what cannot be read is not known."""
        try:
            found = await self.side.call("get_tuple", thread_config(session_id))
        except DataError:
            return Facts()
        usage = await self.io(self.saver.backend.usage, to_text(session_id))
        if found is None:
            return Facts(0, usage.size_bytes, False)
        messages = found.checkpoint["channel_values"].get(self.settings.messages_key)
        known = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
        return Facts(len(messages) if known else None, usage.size_bytes, waits(found.pending_writes or ()))

    async def list(
        self,
        user_id: str | None,
        agent: str | None,
        status: str | None,
        before: Session | str | None,
        limit: int,
    ) -> Sequence[Session]:
        require_listing(agent, status, before)
        if isinstance(before, str):
            before = await self.get(before, user_id)
        own = self.settings.agent
        agent = own if agent is None else agent
        before_all = None if before is None else (before.rev, *ref_of(before.session_id)[1:])
        listings = [(name, before_all) for name in sources(user_id, agent, status)]
        if status == EXPIRED and user_id is None and agent is not None and agent == own:
            page = await self.cells.cells(CellQuery(kind=KIND, refs=()))
            listings[1:] = [
                (name, min(before_all or NEWEST, (page.now_us - self.settings.idle_us, "", "")))
                for name, _ in listings[1:]
            ]
        gone = group(state=DELETING)
        filtered = bool(user_id is not None and (agent or status)) or status in (IDLE, WAITING, EXPIRED)
        found: list[Session] = []
        async for cell, now_us in self.merged(listings, PAGE if filtered else min(limit, PAGE)):
            session = session_of(from_text(cell.ref.thread), cell, now_us)
            if (
                gone not in cell.groups
                and user_id in (None, session.user_id)
                and agent in (None, session.agent)
                and status in (None, session.status)
                and self.settings.version in (None, session.version)
            ):
                found.append(session)
                if len(found) >= limit:
                    break
        return found

    async def merged(
        self, wanted: Sequence[tuple[str | None, Place | None]], size: int = PAGE
    ) -> AsyncGenerator[tuple[Cell, int]]:
        """Yield the cells of some groups, each from a place on, newest first, each once, and the store's clock."""
        listings = [self._listed(name, before, size) for name, before in wanted]
        heads = [(head, listing) for listing in listings if (head := await anext(listing, None)) is not None]
        seen: set[str] = set()
        while heads:
            at = max(range(len(heads)), key=lambda n: heads[n][0][0].place)
            head, listing = heads[at]
            if head[0].ref.thread not in seen:
                seen.add(head[0].ref.thread)
                yield head
            following = await anext(listing, None)
            heads[at : at + 1] = [] if following is None else [(following, listing)]

    async def _listed(self, name: str | None, before: Place | None, size: int) -> AsyncGenerator[tuple[Cell, int]]:
        while True:
            page = await self.cells.cells(CellQuery(kind=KIND, group=name, before=before, limit=size))
            for cell in page.cells:
                yield cell, page.now_us
            if len(page.cells) < size:
                return
            before = page.cells[-1].place


def require_going(session: Session) -> Session:
    """Return a session that has not ended; raise for one that has."""
    if session.ended:
        raise ended(session.status)
    return session


def require_open(record: Record, now_us: int) -> None:
    """Raise for a record that nobody can go on with."""
    if record.hidden:
        raise missing()
    if (status := record.status(now_us)) in (CLOSED, EXPIRED):
        raise ended(status)


def missing() -> SessionMissing:
    """Return the error of what is not there for this caller."""
    return SessionMissing("there is no such session for this user: start a new one")


def ended(status: str) -> SessionEnded:
    """Return the error of a session that is over."""
    return SessionEnded(f"the session is {status}: it can be read, but not gone on with; start a new one")
