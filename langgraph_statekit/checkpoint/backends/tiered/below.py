"""Saves into the cold store alone, while the hot one is away; and what the hot one is told when it is back.

A save that only the cold store took is marked in the thread's head, and noted beside it before the head counts. Whoever
reaches the hot store finds the note, after any crash, and has the hot store drop its own copy once that is joined to
what the cold one has.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from langgraph_statekit.errors import StatekitError, Unavailable

_LOG: Final = logging.getLogger(__name__)
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

    Attributes:
        error: Why the hot store is not used; None if it is.
        untold: What keeps threads from being told to the hot store, by thread.
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
        self._door = threading.Condition()
        self._inside, self._shut, self._teller = 0, False, 0
        self._announced: set[str] = set()
        self.untold: dict[str, StatekitError] = {}

    def serves(self) -> bool:
        """Whether the hot store is away; it is asked again after a while, and then told what it missed."""
        return self.error is not None and not self._is_asked_now()

    def answers_for(self, thread: str) -> Unavailable | None:
        """Return why the cold store answers for a thread; None if the hot one does.

        Raises:
            StatekitError: The hot one is there, and could not be told what it missed of this thread.
        """
        if self.serves():
            return self.error
        if thread in self.untold:
            raise self.untold[thread]
        return None

    def _is_asked_now(self) -> bool:
        """Ask the hot store, if it is time, and say whether it is back."""
        if time.monotonic() < self._until_s or not self._asking.acquire(blocking=False):
            return False
        try:
            self._until_s = time.monotonic() + _AWAY_S
            return self._is_back()
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
            with self._closed():  # what was saved below meanwhile, and nothing comes
                self.tell()
                self.error = None
        except Unavailable:
            return False
        return True

    @contextmanager
    def _closed(self) -> Iterator[None]:
        """Let saves that are under way end, and others wait, but for those of a hook that is told in here."""
        try:
            with self._door:
                self._shut, self._teller = True, threading.get_ident()
                self._door.wait_for(lambda: not self._inside)
            yield
        finally:
            with self._door:
                self._shut, self._teller = False, 0
                self._door.notify_all()

    def tell(self) -> None:
        """Have the hot store know of all that the cold one took alone, whoever saved it.

        A thread that cannot be told holds up no other: until it is, its reads and saves raise what was wrong.

        Raises:
            Unavailable: A store does not answer; what was not told stays noted.
        """
        untold: dict[str, StatekitError] = {}
        for key, stat in self._cold.bucket.stats(self._notes).items():
            found = self._cold.bucket.get(key)
            if found is None:
                continue
            thread = found.data.decode("utf-8", "surrogatepass")
            try:
                told = self._settle(thread)
            except Unavailable:
                raise
            except StatekitError as error:
                if str(error) != str(self.untold.get(thread)):
                    _LOG.warning("saves of thread %r wait in the cold store: %s", from_text(thread), error)
                untold[thread] = error
                continue
            if told or key in self._announced or stat.modified_s * 1e6 < self._cold.now_us() - _NOTE_US:
                self._cold.bucket.delete([key])
                self._announced.discard(key)
        self.untold = untold

    def _settle(self, thread: str) -> bool:
        """Have the hot store know of saves that the cold one took alone, by dropping its copy; False if none did."""
        for pause_s in pauses(thread):
            if not self._cold.head(thread)[0].ahead:
                return False
            self._moving.upload(thread)
            head, tag = self._cold.head(thread)
            state = self._hot.state(thread)
            dropped = state is None or not state.here or self._hot.evict(thread, state.born, head.gen, True)
            # With the tag from before the eviction: a save that came after it is not settled.
            told = replace(head, gen=head.gen + 1, ahead=False, below=frozenset())
            if dropped and self._cold.publish(thread, told, tag):
                return True
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def save(self, saves: Sequence[Save]) -> list[int | Exception] | None:
        """Save into the cold store; results as of `Backend.save`. None if the hot one is back."""
        with self._door:
            self._door.wait_for(lambda: not self._shut or self._teller == threading.get_ident())
            if self.error is None:
                return None
            self._inside += 1
        try:
            return self._save_all(saves)
        finally:
            with self._door:
                self._inside -= 1
                self._door.notify_all()

    def _save_all(self, saves: Sequence[Save]) -> list[int | Exception]:
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
        note = f"{self._notes}/{digest(thread)}-{os.urandom(8).hex()}"
        self._cold.bucket.put(note, thread.encode("utf-8", "surrogatepass"))
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
        counts = self._cold.append(new, pack, tag) is not None
        self._announced.add(note)  # no head will come that it tells of, but for the one that there is
        return results if counts else None


def _added(before: Thread, held: Thread) -> Pack:
    """Return what makes one state of a thread another."""
    return Pack(
        {(ref.ns, ref.id): row for ref, row in held.rows.items() if before.rows.get(ref) != row},
        {key: frame.stored for key, frame in held.frames.items() if before.frames.get(key) != frame},
        {(ref.ns, ref.id): [*each.values()] for ref, each in held.writes.items() if before.writes.get(ref) != each},
        gone_frames=frozenset(before.frames.keys() - held.frames.keys()),
    )
