"""What becomes of a thread of which both stores have something that the other has not. Pure: no requests in here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.layout import merged
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack, Place
from langgraph_statekit.checkpoint.claims import NEEDS_KEYS
from langgraph_statekit.checkpoint.frames import with_bases
from langgraph_statekit.checkpoint.labels import is_label
from langgraph_statekit.checkpoint.records import Frame, Row, Write, from_text
from langgraph_statekit.errors import Misuse

Placed = Callable[[bytes, Row, int], Row]
"""Returns a row of a thread with this header in another place of the order."""


def unsealed(header: bytes, row: Row, seq: int) -> Row:
    """See `Placed`; what is encrypted is sealed with its place."""
    if header and row.seq != seq:
        raise Misuse(f"thread {from_text(row.ref.thread)!r} is encrypted, and was not uploaded: {NEEDS_KEYS}")
    return row._replace(seq=seq)


def joined(
    held: Thread,
    pack: Pack,
    places: Mapping[Place, int],
    seq: int,
    place_at: Callable[[Row, int], Row],
    *,
    ahead: bool = False,
    below: Collection[Place] = (),
) -> tuple[Pack, bool]:
    """Return what a hot store's view of a thread adds to what the cold one has, and whether it is all there is.

    The hot store may have lost what it had before, and have begun to number anew. Where the cold one has checkpoints
    that it lacks, no removal counts, as they may need what went.

    Args:
        held: The thread in the cold store.
        pack: What the hot store has, or has removed.
        places: `seq` of every checkpoint there.
        seq: The last one given away there.
        place_at: Returns a row in another place.
        ahead: The hot store lost nothing, but missed what the cold one took alone: its checkpoints keep their places.
        below: See `ColdHead.below`.
    """
    known = {(ref.ns, ref.id): row.seq for ref, row in held.rows.items()}
    same = all(places.get(place) == at or place in pack.gone_rows for place, at in known.items())
    if same and held.seq <= seq and _has_writes(held, pack):
        return pack, True
    last = max(held.seq, *known.values(), 0)
    lacks = known.keys() - places.keys() - pack.gone_rows
    if lacks:
        pack = replace(pack, gone_rows=frozenset(), gone_frames=frozenset())
    rows = {}
    for place, row in sorted(pack.rows.items(), key=lambda item: item[1].seq):
        if place in known and place in below:
            continue
        if lacks:
            row = _relinked(row, held)
        if place not in known and ahead:
            known[place] = next(seq for seq in count(row.seq) if seq not in known.values())
        elif place not in known:
            last = known[place] = max(row.seq, last + 1)
        rows[place] = place_at(row, known[place])
    return replace(pack, rows=rows, writes=_with_stored(held, pack.writes, below)), False


def _relinked(row: Row, held: Thread) -> Row:
    """Return a row without what a removal that does not count has changed in it."""
    before = held.rows.get(row.ref)
    return row if before is None or is_label(row) else row.linked(before)


def _with_stored(
    held: Thread, writes: Mapping[Place, Sequence[Write]], stay: Collection[Place]
) -> dict[Place, list[Write]]:
    """Return writes added to those of the cold store, which stay as they are at some places."""
    stored = {(ref.ns, ref.id): list(each.values()) for ref, each in held.writes.items()}
    return {
        place: merged(each, stored.get(place, ())) if place in stay else merged(stored.get(place, ()), each)
        for place, each in writes.items()
    }


def taken_below(before: Thread, pack: Pack) -> frozenset[Place]:
    """Return the places of a save that the cold store takes alone of which the hot one may have something else.

    Those of checkpoints and labels that are replaced, and of writes that are, as of an interrupt's answer. All else has
    an id of its own.

    Args:
        before: The thread before it.
        pack: What it adds.
    """
    stored = {(ref.ns, ref.id) for ref in before.rows}
    again = {place for place, row in pack.rows.items() if place in stored or is_label(row)}
    return frozenset(again | {place for place, each in pack.writes.items() if any(write.idx < 0 for write in each)})


def _has_writes(held: Thread, pack: Pack) -> bool:
    """Say whether a view that tells all writes of some checkpoints has all that the cold store has."""
    return all(
        (ref.ns, ref.id) in pack.gone_rows
        or {(write.task, write.idx) for write in pack.writes.get((ref.ns, ref.id), ())} >= each.keys()
        for ref, each in held.writes.items()
    )


def missing(held: Thread, whole: Pack, touched: Pack) -> list[Place]:
    """Return the checkpoints by which a hot store shows that it has gone back in time.

    It lacks what the cold store has of them, or has what was removed there, though it has not noted a change of them.

    Args:
        held: The thread in the cold store.
        whole: All of it in the hot store, as it is later than that.
        touched: What the hot store has noted since as changed and not uploaded.
    """
    noted = touched.rows.keys() | touched.gone_rows
    known = {(ref.ns, ref.id): row for ref, row in held.rows.items()}
    stored = {(ref.ns, ref.id): each for ref, each in held.writes.items()}
    found = {
        place: None
        for place in (*known, *whole.rows)
        if place not in noted and _plain(known.get(place)) != _plain(whole.rows.get(place))
    }
    for place in {**stored, **whole.writes}:
        here = {(write.task, write.idx): write for write in whole.writes.get(place, ())}
        there = stored.get(place, {})
        went = place not in whole.rows and (place in touched.gone_rows or place in touched.writes)
        if not (went or here.keys() >= there.keys()) or (place not in touched.writes and here != there):
            found[place] = None
    frames = {key: Frame(key, data) for key, data in whole.frames.items()}
    needed = with_bases(frames, {key for row in whole.rows.values() for key in row.keys})
    if gone := needed - held.frames.keys() - touched.frames.keys():
        found |= {place: None for place, row in whole.rows.items() if gone & with_bases(frames, row.keys)}
    return list(found)


def regained(
    held: Thread,
    whole: Pack,
    touched: Pack,
    place_at: Callable[[Row, int], Row],
    below: Collection[Place] | None = None,
) -> Pack:
    """Return what a hot store that missed some of what the cold one has adds to that.

    Only what the hot store has noted as changed is added: all else was uploaded once, and if the cold store has not got
    it, it was removed. No removal counts, as newer checkpoints of the cold store may need what went.

    Args:
        held: As of `missing`.
        whole: As of `missing`.
        touched: As of `missing`.
        place_at: As of `joined`.
        below: The hot store missed what the cold one took alone, see `ColdHead.below`; None: it went back in time, and
            whatever the cold one has stays as it is.
    """
    known = {(ref.ns, ref.id): row.seq for ref, row in held.rows.items()}
    stay: Collection[Place] = {*known, *touched.writes} if below is None else below
    noted = {*touched.rows, *touched.writes} & whole.rows.keys()
    wanted = {place for place in noted if place not in known or (place in touched.rows and place not in stay)}
    taken = {*known.values()}
    rows = {}
    for place in sorted(wanted, key=lambda place: whole.rows[place].seq):
        row = _relinked(whole.rows[place], held)
        seq = known.get(place) or next(seq for seq in count(row.seq) if seq not in taken)
        taken.add(seq)
        rows[place] = place_at(row, seq)
    frames = {key: Frame(key, data) for key, data in whole.frames.items()}
    needed = with_bases(frames, {key for row in rows.values() for key in row.keys}) - held.frames.keys()
    stored = {(ref.ns, ref.id): list(each.values()) for ref, each in held.writes.items()}
    writes = _with_stored(held, {place: whole.writes.get(place, ()) for place in touched.writes}, stay)
    return Pack(
        rows,
        {key: whole.frames[key] for key in needed},
        {place: each for place, each in writes.items() if each != stored.get(place, [])},
    )


def _plain(row: Row | None) -> Row | None:
    return row and row._replace(audit=None)  # not every hot store has it
