"""Requests that are repeated when they fail, in parallel where they do not depend on each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar, TypeVarTuple

from langgraph_statekit.checkpoint.backends.objects.drivers import Changed, Driver, Found, Stat
from langgraph_statekit.checkpoint.facts import Fact
from langgraph_statekit.checkpoint.repeating import retrying
from langgraph_statekit.checkpoint.run import Threads
from langgraph_statekit.errors import Misuse

T = TypeVar("T")
A = TypeVarTuple("A")

_DELETE_KEYS: Final = 1000
_REFUSED_S: Final = 60.0


class Bucket:
    """A driver with retries and a bounded pool of threads.

    Args:
        driver: Makes the requests.
        retry_s: Seconds for which a failed request is repeated.
        parallel: Requests that one bucket has under way at most, besides those of the calling threads.
    """

    def __init__(self, driver: Driver, retry_s: float, parallel: int) -> None:
        self._driver = driver
        self._retry_s = retry_s
        self._parallel = parallel
        self._threads = Threads(parallel)
        self._refused_until_s = 0.0

    @property
    def name(self) -> str:
        """What messages call it."""
        return self._driver.name

    def get(self, key: str) -> Found | None:
        return self._request(self._driver.get, key)

    def put(self, key: str, data: bytes) -> None:
        """Store an object whatever is there."""
        self._request(self._driver.put, key, data)

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Store objects whatever is there, in parallel."""
        self.all(lambda key: self.put(key, objects[key]), objects.keys())

    def list(self, prefix: str) -> Sequence[str]:
        return self._request(self._driver.list, prefix)

    def exists(self) -> bool:
        return self._driver.exists()

    def facts(self) -> Sequence[Fact]:
        return self._driver.facts()

    def now_us(self, key: str) -> int:
        return self._request(self._driver.now_us, key)

    def reading_us(self, key: str) -> int:
        """Return the time of the store, or that of the host to those who may only read: asking stores an object."""
        if time.monotonic() < self._refused_until_s:
            return time.time_ns() // 1000
        try:
            return self.now_us(key)
        except Misuse:
            self._refused_until_s = time.monotonic() + _REFUSED_S
            return time.time_ns() // 1000

    def spare(self) -> Bucket:
        """Return the same bucket for one more caller; it repeats a failed request at once and no more."""
        return Bucket(self._driver, 0.0, self._parallel)

    def stats(self, prefix: str) -> Mapping[str, Stat]:
        return self._request(self._driver.stats, prefix)

    def folders(self, prefix: str) -> Sequence[str]:
        return self._request(self._driver.folders, prefix)

    def copy(self, source: str, target: str) -> bool:
        return self._request(self._driver.copy, source, target)

    def delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _DELETE_KEYS):
            self._request(self._driver.delete, keys[start : start + _DELETE_KEYS])

    def swap(self, key: str, data: bytes, expect: str) -> str | None:
        """Put on condition and return the new tag; None if the object was not as expected.

        After a lost reply the request is sent again, and a refusal may be due to the first one: then the bytes
        that are there tell whether it was. So `data` must be unique, or equal bytes must mean the same.
        """
        unsure = False

        def attempt() -> str | None:
            nonlocal unsure
            try:
                return self._driver.put(key, data, expect)
            except Changed:
                found = self._driver.get(key) if unsure else None
                return found.tag if found is not None and found.data == data else None
            except self._driver.transient:
                unsure = True
                raise

        return self._request(attempt)

    def get_many(self, keys: Collection[str]) -> Mapping[str, Found]:
        """Return the objects that exist, read in parallel."""
        found = self.all(self.get, keys)
        return {key: item for key, item in zip(keys, found, strict=True) if item is not None}

    def all(self, call: Callable[[str], T], keys: Collection[str]) -> Sequence[T]:
        """Return what a call gives for each key, made in parallel."""
        if len(keys) == 1:
            return [call(key) for key in keys]
        return [future.result() for future in self.start_all(call, keys)]

    def start_all(self, call: Callable[[str], T], keys: Collection[str]) -> Sequence[Future[T]]:
        """Make a call for each key in threads of the pool."""
        return [self.start(call, key) for key in keys]

    def start(self, call: Callable[[*A], T], *args: *A) -> Future[T]:
        """Make a call in a thread of the pool; the call must not start others."""
        return self._threads.start(call, *args)

    def close(self) -> None:
        """End the threads when their work is done; a later call starts new ones."""
        self._threads.close()

    def _request(self, call: Callable[[*A], T], *args: *A) -> T:
        driver = self._driver

        def attempt() -> T:
            try:
                return call(*args)
            except driver.transient as error:
                if final := driver.final_error(error):
                    raise final from error
                raise

        return retrying(attempt, driver.transient, self._retry_s, driver.name)
