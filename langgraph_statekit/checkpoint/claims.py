"""Who may write to a thread: leases with fencing tokens, and data keys; decided from a store's records. Pure.

A token is the highest one before plus one, or the server's clock in microseconds if that is more: so it never falls,
also after the record was deleted. It is checked in the same step as a save, which makes an expired lease harmless: who
takes over gets a higher token, and from then on the old one is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from langgraph_statekit.checkpoint.cells import SEALED_START, Cell, CellChange
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, Save, from_text
from langgraph_statekit.errors import Fenced, Misuse

TOKEN_KEY: Final = "statekit_token"
"""The key of `configurable` under which a lease's token travels."""


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
    """

    thread: str
    holder: str
    owner: str
    ttl_us: int
    token: int | None = None
    steal: bool = False


class Held(NamedTuple):
    """A lease as it is stored; `until_us` is by the server's clock."""

    holder: str
    owner: str
    token: int
    until_us: int


def decide(claim: Claim, held: Held | None, now_us: int) -> Held | None:
    """Return the record that a claim makes, or None if it gets nothing."""
    until_us = now_us + claim.ttl_us
    if claim.token is not None:
        return held._replace(until_us=until_us) if held and held.token == claim.token else None
    if held and held.until_us > now_us and not claim.steal:
        return held._replace(until_us=until_us) if held.holder == claim.holder else None
    return Held(claim.holder, claim.owner, max(now_us, held.token + 1 if held else 0), until_us)


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


def is_rekeyed(header: bytes, stored: bytes | None) -> bool:
    """Say whether a save with this header must be sealed anew, given the thread's; else a thread without takes it."""
    return header[:HEADER_ID_BYTES] != stored[:HEADER_ID_BYTES] if stored else len(header) == HEADER_ID_BYTES


def rekeyed(thread: str) -> Rekeyed:
    """Return the error of a save, or a copy, that `is_rekeyed`."""
    return Rekeyed(f"thread {from_text(thread)!r} is encrypted, and nothing was changed: {NEEDS_KEYS}")
