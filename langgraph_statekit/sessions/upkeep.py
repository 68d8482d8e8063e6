"""What a SessionManager is made of, but for the operations on one session; and what looks after many."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Final, Self

from langgraph_statekit.checkpoint.options import require_numbers, require_texts
from langgraph_statekit.checkpoint.run import aside, run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse, SessionMissing
from langgraph_statekit.events import Hook, Hooks
from langgraph_statekit.sessions.core import Core
from langgraph_statekit.sessions.expiry import Cleaned, Cleaner, clean
from langgraph_statekit.sessions.facts import thread_config
from langgraph_statekit.sessions.feed import Feed, bell_of, changes
from langgraph_statekit.sessions.importing import load
from langgraph_statekit.sessions.memories import Memories
from langgraph_statekit.sessions.moving import Erased, Exported, Target, erase, export_one, export_user
from langgraph_statekit.sessions.records import Session, session_of, version_of
from langgraph_statekit.sessions.search import FoundMessage, MessageSearch
from langgraph_statekit.sessions.settings import Leave, Settings
from langgraph_statekit.sessions.turns import Queues

_LEAST_S: Final = 0.05
_POLICIES: Final = ("keep", "delete")


class Upkeep:
    """The parts of `SessionManager`, which documents the arguments."""

    def __init__(
        self,
        saver: StatekitSaver,
        *,
        agent: str | None = None,
        version: int | str | None = None,
        idle_s: float = 1800.0,
        warn_s: float = 120.0,
        on_expiry: str | Leave = "keep",
        expire_waiting: bool = False,
        delete_after_s: float | None = None,
        messages_key: str = "messages",
        lease_s: float = 30.0,
        poll_s: float = 1.0,
        clean_every_s: float = 60.0,
        hooks: Sequence[Hook] = (),
        memories: Memories | None = None,
        search: MessageSearch | None = None,
    ) -> None:
        if not isinstance(saver, StatekitSaver):
            raise Misuse(f"sessions need a saver of this package, see open_saver, not {type(saver).__name__}")
        require_numbers(float, _LEAST_S, idle_s=idle_s, lease_s=lease_s, poll_s=poll_s, clean_every_s=clean_every_s)
        require_numbers(
            float, 0, warn_s=warn_s, **({} if delete_after_s is None else {"delete_after_s": delete_after_s})
        )
        require_texts(messages_key=messages_key, **({} if agent is None else {"agent": agent}))
        if iscoroutinefunction(on_expiry) or (not callable(on_expiry) and on_expiry not in _POLICIES):
            raise Misuse(f"on_expiry must be 'keep', 'delete' or a function that is not async, not {on_expiry!r}")
        if not isinstance(expire_waiting, bool):
            raise Misuse(f"the option expire_waiting must be True or False, not {expire_waiting!r}")
        settings = Settings(
            agent=agent,
            version=None if version is None else version_of(version),
            idle_us=int(idle_s * 1e6),
            warn_us=min(int(warn_s * 1e6), int(idle_s * 1e6)),
            on_expiry="summary" if callable(on_expiry) else on_expiry,
            leave=on_expiry if callable(on_expiry) else None,
            expire_waiting=expire_waiting,
            delete_after_us=None if delete_after_s is None else int(delete_after_s * 1e6),
            messages_key=messages_key,
            lease_s=lease_s,
        )
        if not isinstance(memories, Memories | None):
            raise Misuse(f"memories must be Memories(store), not {type(memories).__name__}")
        if not isinstance(search, MessageSearch | None):
            raise Misuse(f"search must be MessageSearch(store), not {type(search).__name__}")
        self.saver, self.memories = saver, memories
        bell = bell_of(saver.backend)
        self._feed = Feed(saver.backend, poll_s, bell)
        self._queues = Queues()
        self._sync = Core(saver, settings, self._feed.wake, bell, search, False)
        self._async = Core(saver, settings, self._feed.wake, bell, search, True)
        self._tell, self._warns = Hooks(hooks), bool(hooks)
        self._cleaner = Cleaner(self.clean, clean_every_s)

    def watch(
        self, session_id: str, user_id: str | None = None, *, since: int | None = None, wait_s: float | None = None
    ) -> Iterator[Session]:
        """Yield the session whenever it changed, until it is deleted or `stop` is called.

        Of changes that follow each other at once only the last one may be told. Expiry is told when it is cleaned up.

        Args:
            session_id: The session.
            user_id: Whose it must be; None: whoever's.
            since: The `rev` of what the caller has; None: the session as it is now is told first.
            wait_s: Seconds without a change after which it ends; None: never.

        Raises:
            SessionMissing: There is no such session.
            Unavailable: The store did not answer at first; watch again. Later faults are waited out.
        """
        listed = self._watch(self._sync, session_id, user_id, since, wait_s)
        try:
            while True:
                try:
                    session = run_sync(listed.__anext__())
                except StopAsyncIteration:
                    return
                yield session
        finally:
            run_sync(listed.aclose())

    async def awatch(
        self, session_id: str, user_id: str | None = None, *, since: int | None = None, wait_s: float | None = None
    ) -> AsyncIterator[Session]:
        """Async version of `watch`; cancel its task to end it."""
        async with aclosing(self._watch(self._async, session_id, user_id, since, wait_s)) as listed:
            async for session in listed:
                yield session

    async def _watch(
        self, core: Core, session_id: str, user_id: str | None, since: int | None, wait_s: float | None
    ) -> AsyncGenerator[Session]:
        if wait_s is not None:
            require_numbers(float, 0, wait_s=wait_s)
        session = await core.get(session_id, user_id)
        if session.rev != since:
            yield session
        async with aclosing(changes(self._feed, session_id, session.rev, wait_s, core.is_async)) as listed:
            async for cell, now_us in listed:
                yield session_of(session_id, cell, now_us)

    def clean(self) -> Cleaned:
        """Warn of sessions that will expire soon, end those that nobody used for too long, and remove old ones.

        Only a manager with hooks warns. Harmless in many processes at once: each session is warned of and ended once. A
        session that has a turn, however long it takes, does not expire. What is read is one index of open sessions.

        Raises:
            Unavailable: The store did not answer; call again.
        """
        return run_sync(clean(self._sync, self._tell, warns=self._warns))

    async def aclean(self) -> Cleaned:
        """Async version of `clean`."""
        return await clean(self._async, self._tell, warns=self._warns)

    def export_session(self, session_id: str, target: Target, user_id: str | None = None) -> Exported:
        """Write a session with its whole thread to a file, which is there whole or not at all.

        The file tells what it is, has a checksum, holds everything in plain, and can be imported to any store. It is
        compared with the thread before it is done, and holds one thread in memory meanwhile.

        Args:
            session_id: The session.
            target: A path, or a file that is open for writing bytes.
            user_id: Whose it must be; None: whoever's.

        Raises:
            SessionMissing: There is no such session of this user, agent and version line.
            Conflict: Somebody went on with it meanwhile; call again, or in a `turn`.
            DataError: Something of it cannot be read, or retention removed what its latest checkpoints build on.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(export_one(self._sync, target, session_id, user_id))

    async def aexport_session(self, session_id: str, target: Target, user_id: str | None = None) -> Exported:
        """Async version of `export_session`."""
        return await export_one(self._async, target, session_id, user_id)

    def export_user(self, user_id: str, target: Target) -> Exported:
        """Write all sessions and memories of a user, of all agents, to one file; otherwise as `export_session`."""
        return run_sync(export_user(self._sync, self.memories, target, user_id))

    async def aexport_user(self, user_id: str, target: Target) -> Exported:
        """Async version of `export_user`."""
        return await export_user(self._async, self.memories, target, user_id)

    def import_sessions(self, source: Target, *, as_new: bool = False) -> Sequence[Session]:
        """Store the sessions and memories of a file, and return the sessions; import counts as use.

        Each thread is compared with the file before any of its sessions can be opened. After a crash or `Unavailable`
        import again; until then `erase_user` finds what is there already. The whole file is in memory meanwhile.

        Args:
            source: A path, or a file that is open for reading bytes.
            as_new: Give each session a new id, as if it had been copied.

        Raises:
            Misuse: It is no file of `export_session` or `export_user`.
            Corrupt: It was cut off or altered, or holds what no session can be; nothing was stored.
            Conflict: One of its sessions is there already, and nothing was stored; or somebody deleted or imported one
                meanwhile.
            SchemaTooNew: A later release wrote it.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(load(self._sync, self.memories, source, as_new))

    async def aimport_sessions(self, source: Target, *, as_new: bool = False) -> Sequence[Session]:
        """Async version of `import_sessions`."""
        return await load(self._async, self.memories, source, as_new)

    def index_messages(self, session_id: str) -> int:
        """Have the messages of a session found by `search_messages`, and return how many are new; call it again later.

        Deletion, `erase_user`, and expiry that removes the thread take them out again.

        Raises:
            SessionMissing: There is no such session.
            Misuse: The manager has no `search`.
        """
        return run_sync(self._indexed(self._sync, session_id))

    async def aindex_messages(self, session_id: str) -> int:
        """Async version of `index_messages`."""
        return await self._indexed(self._async, session_id)

    def search_messages(self, query: str, user_id: str | None = None, *, limit: int = 10) -> Sequence[FoundMessage]:
        """Return the indexed messages that are nearest to a text, the nearest first.

        Args:
            query: What to look for.
            user_id: Only in this user's; None: in all, which is for auditors.
            limit: So many at most.

        Raises:
            Misuse: The manager has no `search`.
        """
        return run_sync(self._found(self._sync, query, user_id, limit))

    async def asearch_messages(
        self, query: str, user_id: str | None = None, *, limit: int = 10
    ) -> Sequence[FoundMessage]:
        """Async version of `search_messages`."""
        return await self._found(self._async, query, user_id, limit)

    async def _indexed(self, core: Core, session_id: str) -> int:
        search, session = _required(core.search), await core.get(session_id, None)
        found = await core.side.call("get_tuple", thread_config(session_id))
        messages = [] if found is None else found.checkpoint["channel_values"].get(core.settings.messages_key) or []
        added = await search.add(session.user_id, session_id, messages, core.is_async)
        try:
            await core.get(session_id, None)
        except SessionMissing:  # it was deleted meanwhile
            await search.drop(session.user_id, session_id, core.is_async)
            raise
        return added

    async def _found(self, core: Core, query: str, user_id: str | None, limit: int) -> Sequence[FoundMessage]:
        require_numbers(int, 1, limit=limit)
        return await _required(core.search).find(query, user_id, limit, core.is_async)

    def erase_user(self, user_id: str) -> Erased:
        """Remove all sessions and memories of a user, of all agents, and return what was removed and what is left.

        With the threads go their checkpoints in every tier, and their data keys if the saver encrypts. Turns under way
        can save nothing more. Not reached: exported files, backups and logs of the store, other tenants.

        Raises:
            Unavailable: The store did not answer; call again until it returns.
        """
        return run_sync(erase(self._sync, self.memories, user_id))

    async def aerase_user(self, user_id: str) -> Erased:
        """Async version of `erase_user`."""
        return await erase(self._async, self.memories, user_id)

    def stop(self) -> None:
        """End the clean-ups and all watching; sessions and the saver stay as they are."""
        self._cleaner.close()
        self._feed.close()

    def __enter__(self) -> Self:
        self._cleaner.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._cleaner.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await aside(self.stop)


def _required(search: MessageSearch | None) -> MessageSearch:
    if search is None:
        raise Misuse("the manager has no search: make it with search=MessageSearch(store)")
    return search
