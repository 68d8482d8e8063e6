"""Saves sent from an event loop's own thread, over connections that never block.

A save that a thread of the pool makes changes threads twice, and each time waits until it gets the interpreter. Over a
line nothing changes threads: the loop sends, goes on, and is told when the answer is there. Only what goes well is done
here. Whatever does not (an error, a lost connection, no answer in time) is made again by a thread, as saves may be;
but not once the loop has ended: nobody waits for it then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from langgraph_statekit.checkpoint.fork import renew_in_child

S = TypeVar("S")
R = TypeVar("R")
S_in = TypeVar("S_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)

_OPEN_AFTER: Final = 16
"""Saves after which a loop gets a line: one that ends after a few is not worth a connection."""


class Line(Protocol[S_in, R_out]):
    """An open connection whose socket does not block. Any exception says that it is of no use any more."""

    timeout_s: float

    def fileno(self) -> int: ...

    def send(self, items: Sequence[S_in]) -> bool:
        """Begin to send; False: the rest waits for `send_more`."""
        ...

    def send_more(self) -> bool: ...

    def receive(self) -> Sequence[R_out] | None:
        """Return the results once they are complete."""
        ...

    def close(self) -> None: ...


class Loop(Protocol):
    """What is used of an event loop."""

    def add_reader(self, fd: Any, callback: Callable[[], object], /) -> Any: ...
    def remove_reader(self, fd: Any, /) -> Any: ...
    def add_writer(self, fd: Any, callback: Callable[[], object], /) -> Any: ...
    def remove_writer(self, fd: Any, /) -> Any: ...
    def call_later(self, delay: float, callback: Callable[[], object], /) -> Any: ...
    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: Any) -> Any: ...
    def is_closed(self) -> bool: ...


class Sender(Generic[S, R]):
    """A line on an event loop; used by the loop's thread only, until the loop has ended."""

    def __init__(self, line: Line[S, R], loop: Loop) -> None:
        self._line, self._loop = line, loop
        self._done: Callable[[Sequence[R] | None], None] | None = None
        self._timer: Any = None
        self.open, self._closing = True, False
        loop.add_reader(line.fileno(), self._readable)

    @property
    def busy(self) -> bool:
        """Whether results are being waited for."""
        return self._done is not None

    def begin(self, items: Sequence[S], done: Callable[[Sequence[R] | None], None]) -> None:
        """Send, and call `done` with the results, or with None if it is not known what became of the items."""
        self._done = done
        self._timer = self._loop.call_later(self._line.timeout_s, self.give_up)
        try:
            sent = self._line.send(items)
        except Exception:
            self.give_up()
        else:
            if not sent:
                self._loop.add_writer(self._line.fileno(), self._writable)

    def _writable(self) -> None:
        try:
            if self._line.send_more():
                self._loop.remove_writer(self._line.fileno())
        except Exception:
            self.give_up()

    def _readable(self) -> None:
        try:
            results = self._line.receive()
        except Exception:
            self.give_up()
        else:
            if results is not None:
                self._finish(results)
                if self._closing:
                    self.close()

    def give_up(self) -> None:
        """Close the line, and say that nothing is known of what it was to do."""
        if self.open:
            self.open = False
            self.release()
            self._line.close()
        self._finish(None)

    def close(self) -> None:
        """Close the line, once it has its results."""
        self._closing = True
        if not self.busy:
            self.give_up()

    def release(self) -> Line[S, R]:
        """Take the line off the loop."""
        if not self._loop.is_closed():
            self._loop.remove_reader(self._line.fileno())
            self._loop.remove_writer(self._line.fileno())
        return self._line

    def _finish(self, results: Sequence[R] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        done, self._done, self._timer = self._done, None, None
        if done is not None:
            done(results)


class Lines(Generic[S, R]):
    """A line for each event loop that saves often; a loop that has ended leaves its line to the next one.

    Args:
        open_line: Opens a connection; None if this store has no lines.
    """

    def __init__(self, open_line: Callable[[], Line[S, R] | None]) -> None:
        self._open_line = open_line
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        self._lock = threading.Lock()
        self._senders: dict[Loop, Sender[S, R]] = {}
        self._opening: set[Loop] = set()
        self._wished = 0
        self._off = False

    def of(self, loop: Loop, start: Callable[..., object]) -> Sender[S, R] | None:
        """Return the loop's line if it has one.

        Args:
            loop: The loop that runs in this thread.
            start: Starts a call in another thread; used to open a line.
        """
        sender = self._senders.get(loop)
        if sender is not None and sender.open:
            return sender
        if self._off:
            return None
        self._senders.pop(loop, None)
        with self._lock:
            ended = [self._senders.pop(each) for each in [*self._senders] if each.is_closed()]
            self._opening = {each for each in self._opening if not each.is_closed()}
            self._wished += 1
            wanted = self._wished % _OPEN_AFTER == 0 and loop not in self._opening
        for each in ended:
            if each.busy or loop in self._senders:
                each.give_up()
            elif each.open:
                self._bind(loop, each.release())
        if wanted and loop not in self._senders:
            with self._lock:
                self._opening.add(loop)
            start(self._open, loop)
        return self._senders.get(loop)

    def _open(self, loop: Loop) -> None:
        line = None
        try:
            line = self._open_line()
            self._off = line is None
            if line is not None:
                loop.call_soon_threadsafe(self._opened, loop, line)
        except Exception:  # the loop has ended; or whoever saves meets the same error, and tells it
            if line is not None:
                line.close()
            with self._lock:
                self._opening.discard(loop)

    def _opened(self, loop: Loop, line: Line[S, R]) -> None:
        with self._lock:
            wanted = loop in self._opening  # else all were closed meanwhile
            self._opening.discard(loop)
        if wanted:
            self._bind(loop, line)
        else:
            line.close()

    def _bind(self, loop: Loop, line: Line[S, R]) -> None:
        held = self._senders.get(loop)
        try:
            if held is not None and held.open:
                line.close()
            else:
                self._senders[loop] = Sender(line, loop)
        except NotImplementedError:  # Windows' own loop watches no sockets
            self._off = True
            line.close()

    def close(self) -> None:
        """Close all lines, each once it has its results."""
        with self._lock:
            senders, self._senders, self._opening = self._senders, {}, set()
        for loop, sender in senders.items():
            try:
                loop.call_soon_threadsafe(sender.close)
            except RuntimeError:
                sender.give_up()
