"""Opening what a command reads or changes, and what it reads of a thread."""

from __future__ import annotations

import os
import re
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_statekit.checkpoint import presence
from langgraph_statekit.checkpoint.claims import Claim, Held
from langgraph_statekit.checkpoint.codec import config_of, frame_key
from langgraph_statekit.checkpoint.facts import Usage
from langgraph_statekit.checkpoint.frames import Frames
from langgraph_statekit.checkpoint.labels import is_label, labels_of
from langgraph_statekit.checkpoint.opening import open_saver
from langgraph_statekit.checkpoint.order import clock_us
from langgraph_statekit.checkpoint.records import Outline, Query, Ref, Row, from_text, to_text
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.cli.serializer import ForeignSerializer
from langgraph_statekit.errors import CheckpointMissing, DataError, Misuse
from langgraph_statekit.extras import load
from langgraph_statekit.status import DAMAGED, UNFINISHED, Status, is_control, status_of
from langgraph_statekit.timetravel.history import History, line

if TYPE_CHECKING:
    from langgraph_statekit.checkpoint.sealing import Encryption

_NO_TOKEN: Final = -1
_PRESENT: Final = object()
_STEP: Final = re.compile("-?[0-9]{1,9}")


@contextmanager
def opened(
    url: str | None, *, create: bool = False, serde: SerializerProtocol | None = None, workers: int = 1
) -> Iterator[StatekitSaver]:
    """Yield a saver that reads without the user's classes, and close it.

    Args:
        url: The store.
        create: Make what the store lacks; otherwise a store that is not there is refused.
        serde: Another serializer, which may need the classes.
        workers: Threads that serve async callers.

    Raises:
        Misuse: No URL is given, it cannot be used, or there is nothing to read.
    """
    if not url:
        raise Misuse("no store: pass --url, or set STATEKIT_URL")
    saver = open_saver(url, serde=serde or ForeignSerializer(), workers=workers, encryption=encryption())
    for engine in (saver._sync, saver._async):
        engine.ttl_us = engine.ttl_us or None  # a thread keeps the time to live that it has
    try:
        if not create and not saver.backend.exists():
            raise Misuse("there are no checkpoints of langgraph-statekit in this store: correct the URL")
        yield saver
    finally:
        saver.close()


def encryption() -> Encryption | None:
    """Return the keys that the environment holds.

    Raises:
        Misuse: They cannot be read.
    """
    text = os.environ.get("STATEKIT_KEYS")
    if not text:
        return None
    items = [item.strip().partition("=") for item in text.split(",")]
    try:
        keys = {name: b64decode(key, validate=True) for name, _, key in items}
    except ValueError:
        keys = {}
    if len(keys) < len(items):
        raise Misuse("STATEKIT_KEYS must be NAME=KEY,NAME=KEY: keys of 32 bytes in base64, the active one first")
    try:
        made: Encryption = load("checkpoint.sealing", "Encryption")(keys, active=items[0][0])
    except ModuleNotFoundError as error:
        raise Misuse(str(error)) from error
    return made


def thread_ids(saver: StatekitSaver) -> list[str]:
    """Return all threads of a store, as storage text."""
    return [thread for page in saver.backend.threads() for thread in page]


@dataclass(frozen=True, slots=True)
class Thread:
    """What is known of a thread without its values.

    Attributes:
        id: Thread id.
        rows: Its checkpoints, oldest first, without hidden ones.
        labels: Checkpoints by label.
        updated_us: When its newest checkpoint was made; 0 if its id does not tell.
        status: As of the latest checkpoint of the root namespace, or of the newest one if that has none.
        usage: What it takes up.
        lease: Who has it, if anybody.
    """

    id: str
    rows: Sequence[Row]
    labels: Mapping[str, Ref]
    updated_us: int
    status: Status
    usage: Usage
    lease: Held | None = None

    @property
    def age_s(self) -> float | None:
        """Seconds since it changed."""
        return time.time() - self.updated_us / 1e6 if self.updated_us else None

    @property
    def state(self) -> str:
        """The status, and who has the thread."""
        if self.lease is None:
            return self.status.name
        by = f"leased by {from_text(self.lease.owner)}"
        return by if self.status.name == UNFINISHED else f"{self.status.name}, {by}"

    def labels_at(self, ref: Ref) -> list[str]:
        """Return the labels of a checkpoint."""
        return [label for label, at in self.labels.items() if at == ref]


def read_thread(saver: StatekitSaver, thread: str) -> Thread | None:
    """Return what is known of a thread (as storage text); None if it has no checkpoints."""
    try:
        outline = saver.backend.outline(thread)
    except DataError as error:
        return Thread(from_text(thread), (), {}, 0, Status(DAMAGED, (), errors=[str(error)]), Usage(None, 0))
    rows = [row for row in outline.rows if not row.hidden]
    if not rows:
        return None
    latest = next((row for row in reversed(rows) if row.ref.ns == ""), rows[-1])
    return Thread(
        id=from_text(thread),
        rows=rows,
        labels={from_text(label): ref for label, ref in labels_of(filter(is_label, outline.rows)).items()},
        updated_us=clock_us(rows[-1].ref.id),
        status=_status(saver, outline, latest.ref),
        usage=saver.backend.usage(thread),
        lease=leases(saver, [thread]).get(thread),
    )


