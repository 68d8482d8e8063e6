"""What a lease tells of its thread, and what is wrong with that. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from langgraph_statekit.checkpoint.claims import About, Held
from langgraph_statekit.checkpoint.records import from_text
from langgraph_statekit.processes import Process
from langgraph_statekit.watchdog.view import Finding

ORPHAN: Final = "orphan"
STUCK: Final = "stuck"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A thread that is leased, or whose lease ended without being given back.

    Attributes:
        thread_id: The thread.
        owner: What the holder calls itself.
        token: The fencing token.
        graph: Name of the graph that it runs; empty if the holder did not tell.
        item: What it works on; None if the holder did not tell.
        process: The process of the holder.
        problem: Empty while all is well. `orphan`: its holder is gone. `stuck`: it is held, and its work does not go
            on. Else the word with which it was handed over unfinished, such as `drain` or `failed`.
        control: Why its holder was asked to stop; empty: it was not.
        idle_s: Seconds since its work went on, by the store's clock; 0 if the holder did not tell.
        over_s: Seconds since the lease ended; negative while it runs.
    """

    thread_id: str
    owner: str
    token: int
    graph: str
    item: str | None
    process: Process
    problem: str
    control: str
    idle_s: float
    over_s: float

    @property
    def held(self) -> bool:
        """Whether the lease runs."""
        return self.over_s < 0

    def finding(self, place: str) -> Finding:
        """Return what is wrong, counted by the item, or by the place where the thread stands."""
        match self.problem:
            case "orphan":
                told = f"{self.owner} has not renewed its lease, which ended {self.over_s:.1f} s ago"
                if self.held:
                    told = f"the process of {self.owner} has ended"
            case "stuck":
                told = f"nothing has gone on for {self.idle_s:.0f} s at {self.owner}"
            case _:
                told = f"{self.owner} handed it over: {self.problem}"
        return Finding(self.problem, told, self.item or place)


def leased(thread: str, held: Held, now_us: int, stuck_s: float) -> Leased:
    """Return what a lease tells.

    Args:
        thread: As storage text.
        held: The lease.
        now_us: The store's clock.
        stuck_s: Seconds without progress from which on a thread is stuck.
    """
    about = About.unpacked(from_text(held.about))
    over_s = (max(now_us, held.beat_us) - held.until_us) / 1e6
    idle_s = max(0.0, now_us - held.progress_us) / 1e6 if held.progress_us else 0.0
    if over_s < 0:
        problem = STUCK if idle_s > stuck_s else ""
    else:
        given_back = held.until_us == held.beat_us
        problem = (held.control if given_back else "") or ORPHAN
    return Leased(
        thread_id=from_text(thread),
        owner=from_text(held.owner),
        token=held.token,
        graph=about.graph,
        item=about.item or None,
        process=Process.parse(about.process),
        problem=problem,
        control=held.control,
        idle_s=idle_s,
        over_s=over_s,
    )
