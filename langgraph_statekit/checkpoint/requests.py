"""What an engine does in one request to its store."""

from __future__ import annotations

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, only
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery, require_open, require_plain
from langgraph_statekit.checkpoint.records import Outline
from langgraph_statekit.checkpoint.run import Runtime


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
        """Return the lease of a thread after a claim."""
        return only(await self._io((await self._store()).claim, [claim]))

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
