"""Reading threads that the hot store lacks: from the cold store, or from a replica where that does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.heads import NO_HEAD
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import BadHead
from langgraph_statekit.checkpoint.backends.tiered.packs import Check, Gone
from langgraph_statekit.checkpoint.backends.tiered.replica import Replica
from langgraph_statekit.errors import Corrupt, StatekitError, Unavailable

T = TypeVar("T")

_AWAY_S: Final = 5.0
"""For so long a cold store that did not answer is not asked again."""


class Reading:
    """Finds threads.

    Args:
        cold: The cold store.
        replicas: Those that are asked when it has no answer, in this order.
    """

    def __init__(self, cold: Cold, replicas: Sequence[Replica]) -> None:
        self._cold, self._replicas = cold, replicas
        self._error, self._until_s = Unavailable(""), 0.0

    def head(self, thread: str) -> ColdHead:
        """Return the head of a thread; `NO_HEAD` if there is none.

        A replica is asked if the cold store does not answer, or has nothing that can be read.
        """
        return self._asked(lambda cold: cold.head(thread)[0], lambda head: head.live, lambda head: head.gen > 0)

    def image(self, thread: str) -> tuple[ColdHead, Thread] | None:
        """Return a whole thread, not to be changed; None if there is none, or it has expired.

        What the cold store lost or damaged comes from a replica, and is put back.
        """

        def read(cold: Cold) -> tuple[ColdHead, Thread] | None:
            return self.own_image(thread) if cold is self._cold else cold.image(thread)

        def is_told(found: tuple[ColdHead, Thread] | None) -> bool:
            return found is not None or self._cold.known(thread)[0].gen > 0

        return self._asked(read, lambda found: found is not None, is_told)

    def own_image(self, thread: str) -> tuple[ColdHead, Thread] | None:
        """Do so as the head in the cold store tells it."""
        return self._cold.image(thread, self._rescue) if self._replicas else self._cold.image(thread)

    def newest_copy(self, thread: str) -> ColdHead:
        """Return the newest head that a replica has; `NO_HEAD` if none has any.

        All are asked, also one that did not answer a moment ago.

        Raises:
            Corrupt: One has a head that is damaged or missing.
            Unavailable: One does not answer.
        """
        heads = [replica.place.stored_head(thread) for replica in self._replicas]
        dead = {epoch for head in heads for epoch in head.dead}
        return max((head for head in heads if head.epoch not in dead), key=lambda head: head.gen, default=NO_HEAD)

    def bring_back(self, head: ColdHead) -> None:
        """Have the cold store have all that a head of a replica names.

        Raises:
            Corrupt: No replica has it; nothing was done.
        """
        found: dict[bytes, bytes] = {}

        def rescue(head: ColdHead, name: bytes, check: Check) -> bytes | None:
            data = self._elsewhere(head, name, check)
            if data is not None:
                found[name] = data
            return data

        try:
            self._cold.packs.thread(head, rescue)
        except Gone as gone:
            raise Corrupt(f"{gone} is missing in {self._cold.name}, and no replica gives it") from gone
        # The newest first: if this breaks off, the head that it tells lacks packs; an older one would go back in time.
        order = {ref.name: at for at, ref in enumerate(head.packs)}
        for name in sorted(found, key=lambda each: order.get(each, -1), reverse=True):
            self._cold.packs.put(head, name, found[name])

    def threads(self) -> Iterator[Sequence[ColdHead]]:
        """Yield heads as `Cold.threads` does."""
        try:
            first = True
            for page in self._cold.threads():
                first = False
                yield page
        except Unavailable:
            if not first or not self._replicas:
                raise
            yield from self._replicas[0].place.threads()

    def _asked(self, read: Callable[[Cold], T], is_found: Callable[[T], bool], is_told: Callable[[T], bool]) -> T:
        """Return what the cold store says, or a replica that has the thread.

        Args:
            read: Asks one of them.
            is_found: Whether that is a thread.
            is_told: Whether the cold store has told of it, if only of its deletion.
        """
        if not self._replicas:
            return read(self._cold)
        failed: StatekitError | None = self._error if time.monotonic() < self._until_s else None
        if failed is None:
            try:
                said = read(self._cold)
                if is_told(said):
                    return said
            except Unavailable as error:
                failed = self._error = error
                self._until_s = time.monotonic() + _AWAY_S
            except BadHead as error:
                failed = error
        for replica in self._awake():
            try:
                found = read(replica.place)
            except StatekitError as error:
                if not isinstance(error, Corrupt):
                    replica.failed(error)
                continue
            if is_found(found):
                return found
        if failed is not None:
            raise failed
        return said

    def _awake(self) -> list[Replica]:
        return [replica for replica in self._replicas if not replica.rests]

    def _rescue(self, head: ColdHead, name: bytes, check: Check) -> bytes | None:
        data = self._elsewhere(head, name, check)
        if data is not None:
            with suppress(StatekitError):
                self._cold.packs.put(head, name, data)
        return data

    def _elsewhere(self, head: ColdHead, name: bytes, check: Check) -> bytes | None:
        for replica in self._awake():
            try:
                data = replica.place.packs.get(head, name)
                if data is not None:
                    check(data)
                    return data
            except Corrupt:
                continue
            except StatekitError as error:
                replica.failed(error)
        return None
