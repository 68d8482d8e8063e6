"""What was seen of a run so far. It does no I/O; the clock is given, and many threads may tell it things."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any, Final, overload

import ormsgpack

from langgraph_statekit.watchdog.view import Check, Finding, Mark, Step, Task, View, clean

_LOG: Final = logging.getLogger(__name__)
_MOST_ENDED: Final = 256
_TEXT: Final = 100
_DIGEST: Final = 16
_GLANCE_S: Final = 0.05
_OPTIONS: Final = ormsgpack.OPT_NON_STR_KEYS | ormsgpack.OPT_SERIALIZE_PYDANTIC | ormsgpack.OPT_SERIALIZE_NUMPY
_NOT_YET: Final = (LookupError, AttributeError, TypeError)
"""What a function of the state may raise before the state has what it looks for."""


class Seen:
    """One run.

    Attributes:
        first: Id of the checkpoint that it went on from, or began with; None until it is seen.

    Args:
        checks: What to look for.
        item: Tells the item of a state; None: nothing but heartbeats does.
        clock: Monotonic seconds.
        failing: Tells which part of the saver's operations fails.
        pool: How many tasks run at a time; None: all of them.
    """

    def __init__(
        self,
        checks: Sequence[Check],
        item: Callable[[Any], Any] | None,
        clock: Callable[[], float],
        failing: Callable[[], float],
        pool: int | None = None,
    ) -> None:
        self._marking = [(check, check.mark, getattr(check, "window", 1)) for check in checks if hasattr(check, "mark")]
        self._all = list(enumerate(checks))
        self._untimed = [(at, check) for at, check in self._all if not getattr(check, "timed", False)]
        self._looked_s = -math.inf
        self._item_of, self._clock, self._failing = item, clock, failing
        self._pool, self._crowded = pool, False
        self._lock = Lock()
        self._broken: set[int] = set()
        self._started_s = clock()
        self._requests = self._tokens = 0
        self.restart()

    def restart(self, done: Collection[str] = ()) -> None:
        """Forget what was seen of the run until now, but not what it has spent: it goes on from elsewhere.

        Args:
            done: Ids of tasks that are done and stored; LangGraph says that they begin, and never that they end.
        """
        with self._lock:
            self._done = frozenset(done)
            self._running: dict[str, Task] = {}
            self._queued: dict[str, str] = {}
            self._ended: list[Task] = []
            self.first: str | None = None
            self._saved: Step | None = None
            self._step: Step | None = None
            self._previous: Step | None = None
            self._marks: dict[Any, tuple[Mark, ...]] = {check: () for check, _, _ in self._marking}
            self._item: str | None = None
            self._note: str | None = None
            self._beat_s = self._moved_s = self._clock()

    def begin(self, id: str, node: str) -> None:
        """Take note that a node's call begins, or waits until others of its step have ended."""
        with self._lock:
            self._beat_s = self._clock()
            if id in self._done:
                return
            full = self._pool is not None and len(self._running) >= self._pool
            if full:
                self._queued[id] = node
            else:
                self._running[id] = Task(id, node, self._beat_s)
            crowded = full and not self._crowded
            self._crowded |= crowded
        if crowded:
            _LOG.warning(
                "a step has more tasks than the %s that run at a time: LangGraph saves what they did late, so after a "
                "crash more of them run again; raise max_concurrency, or do their effects by an EffectLedger",
                self._pool,
            )

    def end(self, id: str, node: str, error: str | None) -> None:
        """Take note that a node's call has ended."""
        with self._lock:
            self._beat_s = self._clock()
            self._queued.pop(id, None)
            begun = self._running.pop(id, None) or Task(id, node, self._beat_s)
            if self._queued:
                self._admit(next(iter(self._queued)))
            self._ended.append(Task(id, node, begun.since_s, begun.item, begun.item_s, self._beat_s, error))
            if len(self._ended) >= 2 * _MOST_ENDED:  # anew: views still have the old list
                self._ended = self._ended[-_MOST_ENDED:]

    def saved(self, id: str, number: int, values: Any, next: Sequence[str]) -> None:
        """Take note that a checkpoint is stored; it counts as a step from `settle` on."""
        self._saved = Step(id, number, values, tuple(next), self._clock())

    def settle(self) -> bool:
        """Take note that all was told of what came before the checkpoint stored last; False: it was settled before."""
        step, self._saved = self._saved, None
        if step is not None:
            self._stepped(step)
        return step is not None

    def step(self, id: str, number: int, values: Any, next: Sequence[str]) -> None:
        """Take note of a checkpoint: a step has ended, and with it all of its tasks."""
        self._stepped(Step(id, number, values, tuple(next), self._clock()))

    def _stepped(self, step: Step) -> None:
        with self._lock:
            self._beat_s = step.at_s
            if self._step is not None and self._step.id == step.id:
                return
            self.first = self.first or step.id
            self._running.clear()
            self._queued.clear()
            self._previous, self._step = self._step, step
            reads: dict[int, _Read] = {}  # most checks follow the same value
            at: _Read | None = None
            for check, mark, window in self._marking:
                try:
                    value = mark(step.values)
                    read = reads.get(id(value))
                    if read is None:
                        read = reads[id(value)] = _Read(value, step)
                    self._marks[check] = read.after(self._marks[check], window)
                    if mark is self._item_of:
                        at = read
                except Exception as error:
                    self._fails(check, error)
            if self._item_of is not None:
                self._item = None
                try:
                    self._item = at.mark().text if at else text_of(self._item_of(step.values))
                except Exception as error:
                    self._fails(self._item_of, error)

    def _fails(self, what: object, error: Exception) -> None:
        """Take note that something could not be told of a state; it is logged once unless it may come yet."""
        if not isinstance(error, _NOT_YET) and id(what) not in self._broken:
            self._broken.add(id(what))
            _LOG.exception("%r failed on a state; it is logged once", what, exc_info=error)

    def _admit(self, id: str) -> None:
        self._running[id] = Task(id, self._queued.pop(id), self._beat_s)

    def inner(self) -> None:
        """Take note of a checkpoint of a subgraph: the run got on."""
        with self._lock:
            self._beat_s = self._moved_s = self._clock()

    def beat(self, task_id: str | None, item: object = None, note: object = None) -> None:
        """Take note of a heartbeat."""
        with self._lock:
            self._beat_s = self._clock()
            self._note = self._note if note is None else text_of(note)
            if item is None:
                return
            text = text_of(item)
            if task_id in self._queued:
                self._admit(task_id)
            task = self._running.get(task_id or "")
            if task is None and len(self._running) == 1:  # the heartbeat came from inside a subgraph
                (task,) = self._running.values()
            if task is not None and task.item != text:
                self._running[task.id] = task._replace(item=text, item_s=self._beat_s)
                self._moved_s = self._beat_s

    def spend(self, requests: int, tokens: int) -> None:
        """Take note of requests to chat models."""
        with self._lock:
            self._beat_s = self._clock()
            self._requests += requests
            self._tokens += tokens

    def place(self) -> tuple[float, str | None]:
        """Return when the run last got on, and what it is at: the item of the last heartbeat, or of the state."""
        with self._lock:
            item = next((task.item for task in reversed(self._running.values()) if task.item is not None), self._item)
            return max(self._moved_s, self._step.at_s if self._step else 0.0), item

    def view(self) -> View:
        """Return the run as it is now."""
        with self._lock:
            # By place: names take a third of the time, at each step.
            return View(
                self._clock(),
                self._started_s,
                self._step,
                self._previous,
                tuple(self._running.values()),
                Newest(self._ended, _MOST_ENDED),
                self._marks.copy(),
                self._item,
                self._beat_s,
                self._moved_s,
                self._requests,
                self._tokens,
                self._note,
                self._failing(),
            )

    def find(self, at_step: bool = False) -> Finding | None:
        """Return what the first check finds that finds something; one that raises finds nothing and is logged once.

        Steps may follow each other quickly: `at_step` those that only wait for a time are asked now and then.
        """
        if not self._all:
            return None
        view = self.view()
        is_glance = at_step and 0 <= view.now_s - self._looked_s < _GLANCE_S
        if not is_glance:
            self._looked_s = view.now_s
        for at, check in self._untimed if is_glance else self._all:
            try:
                found = check(view)
            except Exception:
                if at not in self._broken:
                    self._broken.add(at)
                    _LOG.exception("the check %r failed; it is logged once", check)
                continue
            if found is not None:
                return found
        return None


