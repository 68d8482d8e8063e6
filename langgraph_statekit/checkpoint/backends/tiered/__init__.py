"""Threads in a hot store while they are used, and in an object store for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.objects import ObjectBackend, ObjectStoreSaver
from langgraph_statekit.checkpoint.backends.tiered.backend import TieredBackend
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.replicas import Replicas
from langgraph_statekit.checkpoint.expiry import ORPHANS_US, Swept
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.records import to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import BacklogTold, Hooks, ReplicaTold
from langgraph_statekit.extras import load

__all__ = ["TieredBackend", "TieredSaver"]

_TIERS: Final = {
    "SqliteBackend": ("sqlite_tier", "SqliteTier"),
    "RedisBackend": ("redis_tier", "RedisTier"),
    "PostgresBackend": ("postgres_tier", "PostgresTier"),
}
_MODES: Final = ("write_through", "write_behind", "archive")


class TieredSaver(StatekitSaver):
    """A checkpointer over two stores: a hot one that answers, and an object store that keeps all for good.

    Threads that the hot store lost, or dropped because they were idle, come back from the cold one when they are used.

    Args:
        hot: A `SqliteSaver`, `RedisSaver` or `PostgresSaver`. Only its store is used; give options of a saver here.
        cold: An `ObjectStoreSaver`, or its URL: `s3://bucket/prefix`, `gs://`, `az://`, `file:///dir`. What it holds is
            readable by this class only, and may lie beside the threads of an `ObjectStoreSaver`.
        replicas: Further places like `cold`, in another region or at another vendor, that get all that it has. They
            follow at once, without being waited for, and answer reads where it does not. One may become `cold`.
        mode: `write_behind`: a save is acknowledged by the hot store, and in the cold one within `max_lag_s` seconds or
            `max_lag_checkpoints` saves, at once when a run waits for an answer, and when the saver is closed.
            `write_through`: it is acknowledged when both have it. `archive`: as `write_behind`, and the hot store
            drops threads that did not change for `idle_s`.
        max_lag_s: See `mode`.
        max_lag_checkpoints: See `mode`.
        idle_s: See `mode`.
        max_backlog: Saves that this process acknowledged and the cold store does not have, as it does not answer;
            from then on saves raise `Unavailable`.
        grace_s: Seconds for which objects that were replaced stay for readers that are under way.
        read_cold: Answer reads from the cold store while the hot one is unavailable; what was not uploaded is missing.
        tenant: Whose threads these are; None: the tenant of `hot`.
        options: As in `StatekitSaver`. `ttl_s` is the life of a thread in both stores.

    Raises:
        Misuse: A store is none of these, an option has a wrong value, or belongs here and not to `hot`.
    """

    def __init__(
        self,
        hot: StatekitSaver,
        cold: ObjectStoreSaver | str,
        *,
        replicas: Sequence[ObjectStoreSaver | str] = (),
        mode: str = "write_behind",
        max_lag_s: float = 5.0,
        max_lag_checkpoints: int = 100,
        idle_s: float = 3600.0,
        max_backlog: int = 100_000,
        grace_s: float = 60.0,
        read_cold: bool = True,
        tenant: str | None = None,
        **options: Any,
    ) -> None:
        require_numbers(float, 0, max_lag_s=max_lag_s, idle_s=idle_s, grace_s=grace_s)
        require_numbers(int, 1, max_lag_checkpoints=max_lag_checkpoints, max_backlog=max_backlog)
        if mode not in _MODES:
            raise Misuse(f"the option mode must be one of {', '.join(_MODES)}, not {mode!r}")
        tenant = hot.tenant if tenant is None and isinstance(hot, StatekitSaver) else tenant
        backend, tier = _upper(hot, tenant)
        below = _place(cold, tenant, grace_s)
        hooks = options.get("hooks", ())
        if isinstance(replicas, str) or not isinstance(replicas, Sequence):
            raise Misuse("replicas must be a sequence of URLs or of ObjectStoreSavers")
        copies = Replicas(
            below, [_place(each, tenant, grace_s) for each in replicas], workers=8, tell=_replica_teller(hooks)
        )
        tiered = TieredBackend(
            backend,
            tier,
            below,
            replicas=copies,
            mode=mode,
            read_cold=read_cold,
            max_lag_s=max_lag_s,
            max_lag_checkpoints=max_lag_checkpoints,
            idle_s=idle_s,
            max_backlog=max_backlog,
            workers=8,
            tell=_teller(hooks),
        )
        self.tiers = tiered
        super().__init__(tiered, tenant=tenant, **options)

    def flush(self) -> None:
        """Return when the cold store and its replicas have all that was saved through this saver.

        Raises:
            Unavailable: One of them does not answer; uploads go on.
        """
        self.tiers.uploading.flush_all()
        self.tiers.replicas.flush()

    def replicate(self) -> int:
        """Bring over what the replicas lack, object by object, and return how many threads the cold store has.

        Needed once for a new replica, and for one that lost something: what changes is brought over by itself. It reads
        every head of both, and lists every thread of the replica.

        Raises:
            Unavailable: A store does not answer; call again.
            Corrupt: An object of the cold store is damaged or missing; all other threads are done.
        """
        return self.tiers.replicas.bring_all()

    def archive(self, thread_id: str) -> bool:
        """Have the hot store drop a thread once the cold one has all of it.

        Returns:
            False if nothing was dropped, as the thread is not in the hot store, is leased, has a time to live, or
            changed meanwhile.

        Raises:
            Unavailable: A store does not answer; nothing was dropped.
        """
        return self.tiers.evict(to_text(thread_id))

    def sweep(self, *, orphans_s: float = ORPHANS_US / 1e6) -> Swept:
        """As in `StatekitSaver`; and threads go that are in the cold store only and expired a day ago or earlier."""
        swept = super().sweep(orphans_s=orphans_s)
        return swept._replace(threads=swept.threads + self.tiers.sweep_cold())

    async def asweep(self, *, orphans_s: float = ORPHANS_US / 1e6) -> Swept:
        """Async version of `sweep`."""
        swept = await super().asweep(orphans_s=orphans_s)
        return swept._replace(threads=swept.threads + await self._threads.io(self.tiers.sweep_cold))

    def deleted(self, thread_id: str) -> bool:
        """Say whether no store, nor replica, holds anything of a thread but the tombstone that tells of its deletion.

        Raises:
            Unavailable: A store does not answer; call again.
        """
        return self.tiers.is_deleted(to_text(thread_id))


def _upper(hot: StatekitSaver, tenant: str | None) -> tuple[Backend, Tier]:
    if not isinstance(hot, StatekitSaver):
        raise Misuse(f"hot must be a saver such as SqliteSaver, not {type(hot).__name__}")
    if hot.tenant != tenant:
        raise Misuse("hot must be a saver of the same tenant")
    if hasattr(hot.backend, "inner") or hot._sync.ttl_us or hot.retention is not None or hot.require_lease:
        raise Misuse("give encryption, ttl_s, retention and require_lease to the TieredSaver, not to hot")
    kind = type(hot.backend).__name__
    if kind not in _TIERS:
        raise Misuse(f"hot must be a SqliteSaver, a RedisSaver or a PostgresSaver, not a {type(hot).__name__}")
    module, name = _TIERS[kind]
    tier: Tier = load(f"checkpoint.backends.{module}", name)(hot.backend)
    return hot.backend, tier


def _place(given: ObjectStoreSaver | str, tenant: str | None, grace_s: float) -> Cold:
    opened = ObjectStoreSaver.from_url(given, tenant=tenant) if isinstance(given, str) else given
    if not isinstance(opened, ObjectStoreSaver) or opened.tenant != tenant:
        raise Misuse("cold, and each of replicas, must be an ObjectStoreSaver of the same tenant, or its URL")
    backend = opened.backend
    if not isinstance(backend, ObjectBackend):
        raise Misuse("give encryption to the TieredSaver, not to cold or to replicas")
    name = given.partition("?")[0] if isinstance(given, str) else f"{backend.bucket.name}/{backend.prefix}"
    return Cold(backend.bucket, backend.prefix, grace_s, name)


def _replica_teller(hooks: Sequence[Any]) -> Callable[[str, int, str | None], None]:
    hook = Hooks(tuple(hooks))

    def tell(replica: str, threads: int, error: str | None) -> None:
        hook(
            ReplicaTold(
                store="tiered",
                operation="replicate",
                thread_id=None,
                checkpoint_ns=None,
                replica=replica,
                threads=threads,
                error=error,
            )
        )

    return tell


def _teller(hooks: Sequence[Any]) -> Callable[[int, int, str | None], None]:
    hook = Hooks(tuple(hooks))

    def tell(threads: int, saves: int, error: str | None) -> None:
        hook(
            BacklogTold(
                store="tiered",
                operation="upload",
                thread_id=None,
                checkpoint_ns=None,
                threads=threads,
                saves=saves,
                error=error,
            )
        )

    return tell
