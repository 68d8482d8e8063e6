"""What a sampled saver holds back, and what it must not. No I/O; the state of one saver and of its clones.

A lane is one namespace of a thread. Its head, the checkpoint put last, is stored or held; what is held replaces what
was held before. Every change to a lane is made under one lock that is never held while a store is called.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.sampling_rules import (
    Held,
    HeldWrites,
    Key,
    Put,
    Taken,
    at_exit,
    must_store,
    must_store_child,
)

_MOST_LANES: Final = 10_000
_REMEMBERED: Final = 64


@dataclass(slots=True)
class Lane:
    """A namespace of a thread.

    Attributes:
        head: Id of the checkpoint put last; empty before the first.
        stored: Id of the last one that is stored: the head, or the parent of what is held.
        child_kept: The head's child must be stored, and so may the head's writes once it is stored itself.
        held: The head, unless it is stored.
        writes: Held writes by checkpoint id: of the head, and of checkpoints whose put is still to come.
        kept: Checkpoints still to come that must be stored.
        closed: Checkpoints whose writes nobody needs any more, since their child was put and they or it are not stored.
        touched_s: Time of the last change.
    """

    head: str
    stored: str
    child_kept: bool
    held: Held | None = None
    writes: dict[str, list[HeldWrites]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    closed: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    touched_s: float = 0.0

    @property
    def waits(self) -> bool:
        """Whether a flush would store something."""
        return self.held is not None or self.head in self.writes


class Lanes:
    """All lanes of one saver and its clones.

    Args:
        every: Steps whose number is a multiple of it are stored.
        held_bytes: Bytes to hold at most; what comes beyond is stored.
    """

    def __init__(self, every: int, held_bytes: int) -> None:
        self._every, self._held_bytes = every, held_bytes
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all; what was held is the parent process's to store."""
        self._lock = threading.Lock()
        self._lanes: OrderedDict[Key, Lane] = OrderedDict()
        self._whole: OrderedDict[str, None] = OrderedDict()
        self._bytes = 0

    def keep_whole(self, thread: str) -> None:
        """Store all further checkpoints of a thread."""
        with self._lock:
            self._whole[thread] = None
            self._whole.move_to_end(thread)
            if len(self._whole) > _MOST_LANES:
                self._whole.popitem(last=False)

    def keys(self, thread: str | None = None, ns: str | None = None, idle_s: float = 0.0) -> list[Key]:
        """Return the lanes that hold something, of a thread and of a namespace if given, untouched for `idle_s`."""
        with self._lock:
            if thread is not None and ns is not None:
                one = self._lanes.get(Key(thread, ns))
                return [Key(thread, ns)] if one and one.waits else []
            until = time.monotonic() - idle_s
            return [
                key
                for key, lane in self._lanes.items()
                if (thread is None or key.thread == thread) and lane.waits and lane.touched_s <= until
            ]

    def forget(self, thread: str) -> None:
        """Drop what is held of a thread."""
        with self._lock:
            for key in [key for key in self._lanes if key.thread == thread]:
                self._drop(key)

    def due_s(self, idle_s: float) -> float | None:
        """Return the seconds until a lane will have been untouched for `idle_s`; None: nothing is held."""
        with self._lock:
            touched = [lane.touched_s for lane in self._lanes.values() if lane.waits]
            return max(min(touched) + idle_s - time.monotonic(), 0.0) if touched else None

    def last(
        self, key: Key, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> Held | bool:
        """Return False if a checkpoint must be stored; else what is held before it, or True."""
        with self._lock:
            lane = self._lanes.get(key)
            if (
                lane is None
                or config["configurable"].get("checkpoint_id") != lane.head
                or lane.child_kept
                or checkpoint["id"] in lane.kept
                or key.thread in self._whole
                or must_store(key.ns, config, checkpoint, metadata, self._every)
            ):
                return False
            return lane.held or True

    def hold(self, key: Key, parent: str | None, held: Held) -> bool:
        """Hold a checkpoint in place of its parent; False: something came between, it must be stored."""
        id = held.checkpoint["id"]
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None or lane.head != parent or lane.child_kept or id in lane.kept or key.thread in self._whole:
                return False
            before = lane.held
            grown = held.size - (before.size if before else 0)
            if self._bytes + grown > self._held_bytes:
                return False
            if before is not None:
                held.new_versions = {**before.new_versions, **held.new_versions}
            self._close(lane)
            for each in [each for each in lane.writes if each < id]:
                self._take(lane, each)
            lane.head, lane.held = id, held
            self._bytes += grown
            self._touch(key, lane)
            return True

    def begin(self, key: Key, parent: str | None, new_versions: ChannelVersions) -> Put:
        """Return how to store a checkpoint now."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None or parent != lane.head or lane.held is None:
                return Put(parent, new_versions, after_stored=True)
            return Put(lane.stored, {**lane.held.new_versions, **new_versions}, after_stored=False)

    def stored(
        self, key: Key, put: Put, parent: str | None, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> list[HeldWrites] | None:
        """Take note that a checkpoint is stored, and return writes to be stored after it; None: see `foreign` again."""
        id = checkpoint["id"]
        with self._lock:
            lane = self._lanes.get(key)
            if lane is not None and lane.held is not None and lane.head != parent:
                return None
            now = Lane(id, id, child_kept=must_store_child(checkpoint, metadata, self._every))
            todo: list[HeldWrites] = []
            if lane is not None:
                if put.after_stored and parent == lane.head:
                    todo += self._take(lane, lane.head)
                now.child_kept |= id in lane.kept
                if now.child_kept:
                    todo += self._take(lane, id)
                if lane.head == parent and not put.after_stored:
                    self._close(lane)
                now.closed = lane.closed
                # Ids rise within a process: what is older than this checkpoint belongs to no put that is to come.
                now.writes = {each: lane.writes.pop(each) for each in [*lane.writes] if each >= id}
                now.kept = {each for each in lane.kept if each > id}
                self._bytes -= self._size(lane)
            self._lanes[key] = now
            self._touch(key, now)
            return todo

    def foreign(self, key: Key, parent: str | None) -> Taken | None:
        """Return what is held if it is not the given parent: another run's, to be stored as well."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None or lane.held is None or lane.head == parent:
                return None
            return Taken(lane.head, lane.stored, lane.held, self._take(lane, lane.head))

    def take(self, key: Key, head: str | None = None) -> Taken | None:
        """Return what has to be stored of a lane, while its head is the given one, until `put_back` or `settle`."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None or head not in (None, lane.head):
                return None
            writes = self._take(lane, lane.head)
            lane.child_kept |= bool(writes)  # else the thread would look as if it had ended here
            if lane.held is None and not writes:
                return None
            return Taken(lane.head, lane.stored, lane.held, writes)

    def put_back(self, key: Key, taken: Taken) -> None:
        """Undo `take`: it was not stored."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is not None:
                if lane.head == taken.id and taken.writes:
                    lane.writes[taken.id] = [*taken.writes, *lane.writes.get(taken.id, ())]
                    self._bytes += sum(each.size for each in taken.writes)
                self._touch(key, lane)

    def settle(self, key: Key, taken: Taken) -> None:
        """Take note that it is stored."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None or taken.held is None:
                return
            if lane.held is taken.held:
                lane.child_kept |= must_store_child(lane.held.checkpoint, lane.held.metadata, self._every)
                self._bytes -= lane.held.size
                lane.held = None
                lane.stored = taken.id
            elif lane.held is not None and lane.stored == taken.parent:  # its child was put meanwhile
                lane.stored = taken.id

    def announce(self, key: Key, id: str) -> bool:
        """Have the child of a checkpoint stored, and itself if it is still to come; False: its child is there."""
        with self._lock:
            lane = self._known(key)
            if id < lane.head:
                return id not in lane.closed
            if id == lane.head:
                lane.child_kept = True
            else:
                lane.kept.add(id)
            return True

    def early(self, key: Key, id: str) -> list[HeldWrites]:
        """Take the held writes of a checkpoint that is still to come."""
        with self._lock:
            lane = self._lanes.get(key)
            return [] if lane is None else self._take(lane, id)

    def wants(self, key: Key, config: RunnableConfig, id: str) -> bool | None:
        """Return whether writes of a checkpoint are to be stored (True), held (None) or dropped (False)."""
        with self._lock:
            lane = self._known(key)
            if at_exit(config):
                return True
            if not lane.head:  # no put is done yet; and a checkpoint whose writes are stored needs its child
                lane.kept.add(id)
                return True
            if id in lane.closed:
                return False
            if id == lane.head:
                return True if lane.held is None and (lane.child_kept or key.thread in self._whole) else None
            return None if id > lane.head and id not in lane.kept and key.thread not in self._whole else True

    def hold_writes(self, key: Key, id: str, writes: HeldWrites) -> bool:
        """Hold writes; False: they must be stored, and the child of their checkpoint too."""
        with self._lock:
            lane = self._lanes.get(key)
            if lane is None or id < lane.head or self._bytes + writes.size > self._held_bytes:
                return False
            if id == lane.head and lane.held is None and lane.child_kept:
                return False
            lane.writes.setdefault(id, []).append(writes)
            self._bytes += writes.size
            self._touch(key, lane)
            return True

    def _known(self, key: Key) -> Lane:
        """Return the lane; of a run that is faster than its first put, one without a head."""
        if key not in self._lanes:
            self._lanes[key] = lane = Lane(head="", stored="", child_kept=True)
            self._touch(key, lane)
        return self._lanes[key]

    def _close(self, lane: Lane) -> None:
        """The head's child is there, and one of the two is not stored: drop the head's writes."""
        self._take(lane, lane.head)
        lane.closed.append(lane.head)

    def _take(self, lane: Lane, id: str) -> list[HeldWrites]:
        taken = lane.writes.pop(id, [])
        self._bytes -= sum(each.size for each in taken)
        return taken

    def _size(self, lane: Lane) -> int:
        return (lane.held.size if lane.held else 0) + sum(w.size for each in lane.writes.values() for w in each)

    def _drop(self, key: Key) -> None:
        self._bytes -= self._size(self._lanes.pop(key))

    def _touch(self, key: Key, lane: Lane) -> None:
        lane.touched_s = time.monotonic()
        self._lanes.move_to_end(key)
        if len(self._lanes) > _MOST_LANES:
            free = next((key for key, each in self._lanes.items() if not each.waits), None)
            if free is not None:
                self._drop(free)  # the next checkpoint of a lane that is not known is stored
