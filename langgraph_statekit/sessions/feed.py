"""A feed of changed sessions: one thread asks the store for all that are watched, in one request.

A store that has a bell (Redis, PostgreSQL) lets other processes know at once that there is something
to ask for. What is rung is the hash of a session's id, and only a hint: whether it is heard or not, the store is asked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from hashlib import blake2b
from typing import Final, Protocol

from langgraph_statekit.checkpoint.cells import Cell, CellPage, CellQuery
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.run import until
from langgraph_statekit.sessions.records import KIND, ref_of

_LOG: Final = logging.getLogger(__name__)
_MOST_REFS: Final = 500
_LEAST_PAUSE_S: Final = 0.05
_END_S: Final = 2.0
_AGAIN_S: Final = 1.0


class Store(Protocol):
    """What reads cells."""

    def cells(self, query: CellQuery) -> CellPage:
        """See `Backend.cells`."""


class Bell(Protocol):
    """What a store may have as its attribute `bell`."""

    def ring(self, text: str) -> None:
        """Tell a text to all who listen."""

    def heard(self) -> Iterator[str]:
        """Yield what is rung, and an empty text now and then."""


def bell_of(backend: object) -> Bell | None:
    """Return the bell of a store, or None."""
    bell: Bell | None = getattr(getattr(backend, "inner", backend), "bell", None)
    return bell


def hint_of(session_id: str) -> str:
    """Return what is rung for a session."""
    return blake2b(session_id.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Closed(Exception):
    """The feed was closed while somebody watched."""


Seen = tuple[Cell | None, int]
"""A cell, and the store's clock when it was read."""


class Feed:
    """Tells watchers of changes: those made in this process at once, others within `poll_s`.

    Args:
        store: Where the sessions are.
        poll_s: Seconds between two requests while somebody watches.
        bell: The store's, if it has one.
    """

    def __init__(self, store: Store, poll_s: float, bell: Bell | None = None) -> None:
        self._store, self._poll_s, self._bell = store, poll_s, bell
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin without watchers."""
        self._changed = threading.Condition()
        self._waiting: dict[str, list[tuple[int, Future[Seen]]]] = {}
        self._thread: threading.Thread | None = None
        self._listener: threading.Thread | None = None
        self._hints: set[str] = set()
        self._soon = False

    def wake(self) -> None:
        """Ask the store soon: something was changed here."""
        if self._waiting:
            with self._changed:
                self._soon = True
                self._changed.notify()

    def watch(self, session_id: str, rev: int) -> Future[Seen]:
        """Return a future of the cell as soon as its `rev` is another one; 0 stands for no cell."""
        future: Future[Seen] = Future()
        with self._changed:
            self._waiting.setdefault(session_id, []).append((rev, future))
            self._hints.add(hint_of(session_id))
            self._soon = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._poll, name="statekit-sessions", daemon=True)
                self._thread.start()
                if self._bell is not None:
                    args = self._thread, self._bell
                    self._listener = threading.Thread(target=self._listen, args=args, name="statekit-bell", daemon=True)
                    self._listener.start()
            self._changed.notify()
        return future

    def close(self) -> None:
        """End the thread, and all who watch."""
        with self._changed:
            thread, self._thread = self._thread, None
            waiting, self._waiting = self._waiting, {}
            self._changed.notify()
        for _, future in (each for watchers in waiting.values() for each in watchers):
            _settle(future, Closed())
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if thread is not None and self._listener is not None and self._bell is not None:
            with suppress(Exception):  # wakes the listener, which ends by itself otherwise
                self._bell.ring("")
            self._listener.join(_END_S)

    def _listen(self, polling: threading.Thread, bell: Bell) -> None:
        """Wake the thread when there is news, as long as it runs; what goes wrong only makes it slower."""
        while self._thread is polling:
            try:
                for hint in bell.heard():
                    if hint in self._hints:
                        self.wake()
                    if self._thread is not polling:
                        return
            except Exception as error:
                _LOG.info("changes of sessions are seen only every %g s: %s", self._poll_s, error)
            with self._changed:
                self._changed.wait_for(lambda: self._thread is not polling, min(self._poll_s, _AGAIN_S))

    def _poll(self) -> None:
        me = threading.current_thread()
        while ids := self._wanted(me):
            for at in range(0, len(ids), _MOST_REFS):
                self._ask(ids[at : at + _MOST_REFS])

    def _wanted(self, me: threading.Thread) -> list[str]:
        """Wait until it is time to ask, and return for what; nothing ends the thread."""
        with self._changed:
            asked_s = time.monotonic()
            # Whoever was told comes back at once, and must find the listener.
            self._changed.wait_for(lambda: self._waiting or self._thread is not me, _END_S)
            while self._thread is me and self._watched():
                pause_s = asked_s + (_LEAST_PAUSE_S if self._soon else self._poll_s) - time.monotonic()
                if pause_s <= 0:
                    self._soon = False
                    self._hints = {hint_of(session_id) for session_id in self._waiting}
                    return list(self._waiting)
                self._changed.wait(pause_s)
            if self._thread is me:
                self._thread = None
            return []

    def _watched(self) -> bool:
        """Forget who went away, so that no store is asked for them, which may be closed; say whether any is left."""
        watched = {id: [each for each in watchers if not each[1].done()] for id, watchers in self._waiting.items()}
        self._waiting = {id: left for id, left in watched.items() if left}
        return bool(self._waiting)

    def _ask(self, ids: Sequence[str]) -> None:
        try:
            page = self._store.cells(CellQuery(kind=KIND, refs=[ref_of(id) for id in ids]))
        except Exception as error:  # the next request tells what happened since
            _LOG.warning("watched sessions could not be read: %s", error)
            return
        found = {cell.ref: cell for cell in page.cells}
        for id in ids:
            cell = found.get(ref_of(id))
            rev = 0 if cell is None else cell.rev
            with self._changed:
                watchers = self._waiting.pop(id, [])
                left = [(seen, future) for seen, future in watchers if seen == rev]
                if left:
                    self._waiting[id] = left
            for _, future in (each for each in watchers if each[0] != rev):
                _settle(future, (cell, page.now_us))


def _settle(future: Future[Seen], result: Seen | Closed) -> None:
    try:
        if isinstance(result, Closed):
            future.set_exception(result)
        else:
            future.set_result(result)
    except InvalidStateError:
        pass  # whoever watched went away


async def changes(
    feed: Feed, session_id: str, rev: int, wait_s: float | None, is_async: bool
) -> AsyncGenerator[tuple[Cell, int]]:
    """Yield the cell of a session whenever it changed, until it is gone or nothing happens for so long."""
    while True:
        future = feed.watch(session_id, rev)
        try:
            cell, now_us = await until(future, wait_s, is_async)
        except (TimeoutError, Closed):
            return
        finally:
            future.cancel()
        if cell is None:
            return
        yield cell, now_us
        rev = cell.rev
