"""Values used lately, bounded in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from langgraph_statekit.checkpoint.fork import renew_in_child

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_ENTRY_BYTES: Final = 200


class Cache(Generic[K, V]):
    """The values used last, up to a number of bytes in all; safe to share by many threads, empty after a fork.

    Args:
        max_bytes: Bytes to hold; the values used longest ago go first.
        largest_bytes: A larger value is not held; `max_bytes` unless given.
    """

    def __init__(self, max_bytes: int, largest_bytes: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._largest_bytes = max_bytes if largest_bytes is None else largest_bytes
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Forget all."""
        self._lock = threading.Lock()
        self._items: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: K) -> V | None:
        """Return what is held under the key, or None."""
        with self._lock:
            item = self._items.get(key)
            if item is None:
                return None
            self._items.move_to_end(key)
            return item[0]

    def put(self, key: K, value: V | None, size_bytes: int) -> None:
        """Hold a value instead of what was held under the key; None holds nothing."""
        with self._lock:
            self._put(key, value, size_bytes)

    def hold(self, key: K, value: V, size_bytes: int) -> V:
        """Return what is held under the key; hold the value if there is nothing."""
        with self._lock:
            held = self._items.get(key)
            if held is None:
                self._put(key, value, size_bytes)
            return value if held is None else held[0]

    def forget(self, chosen: Callable[[K], bool]) -> None:
        """Forget the chosen keys."""
        with self._lock:
            for key in [key for key in self._items if chosen(key)]:
                self._forget(key)

    def _put(self, key: K, value: V | None, size_bytes: int) -> None:
        size_bytes += _ENTRY_BYTES
        self._forget(key)
        if value is not None and size_bytes <= self._largest_bytes:
            self._items[key] = value, size_bytes
            self._bytes += size_bytes
            while self._bytes > self._max_bytes:
                self._forget(next(iter(self._items)))

    def _forget(self, key: K) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self._bytes -= item[1]
