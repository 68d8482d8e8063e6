"""The bar that a copy shows on request; loading this module needs tqdm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")

_tqdm = import_module("tqdm").tqdm


class ProgressBar:
    """Shows the checkpoints of all threads that were begun; call it with thread id, checkpoints done and in all."""

    def __init__(self) -> None:
        self._bar: Any = _tqdm(unit=" checkpoints", total=0)
        self._done = 0

    def __call__(self, thread_id: str, done: int, total: int) -> None:
        """Move the bar to where the thread is."""
        if done == 0:
            self._done = 0
            self._bar.total += total
            self._bar.set_description(thread_id, refresh=False)
        self._bar.update(done - self._done)
        self._done = done

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


def bar(items: Sequence[T], what: str) -> Iterable[T]:
    """Return the items with a bar on stderr that goes when they are through."""
    shown: Iterable[T] = _tqdm(items, desc=what, leave=False)
    return shown
