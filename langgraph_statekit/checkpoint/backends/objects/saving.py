"""Saves: uploads come first, and the compare-and-set of the thread's head publishes them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.heads import Heads
from langgraph_statekit.checkpoint.backends.objects.index import needs_segments, overflow, placed, segment_of, without
from langgraph_statekit.checkpoint.backends.objects.layout import (
    Batch,
    Data,
    Entry,
    Head,
    decode_writes,
    encode_head,
    encode_segment,
    encode_writes,
    new_batch,
    new_name,
    with_batch,
)
from langgraph_statekit.checkpoint.backends.objects.reader import Gone, Reader
from langgraph_statekit.checkpoint.backends.objects.turns import lane_of, pauses
from langgraph_statekit.checkpoint.claims import Misplaced, fenced, is_late, is_rekeyed, rekeyed
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX
from langgraph_statekit.checkpoint.records import Frame, Ref, Row, Save, SaveRow, SaveWrites, Write, is_made
from langgraph_statekit.checkpoint.run import Threads
from langgraph_statekit.errors import Corrupt, StatekitError

_UPLOAD_S: Final = 600


@dataclass(frozen=True, slots=True)
class _Upload:
    """A put's data object, and the entries that it takes over from the head."""

    epoch: str
    name: bytes
    given: Sequence[Entry]
    at: float


