"""How a thread's index changes and what it finds. Pure: heads and entries in, heads and entries out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.objects.layout import Entry, Head, Segment, batch_names
from langgraph_statekit.checkpoint.claims import Misplaced
from langgraph_statekit.checkpoint.order import place
from langgraph_statekit.checkpoint.records import Frame, Query, Ref, Row

HEAD_ROWS: Final = 128
HEAD_KEYS: Final = 16384
HEAD_PINNED: Final = 32


def segment_of(name: bytes, entries: Sequence[Entry]) -> Segment:
    """Describe entries that stand in data object `name`."""
    seqs = [entry.row.seq for entry in entries]
    ids = [entry.row.ref.id for entry in entries]
    hidden = any(entry.row.hidden for entry in entries)
    return Segment(name, len(entries), max(seqs), min(seqs), min(ids), max(ids), hidden)


def spans(head: Head, id: str) -> bool:
    """Say whether a row of this id may stand in a segment."""
    return any(segment.min_id <= id <= segment.max_id for segment in head.segments)


def select(entries: Iterable[Entry], query: Query) -> list[Row]:
    """Return the rows that a query asks for, highest `seq` first, without regard to its limit."""
    entries = list(entries)
    bounds = {entry.row.ref.ns: entry.row.seq for entry in entries if entry.row.ref.id == query.before}

    def wanted(row: Row) -> bool:
        if row.hidden != query.hidden or query.ns not in (None, row.ref.ns) or query.id not in (None, row.ref.id):
            return False
        if query.below_seq is not None and row.seq >= query.below_seq:
            return False
        if query.before is None:
            return True
        return row.seq < bounds[row.ref.ns] if row.ref.ns in bounds else row.ref.id < query.before

    return sorted((entry.row for entry in entries if wanted(entry.row)), key=lambda row: -row.seq)


def needs_segments(head: Head, row: Row, frames: Sequence[Frame]) -> bool:
    """Say whether a put can only be placed with the entries of the segments at hand."""
    if not head.segments:
        return False
    if spans(head, row.ref.id) and all(entry.row.ref != row.ref for entry in head.entries):
        return True
    known = {frame.key for frame in frames}.union(*(entry.row.keys for entry in head.entries))
    return not known.issuperset(row.keys)


def placed(
    head: Head, deep: Mapping[Ref, Entry], row: Row, frames: Sequence[Frame], name: bytes, at: int, wanted: int = 0
) -> Head:
    """Return the head after a put whose body and frames stand in data object `name`.

    Args:
        head: As it was.
        deep: Entries of the segments; may be empty unless `needs_segments`. A frame that is put again while they
            are not known stays as it was for their rows.
        row: What was put.
        frames: What was put.
        name: Where it stands.
        at: The time in the row's id.
        wanted: The place that it must get, see `SaveRow.seq`.

    Raises:
        Misplaced: It gets another one.
    """
    entries = {entry.row.ref: entry for entry in head.entries}
    known = entries.pop(row.ref, None) or deep.get(row.ref)
    put = {frame.key: b"" if frame.data is None else name for frame in frames}
    stored: dict[bytes, bytes] = {}
    for entry in (*deep.values(), *head.entries):
        stored.update(entry.frames)
    own = {key: stored[key] for key in row.keys if key in stored}
    if known is not None and known.row.ref in deep:
        # Of a namespace of which the head lists a row, it lists the latest one too.
        siblings = [e for e in deep.values() if e.row.ref.ns == row.ref.ns and not e.row.hidden and e is not known]
        for latest in sorted(siblings, key=_seq)[-1:]:
            entries.setdefault(latest.row.ref, latest)
    seq = known.row.seq if known else wanted if wanted > head.seq else _free(head, row, at)
    if wanted not in (0, seq):
        raise Misplaced(row.ref.thread, seq)
    early = dict(head.early)
    batches = (known.batches if known else b"") + early.pop((row.ref.ns, row.ref.id), b"")
    frames_now = _patched({**(known.frames if known else {}), **own}, put, put)
    entry = Entry(row._replace(seq=seq, body=b""), name, frames_now, batches)
    kept = [_with_frames(other, put) for other in entries.values()] + [entry]
    old = {key for other in deep.values() for key in (*other.row.keys, *other.frames)} | head.overrides.keys()
    return replace(
        head,
        thread=row.ref.thread,
        rev=head.rev + 1,
        seq=max(head.seq, seq),
        entries=sorted(kept, key=_seq),
        overrides={**head.overrides, **{key: at for key, at in put.items() if key in old}},
        early=early,
    )


def counting(head: Head, entries: Mapping[Ref, Entry], ref: Ref) -> Collection[bytes]:
    """Return the names of the batches of a checkpoint's writes that count."""
    entry = entries.get(ref)
    return batch_names((entry.batches if entry else b"") + head.early.get((ref.ns, ref.id), b""))


