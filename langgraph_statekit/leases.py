"""Leases: one worker at a time goes on with a thread, and whoever lost it cannot write to it any more."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Protocol, Self

from langchain_core.runnables import RunnableConfig

from langgraph_statekit.checkpoint.claims import DRAIN, TOKEN_KEY, About, Claim, Held
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.errors import Fenced, StatekitError

_LOG: Final = logging.getLogger(__name__)
_POLL_S: Final = 0.25
_LEAST_TTL_S: Final = 0.05
_RENEWALS: Final = 3
"""Renewals in the time that a lease lasts."""
_MOST_ITEM: Final = 200


class Store(Protocol):
    """What decides claims."""

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        """See `Backend.claim`."""

    def close(self) -> None:
        """See `Backend.close`."""


class Lease:
    """The right to write to a thread, renewed in the background until it is released or lost.

    Pass `config` to `invoke`, `update_state` and the like. A save under a lease that another worker took since, or
    whose thread was deleted, raises `Fenced` and changes nothing, however late it arrives. Give it back with `with`,
    `async with`, `release` or `arelease`; closing the saver gives back all of its leases.

    Attributes:
        thread_id: The thread.
        owner: What other workers are told of the holder.
        token: The fencing token; a later lease of the thread has a higher one.
        ttl_s: Seconds for which the lease outlives its holder.
        control: Why others ask the holder to stop after the running step and to release the lease, in a word, such as
            `drain` or `stuck`; known since the last renewal. Empty: nobody asks.
    """

    def __init__(
        self,
        keeper: Keeper,
        claim: Claim,
        token: int,
        confirmed_s: float,
        on_lost: OnLease | None = None,
        on_control: OnLease | None = None,
    ) -> None:
        self.thread_id = from_text(claim.thread)
        self.owner = from_text(claim.owner)
        self.token = token
        self.ttl_s = claim.ttl_us / 1e6
        self.control = ""
        self._keeper = keeper
        self._claim = claim
        self._confirmed_s = self._progress_s = confirmed_s
        self._about = About.unpacked(claim.about)
        self._on_lost, self._on_control = on_lost, on_control
        self._ended = ""
        keeper.add(self)

    @property
    def config(self) -> RunnableConfig:
        """The config that names the thread and carries the token."""
        return {"configurable": {"thread_id": self.thread_id, TOKEN_KEY: self.token}}

    @property
    def lost(self) -> bool:
        """Whether the lease is over, or could not be renewed in time and must be taken as over."""
        return bool(self._ended) or time.monotonic() >= self._confirmed_s + self.ttl_s

    def check(self) -> None:
        """Return while the lease runs; call it before each effect on the world outside.

        Raises:
            Fenced: The lease is over; stop working on the thread.
        """
        if self.lost:
            why = self._ended or "could not be renewed in time"
            raise Fenced(f"the lease of thread {self.thread_id!r} {why}; stop working on it")

    def progress(self, item: object = None) -> None:
        """Note that the work goes on, as each save under the lease does too; it is told with the next renewal.

        Args:
            item: What the work is at now, which supervisors show and count by; cut off after 200 characters. None: as
                before.
        """
        self._progress_s = time.monotonic()
        if item is not None and self._keeper.tells_items:
            self._about = self._about._replace(item=str(item)[:_MOST_ITEM])

    def release(self) -> None:
        """Give the lease back, so that another worker need not wait; harmless when repeated or lost.

        Raises:
            Unavailable: The store did not answer; the lease ends by itself.
        """
        if self.end_here():
            self._keeper.release(self)

    async def arelease(self) -> None:
        """Async version of `release`."""
        if self.end_here():
            await self._keeper.aside(lambda: self._keeper.release(self))

    def hand_over(self, why: str = DRAIN) -> None:
        """Give the lease back unfinished, so that a `Supervisor` goes on with the thread at once.

        Args:
            why: In a word; supervisors count by it.

        Raises:
            Unavailable: The store did not answer; the lease ends by itself, and supervisors go on then.
        """
        if self.end_here():
            self._keeper.hand_over(self, why)

    async def ahand_over(self, why: str = DRAIN) -> None:
        """Async version of `hand_over`."""
        if self.end_here():
            await self._keeper.aside(lambda: self._keeper.hand_over(self, why))

    def renewal(self, ttl_us: int | None = None) -> Claim:
        """Return the claim that renews the lease, or gives it back with `ttl_us` 0."""
        ttl_us = self._claim.ttl_us if ttl_us is None else ttl_us
        idle_us = int(max(0.0, time.monotonic() - self._progress_s) * 1e6)
        return replace(
            self._claim,
            ttl_us=ttl_us,
            token=self.token,
            about=to_text(self._about.packed()),
            idle_us=idle_us,
        )

    def due_s(self) -> float:
        """Return the monotonic time at which the lease is to be renewed."""
        return self._confirmed_s + self.ttl_s / _RENEWALS

    def confirm(self, held: Held | None, asked_s: float) -> None:
        """Take note of the store's answer to a renewal that was asked for at this monotonic time."""
        if held is not None and held.token == self.token:
            self._confirmed_s = asked_s
            if held.control != self.control:
                self.control = held.control
                self._tell(self._on_control)
        else:
            self.lose(f"was taken over by {from_text(held.owner)!r}" if held else "ended, as its thread was deleted")

    def lose(self, why: str) -> None:
        """Take note that the lease is over, and tell who asked to be told."""
        if self._end(why):
            self._tell(self._on_lost)
            self._tell(self._keeper.on_lost)

    def _tell(self, told: OnLease | None) -> None:
        try:
            if told is not None:
                told(self)
        except Exception:
            _LOG.exception("what is told of the lease of thread %r failed", self.thread_id)

    @property
    def ended(self) -> bool:
        """Whether it is known to be over."""
        return bool(self._ended)

    def disown(self) -> None:
        """Take note that this process is the child of the one that holds the lease."""
        self._ended = self._ended or "belongs to the process that forked"

    def end_here(self) -> bool:
        """Say whether the lease ran until now and is to be given back."""
        return self._end("was released")

    def _end(self, why: str) -> bool:
        first, self._ended = not self._ended, self._ended or why
        self._keeper.forget(self)
        return first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.arelease()


