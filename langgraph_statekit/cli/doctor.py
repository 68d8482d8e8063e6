"""The command that looks for what is wrong: with the store, with what it promises, and with what is stored."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph.checkpoint.base import empty_checkpoint

from langgraph_statekit.checkpoint.codec import Codec, frame_key
from langgraph_statekit.checkpoint.facts import BAD, Fact
from langgraph_statekit.checkpoint.frames import Frames, find, unseal, with_bases
from langgraph_statekit.checkpoint.labels import is_label, target_of
from langgraph_statekit.checkpoint.opening import open_saver
from langgraph_statekit.checkpoint.records import Outline, Query, Row, from_text, to_text
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.cli.serializer import ForeignSerializer
from langgraph_statekit.cli.stores import encryption, missing, thread_ids
from langgraph_statekit.cli.terminal import emit, progress, table, without_login
from langgraph_statekit.dice import RANDOM
from langgraph_statekit.errors import DataError, Misuse, StatekitError

_SAMPLE: Final = 20
_PAGE: Final = 50
_SHOWN: Final = 20


@dataclass(slots=True)
class Checked:
    """What reading everything of some threads found.

    Attributes:
        threads: How many were read.
        checkpoints: How many could be read.
        frames: Stored versions of channels that could be read.
        unneeded: Frames that no checkpoint needs; the next `prune` of the thread removes them.
        orphans: Checkpoints that have writes, but are not stored.
        problems: What cannot be read, or lacks what it needs, with the name of its thread.
    """

    threads: int = 0
    checkpoints: int = 0
    frames: int = 0
    unneeded: int = 0
    orphans: int = 0
    problems: list[dict[str, str]] = field(default_factory=list)


def doctor(given: Namespace) -> int:
    """Check a store; 1 if something is wrong."""
    if not given.url:
        raise Misuse("no store: pass --url, or set STATEKIT_URL")
    saver = open_saver(given.url, serde=ForeignSerializer(), workers=1, encryption=encryption())
    checked = Checked()
    total = 0
    try:
        facts = list(saver.backend.facts())
        if not given.no_write:
            facts.append(_probe(saver))
        if saver.backend.exists():
            known = thread_ids(saver)
            total = len(known)
            ids = [to_text(id) for id in given.threads] or _some(known, given.all)
            if absent := [from_text(id) for id in ids if id not in set(known)]:
                raise missing(absent[0])
            for id in progress(ids, "threads"):
                check_thread(saver, id, checked)
    finally:
        saver.close()
    healthy = not checked.problems and all(fact.verdict != BAD for fact in facts)
    document = {
        "store": without_login(given.url),
        "healthy": healthy,
        "facts": [fact._asdict() for fact in facts],
        "threads": total,
        "checked": {name: getattr(checked, name) for name in Checked.__slots__},
    }
    emit(document, _lines(document, facts, checked, total), given.json)
    return 0 if healthy else 1


def _some(ids: Sequence[str], every: bool) -> Sequence[str]:
    return ids if every or len(ids) <= _SAMPLE else RANDOM.sample(list(ids), _SAMPLE)


def _lines(document: Mapping[str, Any], facts: Sequence[Fact], checked: Checked, total: int) -> Iterator[str]:
    yield document["store"]
    yield from table(
        ("", "WHAT", "VALUE", "MEANING"),
        [(fact.verdict.upper() if fact.verdict == BAD else fact.verdict, *fact[:2], fact.meaning) for fact in facts],
    )
    yield (
        f"read {checked.threads:,} of {total:,} threads: {checked.checkpoints:,} checkpoints,"
        f" {checked.frames:,} frames, {len(checked.problems):,} problems"
    )
    if checked.unneeded:
        yield f"{checked.unneeded:,} frames are not needed any more; prune removes them"
    if checked.orphans:
        yield f"{checked.orphans:,} checkpoints have writes but are not stored: their runs go on, or have died"
    found = [(each["thread"], each["where"], each["problem"]) for each in checked.problems]
    if found:
        yield from table(("THREAD", "WHERE", "PROBLEM"), found[:_SHOWN])
    if len(found) > _SHOWN:
        yield f"... and {len(found) - _SHOWN:,} more (--json lists all)"
    yield "nothing is wrong" if document["healthy"] else "something is wrong, see BAD and PROBLEM above"


def _probe(saver: StatekitSaver) -> Fact:
    """Store a checkpoint in a thread of its own, read it, remove it, and tell how that went."""
    thread = f"statekit doctor {os.urandom(8).hex()}"
    began = time.perf_counter()
    try:
        try:
            at = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
            checkpoint = {**empty_checkpoint(), "channel_values": {"x": 1}, "channel_versions": {"x": 1}}
            put = saver.put(at, checkpoint, {"source": "input", "step": -1}, {"x": 1})  # type: ignore[arg-type]
            found = saver.get_tuple(put)
        finally:
            saver.delete_thread(thread)
    except StatekitError as error:  # also what seems to pass: the store has just told its facts
        return Fact("save and read", "refused", BAD, str(error))
    same = found is not None and found.checkpoint["channel_values"] == {"x": 1}
    took = f"{(time.perf_counter() - began) * 1000:.1f} ms"
    return Fact("save and read", took if same else "different", "ok" if same else BAD)


def check_thread(saver: StatekitSaver, thread: str, checked: Checked) -> None:
    """Read all of a thread, and add what was found to `checked`."""
    backend, codec = saver.backend, saver._codec
    name = from_text(thread)

    def problem(where: str, what: object) -> None:
        checked.problems.append({"thread": name, "where": where, "problem": str(what)})

    try:
        outline = backend.outline(thread)
        channels: dict[bytes, str] = {}
        for row in _rows(saver, thread):
            try:
                channels.update(_channels(codec, row))
                codec.metadata(row)
                for channel in _lost(saver, row, outline):
                    problem(f"checkpoint {from_text(row.ref.id)}", f"the value of channel {channel} is gone")
                checked.checkpoints += 1
            except DataError as error:
                problem(f"checkpoint {from_text(row.ref.id)}", error)
        _check_outline(outline, channels, problem)
        _check_frames(saver, thread, outline, channels, checked, problem)
        _check_writes(saver, thread, outline, problem)
        checked.orphans += backend.usage(thread).orphans
    except DataError as error:
        problem("the thread", error)
    checked.threads += 1


def _rows(saver: StatekitSaver, thread: str) -> Iterator[Row]:
    below = None
    while rows := saver.backend.rows(Query(thread, below_seq=below, limit=_PAGE)):
        yield from rows
        below = rows[-1].seq


def _channels(codec: Codec, row: Row) -> dict[bytes, str]:
    versions = codec.checkpoint(row)["channel_versions"]
    return {frame_key(row.ref.ns, channel, version): channel for channel, version in versions.items()}


def _lost(saver: StatekitSaver, row: Row, outline: Outline) -> list[str]:
    """Return the channels whose values were stored with a checkpoint, and are neither in the outline nor there now."""
    if all(key in outline.frames for key in saver._codec.present(row).values()):
        return []
    found = saver.backend.load(*row.ref)  # in one step: what retention hides or removes meanwhile has lost nothing
    if found is None:
        return []
    return [name for name, key in saver._codec.present(found.row).items() if key not in found.frames]


def _check_outline(outline: Outline, channels: Mapping[bytes, str], problem: Any) -> None:
    refs = {row.ref for row in outline.rows}
    for row in outline.rows:
        if is_label(row):
            if target_of(row) not in refs:
                problem(f"label {from_text(row.ref.id)}", "its checkpoint is not stored")
        elif row.parent is not None and row.ref._replace(id=row.parent) not in refs and not row.hidden:
            problem(f"checkpoint {from_text(row.ref.id)}", f"its parent {from_text(row.parent)} is not stored")
    for key, frame in outline.frames.items():
        if frame.base is not None and find(outline.frames, *frame.base) is None:
            problem(f"channel {channels.get(key, '?')}", "the older version that it builds on is not stored")


def _check_frames(
    saver: StatekitSaver, thread: str, outline: Outline, channels: Mapping[bytes, str], checked: Checked, problem: Any
) -> None:
    needed = with_bases(outline.frames, (key for row in outline.rows for key in row.keys))
    checked.unneeded += len(outline.frames) - len(needed)
    keys = [key for key in outline.frames if len(key) == 16]
    for at in range(0, len(keys), _PAGE):
        some = keys[at : at + _PAGE]
        frames, _ = saver.backend.fill(thread, some, ())
        read = Frames(0).reader(thread, frames)
        for key in some:
            if key not in frames:
                continue  # removed meanwhile
            try:
                saver._codec.unpack_value({}, channels.get(key, "?"), key, read)
                checked.frames += 1
            except DataError as error:
                problem(f"channel {channels.get(key, '?')}", error)


def _check_writes(saver: StatekitSaver, thread: str, outline: Outline, problem: Any) -> None:
    refs = [row.ref for row in outline.rows if not is_label(row)]
    for at in range(0, len(refs), _PAGE):
        _, writes = saver.backend.fill(thread, (), refs[at : at + _PAGE])
        for ref, own in writes.items():
            for write in own:
                try:
                    unseal(write.data)
                    saver._codec.unpack_write(write)
                except DataError as error:
                    problem(f"checkpoint {from_text(ref.id)}", error)
