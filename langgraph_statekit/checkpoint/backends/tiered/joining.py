"""What becomes of a thread of which both stores have something that the other has not. Pure: no requests in here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.layout import merged
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack, Place
from langgraph_statekit.checkpoint.claims import NEEDS_KEYS
from langgraph_statekit.checkpoint.frames import with_bases
from langgraph_statekit.checkpoint.records import Frame, Row, from_text
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
) -> tuple[Pack, bool]:
    """Return what a hot store's view of a thread adds to what the cold one has, and whether it is all there is.

    The hot store may have lost what it had before, and have begun to number anew.

    Args:
        held: The thread in the cold store.
        pack: What the hot store has, or has removed.
        places: `seq` of every checkpoint there.
        seq: The last one given away there.
        place_at: Returns a row in another place.
        ahead: The hot store lost nothing, but missed what the cold one took alone: its checkpoints keep their places.
    """
    known = {(ref.ns, ref.id): row.seq for ref, row in held.rows.items()}
    same = all(places.get(place) == at or place in pack.gone_rows for place, at in known.items())
    if same and held.seq <= seq and _has_writes(held, pack):
        return pack, True
    last = max(held.seq, *known.values(), 0)
    rows = {}
    for place, row in sorted(pack.rows.items(), key=lambda item: item[1].seq):
        if place not in known and ahead:
            known[place] = next(seq for seq in count(row.seq) if seq not in known.values())
        elif place not in known:
            last = known[place] = max(row.seq, last + 1)
        rows[place] = place_at(row, known[place])
    stored = {(ref.ns, ref.id): list(each.values()) for ref, each in held.writes.items()}
    writes = {place: merged(stored.get(place, ()), each) for place, each in pack.writes.items()}
    return replace(pack, rows=rows, writes=writes), False


def _has_writes(held: Thread, pack: Pack) -> bool:
    """Say whether a view that tells all writes of some checkpoints has all that the cold store has."""
    return all(
        (ref.ns, ref.id) in pack.gone_rows
        or {(write.task, write.idx) for write in pack.writes.get((ref.ns, ref.id), ())} >= each.keys()
        for ref, each in held.writes.items()
    )


def missing(held: Thread, whole: Pack, touched: Pack) -> list[Place]:
    """Return checkpoints of which the cold store has what a hot one never had, or has lost by going back in time.

    Args:
        held: The thread in the cold store.
        whole: All of it in the hot store, as it is later than that.
        touched: What the hot store has noted since as changed and not uploaded.
    """
    noted = touched.rows.keys() | touched.gone_rows
    found = {
        place: None
        for ref, row in held.rows.items()
        if (place := (ref.ns, ref.id)) not in noted and _plain(whole.rows.get(place)) != _plain(row)
    }
    for ref, each in held.writes.items():
        place = (ref.ns, ref.id)
        went = place not in whole.rows and (place in touched.gone_rows or place in touched.writes)
        if not went and not {(write.task, write.idx) for write in whole.writes.get(place, ())} >= each.keys():
            found[place] = None
    return list(found)


def regained(held: Thread, whole: Pack, touched: Pack, place_at: Callable[[Row, int], Row]) -> Pack:
    """Return what a hot store that went back in time adds to what the cold one has; that stays as it is.

    Only what the hot store has noted as changed is added: all else was uploaded once, and if the cold store has not got
    it, it was removed. No removal counts, as newer checkpoints of the cold store may need what went. Arguments as of
    `missing` and `joined`.
    """
    known = {(ref.ns, ref.id) for ref in held.rows}
    taken = {row.seq for row in held.rows.values()}
    wanted = {place for place in (*touched.rows, *touched.writes) if place in whole.rows and place not in known}
    rows = {}
    for place in sorted(wanted, key=lambda place: whole.rows[place].seq):
        row = whole.rows[place]
        seq = next(seq for seq in count(row.seq) if seq not in taken)
        taken.add(seq)
        rows[place] = place_at(row, seq)
    frames = {key: Frame(key, data) for key, data in whole.frames.items()}
    needed = with_bases(frames, {key for row in rows.values() for key in row.keys}) - held.frames.keys()
    stored = {(ref.ns, ref.id): list(each.values()) for ref, each in held.writes.items()}
    writes = {place: merged(stored.get(place, ()), whole.writes.get(place, ())) for place in touched.writes}
    return Pack(
        rows,
        {key: whole.frames[key] for key in needed},
        {place: each for place, each in writes.items() if each != stored.get(place, [])},
    )


def _plain(row: Row | None) -> Row | None:
    return row and row._replace(audit=None)  # not every hot store has it
