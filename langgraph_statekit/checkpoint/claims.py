"""Who may write to a thread: leases with fencing tokens, and data keys; decided from a store's records. Pure.

A token is the highest one before plus one, or the server's clock in microseconds if that is more: so it never falls,
also after the record was deleted. It is checked in the same step as a save, which makes an expired lease harmless: who
takes over gets a higher token, and from then on the old one is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langgraph_statekit.checkpoint.cells import SEALED_START, Cell, CellChange
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, Save, from_text
from langgraph_statekit.errors import Conflict, Fenced, Misuse

TOKEN_KEY: Final = "statekit_token"
"""The key of `configurable` under which a lease's token travels."""


DRAIN: Final = "drain"
"""The control word of those who want a thread to be handed over; any word asks for that and says why."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What one holder asks of a thread's lease.

    Attributes:
        thread: The thread, as storage text.
        holder: Names this lease object, unlike any other; so a repeated claim finds what the first one got.
        owner: What people are told of the holder.
        ttl_us: How long the lease lasts from now by the server's clock; with `token`, 0 gives it back.
        token: Of a lease to renew or to give back; None to acquire one.
        steal: Take a lease that another holds.
        instead: Take the lease only if its token is this one; so one of many who saw it gets it.
        about: What the holder tells of itself and its work, any text.
        idle_us: How long ago its work went on last.
        control: Give the lease with `token` this control word, and change nothing else of it.
    """

    thread: str
    holder: str
    owner: str
    ttl_us: int
    token: int | None = None
    steal: bool = False
    instead: int | None = None
    about: str = ""
    idle_us: int = 0
    control: str | None = None


class Held(NamedTuple):
    """A lease as it is stored; times are by the server's clock, and 0 where an older release stored none.

    Attributes:
        holder: See `Claim`.
        owner: See `Claim`.
        token: The fencing token.
        until_us: When it ends; 0: it was given back. What ended otherwise lost its holder, or was drained.
        about: As the holder told it last.
        beat_us: When it was acquired or renewed last.
        progress_us: When the holder's work went on last, as far as it told.
        control: What others ask of the holder; a new holder begins without.
    """

    holder: str
    owner: str
    token: int
    until_us: int
    about: str = ""
    beat_us: int = 0
    progress_us: int = 0
    control: str = ""


class LeaseQuery(NamedTuple):
    """Which leases to list; never those that were given back.

    Attributes:
        ended: True: only those that are over; False: only those that run; None: both.
        after: `LeasePage.after` of the page before; empty for the first one.
        limit: At most so many; a page may have fewer though more follow.
    """

    ended: bool | None = None
    after: str = ""
    limit: int = 100


class LeasePage(NamedTuple):
    """A part of a listing. A lease that is renewed meanwhile may come twice; one that has ended is not left out.

    Attributes:
        leases: Thread (as storage text) and its lease.
        now_us: The server's clock.
        after: Where the next page begins; empty: there is none.
    """

    leases: Sequence[tuple[str, Held]]
    now_us: int
    after: str = ""


class About(NamedTuple):
    """What a holder tells of itself and its work.

    Attributes:
        graph: Name under which supervisors know the graph that it runs; empty: not told.
        process: As `str(Process)`; empty: not told.
        item: What it works on.
    """

    graph: str = ""
    process: str = ""
    item: str = ""

    def packed(self) -> str:
        """Return it as text."""
        return json.dumps({name: value for name, value in self._asdict().items() if value})

    @classmethod
    def unpacked(cls, text: str) -> About:
        """Return what a text tells; nothing if a later release or somebody else wrote it."""
        try:
            found = json.loads(text or "{}")
            return cls(**{name: str(found[name]) for name in cls._fields if name in found})
        except (ValueError, TypeError):
            return cls()


