"""What of the watchdog knows about event loops: a mailbox and a run on one, and a child's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from langgraph_statekit.checkpoint.run import aside
from langgraph_statekit.watchdog.beat import listening
from langgraph_statekit.watchdog.runs import LATE, Run


class LoopMailbox:
    """A mailbox whose taker awaits in the event loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, item: Any) -> None:
        """Put something, from any thread; nobody takes it when the loop has ended."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._queue.put_nowait(item)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)

    async def get(self, timeout_s: float | None) -> Any:
        """Take the next thing."""
        if timeout_s is None:
            return await self._queue.get()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._queue.get()
        except TimeoutError:
            return LATE

    async def aside(self, call: Callable[[], None]) -> None:
        """Make the call in a thread."""
        await aside(call)


class LoopRun(Run):
    """The async graph as a task of the running event loop; it can be cancelled."""

    def start(self) -> None:
        """Begin."""
        self.stages = (self._cancel,)
        self._task = asyncio.create_task(self._work(), name="statekit-run")

    def _cancel(self) -> None:
        self._task.cancel(self.finding.reason if self.finding else "stopped")

    async def _work(self) -> None:
        error: BaseException | None = None
        try:
            with listening(self.seen):
                arguments = self.job.arguments(self.control)
                stream: AsyncIterator[Any] = self.job.graph.astream(self.job.input, self.job.config, **arguments)
                async with aclosing(stream) as parts:  # type: ignore[type-var]
                    async for part in parts:
                        if self.take(part):
                            error = self.halted()
                            break
        except BaseException as raised:  # also a cancellation: whoever asked for it waits for the end
            error = raised
        self.finish(error)
        if error is not None and not isinstance(error, Exception | asyncio.CancelledError):
            raise error


def finish(parts: AsyncIterator[Any], send: Callable[[Any], None], begun: Callable[[Callable[[], None]], None]) -> None:
    """Send all parts of a run, in an event loop of its own.

    Args:
        parts: The run.
        send: Takes each part.
        begun: Is given what cancels the run, from any thread.
    """

    async def work() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        begun(cancel)
        async for part in parts:
            send(part)

    asyncio.run(work())
