"""What the hot store must be able to do besides the verbs of `Backend`: tell what changed, take threads, let them go.

Every change of a thread is noted in the same step as the change itself, whoever makes it: so whatever is not in the
cold store yet can be found by any worker, after any crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack


class State(NamedTuple):
    """What the hot store knows of a thread that it has, or had.

    Attributes:
        born: When this life of the thread began here, by the hot store's clock; grows from life to life.
        epoch: The life in the cold store that it is part of; empty: not known, perhaps none.
        complete: Whether the cold store has nothing of the thread that is not here too, but for what `ended` tells.
        clean: Whether all that is here is in the cold store.
        ended: Whether the life that the cold store has, if any, has ended here, by expiry or removal.
        here: Whether the thread is here; if not, it has ended.
        gen: The generation of the cold head that has what was uploaded; of a later one it is not known here.
        over: Whether it has ended by its time, and nobody removed it.
    """

    born: int
    epoch: str = ""
    complete: bool = True
    clean: bool = True
    ended: bool = False
    here: bool = True
    gen: int = 0
    over: bool = False


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed in a thread since it was uploaded, as one consistent view.

    Attributes:
        state: Of the thread.
        mark: Names this view for `uploaded`; what changes later is not in it.
        pack: What changed; a checkpoint is in it with its body, and with all of its writes if these changed.
        places: `seq` of every checkpoint by (namespace, id); only if asked for the whole, or if it is not complete.
        header: Of its data key.
        seq: The last place in the order that was given away.
        copied_by: The operation that made it as a copy.
        ttl_us: Its time to live.
        until_us: When it ends.
    """

    state: State
    mark: Any
    pack: Pack
    places: dict[tuple[str, str], int]
    header: bytes
    seq: int
    copied_by: str
    ttl_us: int
    until_us: int | None


class Tier(Protocol):
    """The hot store as the upper one of two."""

    def setup(self) -> None:
        """Begin to note changes; what is stored already counts as changed. Harmless when repeated."""

    def now_us(self) -> int:
        """Return the time by which threads are born."""

    def state(self, thread: str) -> State | None:
        """Return what is known of a thread; None if nothing is."""

    def ended(self) -> Sequence[str]:
        """Return threads that have ended here, and perhaps not in the cold store."""

    def dirty(self, before_us: int, limit: int) -> Sequence[str]:
        """Return threads that changed or ended before that time and were not uploaded or buried since."""

    def idle(self, before_us: int, limit: int) -> Sequence[str]:
        """Return threads that did not change since that time, and all of which is in the cold store."""

    def changes(self, thread: str, whole: bool = False) -> Changes | None:
        """Return what changed in a thread, or all of it; None if it is not here, or has expired."""

    def uploaded(self, thread: str, born: int, mark: Any, epoch: str, gen: int, complete: bool) -> None:
        """Note that a view is in the cold store; nothing if the thread lives another life by now.

        Args:
            thread: The thread.
            born: Its life.
            mark: Of the view.
            epoch: The life in the cold store that it is part of.
            gen: The generation of the cold head that has it; when the thread was evicted, `restore` takes no older one.
            complete: As in `State`.
        """

    def evict(self, thread: str, born: int, gen: int, leased: bool) -> bool:
        """Remove a thread, but not its lease, if all of it was uploaded; False, and nothing done, if not.

        Args:
            thread: The thread.
            born: Its life; nothing is done to another one.
            gen: A generation of the cold head that has all of it; `restore` takes no older one for a while.
            leased: Also if it has a lease that runs, or a time to live.
        """

    def restore(self, thread: str, epoch: str, gen: int, held: Thread) -> bool:
        """Take a whole thread in; False, and nothing done, if it is here, or was evicted at a later generation."""

    def end(self, thread: str) -> bool:
        """Remove a thread and its lease, and note that it has ended; say whether there was anything of it."""

    def buried(self, thread: str, born: int, gen: int) -> None:
        """Note nothing of the lives that ended up to this one any more; `restore` takes none older than the head."""

    def forget(self, thread: str, born: int) -> None:
        """Remove one life of a thread, of which the cold store tells that it was deleted."""
