"""The commands that only read: ls, show and diff."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from langgraph_statekit.checkpoint.claims import Held
from langgraph_statekit.checkpoint.order import clock_us
from langgraph_statekit.checkpoint.plain import bounded, plain, text
from langgraph_statekit.checkpoint.records import Query, Row, from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.cli.stores import (
    Thread,
    find_row,
    missing,
    opened,
    read_checkpoint,
    read_thread,
    require_thread,
    thread_ids,
)
from langgraph_statekit.cli.terminal import age, colored, emit, fields, in_color, progress, table
from langgraph_statekit.errors import Misuse
from langgraph_statekit.readable import size
from langgraph_statekit.status import DAMAGED, is_control
from langgraph_statekit.timetravel.diff import diff as changes
from langgraph_statekit.timetravel.moments import point_of
from langgraph_statekit.timetravel.travel import LIMIT, TimeTravel

_WIDE = 160
_OP = "statekit_op"
_ROLLBACK = ("op", "reason", "item", "attempt", "from", "to")


def ls(given: Namespace) -> int:
    """List threads, those that changed last first."""
    with opened(given.url) as saver:
        ids = [to_text(id) for id in given.threads] or thread_ids(saver)
        read = [read_thread(saver, id) for id in progress(ids, "threads")]
    if given.threads and None in read:
        raise missing(given.threads[read.index(None)])
    found = [thread for thread in read if thread and given.status in (None, thread.status.name)]
    found.sort(key=lambda thread: -thread.updated_us)
    found = found[: given.limit]
    head = ("THREAD", "CHECKPOINTS", "SIZE", "AGE", "STATUS", "NEXT", "LABELS")
    rows = (
        (
            *(thread.id, f"{len(thread.rows):,}", size(thread.usage.size_bytes), age(thread.age_s), thread.state),
            *(", ".join(thread.status.next), ", ".join(thread.labels)),
        )
        for thread in found
    )
    emit([_summary(thread) for thread in found], table(head, rows), given.json)
    return int(any(thread.status.name == DAMAGED for thread in found))


def _summary(thread: Thread) -> dict[str, Any]:
    return {
        "thread": thread.id,
        "checkpoints": len(thread.rows),
        "size_bytes": thread.usage.size_bytes,
        "updated": _iso(thread.updated_us),
        "age_s": None if thread.age_s is None else round(thread.age_s, 3),
        "status": thread.status.name,
        "next": list(thread.status.next),
        "lease": _lease(thread.lease),
        "labels": list(thread.labels),
    }


def _lease(held: Held | None) -> dict[str, Any] | None:
    return held and {"owner": from_text(held.owner), "until": _iso(held.until_us), "token": held.token}


def _iso(at_us: int) -> str | None:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat() if at_us else None


def show(given: Namespace) -> int:
    """Show a thread and one of its checkpoints, or its history."""
    if given.history and given.at is not None:
        raise Misuse("--history lists all checkpoints: pass no --at")
    if given.limit is not None and not given.history and not given.html:
        raise Misuse("--limit says how much of the --history to list, or of the --html page: pass one of them too")
    if given.html and (given.history or given.at is not None or given.ns is not None):
        raise Misuse("--html shows the newest checkpoints of all namespaces: pass no --history, --at or --ns")
    with opened(given.url) as saver:
        thread = require_thread(saver, given.thread)
        if given.html:
            return _page(saver, thread, given)
        if given.history:
            history = list(_history(saver, thread, given.ns, given.limit))
            head = ("CHECKPOINT", "NAMESPACE", "STEP", "SOURCE", "AGE", "LABELS")
            emit(history, table(head, map(_history_row, history)), given.json)
            return 0
        row = find_row(saver, thread, given.at, given.ns or "")
        found = read_checkpoint(saver, row)
    shown = _checkpoint(thread, row, found)
    if not given.full:
        channels = {name: bounded(value) for name, value in shown.pop("channels").items()}
        shown = {**{name: bounded(value) for name, value in shown.items()}, "channels": channels}
    document = {**_summary(thread), **shown}
    emit(document, _lines(thread, document, given.full), given.json)
    return 0


def _page(saver: StatekitSaver, thread: Thread, given: Namespace) -> int:
    try:
        path = TimeTravel(saver, thread_id=thread.id).to_html(given.html, limit=given.limit or LIMIT)
    except OSError as error:
        raise Misuse(f"the page cannot be written to {given.html!r}: {error.strerror or error}") from error
    emit({"thread": thread.id, "html": str(path)}, [str(path)], given.json)
    return 0


def _checkpoint(thread: Thread, row: Row, found: CheckpointTuple) -> dict[str, Any]:
    values = found.checkpoint["channel_values"]
    return {
        "namespace": from_text(row.ref.ns),
        "checkpoint": from_text(row.ref.id),
        "parent": None if row.parent is None else from_text(row.parent),
        "created": found.checkpoint["ts"],
        "labels_here": thread.labels_at(row.ref),
        "interrupts": [_interrupt(plain(each)) for each in thread.status.interrupts],
        "errors": plain(list(thread.status.errors)),
        "metadata": plain(found.metadata),
        "channels": plain({name: value for name, value in values.items() if not is_control(name)}),
        "writes": [
            {"task": task, "channel": channel, "value": plain({channel: value})[channel]}
            for task, channel, value in found.pending_writes or ()
        ],
    }


def _interrupt(shown: Any) -> Any:
    return {name: shown[name] for name in ("id", "value")} if isinstance(shown, dict) and "id" in shown else shown


def _lines(thread: Thread, document: Mapping[str, Any], full: bool) -> Iterator[str]:
    metadata = document["metadata"]
    facts = {
        "thread": thread.id,
        "status": thread.state,
        "next": ", ".join(document["next"]),
        "checkpoints": f"{document['checkpoints']:,} ({size(document['size_bytes'])})",
        "labels": ", ".join(document["labels"]),
        "checkpoint": document["checkpoint"] + "".join(f" [{label}]" for label in document["labels_here"]),
        "namespace": document["namespace"],
        "parent": document["parent"] or "",
        "created": document["created"],
        "step": f"{metadata.get('step', '?')} ({metadata.get('source', '?')})",
        **{f"interrupt {n}": text(value) for n, value in enumerate(document["interrupts"], 1)},
        **{f"error {n}": text(value) for n, value in enumerate(document["errors"], 1)},
    }
    yield from fields((name, value) for name, value in facts.items() if value)
    others = {key: value for key, value in metadata.items() if key not in ("step", "source", "parents")}
    for title, rows in (
        ("channels", document["channels"].items()),
        ("metadata", others.items()),
        ("pending writes", ((f"{each['channel']} ({each['task'][:8]})", each["value"]) for each in document["writes"])),
    ):
        lines = list(fields((name, _narrow(value, full)) for name, value in rows))
        if lines:
            yield from ("", f"{title}:", *lines)


def _narrow(value: Any, full: bool) -> str:
    line = text(value)
    return line if full or len(line) <= _WIDE else f"{line[:_WIDE]}... (--full shows all)"


def _history(saver: StatekitSaver, thread: Thread, ns: str | None, limit: int | None) -> Iterator[dict[str, Any]]:
    below = None
    left = limit
    while left is None or left > 0:
        page = 100 if left is None else min(left, 100)
        space = None if ns is None else to_text(ns)
        rows = saver.backend.rows(Query(to_text(thread.id), space, below_seq=below, limit=page))
        for row in rows:
            metadata = saver._codec.metadata(row)
            yield {
                "checkpoint": from_text(row.ref.id),
                "namespace": from_text(row.ref.ns),
                "parent": None if row.parent is None else from_text(row.parent),
                "created": _iso(clock_us(row.ref.id)),
                "step": metadata.get("step"),
                "source": metadata.get("source"),
                "rollback": {name: metadata.get(f"statekit_{name}") for name in _ROLLBACK} if _OP in metadata else None,
                "labels": thread.labels_at(row.ref),
            }
        if len(rows) < page:
            return
        below = rows[-1].seq
        left = None if left is None else left - len(rows)


def _history_row(item: Mapping[str, Any]) -> tuple[str, ...]:
    created = item["created"]
    passed = (datetime.now(UTC) - datetime.fromisoformat(created)).total_seconds() if created else None
    return (
        *(item["checkpoint"], item["namespace"], str(item["step"]), _source(item), age(passed)),
        ", ".join(item["labels"]),
    )


def _source(item: Mapping[str, Any]) -> str:
    if (back := item["rollback"]) is None:
        return str(item["source"])
    more = "".join(f", {name} {back[name]}" for name in ("item", "attempt") if back[name] is not None)
    return f"{back['op']} to {back['to']}: {back['reason']}{more}"


def diff(given: Namespace) -> int:
    """Compare the channel values of two checkpoints; 1 if they differ."""
    if given.at is not None and (given.before is not None or given.other):
        raise Misuse("--at compares a checkpoint with the one that it goes on from: pass no BEFORE and no --other")
    with opened(given.url) as saver:
        thread = require_thread(saver, given.thread)
        other = require_thread(saver, given.other) if given.other else thread
        newer = find_row(saver, other, given.after if given.at is None else given.at, given.ns or "")
        if given.before is not None or given.other:
            older: Row | None = find_row(saver, thread, given.before, given.ns or "")
        else:
            older = _origin(saver, thread, newer)
        before, after = (_state(saver, row, given.all) for row in (older, newer))
    found = [
        {"path": path, "kind": kind, **_sides(kind, old, new, given.full)}
        for path, kind, old, new in changes(before, after)
    ]
    document = {
        "thread": thread.id,
        "other": other.id,
        "before": older and from_text(older.ref.id),
        "after": from_text(newer.ref.id),
        "differences": found,
    }
    lines = _differing(document, found, given.full)
    emit(document, colored(lines) if in_color(given.color) else lines, given.json)
    return 1 if found else 0


def _origin(saver: StatekitSaver, thread: Thread, row: Row) -> Row | None:
    """Return the checkpoint that one goes on from, as `TimeTravel` tells it; for a fork, what it copies."""
    copied = point_of(read_checkpoint(saver, row)).parent
    found = next((each for each in thread.rows if copied and each.ref == row.ref._replace(id=to_text(copied))), None)
    if found or row.parent is None:
        return found
    return find_row(saver, thread, from_text(row.parent), from_text(row.ref.ns))


def _state(saver: StatekitSaver, row: Row | None, control: bool) -> dict[str, Any]:
    if row is None:
        return {}
    values = read_checkpoint(saver, row).checkpoint["channel_values"]
    return {name: value for name, value in values.items() if control or not is_control(name)}


def _sides(kind: str, before: Any, after: Any, full: bool) -> dict[str, Any]:
    sides = {"before": before, "after": after}
    gone = {"added": "before", "removed": "after"}.get(kind)
    return {side: value if full else bounded(value, 1000) for side, value in sides.items() if side != gone}


def _differing(document: Mapping[str, Any], found: Iterable[Mapping[str, Any]], full: bool) -> Iterator[str]:
    yield from fields([("before", document["before"] or "nothing"), ("after", document["after"])])
    rows = []
    for each in found:
        if each["kind"] != "added":
            rows.append((f"- {each['path']}", _narrow(each["before"], full)))
        if each["kind"] != "removed":
            rows.append((f"+ {each['path']}", _narrow(each["after"], full)))
    yield from fields(rows) if rows else ("no value differs",)
