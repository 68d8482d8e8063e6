"""From a backend to a saver: its parts, its beginning and end, and its leases."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_statekit.acquiring import Terms, acquire
from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.cells import Cells
from langgraph_statekit.checkpoint.codec import Codec
from langgraph_statekit.checkpoint.engine import Engine
from langgraph_statekit.checkpoint.frames import Frames
from langgraph_statekit.checkpoint.lines import Lines
from langgraph_statekit.checkpoint.observed import ObservedEngine, observed_save, store_of
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.records import Save
from langgraph_statekit.checkpoint.retention_policy import Retention
from langgraph_statekit.checkpoint.run import Batcher, Blocking, Runtime, Threads, aside, run_sync
from langgraph_statekit.checkpoint.secret_keys import SECRET_KEYS
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.checkpoint.sweeping import Sweeping
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import Event, Hook, Hooks, LeaseLost
from langgraph_statekit.extras import load
from langgraph_statekit.leases import Keeper, Lease, OnLease
from langgraph_statekit.versions import Schema, schemas_of

_LEAST_TTL_S: Final = 0.1
_MOST_TTL_US: Final = 1 << 52  # some stores keep it in a double

if TYPE_CHECKING:
    from langgraph_statekit.checkpoint.sealing import Encryption


def _no_keys() -> int:
    raise Misuse("the saver has no keys: open it with encryption=Encryption(keys, active)")


class Lifecycle(BaseCheckpointSaver[str]):
    """What `StatekitSaver` is made of, but for the checkpoint operations; it documents the arguments."""

    def __init__(
        self,
        backend: Backend,
        *,
        serde: SerializerProtocol | None = None,
        secret_keys: Collection[str] = SECRET_KEYS,
        workers: int = 8,
        max_pending: int = 256,
        max_pending_bytes: int = 64 << 20,
        cache_bytes: int = 64 << 20,
        hooks: Sequence[Hook] = (),
        require_lease: bool = False,
        retention: Retention | None = None,
        ttl_s: float | None = None,
        expire_interrupted: bool = False,
        tenant: str | None = None,
        encryption: Encryption | None = None,
        require_encryption: bool = False,
    ) -> None:
        require_numbers(int, 0, cache_bytes=cache_bytes, max_pending_bytes=max_pending_bytes)
        require_numbers(int, 1, workers=workers, max_pending=max_pending)
        if serde is not None and not (hasattr(serde, "dumps_typed") or hasattr(serde, "dumps")):
            raise Misuse(f"the option serde must be a serializer (dumps_typed, loads_typed), not {serde!r}")
        super().__init__(serde=serde or StatekitSerializer())
        if not isinstance(require_encryption, bool) or (require_encryption and encryption is None):
            raise Misuse("require_encryption must be True or False, and True needs encryption=Encryption(keys, active)")
        self._rotate: Callable[[], int] = _no_keys
        if encryption is not None:
            encrypted = load("checkpoint.encrypted", "EncryptedBackend")(
                backend, encryption, tenant=tenant, require=require_encryption
            )
            backend, self._rotate = encrypted, encrypted.rotate
        self.backend = backend
        self.tenant = tenant
        if isinstance(secret_keys, str):
            raise Misuse(f"secret_keys must be a collection of names, not one string: pass {{{secret_keys!r}}}")
        if not isinstance(secret_keys, Collection) or not all(isinstance(key, str) for key in secret_keys):
            raise Misuse(f"secret_keys must be a collection of names, not {secret_keys!r}")
        self._secret_keys = frozenset(secret_keys)
        self._threads = Threads(workers, max_pending, max_pending_bytes)
        frames = Frames(cache_bytes)
        told = Hooks(hooks)
        hook = told if hooks else None
        open_line = None if hook else getattr(backend, "line", None)
        self._lines: Lines[Save, int | Exception] | None = open_line and Lines(open_line)
        save, crowd = observed_save(backend, hook) if hook else backend.save, getattr(backend, "crowd", None)
        saves: Batcher[Save, int] = Batcher(save, lines=self._lines, crowd=crowd)

        def engine(runtime: Runtime) -> Engine:
            if hook:
                return ObservedEngine(backend, runtime, frames, saves, hook)
            return Engine(backend, runtime, frames, saves)

        self._sync, self._async = engine(Blocking(self._threads)), engine(self._threads)
        if not isinstance(require_lease, bool):
            raise Misuse(f"the option require_lease must be True or False, not {require_lease!r}")
        self.require_lease = require_lease
        if not isinstance(retention, Retention | None):
            raise Misuse(f"the option retention must be a Retention, not {retention!r}")
        self.retention = self._sync.retention = self._async.retention = retention
        self._sync.pacing = self._async.pacing
        if ttl_s is not None:
            require_numbers(float, _LEAST_TTL_S, ttl_s=ttl_s)
        if not isinstance(expire_interrupted, bool):
            raise Misuse(f"the option expire_interrupted must be True or False, not {expire_interrupted!r}")
        ttl_us = min(int((ttl_s or 0) * 1e6), _MOST_TTL_US)
        self._sync.ttl_us = self._async.ttl_us = -ttl_us if expire_interrupted else ttl_us
        if ttl_us and backend.sweeps:
            self._sync.sweeping = self._async.sweeping = Sweeping(backend)

        self.hooks, self._hook = tuple(hooks), hook

        def lost(lease: Lease) -> None:
            self.tell(LeaseLost, operation="lease", thread_id=lease.thread_id, checkpoint_ns=None)

        self._keeper = Keeper(backend.spare, self._threads.io, lost, tells_items=encryption is None)
        self._sync.progressed = self._async.progressed = self._keeper.progressed

        self._schemas: Mapping[str, Schema] = {}
        self._audit: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def _codec(self) -> Codec:
        return Codec(
            self.serde,
            self._secret_keys,
            require_lease=self.require_lease,
            schemas=self._schemas,
            audit=self._audit,
        )

    def tell(self, kind: type[Event], **fields: Any) -> None:
        """Tell the saver's hooks of an event, given all of its fields but the store."""
        if self._hook is not None:
            self._hook(kind(store=store_of(self.backend), **fields))

    @property
    def cells(self) -> Cells:
        """What changes and reads small records beside the threads, for sync callers (`run_sync` finishes each call)."""
        return self._sync

    @property
    def async_cells(self) -> Cells:
        """The same records for async callers."""
        return self._async

    def with_state(self, state: type | Mapping[str, type] | None) -> Self:
        """Return this saver with the state schema of a graph: it migrates older states when it reads them.

        Both share connections and leases. What is migrated is stored with the next checkpoint of the thread; older
        checkpoints stay as they are. Give every worker the schema before its first new version, so that older workers
        are refused what newer ones wrote. A saver without one reads and stores all as it is.

        Args:
            state: The class with `@state_version`; for subgraphs with versions of their own a mapping of paths to
                classes: `{"": State, "research": Research}`, `"outer|inner"` for an inner one. None: no schema.

        Raises:
            Misuse: It is no class with annotated keys.
        """
        clone = copy.copy(self)
        clone._schemas = schemas_of(state)
        return clone

    def setup(self) -> None:
        """Create what the store needs; runs by itself on first use and may be repeated by any number of workers.

        Raises:
            SchemaTooNew: A later release made the store; upgrade this one.
            Misuse: The store refuses the login or does not let this user create what it needs, or what the URL names
                does not exist; the message says what to change.
            Unavailable: The store did not answer; call again.
        """
        run_sync(self._sync.setup())

    async def asetup(self) -> None:
        """Async version of `setup`."""
        await self._async.setup()

    def rotate_keys(self) -> int:
        """Wrap the keys of all threads with the active master key, and return how many had another one.

        Only headers are written, so it is fast, and threads may be in use. First give the new key to every worker, then
        make it active in all of them, then rotate. After a stop, or to be sure, call it again; once it returns 0 no
        thread needs the old key.

        Raises:
            Misuse: The saver has no `encryption`, or a thread has a key that is unknown; all others are done.
            Corrupt: A header was altered; all others are done.
            Unavailable: The store did not answer; call again.
        """
        return run_sync(self._sync.rotate_keys(self._rotate))

    async def arotate_keys(self) -> int:
        """Async version of `rotate_keys`."""
        return await self._async.rotate_keys(self._rotate)

    def lease(
        self,
        thread_id: str,
        owner: str | None = None,
        *,
        graph: str = "",
        ttl_s: float = 30.0,
        steal: bool = False,
        instead_of: int | None = None,
        wait_s: float = 0.0,
        on_lost: OnLease | None = None,
        on_control: OnLease | None = None,
    ) -> Lease:
        """Return the lease of a thread: while it runs nobody else gets it, and who had it before can write no more.

        Unleased saves stay possible, unless the saver was made with `require_lease=True`. The store's clock counts; a
        thread of its own renews the lease, so a blocked event loop keeps it.

        Args:
            thread_id: The thread; it need not have checkpoints.
            owner: What other workers are told of the holder; None for host and process.
            graph: Name of the graph that runs, by which a `Supervisor` knows how to resume the thread. Empty: none.
            ttl_s: Seconds after which others get the lease of a holder that died.
            steal: Take the lease over if somebody has it.
            instead_of: Take the lease only if its last token is this one, so that one of many gets it.
            wait_s: Seconds to wait for whoever has it.
            on_lost: Called with the lease, from the renewing thread, when it was lost.
            on_control: Called with the lease, from the renewing thread, when its `control` changed; with
                `RunControl.request_drain` it stops the run after the running step.

        Raises:
            Conflict: Somebody has the lease; the message names the owner.
            Unavailable: The store did not answer; call again.
        """
        terms = Terms(owner, graph, ttl_s, steal, instead_of, wait_s, on_lost, on_control)
        return run_sync(acquire(self._keeper, self._sync, thread_id, terms))

    async def alease(
        self,
        thread_id: str,
        owner: str | None = None,
        *,
        graph: str = "",
        ttl_s: float = 30.0,
        steal: bool = False,
        instead_of: int | None = None,
        wait_s: float = 0.0,
        on_lost: OnLease | None = None,
        on_control: OnLease | None = None,
    ) -> Lease:
        """Async version of `lease`: `async with await saver.alease(thread_id) as lease`."""
        terms = Terms(owner, graph, ttl_s, steal, instead_of, wait_s, on_lost, on_control)
        return await acquire(self._keeper, self._async, thread_id, terms)

    def close(self) -> None:
        """Give back leases, and the connections that the saver opened; it opens new ones if it is used again."""
        self._keeper.close()  # raises nothing
        if self._lines is not None:
            self._lines.close()
        self._threads.close()
        if self._sync.sweeping is not None:
            self._sync.sweeping.close()
        self.backend.close()

    async def aclose(self) -> None:
        """Async version of `close`."""
        await aside(self.close)

    def __enter__(self) -> Self:
        self.setup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.asetup()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
