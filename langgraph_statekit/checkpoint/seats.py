"""Where a thread waits for what others do for it."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Generic, TypeVar

R = TypeVar("R")


class Seat(Generic[R]):
    """Where a thread waits for the result of its item, which is never None, or until it is asked to lead.

    A thread that waits is woken anyway: to have it make the next batch wakes nobody else.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.told: SimpleQueue[R | Exception | None] = SimpleQueue()
        """The result or the error; None asks it to lead."""
        self.asked = False

    def cancelled(self) -> bool:
        """As a future: it never is."""
        return False
