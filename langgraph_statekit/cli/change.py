"""The commands that change a store: fork, prune and label."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.base.id import uuid6

from langgraph_statekit.checkpoint.codec import config_of
from langgraph_statekit.checkpoint.records import Change, Outline, Row, from_text, to_text
from langgraph_statekit.checkpoint.retention import apply_policy, branch, keep_latest
from langgraph_statekit.checkpoint.retention_policy import Retention
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.cli.stores import find_row, missing, opened, require_thread, thread_ids
from langgraph_statekit.cli.terminal import emit, progress, table
from langgraph_statekit.errors import CheckpointMissing, Conflict, Misuse
from langgraph_statekit.sessions.manager import SessionManager

_ATTEMPTS = 8


def fork(given: Namespace) -> int:
    """Make a new thread of a thread's history, up to a checkpoint if one is named."""
    if given.new == given.thread:
        raise Misuse("a fork needs a thread id of its own")
    with opened(given.url) as saver:
        thread = require_thread(saver, given.thread)
        row = find_row(saver, thread, given.at)
        saver.copy_thread(given.thread, given.new)
        if row != find_row(saver, thread, None):
            try:
                _end_at(saver, row._replace(ref=row.ref._replace(thread=to_text(given.new))))
            except BaseException:
                saver.delete_thread(given.new)  # whole or not at all
                raise
        made = require_thread(saver, given.new)
    head = find_row(saver, made, None)
    document = {"thread": made.id, "checkpoints": len(made.rows), "checkpoint": from_text(head.ref.id)}
    emit(document, [f"{made.id}: {len(made.rows):,} checkpoints, the latest is {document['checkpoint']}"], given.json)
    return 0


def _end_at(saver: StatekitSaver, row: Row) -> None:
    """Put a copy of a checkpoint in its place, as LangGraph forks, and remove all that came since.

    The copy has another id, and so no pending writes: the step that followed runs anew.
    """
    found = saver.get_tuple(config_of(row.ref))
    if found is None:
        raise CheckpointMissing(f"checkpoint {from_text(row.ref.id)!r} was removed meanwhile")
    step = found.metadata.get("step", 0) + 1
    now = datetime.now(UTC).isoformat()
    made: Checkpoint = {**found.checkpoint, "id": str(uuid6(clock_seq=step)), "ts": now}
    below = config_of(row.ref._replace(id=row.parent)) if row.parent is not None else config_of(row.ref)
    if row.parent is None:
        del below["configurable"]["checkpoint_id"]
    saver.put(below, made, {**found.metadata, "source": "fork", "step": step}, {})
    tip = row.ref._replace(id=to_text(made["id"]))
    for _ in range(_ATTEMPTS):
        outline = saver.backend.outline(tip.thread)
        if saver.backend.apply(tip.thread, outline.rev, branch(outline, tip, row.seq)):
            return
    raise Conflict(f"thread {from_text(tip.thread)!r} kept changing while it was made")


def prune(given: Namespace) -> int:
    """Remove old checkpoints of some or all threads, or say what would go."""
    if given.expired:
        return _sweep(given)
    strategy = _strategy(given)
    if bool(given.threads) == given.all:
        raise Misuse("name either the threads to prune, or --all")
    rows: list[dict[str, Any]] = []
    with opened(given.url) as saver:
        ids = thread_ids(saver) if given.all else [to_text(id) for id in given.threads]
        for id in progress(ids, "threads"):
            outline = saver.backend.outline(id)
            before = len(_shown(outline))
            if not before and not given.all:
                raise missing(from_text(id))
            if given.dry_run:
                after = len(_shown(outline)) - _removed(outline, _plan(strategy)(outline))
            else:
                saver.prune([from_text(id)], strategy=strategy)
                after = len(_shown(saver.backend.outline(id)))
            rows.append({"thread": from_text(id), "before": before, "after": after, "removed": before - after})
    document = {"dry_run": given.dry_run, "removed": sum(row["removed"] for row in rows), "threads": rows}
    head = ("THREAD", "CHECKPOINTS", "WOULD STAY" if given.dry_run else "STAY", "WOULD GO" if given.dry_run else "GONE")
    cells = [(row["thread"], *(f"{row[name]:,}" for name in ("before", "after", "removed"))) for row in rows]
    emit(document, table(head, cells), given.json)
    return 0


def _sweep(given: Namespace) -> int:
    rules = (given.threads, given.all, given.dry_run, given.keep_latest, given.keep_last, given.keep_every)
    if any(rules) or given.max_age_s is not None or given.drop_labels:
        raise Misuse("--expired removes what nobody can see any more, of all threads: pass no thread and no other rule")
    with opened(given.url) as saver:
        swept, cleaned = saver.sweep(), SessionManager(saver).clean()
    told = f"{swept.threads:,} expired threads, and the writes of {swept.orphans:,} checkpoints that never came"
    lines = [f"removed: {told}"]
    if any(cleaned):
        left = f"; {cleaned.left:,} are in use, or left to the application" if cleaned.left else ""
        lines.append(f"sessions: {cleaned.expired:,} have expired, {cleaned.deleted:,} are gone{left}")
    document = {"expired": swept.threads, "orphans": swept.orphans, "sessions": cleaned._asdict()}
    emit(document, lines, given.json)
    return 0


def rotate(given: Namespace) -> int:
    """Wrap the keys of all threads with the active key."""
    with opened(given.url) as saver:
        count = saver.rotate_keys()
    emit({"rotated": count}, [f"{count:,} threads have the active key now, and all others had it before"], given.json)
    return 0


def _shown(outline: Outline) -> list[Row]:
    return [row for row in outline.rows if not row.hidden]


def _removed(outline: Outline, change: Change) -> int:
    """Return how many checkpoints a change takes out of sight."""
    gone = {*change.drop, *(row.ref for row in change.relink if row.hidden)}
    return sum(row.ref in gone for row in _shown(outline))


def _strategy(given: Namespace) -> str | Retention:
    limits = {"keep_last": given.keep_last, "keep_every": given.keep_every, "max_age_s": given.max_age_s}
    limited = any(value is not None for value in limits.values())
    if given.keep_latest:
        if limited or given.drop_labels:
            raise Misuse("--keep-latest keeps the latest checkpoint and labelled ones alone: pass no other rule")
        return "keep_latest"
    if not limited:
        raise Misuse(
            "say what stays: --keep-latest, --keep-last, --keep-every, --max-age-s or --max-age-days; or pass --expired"
        )
    return Retention(**limits, keep_labels=not given.drop_labels)


def _plan(strategy: str | Retention) -> Callable[[Outline], Change]:
    if isinstance(strategy, Retention):
        return lambda outline: apply_policy(outline, strategy, time.time_ns() // 1000)
    return keep_latest


def label(given: Namespace) -> int:
    """Give a checkpoint a label, or take one away."""
    with opened(given.url) as saver:
        thread = require_thread(saver, given.thread)
        if given.remove:
            if given.at is not None:
                raise Misuse("--remove takes the label away wherever it is: pass no --at")
            saver.unlabel(given.thread, given.label)
            at = None
        else:
            row = find_row(saver, thread, given.at, given.ns or "")
            saver.label(config_of(row.ref), given.label)
            at = from_text(row.ref.id)
    document = {"thread": given.thread, "label": given.label, "checkpoint": at}
    emit(document, [f"{given.label}: {at or 'removed'}"], given.json)
    return 0