def leases(saver: StatekitSaver, threads: Sequence[str]) -> dict[str, Held]:
    """Return the leases that run now, by this host's clock."""
    asked = [Claim(thread, "", "", 0, token=_NO_TOKEN) for thread in threads]  # a renewal of nothing changes nothing
    try:
        found = saver.backend.claim(asked)
    except Misuse:  # who may only read may not claim
        return {}
    now_us = time.time_ns() // 1000
    return {
        thread: held
        for thread, held in zip(threads, found, strict=True)
        if isinstance(held, Held) and held.until_us > now_us
    }


def _status(saver: StatekitSaver, outline: Outline, ref: Ref) -> Status:
    try:
        return _read_status(saver, outline, ref)
    except DataError as error:
        return Status(DAMAGED, (), errors=[str(error)])


def _read_status(saver: StatekitSaver, outline: Outline, ref: Ref) -> Status:
    found = saver.backend.rows(Query(ref.thread, ref.ns, ref.id, limit=1))
    if not found:
        return Status(UNFINISHED, [])
    codec = saver._codec
    row = found[0]
    plain = codec.checkpoint(row)
    keys = {channel: frame_key(ref.ns, channel, version) for channel, version in plain["channel_versions"].items()}
    stored = {channel: key for channel, key in keys.items() if key in outline.frames}
    presence.require(codec.present(row), stored)
    wanted = {channel: key for channel, key in stored.items() if is_control(channel)}
    frames, writes = saver.backend.fill(ref.thread, set(wanted.values()), [ref])
    read = Frames(0).reader(ref.thread, frames)
    values: dict[str, Any] = dict.fromkeys(stored, _PRESENT)
    for channel, key in wanted.items():
        codec.unpack_value(values, channel, key, read)
    return status_of(plain, values, [codec.unpack_write(write) for write in writes.get(ref, ())])


def require_thread(saver: StatekitSaver, thread: str) -> Thread:
    """Return what is known of a thread.

    Raises:
        CheckpointMissing: It has no checkpoints.
    """
    found = read_thread(saver, to_text(thread))
    if found is None:
        raise missing(thread)
    return found


def missing(thread: str) -> CheckpointMissing:
    """Return the error of a thread that is not there."""
    return CheckpointMissing(f"there is no thread {thread!r} in this store")


def find_row(saver: StatekitSaver, thread: Thread, name: str | None, ns: str = "") -> Row:
    """Return the checkpoint that a name means: a label, an id or its beginning, or a step; the latest for None.

    Steps are those of the current branch, as in `TimeTravel`: -1 is the latest, -2 the one before it.

    Raises:
        CheckpointMissing: There is none.
        Misuse: There are several.
    """
    rows = [row for row in thread.rows if row.ref.ns == to_text(ns)]
    if name is None:
        if rows:
            return rows[-1]
        known = sorted({from_text(row.ref.ns) for row in thread.rows})
        raise CheckpointMissing(f"thread {thread.id!r} has no namespace {ns!r}, but {', '.join(map(repr, known))}")
    if name in thread.labels:
        return next((row for row in thread.rows if row.ref == thread.labels[name]), rows[-1])
    is_step = _STEP.fullmatch(name) is not None
    found = [row for row in rows if row.ref.id == to_text(name)]
    if not found and is_step:
        id = _at_step(saver, thread, ns, int(name))
        found = [row for row in rows if row.ref.id == id]
    found = found or [row for row in rows if name and row.ref.id.startswith(to_text(name))]
    if len(found) == 1:
        return found[0]
    if found and not is_step:
        raise Misuse(f"{len(found)} checkpoints of thread {thread.id!r} begin with {name!r}: give more of the id")
    lacks = "step" if is_step else "checkpoint and no label"
    raise CheckpointMissing(f"thread {thread.id!r} has no {lacks} {name!r} in namespace {ns!r}")


def _at_step(saver: StatekitSaver, thread: Thread, ns: str, step: int) -> str | None:
    """Return the id (as storage text) of the checkpoint of a step, on the current branch if that has it."""
    points = run_sync(History(Side(saver, is_async=False), thread.id).points(ns))
    current = line(points, points[0].id) if points else []
    found = current[-1 - step :] if step < 0 else [point for point in (*current, *points) if point.step == step]
    return to_text(found[0].id) if found else None


def read_checkpoint(saver: StatekitSaver, row: Row) -> CheckpointTuple:
    """Return a checkpoint with its values; a delta channel without value has what it is rebuilt from.

    Raises:
        CheckpointMissing: It was removed meanwhile.
    """
    at = config_of(row.ref)
    found = saver.get_tuple(at)
    if found is None:
        raise CheckpointMissing(f"checkpoint {from_text(row.ref.id)!r} was removed meanwhile")
    values = found.checkpoint["channel_values"]
    counters: Any = found.metadata.get("counters_since_delta_snapshot") or ()
    missing = [
        channel for channel in counters if channel in found.checkpoint["channel_versions"] and channel not in values
    ]
    for channel, history in saver.get_delta_channel_history(config=at, channels=missing).items():
        writes = [value for _, _, value in history["writes"]]
        values[channel] = {"$delta": {"seed": history.get("seed"), "writes": writes}}
    return found