def pool_of(max_concurrency: int | None, is_async: bool) -> int | None:
    """Return how many tasks of a step run at a time; None if all do."""
    return max_concurrency or (None if is_async else min(32, (os.cpu_count() or 1) + 4))  # as ThreadPoolExecutor has it


class Newest(Sequence[Task]):
    """The last items that a list has now, whatever is appended later; it costs the same for any number.

    Args:
        items: The list; it must only ever grow.
        most: How many.
    """

    __slots__ = ("_items", "_places")

    def __init__(self, items: list[Task], most: int) -> None:
        size = len(items)
        self._items, self._places = items, range(max(0, size - most), size)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return [self._items[place] for place in self._places[index]]
        return self._items[self._places[index]]

    def __len__(self) -> int:
        return len(self._places)


class _Read:
    """A value of one state; it is held, since an identity that is free again could be that of another one."""

    __slots__ = ("_digest", "_mark", "_step", "_value")

    def __init__(self, value: Any, step: Step) -> None:
        self._value, self._step, self._digest = value, step, digest(value)
        self._mark: Mark | None = None

    def mark(self) -> Mark:
        """Return a mark that begins with this step."""
        if self._mark is None:
            self._mark = Mark(self._digest, text_of(self._value), self._step)
        return self._mark

    def after(self, marks: tuple[Mark, ...], window: int) -> tuple[Mark, ...]:
        """Return the marks with this value as the newest."""
        if marks and marks[-1].digest == self._digest:
            last = marks[-1]
            again = Mark(last.digest, last.text, last.step, last.steps + 1, last.second or self._step.id)
            return (*marks[:-1], again)
        return (*marks, self.mark())[-window:]


def digest(value: Any) -> bytes:
    """Return what tells a value from another one: a hash, or the value itself if that is shorter."""
    try:
        packed = ormsgpack.packb(value, default=_plain, option=_OPTIONS)
    except (ValueError, TypeError, RecursionError):  # a great number, or a value that holds itself
        packed = repr(value).encode(errors="replace")
    return packed if len(packed) < _DIGEST else blake2b(packed, digest_size=_DIGEST).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if hasattr(value, "__dict__"):
        return [type(value).__qualname__, vars(value)]
    return repr(value)


def text_of(value: Any) -> str:
    """Return a value as a text that is short and still tells it from others."""
    text = clean(value)
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}... {digest(text).hex()[:8]}"
