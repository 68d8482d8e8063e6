"""Stored threads brought to the newest version of their state in batch, each under its lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from langgraph_statekit.checkpoint.engine import Engine
from langgraph_statekit.checkpoint.rewriting import Step
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.errors import Conflict, DataError, Fenced, Misuse, StatekitError
from langgraph_statekit.leases import Lease

_OWNER: Final = "statekit migrate"


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a batch did.

    Attributes:
        threads: Threads with a checkpoint that changed.
        checkpoints: Checkpoints that changed.
        left: Why a thread was left, by thread id: `Conflict` or `Fenced` for one that was in use or cannot be reverted,
            `DataError` for one that cannot be migrated.
    """

    threads: int
    checkpoints: int
    left: Mapping[str, StatekitError]


def migrate_threads(
    saver: StatekitSaver,
    thread_ids: Sequence[str] | None = None,
    *,
    step: Step = "migrate",
    wait_s: float = 0.0,
    dry_run: bool = False,
) -> Migrated:
    """Bring all checkpoints of threads to the newest version of their state, and return what was done.

    Each thread is done under its lease, each checkpoint in one step; older workers are then refused the thread. What
    was stored before stays stored until it is committed, and `step="revert"` brings exactly that back. May be repeated
    at any time: what is done is passed over.

    Args:
        saver: Made with `with_state`.
        thread_ids: Threads; None for all.
        step: `"migrate"`; `"revert"`, which leaves threads that went on in the newer version; or `"commit"`, after
            which there is no way back and the older values are removed.
        wait_s: Seconds to wait for a thread that somebody leases.
        dry_run: Change nothing, take no lease, and return what would change.

    Raises:
        Misuse: The saver is of another kind or has no state schema, the step is unknown, or one string was passed in
            place of a sequence.
        Unavailable: The store did not answer; call again.
    """
    return run_sync(_batch(Side(saver, False), saver, thread_ids, step, wait_s, dry_run))


async def amigrate_threads(
    saver: StatekitSaver,
    thread_ids: Sequence[str] | None = None,
    *,
    step: Step = "migrate",
    wait_s: float = 0.0,
    dry_run: bool = False,
) -> Migrated:
    """Async version of `migrate_threads`."""
    return await _batch(Side(saver, True), saver, thread_ids, step, wait_s, dry_run)


async def _batch(
    side: Side, saver: StatekitSaver, thread_ids: Sequence[str] | None, step: Step, wait_s: float, dry_run: bool
) -> Migrated:
    if not isinstance(saver, StatekitSaver):
        raise Misuse(f"a saver of this package is needed, not {type(saver).__name__}; of a Sampled its attribute saver")
    if not saver._schemas:
        raise Misuse("the saver has no state schema: pass saver.with_state(State)")
    if step not in get_args(Step):
        raise Misuse(f"unknown step {step!r}: use {', '.join(map(repr, get_args(Step)))}")
    if isinstance(thread_ids, str | bytes):
        raise Misuse(f"thread_ids must be a sequence of ids, not one string: pass [{thread_ids!r}]")
    engine = saver._async if side.is_async else saver._sync
    threads = checkpoints = 0
    left: dict[str, StatekitError] = {}
    for thread in await side.threads() if thread_ids is None else thread_ids:
        try:
            if dry_run:
                changed = await engine.rewrite(saver._codec, thread, step, None, dry_run=True)
            else:
                changed = await _leased(side, engine, saver, thread, step, wait_s)
        except (Conflict, Fenced, DataError) as error:
            left[thread] = error
        else:
            threads += changed > 0
            checkpoints += changed
    return Migrated(threads, checkpoints, left)


async def _leased(side: Side, engine: Engine, saver: StatekitSaver, thread: str, step: Step, wait_s: float) -> int:
    lease: Lease = await side.call("lease", thread, _OWNER, wait_s=wait_s)
    try:
        return await engine.rewrite(saver._codec, thread, step, lease.token)
    finally:
        if side.is_async:
            await lease.arelease()
        else:
            lease.release()