OnLease = Callable[[Lease], None]


class Keeper:
    """Renews all leases of a saver in one request, from a thread and a connection of its own.

    Args:
        connect: Opens the store for the keeper alone.
        aside: Runs a blocking call without blocking an event loop, also when its caller is cancelled.
        on_lost: Told of each lease that was lost.
        tells_items: Whether the store may see what leases are at.
    """

    def __init__(
        self,
        connect: Callable[[], Store],
        aside: Callable[[Callable[[], None]], Awaitable[None]],
        on_lost: OnLease | None = None,
        *,
        tells_items: bool = True,
    ) -> None:
        self.tells_items = tells_items
        self._connect = connect
        self.aside = aside
        self.on_lost = on_lost
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin without leases: those of a parent process are not its child's."""
        for lease in getattr(self, "_leases", {}).values():
            lease.disown()
        self._changed = threading.Condition()
        self._sending = threading.Lock()  # a renewal under way must not follow the release of its lease
        self._leases: dict[tuple[str, int], Lease] = {}
        self._not_before_s = 0.0
        self._store: Store | None = None
        self._thread: threading.Thread | None = None

    def add(self, lease: Lease) -> None:
        """Renew a lease from now on."""
        with self._changed:
            self._leases[to_text(lease.thread_id), lease.token] = lease
            self._not_before_s = 0.0
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="statekit-leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, lease: Lease) -> None:
        """Renew a lease no more."""
        with self._changed:
            self._leases.pop((to_text(lease.thread_id), lease.token), None)
            self._changed.notify()

    def progressed(self, thread: str, token: int) -> None:
        """Note that a save was made under the lease with this token."""
        lease = self._leases.get((thread, token))
        if lease is not None:
            lease.progress()

    def release(self, *leases: Lease) -> None:
        """Give leases back to the store."""
        with self._sending:
            self._claim([lease.renewal(0) for lease in leases])

    def hand_over(self, lease: Lease, why: str) -> None:
        """Give a lease back as one that was drained."""
        with self._sending:
            self._claim([replace(lease.renewal(), control=why)])
            self._claim([lease.renewal(0)])

    def close(self) -> None:
        """Give all leases back and end the thread; a later lease starts it again."""
        with self._changed:
            leases = set(self._leases.values())
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        left = [lease for lease in leases if lease.end_here()]
        try:
            if left:
                self.release(*left)
        except StatekitError as error:
            _LOG.warning("%d leases were not given back and end by themselves: %s", len(left), error)
        finally:
            with self._sending:
                store, self._store = self._store, None
            if store is not None:
                store.close()

    def _claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        if self._store is None:
            self._store = self._connect()
        return self._store.claim(claims)

    def _keep(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while self._thread is me and self._leases and (pause_s := self._pause_s()) > 0:
                    self._changed.wait(pause_s)
                if self._thread is me and not self._leases:
                    self._thread = None
                if self._thread is not me:
                    return
                leases = list(self._leases.values())
            self._renew_all(leases)

    def _pause_s(self) -> float:
        """Seconds until a renewal is due."""
        due_s = max(self._not_before_s, min(lease.due_s() for lease in self._leases.values()))
        return due_s - time.monotonic()

    def _renew_all(self, leases: Sequence[Lease]) -> None:
        asked_s = time.monotonic()
        with self._sending:
            leases = [lease for lease in leases if not lease.ended]
            try:
                answers = self._claim([lease.renewal() for lease in leases])
            except Exception as error:
                answers = [error] * len(leases)
        for lease, answer in zip(leases, answers, strict=True):
            if not isinstance(answer, Exception):
                lease.confirm(answer, asked_s)
                continue
            # Not known to be renewed counts as not renewed: the time runs on.
            _LOG.warning("the lease of thread %r was not renewed: %s", lease.thread_id, answer)
            self._not_before_s = time.monotonic() + min(lease.ttl_s for lease in leases) / 10
            if lease.lost:
                lease.lose("could not be renewed in time")
