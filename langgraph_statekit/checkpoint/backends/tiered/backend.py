"""The verbs on two tiers: the hot store answers, the cold one keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.tiered.below import Below
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import State, Tier
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead
from langgraph_statekit.checkpoint.backends.tiered.listing import Listing
from langgraph_statekit.checkpoint.backends.tiered.moving import Moving
from langgraph_statekit.checkpoint.backends.tiered.reading import Reading
from langgraph_statekit.checkpoint.backends.tiered.replicas import Replicas
from langgraph_statekit.checkpoint.backends.tiered.restoring import Moment, Restoring, as_of
from langgraph_statekit.checkpoint.backends.tiered.saving import Saving
from langgraph_statekit.checkpoint.backends.tiered.sweeping import Sweeper
from langgraph_statekit.checkpoint.backends.tiered.uploading import Uploading
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, effects_of
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery
from langgraph_statekit.checkpoint.expiry import Swept
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
    Stored,
    Write,
    from_text,
)
from langgraph_statekit.errors import Conflict, Corrupt, StatekitError, Unavailable

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)
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
        write_cold: Take saves there, too.
        replicas: Copies of the cold store.
        tombstone_s: Seconds for which tombstones stay.
        behind: Called with the fields of `HotStoreBehind` when the hot store lacks what it had.
    """

    def __init__(
        self,
        hot: Backend,
        tier: Tier,
        cold: Cold,
        *,
        mode: str,
        read_cold: bool,
        write_cold: bool,
        replicas: Replicas,
        tombstone_s: float,
        behind: Callable[..., None],
        **uploading: Any,
    ) -> None:
        self._hot, self._tier, self._cold, self.replicas = hot, tier, cold, replicas
        self._mode, self._read_cold, self._write_cold = mode, read_cold, write_cold
        self.deltas, self.sweeps = hot.deltas, hot.sweeps
        self._reading = Reading(cold, replicas.all)
        self.moving = Moving(tier, cold, self._reading)
        self.moving.regained, self._tell_behind = self._regained, behind
        self.listing = Listing(hot, tier, self.moving, self._reading)
        self.restoring = Restoring(tier, cold, self.moving, self._reading)
        is_hot, repair = (lambda thread: tier.state(thread) is not None), self.restoring.repair
        self._sweeper = Sweeper(cold, replicas.all, tombstone_s, is_hot, repair)
        self.uploading = Uploading(tier, self.moving, mode=mode, **uploading)
        self._below = below = Below(tier, cold, self._reading, self.moving, self._set_up)
        if write_cold:
            self.uploading.around = below.tell
        through = mode == "write_through"
        self.saving = Saving(hot, self.moving, self.uploading, below if write_cold else None, through=through)

    def __getattr__(self, name: str) -> Any:
        """Verbs that only the hot store knows."""
        if name.startswith("_") or name in ("line", "inner"):  # a line would pass by what is done here
            raise AttributeError(name)
        return getattr(self._hot, name)

    def setup(self) -> None:
        try:
            self._set_up()
        except Unavailable as error:
            if not self._read_cold:
                raise
            self._below.away(error)
        if self._write_cold and not self._below.serves():
            with suppress(Unavailable):  # a round of looking around repeats it
                self._below.tell()
        self.uploading.start()
        self.replicas.start()

    def _set_up(self) -> None:
        self._hot.setup()
        self._tier.setup()

    def close(self) -> None:
        self.uploading.close()
        self.replicas.close()
        self._hot.close()
        self._cold.bucket.close()

    def _regained(self, thread: str, checkpoints: int) -> None:
        self.saving.seen.forget(thread)
        _LOG.warning(
            "the hot store came back in an older state: of thread %r it had %d checkpoints otherwise than the cold"
            " store, and has them as they are there again; restore all threads",
            *(from_text(thread), checkpoints),
        )
        self._tell_behind(thread_id=from_text(thread), checkpoints=checkpoints)

    def spare(self) -> Backend:
        return self._hot.spare()  # for leases, which are the hot store's

    def exists(self) -> bool:
        return self._hot.exists() or self._cold.bucket.exists()

    def facts(self) -> Sequence[Fact]:
        threads, saves = self.uploading.backlog
        verdict = NOTE if saves else OK
        backlog = Fact("backlog", f"{saves} saves of {threads} threads", verdict, "not in the cold store yet")
        told = [*self._hot.facts(), Fact("mode", self._mode), backlog, *self._cold.bucket.facts()]
        return [*told, *self.replicas.facts()]

    def usage(self, thread: str) -> Usage:
        return self._read(
            thread, lambda: self._hot.usage(thread), lambda image: image.usage(thread), lambda found: True
        )

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        return self.saving.save(saves)

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | Exception | None]:
        return self._hot.claim(claims)

    def leases(self, query: LeaseQuery) -> LeasePage:
        return self._hot.leases(query)

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        return self._hot.change_cells(changes)

    def cells(self, query: CellQuery) -> CellPage:
        return self._hot.cells(query)

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        if (away := self._below.answers_for(thread)) is not None:
            return self._from_cold(thread, away).load(thread, ns, id)
        try:
            found = self._hot.load(thread, ns, id, refresh)
        except Unavailable as error:
            return self._from_cold(thread, error).load(thread, ns, id)
        except Corrupt:
            found = None  # the hot store may now drop what it has
        if found is not None:
            self.saving.seen.add(thread)
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

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        return self._read(
            thread,
            lambda: self._hot.outline(thread, ns),
            lambda image: image.outline(thread, ns),
            lambda found: not found.rows,
        )

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        held, _ = self.moving.whole(thread)
        if held is not None:  # it was planned for what stands in the cold store
            self.saving.thaw(thread)
            outline = self._hot.outline(thread)
            if rev != held.rev or {row.ref: row for row in outline.rows} != _bare(held.rows):
                return False
            rev = outline.rev
        if not self._hot.apply(thread, rev, change):
            return False
        # Of a thread that lost its last row, nothing is left in the cold store either. Else it is planned anew: the hot
        # store lost the change before the cold one had it.
        return self.saving.changed(thread) or not self._cold.known(thread)[0].live

    def drop_thread(self, thread: str) -> bool:
        self.saving.seen.forget(thread)
        self.moving.delete(thread)
        with suppress(StatekitError):  # it is noted, and `is_deleted` tells
            self.replicas.bring([digest(thread)])
        return bool(self.cells(effects_of(thread)).cells)

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        for _ in range(_ATTEMPTS):
            is_there = self.saving.thaw(source)
            self.saving.thaw(target)
            before = self._tier.state(source)
            done = self._hot.copy_thread(source, target, operation, header)
            # If the source went down meanwhile, not all of it was copied; a repeat finds what was.
            went = is_there and not _is_same(before, self._tier.state(source))
            if not done or (not went and (self.saving.changed(target) or not is_there)):
                return done
        raise Unavailable(f"the hot store kept losing the copy {from_text(target)!r}; copy again")

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        away = False
        try:
            found = dict(self._hot.headers(threads))
        except Unavailable:
            if not self._read_cold:
                raise
            found, away = {}, True
        for thread in threads:
            if thread not in found and (away or self._tier.state(thread) is None):
                head = self._reading.head(thread)
                if head.header and not self._cold.over(head):
                    found[thread] = head.header
        return found

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        # First the hot store: whoever uploads from now on brings the new header along. And last: a copy that was
        # dropped meanwhile, and went up again, has the one of before.
        hot = self._hot.rewrap(changes)
        cold = [self._rewrap(*change) for change in changes]
        return [any(done) for done in zip(hot, cold, self._hot.rewrap(changes), strict=True)]

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
        return self.listing.threads() if run_ids is None else self.listing.of_runs(run_ids)

    def sweep(self, orphans_us: int) -> Swept:
        self._bury_ended()  # first, while it can be told that time alone ended them
        swept = self._hot.sweep(orphans_us)
        self._bury_ended()
        return swept

    def _bury_ended(self) -> None:
        for thread in self._tier.ended():
            with suppress(Corrupt):  # whoever reads that one is told
                self.moving.upload(thread)

    def sweep_cold(self, lost_s: float) -> int:
        """Remove what is of no use in the cold store, and return how many threads had expired, see `Sweeper`."""
        return self._sweeper.sweep(lost_s)

    def evict(self, thread: str) -> bool:
        """Have the hot store drop a thread that the cold one has; False if it is in use, or not there."""
        self.saving.seen.forget(thread)
        self.uploading.flush([thread])
        return self.moving.evict(thread)

    def cold_threads(self, *bad: Callable[[Corrupt], object]) -> Iterator[Sequence[str]]:
        """Yield the threads in the cold store in pages; tell `bad` of heads that cannot be read."""
        return ([head.thread for head in heads] for heads in self._cold.threads(*bad))

    def image(self, thread: str) -> MemoryBackend | None:
        """Return a thread as the cold store has it; None if it has not."""
        return _memory(thread, self._reading.image(thread))

    def restorable(self, bad: Callable[[Corrupt], object], *, copies: bool) -> list[str]:
        """Return all threads; also those that the hot store alone has, unless copies are made; see `cold_threads`."""
        tiers = [self.cold_threads(bad)] if copies else [self.cold_threads(bad), self.listing.hot()]
        return list(dict.fromkeys(thread for pages in tiers for page in pages for thread in page))

    def was(self, thread: str, at: Moment | None) -> Thread | None:
        """Return a thread as it was, see `as_of`; None if there was none."""
        if self._tier.state(thread) is not None:
            try:
                self.moving.upload(thread)
            except Corrupt:  # the hot store lost a part of it; what it was is what was uploaded
                if at is None:
                    raise
        found = self._reading.image(thread)
        return None if found is None else as_of(replace(found[1], ttl_us=found[0].ttl_us), at)

    def images(self, thread: str) -> Iterator[tuple[str, Callable[[], MemoryBackend | None]]]:
        """Yield the cold store and each replica by its name, with what reads a thread from there only."""
        for cold in (self._cold, *(replica.place for replica in self.replicas.all)):
            yield cold.name, partial(_read_at, cold, thread)

    def is_deleted(self, thread: str) -> bool:
        """Say whether neither store has anything of a thread but a tombstone."""
        [held] = self._hot.claim([Claim(thread, "", "", 0, token=0)])
        gone = self._tier.state(thread) is None and held is None
        colds = (self._cold, *(replica.place for replica in self.replicas.all))
        return gone and all(not cold.head(thread)[0].live and len(cold.objects(thread)) <= 1 for cold in colds)

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
        if (away := self._below.answers_for(thread)) is not None:
            return cold(self._from_cold(thread, away))
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
            if self._write_cold:  # it may be begun
                return MemoryBackend()
        raise error


def _is_same(before: State | None, after: State | None) -> bool:
    """Say whether a thread stayed in the hot store."""
    return before is not None and after is not None and after.here and before.born == after.born


def _read_at(cold: Cold, thread: str) -> MemoryBackend | None:
    return _memory(thread, cold.image(thread))


def _memory(thread: str, found: tuple[ColdHead, Thread] | None) -> MemoryBackend | None:
    return None if found is None else MemoryBackend({thread: found[1]})


def _bare(rows: Mapping[Ref, Row]) -> dict[Ref, Row]:
    return {ref: row._replace(body=b"") for ref, row in rows.items()}
