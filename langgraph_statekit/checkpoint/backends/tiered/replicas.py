"""Copies of the cold store in other places: another region, another vendor.

A change of a thread's head is noted in the cold store before it is made, by an object without content whose name tells
thread and generation. The note goes when all replicas have that generation or a later one. So whatever a replica lacks
is found by any worker, after any crash; and no save waits for a replica.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import Final

from langgraph_statekit.checkpoint.backends.tiered.background import Background
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.replica import Replica
from langgraph_statekit.checkpoint.facts import NOTE, OK, Fact, unknown
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.errors import DataError, StatekitError, Unavailable

_LOG: Final = logging.getLogger(__name__)
_LOOK_S: Final = 30.0
_OTHERS_S: Final = 60.0
"""Notes that are older are of workers that died, or that a replica did not answer."""
_VAIN_S: Final = 3600.0
"""A change that did not come for so long after its note will not come."""


class Replicas:
    """Brings what the cold store has to its replicas.

    Args:
        cold: The cold store.
        places: The replicas.
        workers: Threads brought there at once.
        tell: Called with the fields of `ReplicaTold` when a replica does not take a change, and when it does again.
    """

    def __init__(self, cold: Cold, places: Sequence[Cold], *, workers: int, tell: Callable[..., None]) -> None:
        self.all = [Replica(cold, place) for place in places]
        self._cold, self._tell = cold, tell
        self._background = Background("statekit-replicas", workers, self._make_round)
        self.renew()
        renew_in_child(self)
        if places:
            cold.watch = self

    def renew(self) -> None:
        """Begin anew in the child of a fork: what its parent has to bring over is the parent's."""
        self._lock = threading.Lock()
        self._due: dict[Replica, dict[str, int]] = {replica: {} for replica in self.all}
        self._noted: dict[str, dict[int, int]] = {}  # which gen must be there before which note may go
        self._reached: dict[str, dict[Replica, int]] = {}
        self._under_way: set[tuple[Replica, str]] = set()
        self._look_s = time.monotonic() + _LOOK_S

    def behind(self, replica: Replica) -> int:
        """How many threads this process has changed and not brought there."""
        with self._lock:
            return len(self._due[replica])

    def note(self, name: str, gen: int) -> Sequence[str]:
        """See `Watch`; also if it was told before, as nobody knows whether the object came to be."""
        with self._lock:
            self._noted.setdefault(name, {})[gen] = gen
        return (f"{self._cold.notes}/{name}/{gen}",)

    def changed(self, name: str, gen: int) -> None:
        """See `Watch`."""
        with self._lock:
            for due in self._due.values():
                due[name] = max(gen, due.get(name, 0))
        self.start()
        self._background.wake()

    def lives(self, name: str) -> set[str]:
        """See `Watch`."""
        found: set[str] = set()
        for replica in self.all:
            with suppress(StatekitError):  # a deletion waits for no replica
                found |= replica.place.lives(name)
        return found

    def start(self) -> None:
        """Begin to bring over what is due, also what workers left that died."""
        if self.all:
            self._background.start()

    def flush(self) -> None:
        """Bring over what this process has changed, and wait for it; raises the first error after all were tried."""
        with self._lock:
            names = {name for due in self._due.values() for name in due}
        self.bring(names)

    def bring(self, names: Collection[str], *, whole: bool = False) -> None:
        """Bring threads over now, given the names of their folders; raises the first error after all were tried.

        Args:
            names: The folders.
            whole: Look at every object of them in the replicas.
        """
        if not self.all:
            return
        calls, errors = [], list[BaseException]()
        for replica in self.all:
            left = list(names)
            if replica.rests and left:  # one call finds out whether it answers again
                try:
                    self._one(replica, left.pop(0), whole)
                except StatekitError as error:
                    errors.append(error)
                    if replica.rests:
                        continue
            calls += [self._background.pool.start(self._one_awake, replica, name, whole) for name in left]
        errors += [failed for call in calls if (failed := call.exception()) is not None]
        self._take_away(names)
        if errors:
            raise errors[0]

    def bring_all(self) -> int:
        """Bring over what the replicas lack of any thread; return how many threads there are, and were looked at."""
        names = self._cold.bucket.folders(self._cold.folder)
        self.bring(names, whole=True)
        return len(names)

    def close(self) -> None:
        """Bring over what is due, and end the threads; what cannot be brought stays noted."""
        self._background.close(self.flush, "not all is in the replicas; another worker will bring it there")
        for replica in self.all:
            replica.place.bucket.close()

    def facts(self) -> Sequence[Fact]:
        """Return what is known of the replicas, as the notes in the cold store tell."""
        if not self.all:
            return ()
        try:
            noted = self._cold.bucket.stats(self._cold.notes)
        except StatekitError as error:
            return [unknown("replicas", f"{self._cold.name} does not tell: {error}")]
        count = len({_name_in(key) for key in noted})
        since = ""
        if noted:
            oldest = time.gmtime(min(stat.modified_s for stat in noted.values()))
            since = f", since {time.strftime('%Y-%m-%dT%H:%M:%SZ', oldest)} by the clock of the cold store"
        told = [Fact("replicas", f"{count} threads behind", NOTE if count else OK, f"not in all of them yet{since}")]
        return [*told, *(Fact("replica", each.name, NOTE if each.error else OK, each.error) for each in self.all)]

    def _one(self, replica: Replica, name: str, whole: bool = False) -> None:
        """Bring a thread to a replica."""
        try:
            gen = replica.bring(name, whole=whole)
        except StatekitError as error:
            with self._lock:
                due = self._due[replica]
                if isinstance(error, DataError):  # no matter of the replica; the next look around tries it again
                    due.pop(name, None)
                    self._noted.pop(name, None)
                elif name in due:
                    due[name] = due.pop(name)  # others go first
            if not isinstance(error, DataError):
                replica.failed(error)
            count = max(self.behind(replica), 1)
            self._tell(replica=replica.name, threads=count, error=f"{type(error).__name__}: {error}")
            raise
        with self._lock:
            self._reached.setdefault(name, {})[replica] = gen
            if self._due[replica].get(name, 0) <= gen:
                self._due[replica].pop(name, None)
        if replica.answered():
            self._tell(replica=replica.name, threads=self.behind(replica), error=None)

    def _one_awake(self, replica: Replica, name: str, whole: bool) -> None:
        """Do so unless it has stopped to answer meanwhile, so that many calls do not wait for it in turn."""
        if replica.rests:
            raise Unavailable(f"the replica {replica.name} does not answer: {replica.error}")
        self._one(replica, name, whole)

    def _take_away(self, names: Iterable[str]) -> None:
        """Remove notes of what all replicas have."""
        keys = []
        with self._lock:
            for name in names:
                if any(name in due for due in self._due.values()):
                    continue
                reached = self._reached.pop(name, {})
                least = min(reached.values()) if len(reached) == len(self.all) else -1
                gens = self._noted.pop(name, {})
                keys += [f"{self._cold.notes}/{name}/{gen}" for gen, needed in gens.items() if needed <= least]
                if left := {gen: needed for gen, needed in gens.items() if needed > least}:
                    self._noted[name] = left
        if keys:
            with suppress(StatekitError):  # the next look around finds that they are of no use
                self._cold.bucket.delete(keys)

    def _make_round(self) -> float:
        now_s = time.monotonic()
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            self._background.pool.start(self._look_around)
        self._start_due()
        waits = [replica.until_s - now_s for replica, due in self._due.items() if due and replica.rests]
        return max(min([self._look_s - now_s, *waits]), 0.01)

    def _start_due(self) -> None:
        with self._lock:
            for replica, due in self._due.items():
                # One that does not answer is asked with one thread first.
                names = [] if replica.rests else list(due)[: 1 if replica.error else None]
                for name in names:
                    if (replica, name) not in self._under_way:
                        self._under_way.add((replica, name))
                        self._background.pool.start(self._quietly, replica, name)

    def _quietly(self, replica: Replica, name: str) -> None:
        try:
            if not (replica.rests or self._background.closing):  # else it stays due, so that no end waits for many
                self._one(replica, name)
        except Exception as error:
            _LOG.warning("the replica %s lacks a change, and will get it: %s", replica.name, error)
        finally:
            with self._lock:
                self._under_way.discard((replica, name))
            self._take_away([name])
            self._background.wake()

    def _look_around(self) -> None:
        """Find what is noted and was not brought over, and notes that are of no use."""
        with suppress(StatekitError):  # the next round may find the stores
            noted = self._cold.bucket.stats(self._cold.notes)
            now_s = self._cold.now_us() / 1e6 if noted else 0.0
            with self._lock:
                for key, stat in noted.items():
                    age_s = now_s - stat.modified_s
                    if age_s > _OTHERS_S:
                        name, gen = _name_in(key), int(key.rpartition("/")[2])
                        self._noted.setdefault(name, {})[gen] = 0 if age_s > _VAIN_S else gen
                        for due in self._due.values():
                            due.setdefault(name, 0)
            self._background.wake()


def _name_in(key: str) -> str:
    return key.split("/")[-2]
