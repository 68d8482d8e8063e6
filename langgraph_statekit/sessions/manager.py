"""SessionManager: users' conversations over the threads of a saver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.sessions.facts import session_config
from langgraph_statekit.sessions.records import Session
from langgraph_statekit.sessions.turns import OnBusy, Turn, touch
from langgraph_statekit.sessions.upkeep import Upkeep


class SessionManager(Upkeep):
    """Makes, finds and ends sessions, and lets one client at a time go on with each; sync and async on one object.

    A session is a record beside its thread, whose id is the session's. All times are by the store's clock. Every method
    has an async version with an `a` before its name. In a `with` or `async with` block a thread of its own cleans up
    expired sessions; without one call `clean` yourself, or `statekit prune --expired`.

    Args:
        saver: Where threads and sessions are stored; of a saver with `tenant=` only that tenant's sessions are seen.
        agent: Name of the agent whose sessions these are: others are neither opened nor listed. None: those of all are
            listed and read, and `create`, `config` and `turn` mean `support` unless they are told another.
        version: Its version line, 1 or `"1"`; None: likewise, and 1 where it is not told.
        idle_s: Seconds without use after which a session expires. Sessions keep what their last turn said.
        warn_s: Seconds before that at which the event `SessionExpires` is told by whoever cleans up.
        on_expiry: What an expired session leaves. `"keep"`: everything, to be read. `"delete"`: nothing. A function
            of the session and the values of its latest checkpoint, not async: what it returns, as `Session.left`, such
            as a summary; the thread goes. Memories are the user's and stay in any case.
        expire_waiting: Let sessions expire that wait for an answer to an interrupt, too.
        delete_after_s: Seconds after which closed and expired sessions are removed; None: never.
        messages_key: The channel whose messages are counted.
        lease_s: Seconds after which others can go on with a session whose process died.
        poll_s: Seconds between two looks at sessions that are watched. Changes made by this object are told at once.
        clean_every_s: Seconds between two clean-ups in a `with` block.
        hooks: Told of `SessionExpires` and `SessionExpired`, see `langgraph_statekit.events`.
        memories: What users asked to be remembered: exported and erased with them. None: there is none.
        search: Where `index_messages` puts messages; None: nowhere.

    Raises:
        Misuse: The saver is none of this package's, or an option is none of this.
    """

    def create(
        self,
        user_id: str,
        agent: str | None = None,
        version: int | str | None = None,
        instance: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Return a new session of a user: its id is `support_v1_` and a random UUID, which nobody can guess.

        Args:
            user_id: Whose it is: any text that is not empty.
            agent: Name of the agent; None for the manager's, or `support` if that has none.
            version: Its version line; None for the manager's, or 1 if that has none.
            instance: A random UUID (version 4) as text, which makes a repeated call harmless; None for a new one.
            metadata: A mapping of names to JSON values, of at most 64 KiB.

        Raises:
            Misuse: One of them is none of this, or the instance could be guessed.
            Conflict: There is a session of this instance; open it.
            Unavailable: The store did not answer; call again with the same `instance`.
        """
        return run_sync(self._sync.create(user_id, agent, version, instance, metadata))

    async def acreate(
        self,
        user_id: str,
        agent: str | None = None,
        version: int | str | None = None,
        instance: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Async version of `create`."""
        return await self._async.create(user_id, agent, version, instance, metadata)

    def get(self, session_id: str, user_id: str | None = None) -> Session:
        """Return a session as it is now, also one that has ended; this does not count as use.

        Args:
            session_id: As it came from the client: no id that could be guessed is looked up.
            user_id: Whose it must be; None: whoever's. Pass it wherever the id comes from outside.

        Raises:
            SessionMissing: There is no such session of this user, and of this agent and version line.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._sync.get(session_id, user_id))

    async def aget(self, session_id: str, user_id: str | None = None) -> Session:
        """Async version of `get`."""
        return await self._async.get(session_id, user_id)

    def config(
        self,
        session_id: str,
        user_id: str | None = None,
        *,
        agent: str | None = None,
        version: int | str | None = None,
    ) -> RunnableConfig:
        """Return the config of a session's thread, to read its state or history; to go on with it, use `turn`.

        Nothing keeps two clients apart that run a graph with it at the same time.

        Args:
            session_id: The session.
            user_id: Whose it must be; None: whoever's.
            agent: Which agent's it must be; None for the manager's, or `support` if that has none.
            version: Of which version line; None for the manager's, or 1 if that has none.

        Raises:
            SessionMissing: There is no such session of this user, agent and version line.
            SessionEnded: It is closed or has expired.
            Misuse: The version is no whole number.
            Unavailable: The store did not answer; call again.
        """
        return session_config(run_sync(self._sync.open(session_id, user_id, agent, version)))

    async def aconfig(
        self,
        session_id: str,
        user_id: str | None = None,
        *,
        agent: str | None = None,
        version: int | str | None = None,
    ) -> RunnableConfig:
        """Async version of `config`."""
        return session_config(await self._async.open(session_id, user_id, agent, version))

    def turn(
        self,
        session_id: str,
        user_id: str | None = None,
        *,
        agent: str | None = None,
        version: int | str | None = None,
        on_busy: OnBusy = "wait",
        wait_s: float = 60.0,
        device: str = "",
    ) -> Turn:
        """Return a turn: in its `with` or `async with` block no other client can write to the session.

        `graph.invoke(message, turn.config)` in the block. Turns hold a lease: what an earlier holder still saves is
        refused with `Fenced`. At the end the session is told as used, with its messages and size. To enter raises:

        SessionMissing, SessionEnded, Misuse: As in `config`.
        Conflict: Another client has the turn.
        Unavailable: The store did not answer; try again.

        Args:
            session_id: The session.
            user_id: Whose it must be; None: whoever's.
            agent: Which agent's it must be; None for the manager's, or `support` if that has none.
            version: Of which version line; None for the manager's, or 1 if that has none.
            on_busy: If another client has the turn: `"wait"` for it, in this process in the order of the calls;
                `"reject"` this one with `Conflict`; `"interrupt"` that one: it can save nothing more, what it has saved
                stays, and this one goes on from there.
            wait_s: Seconds to wait at most.
            device: What the other clients are told of this one, in `Session.device`.
        """
        require_numbers(float, 0, wait_s=wait_s)
        return Turn(
            (self._sync, self._async), self._queues, session_id, user_id, agent, version, on_busy, wait_s, device
        )

    def touch(self, session_id: str, user_id: str | None = None) -> Session:
        """Tell that a session is used, look at its thread, and return it; for graphs that run without `turn`.

        If the process that had the turn died, this has the turn for a moment: `on_busy="reject"` is refused meanwhile.

        Raises:
            SessionMissing, SessionEnded: As in `config`.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(touch(self._sync, session_id, user_id))

    async def atouch(self, session_id: str, user_id: str | None = None) -> Session:
        """Async version of `touch`."""
        return await touch(self._async, session_id, user_id)

    def list(
        self,
        *,
        user_id: str | None = None,
        agent: str | None = None,
        status: str | None = None,
        before: Session | str | None = None,
        limit: int = 50,
    ) -> Sequence[Session]:
        """Return a page of sessions, the one that changed last first, by an index of the store.

        Args:
            user_id: Only this user's; None: of all.
            agent: Only this agent's; None for the manager's, or of all.
            status: Only those that are `active`, `idle`, `waiting`, `closed` or `expired` now; None: all.
            before: The last session of the page before, or its id; None: from the first. One that changes between two
                pages moves to the front, and its id with it.
            limit: So many at most.

        Raises:
            SessionMissing: There is no session of the id `before`.
            Misuse: There is no such status, or the limit is no number of at least 1.
            Unavailable: The store did not answer; call again.
        """
        require_numbers(int, 1, limit=limit)
        return run_sync(self._sync.list(user_id, agent, status, before, limit))

    async def alist(
        self,
        *,
        user_id: str | None = None,
        agent: str | None = None,
        status: str | None = None,
        before: Session | str | None = None,
        limit: int = 50,
    ) -> Sequence[Session]:
        """Async version of `list`."""
        require_numbers(int, 1, limit=limit)
        return await self._async.list(user_id, agent, status, before, limit)

    def update_metadata(
        self, session_id: str, metadata: Mapping[str, Any], user_id: str | None = None, *, replace: bool = False
    ) -> Session:
        """Change metadata and return the session; names that are not given stay, also those that others change now.

        Counts as use, but brings no session back that has ended.

        Args:
            session_id: The session.
            metadata: Names and new JSON values.
            user_id: Whose it must be; None: whoever's.
            replace: Remove the names that are not given.

        Raises:
            SessionMissing: There is no such session of this user, agent and version line.
            Misuse: The metadata is none, or more than 64 KiB.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._sync.update_metadata(session_id, metadata, user_id, replace))

    async def aupdate_metadata(
        self, session_id: str, metadata: Mapping[str, Any], user_id: str | None = None, *, replace: bool = False
    ) -> Session:
        """Async version of `update_metadata`."""
        return await self._async.update_metadata(session_id, metadata, user_id, replace)

    def close(self, session_id: str, user_id: str | None = None) -> Session:
        """End a session, and return it: it can be read, and no further turn begins; one under way goes on.

        Raises:
            SessionMissing: There is no such session of this user, agent and version line.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._sync.close(session_id, user_id))

    async def aclose(self, session_id: str, user_id: str | None = None) -> Session:
        """Async version of `close`."""
        return await self._async.close(session_id, user_id)

    def delete(self, session_id: str, user_id: str | None = None) -> None:
        """Remove a session with its thread; no error if there is none. A turn under way can save nothing more.

        Raises:
            SessionMissing: It is another user's, agent's or version line's.
            Unavailable: The store did not answer; call again. `clean` finishes what was begun, too.
        """
        run_sync(self._sync.delete(session_id, user_id))

    async def adelete(self, session_id: str, user_id: str | None = None) -> None:
        """Async version of `delete`."""
        await self._async.delete(session_id, user_id)
