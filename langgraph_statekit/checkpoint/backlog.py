"""Back-pressure: how many saves of one event loop are under way at most."""

from __future__ import annotations

import asyncio
from collections import deque


class Backlog:
    """Lets one event loop have so many saves under way, and adds none while they weigh so much."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.saves = self.size_bytes = 0

    async def enter(self) -> None:
        """Wait for a place; without a turn of the loop if there is one."""
        while self._full():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._next()  # it may have had its turn
                raise
        self.saves += 1
        self._next()

    def leave(self, size_bytes: int) -> None:
        """Give a place back."""
        self.saves -= 1
        self.size_bytes -= size_bytes
        self._next()

    def _full(self) -> bool:
        return self.saves >= self._most or (self.saves > 0 and self.size_bytes >= self._most_bytes)

    def _next(self) -> None:
        while self._waiting and not self._full():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class Place:
    """What a save enters before its values are serialized; without a backlog it waits for nothing."""

    def __init__(self, backlog: Backlog | None = None) -> None:
        self._backlog, self._size_bytes = backlog, 0

    async def __aenter__(self) -> Place:
        if self._backlog is not None:
            await self._backlog.enter()
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._backlog is not None:
            self._backlog.leave(self._size_bytes)

    def takes(self, size_bytes: int) -> None:
        """Tell what the save weighs until it is done."""
        if self._backlog is not None:
            self._backlog.size_bytes += size_bytes - self._size_bytes
            self._size_bytes = size_bytes