def decide(claim: Claim, held: Held | None, now_us: int) -> Held | None:
    """Return the record that a claim makes, or None if it gets nothing."""
    if claim.token is not None and (held is None or held.token != claim.token):
        return None
    if held is not None and claim.control is not None:
        return held._replace(control=claim.control)
    running = held is not None and not has_ended(held, now_us)
    if held is not None and (claim.token is not None or (running and held.holder == claim.holder)):
        return _renewed(claim, held, now_us)
    if (running and not claim.steal) or (claim.instead is not None and (held is None or held.token != claim.instead)):
        return None
    token = max(now_us, held.token + 1 if held else 0)
    return Held(claim.holder, claim.owner, token, now_us + claim.ttl_us, claim.about, now_us, now_us)


def _renewed(claim: Claim, held: Held, now_us: int) -> Held:
    until_us = now_us + claim.ttl_us
    if claim.ttl_us == 0 and not held.control:  # what was drained is left to whoever asked for it
        until_us = 0
    progress_us = max(held.progress_us, now_us - claim.idle_us)
    return held._replace(until_us=until_us, about=claim.about, beat_us=now_us, progress_us=progress_us)


def has_ended(held: Held, now_us: int) -> bool:
    """Say whether a lease is over; one that was handed over is so to a clock that is behind, too."""
    return held.until_us <= max(now_us, held.beat_us)


def is_listed(query: LeaseQuery, held: Held | None, now_us: int) -> bool:
    """Say whether a listing has a lease in it, but for where its pages begin."""
    if held is None or held.until_us == 0:
        return False
    return query.ended in (None, has_ended(held, now_us))


def is_late(token: int | None, held: Held | None) -> bool:
    """Say whether a save with this token comes too late."""
    return token is not None and (held is None or held.token != token)


def token_of(configurable: dict[str, Any]) -> int | None:
    """Return the token of a config; None if it has none.

    Raises:
        Misuse: It is no token.
    """
    token = configurable.get(TOKEN_KEY)
    if token is None or (type(token) is int and 0 < token < 1 << 62):
        return token
    raise Misuse(f"configurable[{TOKEN_KEY!r}] must be the token of a lease, not {token!r}: use lease.config")


def fenced(save: Save | CellChange) -> Fenced:
    """Return the error of a save, or of a cell's change, whose token is not that of the thread's lease."""
    return Fenced(
        f"thread {from_text(save.thread)!r} was taken over or deleted: the token {save.token} is not that of its lease;"
        " stop working on it, or acquire the lease again"
    )


NEEDS_KEYS: Final = "open the saver with encryption=Encryption(keys, active); the command statekit takes STATEKIT_KEYS"
"""What to do about an encrypted thread."""


def require_plain(change: CellChange) -> None:
    """Raise `Misuse` for a value that a reader would take for an encrypted one."""
    if change.value is not None and change.value.startswith(SEALED_START):
        raise Misuse(f"the value of a cell must not begin with {SEALED_START!r}, which marks an encrypted one")


def require_open(*cells: Cell | None) -> None:
    """Raise `Misuse` for a cell that is encrypted, which a saver with keys has opened by then."""
    for cell in cells:
        if cell is not None and cell.value.startswith(SEALED_START):
            raise Misuse(f"the record {from_text(cell.ref.key)!r} ({cell.ref.kind}) is encrypted: {NEEDS_KEYS}")


class Rekeyed(Misuse):
    """A save was sealed with another data key than its thread's, or with none where the thread has one."""


class Misplaced(Conflict):
    """A row was sealed with another place in the order than it can get.

    Attributes:
        seq: The place that it would get.
    """

    def __init__(self, thread: str, seq: int) -> None:
        super().__init__(f"thread {from_text(thread)!r} has gone on meanwhile; nothing was changed: save again")
        self.seq = seq


def is_rekeyed(header: bytes, stored: bytes | None) -> bool:
    """Say whether a save with this header must be sealed anew, given the thread's; else a thread without takes it."""
    return header[:HEADER_ID_BYTES] != stored[:HEADER_ID_BYTES] if stored else len(header) == HEADER_ID_BYTES


def rekeyed(thread: str) -> Rekeyed:
    """Return the error of a save, or a copy, that `is_rekeyed`."""
    return Rekeyed(f"thread {from_text(thread)!r} is encrypted, and nothing was changed: {NEEDS_KEYS}")