def with_batch_of(head: Head, ref: Ref, batch: bytes) -> Head:
    """Return the head with a batch of writes that counts; the same head if it did already."""
    known = {entry.row.ref: entry for entry in head.entries}
    if batch in counting(head, known, ref):
        return head
    if ref in known:
        known[ref] = replace(known[ref], batches=known[ref].batches + batch)
        return replace(head, entries=list(known.values()))
    at = (ref.ns, ref.id)
    return replace(head, early={**head.early, at: head.early.get(at, b"") + batch})


def _free(head: Head, row: Row, at: int) -> int:
    up = (row.ref.ns, row.parent)
    parent = next((e.row.seq for e in head.entries if (e.row.ref.ns, e.row.ref.id) == up), 0)
    # Rows that went to segments keep their places: a row that races with them goes behind them.
    floor = max((segment.max_seq for segment in head.segments), default=0)
    seq = max(place(at, head.seq, parent), floor + 1)
    taken = {entry.row.seq for entry in head.entries}
    while seq in taken:
        seq += 1
    return seq


def overflow(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries, in order of `seq`, that a head of this size gives away: the older half without heads."""
    if len(entries) < HEAD_ROWS and sum(len(entry.row.keys) for entry in entries) < HEAD_KEYS:
        return []
    heads = {entry.row.ref.ns: entry for entry in entries if not entry.row.hidden}
    latest = sorted(heads.values(), key=lambda entry: (entry.row.ref.ns != "", -entry.row.seq))
    pinned = {entry.row.ref for entry in latest[:HEAD_PINNED]}
    return [entry for entry in entries if entry.row.ref not in pinned][: len(entries) // 2]


def without(head: Head, given: Sequence[Entry], segment: Segment) -> Head | None:
    """Return the head with entries moved to a segment; None if they are not in it as they were."""
    entries = {entry.row.ref: entry for entry in head.entries}
    if any(entries.pop(entry.row.ref, None) != entry for entry in given):
        return None
    return replace(head, entries=list(entries.values()), segments=[*head.segments, segment])


def overridden(head: Head, entry: Entry) -> Entry:
    """Return an entry of a segment with frames as they are now."""
    return _with_frames(entry, head.overrides) if head.overrides else entry


def changed(
    entries: Iterable[Entry],
    drop: Collection[Ref],
    drop_frames: Collection[bytes],
    relink: Iterable[Row],
) -> list[Entry]:
    """Return what is left of a thread's entries, in order of `seq`. Frames stay until they are dropped themselves."""
    frames: dict[bytes, bytes] = {}
    links = {row.ref: row for row in relink}
    kept = []
    for entry in sorted(entries, key=_seq):
        row = entry.row
        frames.update(entry.frames)
        if row.ref in drop:
            continue
        if row.ref in links:
            row = row.linked(links[row.ref])
        left = {key: name for key, name in entry.frames.items() if key not in drop_frames}
        kept.append(replace(entry, row=row, frames=left))
    if kept:
        held = set[bytes]().union(*(entry.frames for entry in kept))
        loose = {key: name for key, name in frames.items() if key not in held and key not in drop_frames}
        kept[-1] = replace(kept[-1], frames={**kept[-1].frames, **loose})
    return kept


def uses(entries: Iterable[Entry]) -> dict[bytes, set[Ref | bytes]]:
    """Return, for each data object, whose body and which frames are needed of it."""
    found: dict[bytes, set[Ref | bytes]] = {}
    for entry in entries:
        found.setdefault(entry.data, set()).add(entry.row.ref)
        for key, name in entry.frames.items():
            found.setdefault(name, set()).add(key)
    return found


def moved(entry: Entry, names: Mapping[bytes, bytes]) -> Entry:
    """Return an entry whose data objects were packed into others: old name to new."""
    return Entry(
        entry.row,
        names.get(entry.data, entry.data),
        {key: names.get(name, name) for key, name in entry.frames.items()},
        entry.batches,
    )


def _seq(entry: Entry) -> int:
    return entry.row.seq


def _with_frames(entry: Entry, put: Mapping[bytes, bytes]) -> Entry:
    hit = [key for key in put if key in entry.frames or key in entry.row.keys]
    return replace(entry, frames=_patched(entry.frames, put, hit)) if hit else entry


def _patched(frames: Mapping[bytes, bytes], put: Mapping[bytes, bytes], keys: Iterable[bytes]) -> dict[bytes, bytes]:
    new = dict(frames)
    for key in keys:
        if put[key]:
            new[key] = put[key]
        else:
            new.pop(key, None)
    return new
