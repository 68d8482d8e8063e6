"""Threads in a hot store while they are used, and in an object store for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.objects import ObjectBackend, ObjectStoreSaver
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.tiered.backend import TieredBackend
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.replicas import Replicas
from langgraph_statekit.checkpoint.expiry import ORPHANS_US, Swept
from langgraph_statekit.checkpoint.options import require_ids, require_numbers
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.secret_keys import SECRET_KEYS
from langgraph_statekit.checkpoint.serde import StatekitSerializer
from langgraph_statekit.errors import CheckpointMissing, Conflict, Corrupt, Misuse
from langgraph_statekit.events import BacklogTold, Event, Hooks, HotStoreBehind, ReplicaTold
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
        offload_bytes: From this size on a stored value is an object of its own in the cold store, stored once for each
            thread however often it is named, and not copied when packs are made into one.
        tombstone_s: Seconds after which `sweep` removes what tells that a thread was deleted. No worker, and no copy of
            the hot store, may come back after so long with a thread that was deleted meanwhile.
        read_cold: Answer reads from the cold store while the hot one is unavailable; what was not uploaded is missing.
        write_cold: Take saves into the cold store while the hot one is unavailable, but for those under a lease. They
            go on from what was uploaded; when the hot store is back, both histories become one, in which these are the
            latest. All workers must have it.
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
        offload_bytes: int = 256 * 1024,
        tombstone_s: float = 30 * 24 * 3600.0,
        read_cold: bool = True,
        write_cold: bool = False,
        tenant: str | None = None,
        **options: Any,
    ) -> None:
        require_numbers(float, 0, max_lag_s=max_lag_s, idle_s=idle_s, grace_s=grace_s, tombstone_s=tombstone_s)
        require_numbers(
            int, 1, max_lag_checkpoints=max_lag_checkpoints, max_backlog=max_backlog, offload_bytes=offload_bytes
        )
        if mode not in _MODES:
            raise Misuse(f"the option mode must be one of {', '.join(_MODES)}, not {mode!r}")
        tenant = hot.tenant if tenant is None and isinstance(hot, StatekitSaver) else tenant
        backend, tier = _upper(hot, tenant)
        below = _place(cold, tenant, grace_s, offload_bytes)
        hooks = options.get("hooks", ())
        if isinstance(replicas, str) or not isinstance(replicas, Sequence):
            raise Misuse("replicas must be a sequence of URLs or of ObjectStoreSavers")
        places = [_place(each, tenant, grace_s, offload_bytes) for each in replicas]
        copies = Replicas(below, places, workers=8, tell=_teller(hooks, ReplicaTold, "replicate"))
        tiered = TieredBackend(
            backend,
            tier,
            below,
            replicas=copies,
            tombstone_s=tombstone_s,
            mode=mode,
            read_cold=read_cold,
            write_cold=write_cold,
            max_lag_s=max_lag_s,
            max_lag_checkpoints=max_lag_checkpoints,
            idle_s=idle_s,
            max_backlog=max_backlog,
            workers=8,
            tell=_teller(hooks, BacklogTold, "upload"),
            behind=_teller(hooks, HotStoreBehind, "upload"),
        )
        self.tiers = tiered
        super().__init__(tiered, tenant=tenant, **options)
        tiered.moving.placed = getattr(self.backend, "placed", tiered.moving.placed)
        self._audit = hot._audit  # an option of that store

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

    def restore(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        prefix: str | None = None,
        at: datetime | str | None = None,
        suffix: str = "",
        into: TieredSaver | None = None,
    ) -> list[str]:
        """Bring threads from the cold store to the hot one, or make copies of them as they were; return their ids.

        A copy has the checkpoints that were committed up to then and still are stored: what retention, `prune` or a
        deletion removed since is in none. Its latest checkpoint has no writes but interrupts, so its tasks run anew.
        The thread itself is not changed, and a repeat finds the copy that it made.

        Args:
            thread_ids: Threads; or give `prefix`.
            prefix: All threads in the cold store whose ids begin so; the empty text: all. Those that were not there yet
                are passed over.
            at: Up to this time, by the clocks of the workers that made the checkpoints; or up to this checkpoint of the
                one thread that is named. None: as they are.
            suffix: What is added to the ids of copies.
            into: Another saver, with another cold store, that gets copies; their ids may be the same.

        Raises:
            Misuse: Copies would have the ids of their threads, there are other threads of their ids, one of the savers
                has encryption and the other none, a time has no time zone, or a thread's checkpoint ids hold no time.
            CheckpointMissing: A thread that is named was not there then, or has no such checkpoint.
            Corrupt: Threads are damaged in the cold store, or what both stores have cannot be joined, as it says; all
                others were restored.
            Unavailable: A store does not answer; call again.
        """
        if (thread_ids is None) == (prefix is None):
            raise Misuse("name threads, or give the prefix of their ids")
        if isinstance(at, datetime) and at.tzinfo is None:
            raise Misuse(f"the time {at} has no time zone: add tzinfo")
        if isinstance(at, str) and (thread_ids is None or len(require_ids(thread_ids, "thread_ids")) != 1):
            raise Misuse("a checkpoint belongs to one thread: name it alone, or give a time")
        if at is not None and not suffix and into in (None, self):
            raise Misuse("a thread as it was is a copy: give a suffix for its id, or into=, a saver of another place")
        made, bad = list[str](), list[str]()
        if thread_ids is not None:
            ids = list(require_ids(thread_ids, "thread_ids"))
        else:
            copies = bool(suffix) or into not in (None, self)
            every = self.tiers.restorable(lambda error: bad.append(str(error)), copies=copies)
            ids = [id for id in map(from_text, every) if id.startswith(prefix or "")]
        for id in ids:
            thread, target = to_text(id), to_text(f"{id}{suffix}")
            try:
                there = self._restore(thread, target, to_text(at) if isinstance(at, str) else at, into or self)
            except (Corrupt, Conflict) as error:
                bad.append(f"thread {id!r}: {error}")
                continue
            if there:
                made.append(f"{id}{suffix}")
            elif thread_ids is not None:
                raise CheckpointMissing(f"there was no thread {id!r} in the cold store then")
        if bad:
            raise Corrupt(f"{len(made)} threads were restored, and not {len(bad)}: {'; '.join(bad)}")
        return made

    def _restore(self, thread: str, target: str, at: datetime | str | None, into: TieredSaver) -> bool:
        if at is None and thread == target and into is self:
            return self.tiers.moving.bring_up(thread)
        held = self.tiers.was(thread, at)
        if held is None:
            return False
        mine, other = self.backend, into.backend
        if (mine is self.tiers) != (other is into.tiers):
            raise Misuse("both savers must have encryption, or none of them")
        key = None if mine is self.tiers else mine.key_of(thread)  # type: ignore[attr-defined]
        header = b"" if key is None else other.header_for(target, key)  # type: ignore[attr-defined]
        moment = at.isoformat() if isinstance(at, datetime) else at or ""
        if not into.tiers.restoring.adopt(target, replace(held, header=header, copied_by=digest(thread, moment))):
            raise Misuse(f"there is another thread {from_text(target)!r}: delete it, or give another suffix")
        return True

    async def arestore(
        self,
        thread_ids: Sequence[str] | None = None,
        *,
        prefix: str | None = None,
        at: datetime | str | None = None,
        suffix: str = "",
        into: TieredSaver | None = None,
    ) -> list[str]:
        """Async version of `restore`."""
        call = partial(self.restore, thread_ids, prefix=prefix, at=at, suffix=suffix, into=into)
        return await self._threads.io(call)

    def repair(self, thread_id: str) -> bool:
        """Store the head of a thread in the cold store anew if it is missing or damaged; say whether it was.

        It is made from the thread's packs, which tell all but what only a replica or the hot store can, if all packs
        are lost too. Threads are read and saved without it, but for those.

        Raises:
            Corrupt: A pack or a value is gone as well, and no replica has it; nothing was done.
            Unavailable: A store does not answer; call again.
        """
        return self.tiers.restoring.repair(to_text(thread_id))

    def sweep(self, *, orphans_s: float = ORPHANS_US / 1e6) -> Swept:
        """As in `StatekitSaver`; and from the cold store, and its replicas, goes what is of no use.

        That are threads that are in the cold store only and expired a day ago or earlier, tombstones after
        `tombstone_s`, if all replicas have them, and packs that nothing names for `orphans_s`, which uploads left that
        died. It reads the head of every thread, and lists its objects.
        """
        swept = super().sweep(orphans_s=orphans_s)
        return swept._replace(threads=swept.threads + self.tiers.sweep_cold(orphans_s))

    async def asweep(self, *, orphans_s: float = ORPHANS_US / 1e6) -> Swept:
        """Async version of `sweep`."""
        swept = await super().asweep(orphans_s=orphans_s)
        return swept._replace(threads=swept.threads + await self._threads.io(self.tiers.sweep_cold, orphans_s))

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
    if hot.hooks or hot._secret_keys != SECRET_KEYS or type(hot.serde) is not StatekitSerializer:
        raise Misuse("give hooks, secret_keys and serde to the TieredSaver, not to hot")
    kind = type(hot.backend).__name__
    if kind not in _TIERS:
        raise Misuse(f"hot must be a SqliteSaver, a RedisSaver or a PostgresSaver, not a {type(hot).__name__}")
    module, name = _TIERS[kind]
    tier: Tier = load(f"checkpoint.backends.{module}", name)(hot.backend)
    return hot.backend, tier


def _place(given: ObjectStoreSaver | str, tenant: str | None, grace_s: float, offload_bytes: int) -> Cold:
    opened = ObjectStoreSaver.from_url(given, tenant=tenant) if isinstance(given, str) else given
    if not isinstance(opened, ObjectStoreSaver) or opened.tenant != tenant:
        raise Misuse("cold, and each of replicas, must be an ObjectStoreSaver of the same tenant, or its URL")
    backend = opened.backend
    if not isinstance(backend, ObjectBackend):
        raise Misuse("give encryption to the TieredSaver, not to cold or to replicas")
    name = given.partition("?")[0] if isinstance(given, str) else f"{backend.bucket.name}/{backend.prefix}"
    return Cold(backend.bucket, backend.prefix, grace_s, name, offload_bytes)


def _teller(hooks: Sequence[Any], event: type[Event], operation: str) -> Callable[..., None]:
    hook = Hooks(tuple(hooks))

    def tell(*, thread_id: str | None = None, **fields: Any) -> None:
        hook(event(store="tiered", operation=operation, thread_id=thread_id, checkpoint_ns=None, **fields))

    return tell
