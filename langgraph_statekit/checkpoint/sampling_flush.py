"""Stores what a sampled saver holds: now, after a while, or at the end of the interpreter."""

from __future__ import annotations

import atexit
import logging
import threading
from typing import Final
from weakref import WeakSet

from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.sampling import Lanes
from langgraph_statekit.checkpoint.sampling_rules import HeldWrites, Key, Taken, below
from langgraph_statekit.checkpoint.sides import Side
from langgraph_statekit.errors import Fenced

_LOG = logging.getLogger(__name__)
_LEAST_PAUSE_S: Final = 0.01
_TIMERS: Final[WeakSet[Timer]] = WeakSet()


async def flush(is_async: bool, lanes: Lanes, key: Key) -> None:
    """Store the head of a lane, if it is held, with its writes; not what a fast run puts meanwhile."""
    head = None
    while taken := lanes.take(key, head):
        await store(is_async, lanes, key, taken)
        head = taken.id


async def store(is_async: bool, lanes: Lanes, key: Key, taken: Taken) -> None:
    """Store what was taken of a lane, or put it back."""
    try:
        if (held := taken.held) is not None:
            serde = held.saver.serde
            values = {channel: serde.loads_typed(typed) for channel, (_, typed) in held.values.items()}
            checkpoint = {**held.checkpoint, "channel_values": values}
            at = below(held.config, taken.parent)
            await Side(held.saver, is_async).call("put", at, checkpoint, held.metadata, held.new_versions)
        for writes in taken.writes:
            await store_writes(is_async, writes)
    except Fenced:
        lanes.forget(key.thread)  # whoever took the thread over went on from what is stored
        raise
    except BaseException:
        lanes.put_back(key, taken)
        raise
    lanes.settle(key, taken)


async def store_writes(is_async: bool, held: HeldWrites) -> None:
    """Store held writes."""
    writes = [(channel, held.saver.serde.loads_typed(typed)) for channel, typed in held.writes]
    await Side(held.saver, is_async).call("put_writes", held.config, writes, held.task_id, held.task_path)


class Timer:
    """Stores what was held for `idle_s`, from a thread that lives while something is held."""

    def __init__(self, lanes: Lanes, idle_s: float) -> None:
        self._lanes, self._idle_s = lanes, idle_s
        self.renew()
        renew_in_child(self)
        _TIMERS.add(self)

    def renew(self) -> None:
        """Begin without a thread."""
        self._lock = threading.Lock()
        self._look = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """See to it that what is held now will be stored."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="statekit-sampled", daemon=True)
                self._thread.start()

    def look(self) -> None:
        """End the thread if nothing is held any more."""
        self._look.set()

    def _run(self) -> None:
        while True:
            self._look.clear()
            with self._lock:
                pause_s = self._lanes.due_s(self._idle_s)
                if pause_s is None:
                    self._thread = None
                    return
            if not self._look.wait(max(pause_s, self._idle_s / 10, _LEAST_PAUSE_S)):  # each look costs
                self.flush(self._idle_s)

    def flush(self, idle_s: float = 0.0) -> None:
        """Store what was held for so long; what fails stays held."""
        for key in self._lanes.keys(idle_s=idle_s):
            try:
                run_sync(flush(False, self._lanes, key))
            except Fenced as error:
                _LOG.warning("a held checkpoint of thread %r was dropped: %s", key.thread, error)
            except Exception:
                _LOG.warning("a held checkpoint of thread %r could not be stored yet", key.thread, exc_info=True)


def _flush_all() -> None:
    for timer in list(_TIMERS):
        timer.flush()


atexit.register(_flush_all)
