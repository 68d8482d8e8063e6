"""Threads laid out in memory between a store and a file, and carried over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.copying import acopy_threads, copy_threads
from langgraph_statekit.checkpoint.records import Save
from langgraph_statekit.checkpoint.saver import StatekitSaver


def desk_of(saver: StatekitSaver) -> StatekitSaver:
    """Return a saver in memory on which threads are laid out between a store and a file, in plain."""
    return StatekitSaver(MemoryBackend(), serde=saver.serde, secret_keys=saver._secret_keys)


def bare(saver: StatekitSaver) -> StatekitSaver:
    """Return a saver over the same store, without what would stand in the way of a copy."""
    return StatekitSaver(saver.backend, serde=saver.serde, secret_keys=saver._secret_keys)


class _Leased:
    """A store to which all saves go under a lease, so that whoever takes it stops them."""

    def __init__(self, inner: Backend, token: int) -> None:
        self._inner, self._token = inner, token

    def __getattr__(self, name: str) -> Any:
        if name == "line":  # saves that go over it would pass by what is done here
            raise AttributeError(name)
        return getattr(self._inner, name)

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        """See `Backend.save`."""
        return self._inner.save([replace(save, token=self._token) for save in saves])


def leased(saver: StatekitSaver, token: int) -> StatekitSaver:
    """Return such a saver whose saves are refused when the token's lease is another's, or gone."""
    backend: Any = _Leased(saver.backend, token)
    return StatekitSaver(backend, serde=saver.serde, secret_keys=saver._secret_keys)


def put_away(saver: StatekitSaver) -> None:
    """Give back what a saver opened beside its store, which is another one's."""
    if saver._lines is not None:
        saver._lines.close()
    saver._threads.close()


async def copied(source: StatekitSaver, target: StatekitSaver, thread_id: str, is_async: bool) -> None:
    """Copy a thread, and compare it with its source."""
    if is_async:
        await acopy_threads(source, target, [thread_id])
    else:
        copy_threads(source, target, [thread_id])
