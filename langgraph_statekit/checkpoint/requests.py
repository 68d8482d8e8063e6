"""What an engine does in one request to its store."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, only
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery, require_open, require_plain
from langgraph_statekit.checkpoint.records import Outline
from langgraph_statekit.checkpoint.run import Runtime
from langgraph_statekit.errors import StatekitError

_LOG: Final = logging.getLogger(__name__)


class _Asked:
    """A claim under way: what it got is given back if whoever asked went away before the answer."""

    def __init__(self, store: Backend, claim: Claim) -> None:
        self._store, self._claim = store, claim
        self._lock = threading.Lock()
        self._gone = self._answered = False
        self._held: Held | None = None

    def ask(self) -> Held | None:
        """Return what the store answers."""
        held = only(self._store.claim([self._claim]))
        with self._lock:
            self._held, self._answered = held, True
            gone = self._gone
        if gone:
            self._give_back()
        return held

    def leave(self) -> None:
        """Take note that nobody waits for the answer; does not block."""
        with self._lock:
            self._gone, answered = True, self._answered
        if answered:
            threading.Thread(target=self._give_back, name="statekit-unclaim", daemon=True).start()

    def _give_back(self) -> None:
        if self._held is None or self._held.holder != self._claim.holder:
            return
        try:
            self._store.claim([replace(self._claim, token=self._held.token, ttl_us=0)])
        except StatekitError as error:
            _LOG.warning("a lease that nobody waited for ends by itself: %s", error)


class Requests:
    """A store, made ready on first use, and how it is called."""

    def __init__(self, backend: Backend, runtime: Runtime) -> None:
        self._backend = backend
        self._runtime = runtime
        self._io = runtime.io
        self._ready = False

    async def setup(self) -> None:
        """Create what the store needs."""
        await self._io(self._backend.setup)
        self._ready = True

    async def _store(self) -> Backend:
        if not self._ready:
            await self.setup()
        return self._backend

    async def claim(self, claim: Claim) -> Held | None:
        """Return the lease of a thread after a claim; a caller that is cancelled meanwhile holds none."""
        asked = _Asked(await self._store(), claim)
        try:
            return await self._io(asked.ask)
        except BaseException:
            asked.leave()
            raise

    async def leases(self, query: LeaseQuery) -> LeasePage:
        """See `Backend.leases`."""
        return await self._io((await self._store()).leases, query)

    async def change_cell(self, change: CellChange) -> Changed:
        """See `Cells`."""
        require_plain(change)
        changed = only(await self._io((await self._store()).change_cells, [change]))
        require_open(changed.cell)
        return changed

    async def cells(self, query: CellQuery) -> CellPage:
        """See `Cells`."""
        page = await self._io((await self._store()).cells, query)
        require_open(*page.cells)
        return page

    async def outline(self, thread: str, ns: str | None = None) -> Outline:
        """Return the rows of a thread without bodies, and the heads of its frames."""
        return await self._io((await self._store()).outline, thread, ns)

    async def sleep(self, pause_s: float) -> None:
        """Wait."""
        await self._runtime.sleep(pause_s)