class Saving:
    """Makes saves durable, see `Backend.save`."""

    def __init__(self, bucket: Bucket, reader: Reader, heads: Heads, lanes: Threads, grace_s: float) -> None:
        self._bucket = bucket
        self._reader = reader
        self._heads = heads
        self._lanes = lanes
        self._grace_s = grace_s

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        # What changes one object goes in turn, different objects at once.
        lanes: dict[tuple[str, Ref | None, str], list[int]] = {}
        for at, save in enumerate(saves):
            lanes.setdefault(lane_of(save), []).append(at)
        results: list[int | Exception] = [True] * len(saves)
        leased = {
            at: (save, new_batch())
            for at, save in enumerate(saves)
            if isinstance(save, SaveWrites) and save.token is not None
        }

        def run(lane: Sequence[int]) -> None:
            for at in lane:
                try:
                    results[at] = self._save(saves[at], leased[at][1] if at in leased else b"")
                except Exception as error:  # one bad save fails alone
                    results[at] = error

        in_parallel(self._lanes, [partial(run, lane) for lane in lanes.values()])
        groups: dict[str, list[int]] = {}
        for at in leased:
            if is_made(results[at]):
                groups.setdefault(saves[at].thread, []).append(at)

        def count(thread: str, group: Sequence[int]) -> None:
            try:
                done = self._heads.count(thread, [leased[at] for at in group])
            except Exception as error:
                results_of: list[int | Exception] = [error] * len(group)
            else:
                results_of = [counts or fenced(saves[at]) for at, counts in zip(group, done, strict=True)]
            for at, result in zip(group, results_of, strict=True):
                results[at] = result

        in_parallel(self._lanes, [partial(count, thread, group) for thread, group in groups.items()])
        return results

    def _save(self, save: Save, batch: bytes) -> int | Exception:
        if self._heads.is_late(save):
            return fenced(save)
        if isinstance(save, SaveRow):
            return self._save_row(save)
        asks = any(write.idx == INTERRUPT_IDX for write in save.writes)
        # First, for a crash in between: an interrupted thread may stay for too long, but not expire.
        self._heads.live_on(save.thread, save.ref if asks else None)
        if not self._heads.keep_header(save):
            return rekeyed(save.thread)
        for task in dict.fromkeys(write.task for write in save.writes):
            self._save_task(save, task, [write for write in save.writes if write.task == task], batch)
        return True

    def _save_row(self, save: SaveRow) -> int | Exception:
        row, frames = save.row, save.frames
        thread = row.ref.thread
        key = self._reader.keys(thread).head
        upload: _Upload | None = None
        for pause_s in pauses(thread):
            head, _ = self._heads.opened(thread)
            if upload is None or upload.epoch != head.epoch or time.monotonic() - upload.at > _UPLOAD_S:
                upload = self._upload(head, row, frames)
            with self._reader.turn(thread):
                head, tag = self._heads.opened(thread)
                if head.epoch != upload.epoch:
                    continue
                if any(entry.data == upload.name for entry in head.entries):
                    # An earlier attempt, though another writer replaced the head before it was confirmed.
                    return head.rev
                if is_late(save.token, head.lease):
                    if self._heads.is_late(save):
                        return fenced(save)
                    continue
                if is_rekeyed(save.header, head.header):
                    if self._reader.fresh(thread)[1] == tag:
                        return rekeyed(thread)
                    continue
                try:
                    if self._reader.lacks(head, save):
                        if self._reader.fresh(thread)[1] == tag:
                            return 0
                        continue
                    new, waste = self._placed(head, upload, save)
                except Misplaced as misplaced:
                    if self._reader.fresh(thread)[1] == tag:
                        return misplaced
                    continue
                except Gone as gone:
                    if self._reader.fresh(thread)[1] == tag:
                        raise Corrupt(f"{gone} is missing in the store; restore the thread from a copy") from gone
                    continue
                data = encode_head(new)
                published = self._bucket.swap(key, data, tag)
                if published is not None:
                    self._reader.remember(thread, data, published, new)
                else:
                    self._reader.fresh(thread)
            if published is not None:
                self._sweep(head, waste)
                return new.rev
            time.sleep(pause_s)
        return 0

    def _upload(self, head: Head, row: Row, frames: Sequence[Frame]) -> _Upload:
        given = overflow(head.entries)
        data = Data(
            {(row.ref.ns, row.ref.id): row.body},
            {frame.key: frame.data for frame in frames if frame.data is not None},
            encode_segment(given) if given else b"",
        )
        upload = _Upload(head.epoch, new_name(), given, time.monotonic())
        self._reader.upload(row.ref.thread, head.epoch, upload.name, data)
        return upload

    def _placed(self, head: Head, upload: _Upload, save: SaveRow) -> tuple[Head, Sequence[bytes]]:
        deep = self._reader.deep(head) if needs_segments(head, save.row, save.frames) else {}
        new = placed(head, deep, save.row, save.frames, upload.name, save.at, save.seq)
        if save.ttl_us is not None:
            new = replace(new, ttl_us=save.ttl_us)
        new = self._reader.lived_on(new)
        if upload.given:
            new = without(new, upload.given, segment_of(upload.name, upload.given)) or new
        return replace(new, header=head.header or save.header).cleaned(self._grace_s)

    def _sweep(self, head: Head, names: Sequence[bytes]) -> None:
        if names:
            keys = self._reader.keys(head.thread)
            with suppress(StatekitError):  # the save is done; the next `apply` finds what stays
                self._bucket.delete([keys.data(head.epoch, name) for name in names])

    def _save_task(self, save: SaveWrites, task: str, writes: Sequence[Write], batch: bytes) -> None:
        ref = save.ref
        key = self._reader.keys(ref.thread).task(ref, task, save.header)
        known: tuple[Sequence[Batch], str] = self._reader.marks.get(key) or ((), ABSENT)
        for pause_s in pauses(ref.thread):
            stored = with_batch(known[0], batch, writes)
            data = encode_writes(ref, stored)
            tag = self._bucket.swap(key, data, known[1])
            if tag is not None:
                self._reader.marks.put(key, (stored, tag), len(data))
                return
            found = self._bucket.get(key)
            known = (decode_writes(found.data), found.tag) if found else ((), ABSENT)
            time.sleep(pause_s)


def in_parallel(lanes: Threads, calls: Sequence[Callable[[], None]]) -> None:
    """Make calls, the first one in this thread."""
    under_way = [lanes.start(call) for call in calls[1:]]
    for call in calls[:1]:
        call()
    for future in under_way:
        future.result()
