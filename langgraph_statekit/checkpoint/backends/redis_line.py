"""Saves over a socket that does not block; see `lines`."""

# mypy: untyped-calls-exclude="redis"

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import redis

S = TypeVar("S")


class RedisLine(Generic[S]):
    """A connection of redis-py, used for scripts that return a number.

    Args:
        conn: Not used by anybody else.
        command: The command that makes a save.
        result: What a save and the number come to.
        timeout_s: Seconds to wait for an answer.
    """

    def __init__(
        self,
        conn: redis.Connection,
        command: Callable[[S], tuple[Any, ...]],
        result: Callable[[S, int], int | Exception],
        timeout_s: float,
    ) -> None:
        conn.connect()
        self._conn, self._command, self._result, self.timeout_s = conn, command, result, timeout_s
        opened: Any = conn
        self._sock = opened._sock
        self._sock.setblocking(False)
        self._saves: Sequence[S] = ()
        self._left = memoryview(b"")
        self._got = b""

    def fileno(self) -> int:
        return int(self._sock.fileno())

    def send(self, items: Sequence[S]) -> bool:
        self._saves, self._got = items, b""
        self._left = memoryview(b"".join(self._conn.pack_commands([self._command(item) for item in items])))
        return self.send_more()

    def send_more(self) -> bool:
        try:
            self._left = self._left[self._sock.send(self._left) :]
        except BlockingIOError:
            return False
        return not self._left

    def receive(self) -> Sequence[int | Exception] | None:
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionError
        self._got += data
        *replies, rest = self._got.split(b"\r\n")
        if len(replies) < len(self._saves):
            return None
        if rest or len(replies) > len(self._saves) or any(not reply.startswith(b":") for reply in replies):
            raise ValueError  # an error of the server; who repeats it says which
        saves, self._saves = self._saves, ()
        return [self._result(save, int(reply[1:])) for save, reply in zip(saves, replies, strict=True)]

    def close(self) -> None:
        self._conn.disconnect()
