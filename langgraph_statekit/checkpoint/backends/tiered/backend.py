"""The verbs on two tiers: the hot store answers, the cold one keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import Tier
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.uploading import Uploading
from langgraph_statekit.checkpoint.cache import Cache
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, effects_of
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery, Rekeyed
from langgraph_statekit.checkpoint.expiry import INTERRUPT_IDX, Swept
from langgraph_statekit.checkpoint.facts import NOTE, OK, Fact, Usage
from langgraph_statekit.checkpoint.records import (
    HEADER_ID_BYTES,
    Change,
    Frame,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    SaveWrites,
    Stored,
    Write,
    from_text,
)
from langgraph_statekit.errors import Conflict, Unavailable

T = TypeVar("T")

_SEEN_BYTES: Final = 4 << 20
_SEEN_S: Final = 30.0
_ATTEMPTS: Final = 8


class TieredBackend:
    """Threads in a hot store, and for good in a cold one.

    Args:
        hot: The hot store.
        tier: The same, as the upper tier.
        cold: The cold store.
        mode: When threads are uploaded, see `TieredSaver`.
        uploading: As in `Uploading`.
        read_cold: Answer reads from the cold store while the hot one does not answer.
    """

    sweeps = True

    def __init__(
        self,
        hot: Backend,
        tier: Tier,
        cold: Cold,
        *,
        mode: str,
        read_cold: bool,
        **uploading: Any,
    ) -> None:
        self._hot, self._tier, self._cold = hot, tier, cold
        self._mode, self._read_cold = mode, read_cold
        self.deltas = hot.deltas
        self.moving = Moving(tier, cold)
        self.uploading = Uploading(tier, self.moving, mode=mode, **uploading)
        self._seen = Cache[str, float](_SEEN_BYTES)

    def __getattr__(self, name: str) -> Any:
        """Verbs that only the hot store knows."""
        if name.startswith("_") or name in ("line", "inner"):  # a line would pass by what is done here
            raise AttributeError(name)
        return getattr(self._hot, name)

    def setup(self) -> None:
        self._hot.setup()
        self._tier.setup()
        self.uploading.start()

    def close(self) -> None:
        self.uploading.close()
        self._hot.close()
        self._cold.bucket.close()

    def spare(self) -> Backend:
        return self._hot.spare()  # for leases, which are the hot store's

    def exists(self) -> bool:
        return self._hot.exists() or self._cold.bucket.exists()

    def facts(self) -> Sequence[Fact]:
        threads, saves = self.uploading.backlog
        verdict = NOTE if saves else OK
        backlog = Fact("backlog", f"{saves} saves of {threads} threads", verdict, "not in the cold store yet")
        return [*self._hot.facts(), Fact("mode", self._mode), backlog, *self._cold.bucket.facts()]

    def usage(self, thread: str) -> Usage:
        return self._read(
            thread, lambda: self._hot.usage(thread), lambda image: image.usage(thread), lambda found: True
        )

    def save(self, saves: Sequence[Save]) -> Sequence[bool | Exception]:
        self.uploading.require_room()
        for thread in {save.thread for save in saves}:
            if not self._is_seen(thread):
                self._thaw(thread)
        results = list(self._hot.save(saves))
        for at, result in enumerate(results):
            # The hot store may have lost the thread, or another worker have archived it.
            if (result is False or isinstance(result, Rekeyed)) and self.moving.thaw(saves[at].thread):
                [results[at]] = self._hot.save([saves[at]])
        done = [save for save, result in zip(saves, results, strict=True) if result is True]
        for thread in {save.thread for save in done}:
            self._see(thread)
        if self._mode == "write_through":
            self._upload(saves, results)
        else:
            self.uploading.changed([save.thread for save in done if not _waits(save)])
            self.uploading.changed([save.thread for save in done if _waits(save)], soon=True)
            self.uploading.catch_up({save.thread for save in done})
        return results

    def _upload(self, saves: Sequence[Save], results: list[bool | Exception]) -> None:
        """Have in the cold store what was saved, or say that it is not there."""
        made = {save.thread for save, result in zip(saves, results, strict=True) if result is True}
        failed = self.uploading.upload(made)
        for at, save in enumerate(saves):
            if results[at] is True and save.thread in failed:
                results[at] = failed[save.thread]
        if len(failed) and all(isinstance(result, Exception) for result in results):
            raise next(iter(failed.values()))

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        return self._hot.claim(claims)

    def leases(self, query: LeaseQuery) -> LeasePage:
        return self._hot.leases(query)

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        return self._hot.change_cells(changes)

    def cells(self, query: CellQuery) -> CellPage:
        return self._hot.cells(query)

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        try:
            found = self._hot.load(thread, ns, id, refresh)
        except Unavailable as error:
            return self._from_cold(thread, error).load(thread, ns, id)
        if found is not None:
            self._see(thread)
            return found
        return self._read(
            thread,
            lambda: self._hot.load(thread, ns, id, refresh),
            lambda image: image.load(thread, ns, id),
            lambda found: found is None,
        )

    def rows(self, query: Query) -> Sequence[Row]:
        return self._read(
            query.thread, lambda: self._hot.rows(query), lambda image: image.rows(query), lambda found: not found
        )

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        return self._read(
            thread,
            lambda: self._hot.fill(thread, keys, refs),
            lambda image: image.fill(thread, keys, refs),
            lambda found: len(found[0]) < len(keys) or len(found[1]) < len(refs),
        )

    def outline(self, thread: str, ns: str | None = None) -> Outline:
        return self._read(
            thread,
            lambda: self._hot.outline(thread, ns),
            lambda image: image.outline(thread, ns),
            lambda found: not found.rows,
        )

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        held, _ = self.moving.whole(thread)
        if held is not None:  # it was planned for what stands in the cold store
            self._thaw(thread)
            outline = self._hot.outline(thread)
            if rev != held.rev or {row.ref: row for row in outline.rows} != _bare(held.rows):
                return False
            rev = outline.rev
        done = self._hot.apply(thread, rev, change)
        if done:
            self._changed(thread)  # of a thread that lost its last row, nothing is left in the cold store either
        return done

    def drop_thread(self, thread: str) -> bool:
        self._forget(thread)
        self.moving.delete(thread)
        return bool(self.cells(effects_of(thread)).cells)

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        self._thaw(source)
        self._thaw(target)
        done = self._hot.copy_thread(source, target, operation, header)
        if done:
            self._changed(target)
        return done

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        found = dict(self._hot.headers(threads))
        for thread in threads:
            if thread not in found and self._tier.state(thread) is None:
                known = self._cold.alive(thread)
                if known is not None and known[0].header:
                    found[thread] = known[0].header
        return found

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        # First the hot store: whoever uploads from now on brings the new header along.
        hot = self._hot.rewrap(changes)
        return [self._rewrap(*change) or done for change, done in zip(changes, hot, strict=True)]

    def _rewrap(self, thread: str, before: bytes, header: bytes) -> bool:
        known = self._cold.alive(thread)
        while known is not None and known[0].header[:HEADER_ID_BYTES] == before[:HEADER_ID_BYTES]:
            head, tag = known
            if head.header == header:
                return True
            if head.header != before and self._tier.state(thread) is None:
                return False
            if self._cold.publish(thread, replace(head, gen=head.gen + 1, header=header), tag):
                return True
            known = self._cold.alive(thread)
        return False

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        seen = set(self._tier.ended())
        for page in self._hot.threads(run_ids):
            seen.update(page)
            yield page
        for heads in self._cold.threads():
            page = [head.thread for head in heads if head.thread not in seen]
            if run_ids is not None:  # those in the hot store were asked already
                page = [thread for thread in page if self._tier.state(thread) is None]
            if page:
                yield page

    def sweep(self, orphans_us: int) -> Swept:
        swept = self._hot.sweep(orphans_us)
        for thread in self._tier.ended():
            self.moving.upload(thread)
        return swept

    def sweep_cold(self) -> int:
        """Remove what expired and is in the cold store only, and return of how many threads; it reads every head."""
        return self._cold.sweep(lambda thread: self._tier.state(thread) is not None)

    def evict(self, thread: str) -> bool:
        """Have the hot store drop a thread that the cold one has; False if it is in use, or not there."""
        self._forget(thread)
        self.uploading.flush([thread])
        return self.moving.evict(thread)

    def hot_threads(self) -> Iterator[Sequence[str]]:
        """Yield the threads in the hot store in pages."""
        return self._hot.threads()

    def cold_threads(self) -> Iterator[Sequence[str]]:
        """Yield the threads in the cold store in pages."""
        return ([head.thread for head in heads] for heads in self._cold.threads())

    def image(self, thread: str) -> MemoryBackend | None:
        """Return a thread as the cold store has it; None if it has not."""
        found = self._cold.image(thread)
        return None if found is None else MemoryBackend({thread: found[1]})

    def is_deleted(self, thread: str) -> bool:
        """Say whether neither store has anything of a thread but a tombstone."""
        [held] = self._hot.claim([Claim(thread, "", "", 0, token=0)])
        head, _ = self._cold.head(thread)
        gone = self._tier.state(thread) is None and held is None and not head.live
        return gone and len(self._cold.objects(thread)) <= 1

    def _changed(self, thread: str) -> None:
        self._see(thread)
        if self._mode == "write_through":
            self.moving.upload(thread)
        else:
            self.uploading.changed([thread])

    def _read(
        self, thread: str, hot: Callable[[], T], cold: Callable[[MemoryBackend], T], is_short: Callable[[T], bool]
    ) -> T:
        """Return what the store says that has the whole thread.

        Args:
            thread: The thread.
            hot: Reads from the hot store.
            cold: Reads from what the cold store has.
            is_short: Whether the hot store may have let the thread go when it gave this.
        """
        try:
            held, born = self.moving.whole(thread)
            for _ in range(_ATTEMPTS):
                if held is not None:
                    return cold(MemoryBackend({thread: held}))
                found = hot()
                if not is_short(found):
                    return found
                before = born
                held, born = self.moving.whole(thread)
                if held is None and born == before:
                    return found
        except Unavailable as error:
            return cold(self._from_cold(thread, error))
        raise Conflict(f"thread {from_text(thread)!r} kept moving between the stores while it was read; try again")

    def _from_cold(self, thread: str, error: Unavailable) -> MemoryBackend:
        """Return what answers while the hot store does not."""
        if not self._read_cold:
            raise error
        with suppress(Unavailable):
            image = self.image(thread)
            if image is not None:
                return image
        raise error

    def _thaw(self, thread: str) -> None:
        if self.moving.thaw(thread):
            self._see(thread)

    def _see(self, thread: str) -> None:
        self._seen.put(thread, time.monotonic(), 0)

    def _is_seen(self, thread: str) -> bool:
        """Say whether a thread was in the hot store a moment ago; if it has gone since, that does no harm."""
        at = self._seen.get(thread)
        return at is not None and time.monotonic() - at < _SEEN_S

    def _forget(self, thread: str) -> None:
        self._seen.put(thread, None, 0)


def _bare(rows: Mapping[Ref, Row]) -> dict[Ref, Row]:
    return {ref: row._replace(body=b"") for ref, row in rows.items()}


def _waits(save: Save) -> bool:
    return isinstance(save, SaveWrites) and any(write.idx == INTERRUPT_IDX for write in save.writes)
