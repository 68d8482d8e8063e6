"""Locks do not survive a fork: a child may inherit one that a thread of its parent held."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """Something with locks."""

    def renew(self) -> None:
        """Begin anew in the child of a fork, with locks of its own and nothing under way."""


_OBJECTS: Final[WeakSet[Renewable]] = WeakSet()


def renew_in_child(thing: Renewable) -> None:
    """Have `thing.renew()` called in every child that this process forks while `thing` lives."""
    _OBJECTS.add(thing)


def _renew() -> None:
    for thing in list(_OBJECTS):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
