"""The writes of tasks, each an object of its own; and the headers in the heads of threads, which sealed ones need.

A head's compare-and-set does not cover writes. So the names of sealed ones tell the header's id, and a head with this
header is stored before: writes that a late worker sealed for an earlier life of the thread are never seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT
from langgraph_statekit.checkpoint.backends.objects.layout import (
    Head,
    decode_head,
    decode_writes,
    encode_head,
    encode_writes,
    mark_of,
    merged,
)
from langgraph_statekit.checkpoint.backends.objects.reader import Reader
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.claims import is_rekeyed, rekeyed
from langgraph_statekit.checkpoint.records import Ref, SaveWrites, Write

Opened = Callable[[str], tuple[Head, str]]
"""Returns the head of a thread, perhaps out of date, and its tag; a new one is stored first."""


def save_writes(bucket: Bucket, reader: Reader, save: SaveWrites, opened: Opened) -> None:
    """Store writes.

    Raises:
        Rekeyed: They are sealed with another key than the thread's, or with none where it is known to have one.
    """
    known = reader.known(save.thread)
    if save.header:
        _keep_header(bucket, reader, save, opened)
    elif known is not None and known[0].header:
        raise rekeyed(save.thread)
    for task in dict.fromkeys(write.task for write in save.writes):
        writes = [write for write in save.writes if write.task == task]
        _save_task(bucket, reader, save.ref, reader.keys(save.thread).task(save.ref, task, save.header), writes)


def _keep_header(bucket: Bucket, reader: Reader, save: SaveWrites, opened: Opened) -> None:
    thread = save.thread
    for pause_s in pauses(thread):
        head, tag = opened(thread)
        if is_rekeyed(save.header, head.header):
            if reader.fresh(thread)[1] == tag:
                raise rekeyed(thread)
            continue
        if head.header:
            return
        if _put_header(bucket, reader, thread, head, tag, save.header):
            return
        reader.fresh(thread)
        time.sleep(pause_s)


def _put_header(bucket: Bucket, reader: Reader, thread: str, head: Head, tag: str, header: bytes) -> bool:
    data = encode_head(replace(head, thread=thread, header=header))
    done = bucket.swap(reader.keys(thread).head, data, tag)
    if done is not None:
        reader.remember(thread, data, done)
    return done is not None


def _save_task(bucket: Bucket, reader: Reader, ref: Ref, key: str, writes: Sequence[Write]) -> None:
    known: tuple[Sequence[Write], str] = reader.marks.get(key) or ((), ABSENT)
    for pause_s in pauses(ref.thread):
        stored = merged(known[0], writes)
        data = encode_writes(ref, stored)
        tag = bucket.swap(key, data, known[1])
        if tag is not None:
            reader.marks.put(key, (stored, tag), len(data))
            return
        found = bucket.get(key)
        known = (decode_writes(found.data), found.tag) if found else ((), ABSENT)
        time.sleep(pause_s)


def own(head: Head, keys: Iterable[str]) -> list[str]:
    """Return the keys of those writes that belong to this life of a thread, in the order in which they count."""
    marks = ("", mark_of(head.header))
    return [key for key in sorted(keys) if key.rpartition("/")[2].partition("-")[2] in marks]


def headers(bucket: Bucket, reader: Reader, threads: Sequence[str]) -> dict[str, bytes]:
    """Return the headers of those threads that have one."""
    at = {reader.keys(thread).head: thread for thread in threads}
    found = {at[key]: decode_head(item.data).header for key, item in bucket.get_many(at).items()}
    return {thread: header for thread, header in found.items() if header}


def rewrap(bucket: Bucket, reader: Reader, thread: str, before: bytes, header: bytes) -> bool:
    """Replace a header if it is still the given one."""
    for pause_s in pauses(thread):
        head, tag = reader.fresh(thread)
        if head.header != before:
            return False
        if _put_header(bucket, reader, thread, head, tag, header):
            return True
        time.sleep(pause_s)
    return False
