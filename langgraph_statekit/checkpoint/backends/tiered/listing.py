"""Which threads there are in both stores, and which of them hold checkpoints of some runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.lives import is_whole
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.reading import Reading


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
        """
        for heads in self._reading.threads():
            for head in heads:
                state = self._tier.state(head.thread)
                if state is not None and state.here and not is_whole(state, head):
                    self._moving.bring_up(head.thread)
        for page in self._hot.threads(run_ids):
            yield page
            self._upload(page)
        for heads in self._reading.threads():  # those in the hot store were asked already
            page = [head.thread for head in heads if self._tier.state(head.thread) is None]
            if page:
                yield page
                self._upload(page)

    def _upload(self, threads: Sequence[str]) -> None:
        for thread in threads:
            self._moving.upload(thread)
