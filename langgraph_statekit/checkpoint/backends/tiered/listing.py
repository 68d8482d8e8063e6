"""Which threads there are in both stores, and which of them hold checkpoints of some runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead
from langgraph_statekit.checkpoint.backends.tiered.lives import is_whole
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.reading import Reading
from langgraph_statekit.errors import StatekitError


class Listing:
    """Finds threads.

    Args:
        hot: The hot store.
        tier: The same, as the upper tier.
        moving: Moves threads between the tiers.
        reading: Reads what is in the cold store.
    """

    def __init__(self, hot: Backend, tier: Tier, moving: Moving, reading: Reading) -> None:
        self._hot, self._tier, self._moving, self._reading = hot, tier, moving, reading

    def threads(self) -> Iterator[Sequence[str]]:
        """Yield all threads in pages, those in the hot store first."""
        seen = set(self._tier.ended())
        for page in self._hot.threads():
            seen.update(page)
            yield page
        for heads in self._reading.threads():
            page = [head.thread for head in heads if head.thread not in seen]
            if page:
                yield page

    def hot(self) -> Iterator[Sequence[str]]:
        """Yield the threads in the hot store in pages."""
        return self._hot.threads()

    def of_runs(self, run_ids: Collection[str]) -> Iterator[Sequence[str]]:
        """Yield the threads that may have checkpoints of some runs, in pages, to be removed from before the next.

        What was removed from a page is in the cold store, too, before the next one is given: a removal that only the
        hot store has does not count where it turns out to be older, or to have missed something.

        Raises:
            StatekitError: At the end, if a thread could not be brought up or uploaded; all others were.
        """
        failed: list[StatekitError] = []
        asked: dict[str, int] = {}
        for heads in self._reading.threads():
            for head in heads:
                asked[head.thread] = self._brought_up(head, failed)
        seen = set[str]()
        for page in self._hot.threads(run_ids):
            seen.update(page)
            yield page
            self._upload(page, failed)
        for heads in self._reading.threads():  # but for those that were in the hot store all the time
            page = [head.thread for head in heads if head.thread not in seen and not self._stayed(head.thread, asked)]
            if page:
                yield page
                self._upload(page, failed)
        if failed:
            raise failed[0]

    def _brought_up(self, head: ColdHead, failed: list[StatekitError]) -> int:
        """Have the hot store have all of a thread if it has a part; return the life there, 0 if there is none."""
        state = self._tier.state(head.thread)
        if state is not None and state.here and not is_whole(state, head):
            try:
                self._moving.bring_up(head.thread)
            except StatekitError as error:
                failed.append(error)
            state = self._tier.state(head.thread)
        return state.born if state is not None and state.here else 0

    def _stayed(self, thread: str, asked: Mapping[str, int]) -> bool:
        state = self._tier.state(thread)
        return state is not None and state.here and state.born == asked.get(thread)

    def _upload(self, threads: Sequence[str], failed: list[StatekitError]) -> None:
        for thread in threads:
            try:
                self._moving.upload(thread)
            except StatekitError as error:
                failed.append(error)
