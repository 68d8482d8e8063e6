"""Saves into the cold store alone, while the hot one is away; and what the hot one is told when it is back.

A save that only the cold store took is marked in the thread's head, and noted beside it before the head counts. Whoever
reaches the hot store finds the note, after any crash, and has the hot store drop its own copy once that is joined to
what the cold one has.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.memory_thread import Thread, clock_us
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.joining import taken_below
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Pack, new_life
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.reading import Reading
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.records import Save, from_text
from langgraph_statekit.errors import Unavailable

_AWAY_S: Final = 1.0
"""For so long a hot store that did not answer is not asked again."""
_NOTE_US: Final = 3_600_000_000
"""A note that is older and tells of nothing is of a process that died between it and the head."""


class Below:
    """What takes saves while the hot store is away.

    Args:
        hot: The upper tier.
        cold: The lower one.
        reading: Reads from it.
        moving: Moves threads between them.
        set_up: Sets the hot store up, in case it was away when this process began.
    """

    def __init__(self, hot: Tier, cold: Cold, reading: Reading, moving: Moving, set_up: Callable[[], None]) -> None:
        self._set_up = set_up
        self._hot, self._cold, self._reading, self._moving = hot, cold, reading, moving
        self._notes = f"{cold.folder.removesuffix('c')}a"
        self.error: Unavailable | None = None
        self._until_s = 0.0
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in the child of a fork."""
        self._asking = threading.Lock()

    def serves(self) -> bool:
        """Whether the hot store is away; it is asked again after a while, and then told what it missed."""
        if self.error is None:
            return False
        if time.monotonic() < self._until_s or not self._asking.acquire(blocking=False):
            return True
        try:
            self._until_s = time.monotonic() + _AWAY_S
            return not self._is_back()
        finally:
            self._asking.release()

    def begins(self) -> bool:
        """Say whether it is the hot store that did not answer; from now on it is not asked for a while."""
        try:
            self._hot.state("")
        except Unavailable as error:
            self.away(error)
            return True
        return False

    def away(self, error: Unavailable) -> None:
        """Do not ask the hot store for a while, as it did not answer."""
        self.error, self._until_s = error, time.monotonic() + _AWAY_S

    def _is_back(self) -> bool:
        try:
            self._set_up()
            self._hot.state("")
            self.tell()
        except Unavailable:
            return False
        self.error = None
        return True

    def tell(self) -> None:
        """Have the hot store know of all that the cold one took alone, whoever saved it.

        Raises:
            Unavailable: A store does not answer; what was not told stays noted.
        """
        for key, stat in self._cold.bucket.stats(self._notes).items():
            found = self._cold.bucket.get(key)
            if found is None:
                continue
            told = self._moving.settle(found.data.decode("utf-8", "surrogatepass"))
            if told or stat.modified_s * 1e6 < self._cold.now_us() - _NOTE_US:
                self._cold.bucket.delete([key])

    def save(self, saves: Sequence[Save]) -> list[int | Exception]:
        """Save into the cold store; results as of `Backend.save`."""
        results: list[int | Exception] = [False] * len(saves)
        for thread in dict.fromkeys(save.thread for save in saves):
            mine = [at for at, save in enumerate(saves) if save.thread == thread]
            free = [at for at in mine if saves[at].token is None]
            for at in mine:
                results[at] = Unavailable(
                    f"the lease of thread {from_text(thread)!r} is in the hot store, which is away: {self.error}"
                )
            for at, result in zip(free, self._save(thread, [saves[at] for at in free]) if free else (), strict=True):
                results[at] = result
        return results

    def _save(self, thread: str, saves: Sequence[Save]) -> Sequence[int | Exception]:
        for pause_s in pauses(thread):
            head, tag = self._cold.head(thread)
            if not self._cold.is_dying(head):
                results = self._saved(thread, saves, head, tag)
                if results is not None:
                    return results
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def _saved(self, thread: str, saves: Sequence[Save], head: ColdHead, tag: str) -> Sequence[int | Exception] | None:
        begun = head.live and not self._cold.over(head, sure=True)
        base, before = (head if begun else new_life(thread, head)), Thread()
        if begun:
            found = self._reading.own_image(thread)
            if found is None or found[0].gen != head.gen:
                return None
            before = found[1]
        held = replace(
            before,
            rows=dict(before.rows),
            frames=dict(before.frames),
            writes={ref: dict(each) for ref, each in before.writes.items()},
            ttl_us=base.ttl_us,
        )
        results = MemoryBackend({thread: held}).save(saves)
        pack = _added(before, held)
        if pack.empty:
            return results
        name = thread.encode("utf-8", "surrogatepass")
        self._cold.bucket.put(f"{self._notes}/{digest(thread)}-{os.urandom(8).hex()}", name)
        until_us = held.until_us and held.until_us - clock_us() + self._cold.now_us()
        new = replace(
            base,
            gen=base.gen + 1,
            header=held.header,
            seq=max(base.seq, held.seq),
            ttl_us=held.ttl_us,
            until_us=until_us,
            ahead=True,
            below=base.below | taken_below(before, pack),
        )
        return None if self._cold.append(new, pack, tag) is None else results


def _added(before: Thread, held: Thread) -> Pack:
    """Return what makes one state of a thread another."""
    return Pack(
        {(ref.ns, ref.id): row for ref, row in held.rows.items() if before.rows.get(ref) != row},
        {key: frame.stored for key, frame in held.frames.items() if before.frames.get(key) != frame},
        {(ref.ns, ref.id): [*each.values()] for ref, each in held.writes.items() if before.writes.get(ref) != each},
        gone_frames=frozenset(before.frames.keys() - held.frames.keys()),
    )
