"""What changes a thread as a whole: removals, deletion and copy."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.bucket import Bucket
from langgraph_statekit.checkpoint.backends.objects.heads import Heads
from langgraph_statekit.checkpoint.backends.objects.index import changed, moved, overflow, segment_of, uses
from langgraph_statekit.checkpoint.backends.objects.layout import (
    Data,
    Entry,
    Head,
    age_s,
    decode_head,
    digest,
    empty_head,
    encode_head,
    encode_segment,
    mark_of,
    new_name,
)
from langgraph_statekit.checkpoint.backends.objects.reader import Gone, Reader
from langgraph_statekit.checkpoint.claims import is_rekeyed, rekeyed
from langgraph_statekit.checkpoint.expiry import Swept
from langgraph_statekit.checkpoint.records import Change, Ref

_PACK_BYTES: Final = 8 * 1024 * 1024
_PACK_OBJECTS: Final = 16
_ORPHAN_S: Final = 3600
_CLOCKS_DIFFER_US: Final = 10_000_000
"""By which what two processes take for the time of the service may differ; it is known to a second."""


def change_thread(bucket: Bucket, reader: Reader, head: Head, tag: str, change: Change, grace_s: float) -> bool:
    """Make a change if the head is still the given one.

    Raises:
        Gone: A data object is missing: the head is out of date, or the thread is damaged.
    """
    keys = reader.keys(head.thread)
    listing = bucket.start(bucket.list, keys.root)
    index = reader.index(head)
    kept = changed(index.values(), set(change.drop), set(change.drop_frames), change.relink)
    if kept:
        gone = {(ref.ns, ref.id) for ref in change.drop}
        left = replace(head, early={at: names for at, names in head.early.items() if at not in gone})
        new, waste = _rewritten(reader, left, index.values(), kept).lived_on().cleaned(grace_s)
    else:
        new, waste = replace(empty_head(), rev=head.rev + 1, lease=head.lease), []
    named = {keys.data(head.epoch, name) for name in (*(reader.named(new) if kept else ()), *waste)}
    # Listed before the change counts, so that nothing is in it that was stored after the change.
    listed = [key for key in listing.result() if key != keys.head]
    data = encode_head(new)
    done = bucket.swap(keys.head, data, tag)
    if done is None:
        return False
    reader.remember(head.thread, data, done)
    if kept:
        dropped = {keys.writes_of(ref) for ref in change.drop}
        # What is named nowhere was left by a crash, unless it is so young that a writer may be about to name it.
        listed = [
            key
            for key in listed
            if key.rpartition("/")[0] in dropped
            or (not key.startswith(keys.writes + "/") and key not in named and age_s(key) > _ORPHAN_S)
        ]
        listed += [keys.data(head.epoch, name) for name in waste]
    bucket.delete(listed)
    return True


def _rewritten(reader: Reader, head: Head, before: Collection[Entry], kept: list[Entry]) -> Head:
    """Return the head of what is kept, with what is needed of objects that lost something packed anew."""
    had, need = uses(before), uses(kept)
    names, last, rest = _repacked(reader, head, {name: need[name] for name in need if need[name] != had[name]})
    top, deep = [moved(entry, names) for entry in kept], []
    while given := overflow(top):
        refs = {entry.row.ref for entry in given}
        top = [entry for entry in top if entry.row.ref not in refs]
        deep += given
    if deep:
        rest = replace(rest, segment=encode_segment(deep))
    if rest != Data():
        reader.upload(head.thread, head.epoch, last, rest)
    unused = (had.keys() | {segment.name for segment in head.segments}) - uses([*top, *deep]).keys()
    return replace(
        head,
        rev=head.rev + 1,
        entries=top,
        segments=[segment_of(last, deep)] if deep else [],
        overrides={},
        garbage=[*head.garbage, *([(int(time.time()), b"".join(sorted(unused)))] if unused else [])],
    )


def _repacked(
    reader: Reader, head: Head, needed: Mapping[bytes, set[Ref | bytes]]
) -> tuple[dict[bytes, bytes], bytes, Data]:
    """Upload what is needed of some objects as new ones; return old names to new ones, and the last one unsent."""
    names: dict[bytes, bytes] = {}
    last, bodies, frames = new_name(), dict[tuple[str, str], bytes](), dict[bytes, bytes]()
    left = list(needed)
    while left:
        batch, left = left[:_PACK_OBJECTS], left[_PACK_OBJECTS:]
        for old, data in reader.data(head.thread, head.epoch, batch).items():
            names[old] = last
            for part in needed[old]:
                if isinstance(part, Ref):
                    bodies[part.ns, part.id] = data.bodies[part.ns, part.id]
                else:
                    frames[part] = data.frames[part]
        if sum(map(len, (*bodies.values(), *frames.values()))) > _PACK_BYTES:
            reader.upload(head.thread, head.epoch, last, Data(bodies, frames))
            last, bodies, frames = new_name(), {}, {}
    return names, last, Data(bodies, frames)


def sweep(bucket: Bucket, reader: Reader, heads: Heads, orphans_us: int) -> Swept:
    """Remove expired threads, all but an empty head, and writes that are so old and have no checkpoint."""
    threads = orphans = 0
    limit_s = time.time() - orphans_us / 1e6
    for folder in bucket.folders(reader.root):
        root = f"{reader.root}/{folder}"
        found = bucket.get(f"{root}/head")
        head = decode_head(found.data) if found else empty_head()
        if found and head.over:
            threads += heads.renewed(head.thread, head, found.tag) is not None
            continue
        stats = bucket.stats(f"{root}/w")
        young = {key.split("/")[-2] for key, stat in stats.items() if stat.modified_s > limit_s}
        if old := {key.split("/")[-2] for key in stats} - young:
            index = reader.stable(head.thread, reader.index) if head.alive else {}
            old -= {digest(ref.ns, ref.id) for ref in index}
            if left := [key for key in stats if key.split("/")[-2] in old]:
                bucket.delete(left)
            orphans += len(old)
    return Swept(threads, orphans)


def drop(bucket: Bucket, reader: Reader, heads: Heads, thread: str) -> None:
    """Remove everything of a thread, its head first; of a young lease the token stays."""
    keys = reader.keys(thread)
    retired = heads.retire(thread, _CLOCKS_DIFFER_US)
    if retired is None:
        bucket.delete([keys.head])
    reader.marks.forget(lambda key: key.startswith(keys.root))
    left = bucket.list(keys.root)
    if not left:
        return
    head, _ = reader.fresh(thread)
    if retired is not None and head.epoch == retired.epoch and not (head.alive or head.early or head.header):
        left = [key for key in left if key != keys.head]
    elif head.epoch:  # a new life has begun meanwhile, and writes cannot be told apart
        spared = (keys.head, keys.writes + "/", keys.data(head.epoch, b""))
        left = [key for key in left if not key.startswith(spared)]
    if left:
        bucket.delete(left)


def copy_thread(
    bucket: Bucket,
    reader: Reader,
    heads: Heads,
    source: str,
    target: str,
    operation: str,
    header: bytes,
) -> bool | None:
    """Copy a thread under a header; None if source or target changed meanwhile.

    Raises:
        Rekeyed: The source has a header with another id.
    """
    from_, to = reader.keys(source), reader.keys(target)
    reading = bucket.start(reader.fresh, target)
    head, _ = reader.fresh(source)
    there, _ = reading.result()
    if there.alive:
        return there.copied_by == operation
    if not head.alive:
        return True
    if mark_of(head.header) != mark_of(header):
        raise rekeyed(source)
    there, tag = heads.opened(target)
    if there.alive or not there.epoch:
        return None
    if there.header and is_rekeyed(header, there.header):
        return False
    listing = bucket.start(bucket.list, to.writes)
    writes = {key: to.writes + key[len(from_.writes) :] for key in bucket.list(from_.writes)}
    present = set(listing.result())
    try:
        entries = reader.index(head).values()
    except Gone:
        return None
    names = uses(entries).keys() | {segment.name for segment in head.segments}
    pairs = {from_.data(head.epoch, name): to.data(there.epoch, name) for name in names}
    if not all(bucket.all(lambda key: bucket.copy(key, pairs[key]), pairs)):
        return None
    wanted = [key for key, new in writes.items() if new not in present]
    bucket.all(lambda key: bucket.copy(key, writes[key]), wanted)
    head = replace(head, until_us=None, lease=None).lived_on()
    made = replace(
        head,
        epoch=there.epoch,
        thread=target,
        rev=there.rev + 1,
        copied_by=operation,
        garbage=(),
        lease=there.lease,
        header=header,
        early={**head.early, **{at: head.early.get(at, b"") + names for at, names in there.early.items()}},
    )
    data = encode_head(made)
    done = bucket.swap(to.head, data, tag)
    if done is None:
        return None
    reader.remember(target, data, done)
    return True
