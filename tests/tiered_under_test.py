"""Two tiers as one store: each hot store over a directory, in each mode, and with all gone down between any two calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from weakref import WeakSet

from langgraph_statekit.checkpoint.backends.objects.drivers import Changed
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.tiered import layout as tiers
from langgraph_statekit.checkpoint.opening import open_saver
from langgraph_statekit.checkpoint.saver import StatekitSaver

from .stores_under_test import DEFAULTS, FileStore, PostgresStore, RedisStore, SqliteStore, Store

HOT: dict[str, Callable[[Callable[[str], str], Path], Any]] = {
    "sqlite": SqliteStore,
    "redis": RedisStore,
    "postgres": PostgresStore,
}
"""Stores that may be the hot one."""

MODES: dict[str, dict[str, Any]] = {
    "behind": {"mode": "write_behind", "max_lag_s": 0.05},
    "through": {"mode": "write_through"},
    "archive": {"mode": "archive", "max_lag_s": 0.05, "idle_s": 0.0},
}


class TieredStore(Store):
    """A hot store above, a directory below.

    Args:
        hot: Kind of the hot one.
        mode: As in `MODES`.
        evicts: Whether everything goes down between any two calls that may.
    """

    leaves_nothing = False

    def __init__(
        self,
        url: Callable[[str], str],
        directory: Path,
        *,
        hot: str = "sqlite",
        mode: str = "behind",
        evicts: bool = False,
    ) -> None:
        self._hot, self._cold, self._evicts = HOT[hot](url, directory), FileStore(url, directory), evicts
        self.url, self.options = self._hot.url, {**self._hot.options, "cold": self._cold.url, **MODES[mode]}
        self._opened = WeakSet[Any]()

    def open(self, **options: Any) -> StatekitSaver:
        if not self._evicts:
            saver = super().open(**options)
            self._opened.add(saver)
            return saver
        given = {**self.options, **DEFAULTS, **options}
        hot = open_saver(
            self.url, **{name: given.pop(name) for name in (*self._hot.options, "tenant") if name in given}
        )
        return _evicting(hot, given.pop("cold"), **given)

    def raw_dump(self) -> bytes:
        self._upload()  # so that no upload changes the next dump
        return self._hot.raw_dump() + self._cold.raw_dump()

    def _upload(self) -> None:
        if not self._hot.raw_dump():
            return
        saver: Any = self.open()
        saver.setup()
        for thread in saver.tiers._tier.dirty(1 << 62, 1000):
            saver.tiers.moving.upload(thread)
        for other in [
            each for each in self._opened if each is not saver and not each.tiers.uploading._background.closing
        ]:
            for page in other.tiers._hot.threads():
                for thread in page:
                    other.tiers.moving.upload(thread)  # waits for one under way, which leaves a pack for a moment
        saver.close()

    def advance(self, seconds: float) -> None:
        self._upload()  # what is not in the cold store may not expire
        # First below: where the hot store alone takes a thread for expired, it has gone back in time, and lets it live on.
        advance_cold(self._cold._directory, seconds)
        self._hot.advance(seconds)

    def break_connections(self) -> None:
        self._hot.break_connections()

    def clean(self) -> None:
        self._hot.clean()


def advance_cold(directory: Path, seconds: float) -> None:
    """Let time pass for all threads of a cold store in a directory."""
    driver = FileDriver(directory)
    for key in [key for key in driver.list("") if key.endswith("/head")]:
        while found := driver.get(key):
            head = tiers.decode_head(found.data)
            until_us = head.until_us and head.until_us - int(seconds * 1e6)
            with suppress(Changed):  # somebody uploads it
                driver.put(key, tiers.encode_head(replace(head, until_us=until_us)), found.tag)
                break


_CALLS = """get_tuple put put_writes delete_thread delete_for_runs copy_thread prune get_delta_channel_history
label labels unlabel rotate_keys sweep lease"""


def _evicting(*args: Any, **options: Any) -> StatekitSaver:
    from langgraph_statekit import TieredSaver

    def evict_all(saver: Any) -> None:
        for page in saver.tiers._hot.threads():
            for thread in page:
                saver.tiers.evict(thread)

    def after(name: str) -> Callable[..., Any]:
        def called(saver: Any, *args: Any, **options: Any) -> Any:
            result = getattr(TieredSaver, name)(saver, *args, **options)
            evict_all(saver)
            return result

        async def acalled(saver: Any, *args: Any, **options: Any) -> Any:
            result = await getattr(TieredSaver, name)(saver, *args, **options)
            evict_all(saver)
            return result

        inner = getattr(TieredSaver, name)
        return wraps(inner)(acalled if iscoroutinefunction(inner) else called)

    names = [name for base in _CALLS.split() for name in (base, f"a{base}")]
    return type("TieredSaver", (TieredSaver,), {name: after(name) for name in names})(*args, **options)
