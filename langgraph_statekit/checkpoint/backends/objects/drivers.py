"""What a store of objects must be able to do; requests block and may come from many threads at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from langgraph_statekit.checkpoint.facts import Fact
from langgraph_statekit.errors import Misuse

ABSENT: Final = ""
"""Expectation of `Driver.put`: there is no such object."""


class Changed(Exception):
    """A conditional put found another object than expected, and did nothing."""


class Found(NamedTuple):
    """An object's bytes and the tag that names this version of it."""

    data: bytes
    tag: str


class Driver(ABC):
    """One request each; errors of type `transient` may be gone when the request is repeated, but for final ones."""

    name: str
    transient: tuple[type[Exception], ...]

    def final_error(self, error: Exception) -> Misuse | None:
        """Return what to raise at once for a transient error that no repeat can mend, or None."""
        return None

    def exists(self) -> bool:
        """Say whether there may be objects; a missing bucket fails with the first request."""
        return True

    def facts(self) -> Sequence[Fact]:
        """Return what is known of the place without a request."""
        return []

    @abstractmethod
    def now_us(self, key: str) -> int:
        """Return the time by the clock of the service, in microseconds since 1970; may store an object to learn it."""

    @abstractmethod
    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Return the keys below a folder, and the bytes of each object."""

    @abstractmethod
    def get(self, key: str) -> Found | None:
        """Return an object, or None."""

    @abstractmethod
    def put(self, key: str, data: bytes, expect: str | None = None) -> str:
        """Store an object durably and return its tag.

        Args:
            key: Where.
            data: All of it.
            expect: None to replace whatever is there, `ABSENT`, or the tag of the object to replace.

        Raises:
            Changed: Not what was expected.
        """

    @abstractmethod
    def list(self, prefix: str) -> Sequence[str]:
        """Return the keys below a folder, in any order."""

    @abstractmethod
    def folders(self, prefix: str) -> Sequence[str]:
        """Return the names of the folders right below a folder, in any order."""

    @abstractmethod
    def copy(self, source: str, target: str) -> bool:
        """Copy an object inside the store; False if there is no source."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects, durably; missing ones are no error."""
