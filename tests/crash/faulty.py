"""A process that dies at a chosen call to its store: that call and all later ones fail, before or after they act."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Died(Exception):
    """The process had died by then."""


class Faulty:
    """Stands before any object; counts the calls of its methods and fails from the n-th on.

    Args:
        inner: What it stands before.
        fail_at: Number of the first call that fails, from 1; 0 for none.
        acts: Whether that call still has its effect, as when only the reply is lost.
    """

    def __init__(self, inner: Any, fail_at: int = 0, acts: bool = False) -> None:
        self._inner, self._fail_at, self._acts = inner, fail_at, acts
        self._lock = threading.Lock()
        self.calls = 0
        self.begun: list[tuple[str, tuple[Any, ...]]] = []
        self.done: list[tuple[str, tuple[Any, ...], Any]] = []

    @property
    def died(self) -> bool:
        """Whether a call failed."""
        return 0 < self._fail_at <= self.calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name.startswith("_") or name == "close":
            return found
        return self._counted(name, found)

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            with self._lock:
                self.calls += 1
                number = self.calls
                self.begun.append((name, args))
            if not self._fail_at or number < self._fail_at:
                result = call(*args, **options)
                self.done.append((name, args, result))
                return result
            if number == self._fail_at and self._acts:
                call(*args, **options)
            raise Died(f"call {number}, {name}")

        return counted
