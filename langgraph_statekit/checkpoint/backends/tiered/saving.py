"""Saves through both tiers: when they are acknowledged, and what is done if the hot store loses them on the way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.tiered.below import Below
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.seen import Seen
from langgraph_statekit.checkpoint.backends.tiered.sent import Order, is_in
from langgraph_statekit.checkpoint.backends.tiered.uploading import Uploading
from langgraph_statekit.checkpoint.claims import Rekeyed
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX
from langgraph_statekit.checkpoint.records import HEADER_ID_BYTES, Save, SaveRow, SaveWrites, is_made
from langgraph_statekit.errors import Corrupt, StatekitError, Unavailable

_ATTEMPTS: Final = 8


class Saving:
    """Saves.

    Args:
        hot: The hot store.
        moving: Moves threads between the tiers.
        uploading: Brings them to the cold store in time.
        below: Takes saves while the hot store is away; None: they are refused.
        through: Whether a save is acknowledged only when the cold store has it.
    """

    def __init__(
        self, hot: Backend, moving: Moving, uploading: Uploading, below: Below | None, *, through: bool
    ) -> None:
        self._hot, self._moving, self._uploading, self._through = hot, moving, uploading, through
        self._below = below
        self.seen = Seen()
        self._order = Order()

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        """See `Backend.save`."""
        self._uploading.require_room()
        if self._below is None:
            return self._save_both(saves)
        if not self._below.serves():
            try:
                return self._save_both(saves)
            except Unavailable:
                if not self._below.begins():
                    raise
        for thread in {save.thread for save in saves}:
            self.seen.forget(thread)
        results = self._below.save(saves)
        return self._save_both(saves) if results is None else results

    def _save_both(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        # One that brings a new data key must not begin a thread that the cold store has with another.
        unsure = {save.thread for save in saves if len(save.header) > HEADER_ID_BYTES}
        threads = {save.thread for save in saves}
        new = {thread for thread in threads if thread in unsure or not self.seen.has(thread)}
        untold = {} if self._below is None else self._below.untold
        failed = {thread: untold[thread] for thread in threads if thread in untold}
        failed |= self._thaw_each(new - failed.keys())
        away = [error for error in failed.values() if isinstance(error, Unavailable)]
        if away and len(failed) == len(threads):
            raise away[0]
        left = [at for at, save in enumerate(saves) if save.thread not in failed]
        tickets = [self._order.take(save) for save in saves] if self._through else []
        results: list[int | Exception] = [failed.get(save.thread, 0) for save in saves]
        for at, result in zip(left, self._save([saves[at] for at in left]) if left else (), strict=True):
            results[at] = result
        for at in left:
            if saves[at].thread in new and is_made(results[at]):
                self.seen.add(saves[at].thread)
        # A root that goes on from what is stored, as a first checkpoint that is migrated does, is refused by nobody: if
        # the hot store let the thread go a moment ago, values of it are in the cold one only.
        lean = [at for at in left if is_made(results[at]) and _leans(saves[at])]
        failed = self._thaw_each({saves[at].thread for at in lean})
        for at in lean:
            results[at] = failed.get(saves[at].thread, results[at])
        if self._through:
            self._upload(saves, tickets, results)
        else:
            done = [save for save, result in zip(saves, results, strict=True) if is_made(result)]
            changed = [save.thread for save in done]
            self._uploading.changed(changed, {save.thread for save in done if _waits(save)})
            self._uploading.catch_up(changed)
        return results

    def _thaw_each(self, threads: Collection[str]) -> dict[str, StatekitError]:
        """Have threads in the hot store; return why one is not, by thread: others are saved to all the same."""
        failed: dict[str, StatekitError] = {}
        for thread in threads:
            try:
                self.thaw(thread)
            except StatekitError as error:
                failed[thread] = error
        return failed

    def _save(self, saves: Sequence[Save]) -> list[int | Exception]:
        results = list(self._hot.save(saves))
        for at, result in enumerate(results):
            # The hot store may have lost the thread or a part of it, or another worker have archived it.
            if result == 0 or isinstance(result, Rekeyed | Corrupt):
                try:
                    if self._moving.thaw(saves[at].thread):
                        [results[at]] = self._hot.save([saves[at]])
                except StatekitError as error:
                    results[at] = error
        return results

    def _upload(self, saves: Sequence[Save], tickets: Sequence[int], results: list[int | Exception]) -> None:
        """Have in the cold store what was saved, or say that it is not there.

        What the hot store lost before it was uploaded, as by a copy of it that was put back, is saved again; not what a
        later save has replaced.
        """
        left = [at for at, result in enumerate(results) if is_made(result)]
        for _ in range(_ATTEMPTS):
            failed = self._uploading.upload({saves[at].thread for at in left})
            for at in left:
                if saves[at].thread in failed:
                    results[at] = failed[saves[at].thread]
            left = [at for at in left if is_made(results[at]) and not self._is_below(at, saves, results)]
            left = [at for at in left if self._order.is_last(saves[at], tickets[at])]
            if not left:
                break
            for at, result in zip(left, self._save([saves[at] for at in left]), strict=True):
                results[at] = result
            left = [at for at in left if is_made(results[at])]
        else:
            lost = Unavailable("the hot store kept losing what was saved; save again")
            results[:] = [lost if at in left else result for at, result in enumerate(results)]
        away = [result for result in results if isinstance(result, Unavailable)]
        if away and len(away) == len(results):  # of others each save has its own
            raise away[0]

    def _is_below(self, at: int, saves: Sequence[Save], results: list[int | Exception]) -> bool:
        """Say whether the cold store has a save; it is looked up if others have uploaded the thread meanwhile."""
        if self._moving.sent.has(saves[at]):
            return True
        try:
            found = self._moving.image(saves[at].thread)
        except StatekitError as error:
            results[at] = error
            return True
        return found is not None and is_in(saves[at], found)

    def changed(self, thread: str) -> bool:
        """Note a change; False if the cold store should have it by now, and the hot one has nothing of the thread."""
        self.seen.add(thread)
        if self._through:
            return self._moving.upload(thread) > 0
        self._uploading.changed([thread])
        return True

    def thaw(self, thread: str) -> bool:
        """Have a thread in the hot store; False if there is none."""
        is_there = self._moving.thaw(thread)
        if is_there:
            self.seen.add(thread)
        return is_there


def _leans(save: Save) -> bool:
    return isinstance(save, SaveRow) and save.row.parent is None and bool(save.unsent())


def _waits(save: Save) -> bool:
    return isinstance(save, SaveWrites) and any(write.idx == INTERRUPT_IDX for write in save.writes)
