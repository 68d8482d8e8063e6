"""How a lease is asked for, and who gets it when."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass, replace
from typing import Final, Protocol

from langgraph_statekit.checkpoint.claims import About, Claim, Held
from langgraph_statekit.checkpoint.options import require_numbers, require_texts
from langgraph_statekit.checkpoint.records import from_text, to_text
from langgraph_statekit.errors import Conflict
from langgraph_statekit.leases import Keeper, Lease, OnLease
from langgraph_statekit.processes import GONE, Process

_POLL_S: Final = 0.25
_MOST_POLL_S: Final = 5.0
_PAUSE: Final = 4
"""Times that the store took to answer, between two questions: the many that wait must not hold up those that work."""
_LEAST_TTL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Terms:
    """What somebody asks for who wants a lease; told in `StatekitSaver.lease`."""

    owner: str | None = None
    graph: str = ""
    ttl_s: float = 30.0
    steal: bool = False
    instead_of: int | None = None
    wait_s: float = 0.0
    on_lost: OnLease | None = None
    on_control: OnLease | None = None
    item: str = ""

    def claim(self, thread_id: str) -> Claim:
        """Return the claim of a new lease."""
        require_numbers(float, _LEAST_TTL_S, ttl_s=self.ttl_s)
        require_numbers(float, 0, wait_s=self.wait_s)
        require_texts(graph=self.graph)
        owner = f"{platform.node()}:{os.getpid()}" if self.owner is None else str(self.owner)
        about = About(self.graph, str(Process.here()), self.item)
        return Claim(
            to_text(thread_id),
            os.urandom(8).hex(),
            to_text(owner),
            int(self.ttl_s * 1e6),
            steal=self.steal,
            instead=self.instead_of,
            about=to_text(about.packed()),
        )


class Claims(Protocol):
    """What claims for sync or for async callers."""

    async def claim(self, claim: Claim) -> Held | None:
        """See `Engine.claim`."""

    async def sleep(self, pause_s: float) -> None:
        """See `Engine.sleep`."""


def _is_gone(held: Held) -> bool:
    """Say whether the process of a lease that runs was of this host and has ended, so that nobody needs to wait."""
    return Process.parse(About.unpacked(from_text(held.about)).process).state == GONE


async def acquire(keeper: Keeper, claims: Claims, thread_id: str, terms: Terms) -> Lease:
    """Return a new lease."""
    claim = terms.claim(thread_id)
    give_up_s = time.monotonic() + terms.wait_s
    while True:
        asked_s = time.monotonic()
        held = await claims.claim(claim)
        if held is not None and held.holder == claim.holder:
            return Lease(keeper, claim, held.token, asked_s, terms.on_lost, terms.on_control)
        if held is not None and held.token != claim.instead and _is_gone(held):
            claim = replace(claim, steal=True, instead=held.token)
            continue
        if time.monotonic() >= give_up_s:
            who = repr(from_text(held.owner)) if held else "another worker"
            raise Conflict(
                f"thread {thread_id!r} is leased by {who}: wait for it (wait_s=...), or take it over (steal=True)"
            )
        now_s = time.monotonic()
        await claims.sleep(max(0.0, min(pause_s(now_s - asked_s), give_up_s - now_s)))


def pause_s(took_s: float) -> float:
    """Return how long to wait before a busy lease is asked for again, after the store took so long to answer."""
    return min(max(_POLL_S, _PAUSE * took_s), _MOST_POLL_S)
