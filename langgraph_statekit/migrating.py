"""Stored threads brought to the newest version of their state in batch, each under its lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from langgraph_statekit.checkpoint.rewriting import Step
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.errors import Conflict, DataError, Fenced, Misuse
from langgraph_statekit.leases import Lease

_OWNER: Final = "statekit migrate"


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a batch did.

    Attributes:
        threads: Threads with a checkpoint that changed.
        checkpoints: Checkpoints that changed.
        left: Why a thread was left, by thread id; call again for those that were in use.
    """

    threads: int
    checkpoints: int
    left: Mapping[str, str]


def migrate_threads(
    saver: StatekitSaver, thread_ids: Sequence[str] | None = None, *, step: Step = "migrate", wait_s: float = 0.0
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

    Raises:
        Misuse: The saver has no state schema, the step is unknown, or one string was passed in place of a sequence.
        Unavailable: The store did not answer; call again.
    """
    return run_sync(_batch(Side(saver, False), saver, thread_ids, step, wait_s))


async def amigrate_threads(
    saver: StatekitSaver, thread_ids: Sequence[str] | None = None, *, step: Step = "migrate", wait_s: float = 0.0
) -> Migrated:
    """Async version of `migrate_threads`."""
    return await _batch(Side(saver, True), saver, thread_ids, step, wait_s)


async def _batch(
    side: Side, saver: StatekitSaver, thread_ids: Sequence[str] | None, step: Step, wait_s: float
) -> Migrated:
    if not saver._schemas:
        raise Misuse("the saver has no state schema: pass saver.with_state(State)")
    if step not in get_args(Step):
        raise Misuse(f"unknown step {step!r}: use {', '.join(map(repr, get_args(Step)))}")
    if isinstance(thread_ids, str | bytes):
        raise Misuse(f"thread_ids must be a sequence of ids, not one string: pass [{thread_ids!r}]")
    engine = saver._async if side.is_async else saver._sync
    threads = checkpoints = 0
    left: dict[str, str] = {}
    for thread in await side.threads() if thread_ids is None else thread_ids:
        try:
            lease: Lease = await side.call("lease", thread, _OWNER, wait_s=wait_s)
            try:
                changed = await engine.rewrite(saver._codec, thread, step, lease.token)
            finally:
                if side.is_async:
                    await lease.arelease()
                else:
                    lease.release()
        except (Conflict, Fenced, DataError) as error:
            left[thread] = str(error)
        else:
            threads += changed > 0
            checkpoints += changed
    return Migrated(threads, checkpoints, left)
