"""Moving threads between the tiers: uploads, thaws, evictions, deletions. Each may die anywhere, and be repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.turns import pauses
from langgraph_statekit.checkpoint.backends.tiered.cold import Cold
from langgraph_statekit.checkpoint.backends.tiered.hot import Changes, State, Tier
from langgraph_statekit.checkpoint.backends.tiered.joining import Placed, joined, missing, regained, unsealed
from langgraph_statekit.checkpoint.backends.tiered.layout import ColdHead, Pack, new_life
from langgraph_statekit.checkpoint.backends.tiered.lives import is_dead, is_whole, next_head, own
from langgraph_statekit.checkpoint.backends.tiered.lost_heads import BadHead
from langgraph_statekit.checkpoint.backends.tiered.packs import Gone
from langgraph_statekit.checkpoint.backends.tiered.reading import Reading
from langgraph_statekit.checkpoint.backends.tiered.sent import Sent
from langgraph_statekit.checkpoint.fork import renew_in_child
from langgraph_statekit.checkpoint.records import from_text
from langgraph_statekit.errors import Corrupt, StatekitError, Unavailable

_LOCKS: Final = 64
_TICK_S: Final = 0.002


class Moving:
    """What moves threads.

    Args:
        hot: The upper tier.
        cold: The lower one.
        reading: Reads what is there, or in its replicas.

    Attributes:
        regained: Called with a thread of which the hot store came back in an older state than the cold one has, and
            with how many checkpoints differ, once both have all of it.
        placed: See `Placed`; one of an encrypted saver seals anew.
        sent: What was uploaded last.
    """

    regained: Callable[[str, int], None] = staticmethod(lambda thread, count: None)
    placed: Placed = staticmethod(unsealed)

    def __init__(self, hot: Tier, cold: Cold, reading: Reading) -> None:
        self._hot, self._cold, self._reading = hot, cold, reading
        self.sent = Sent()
        self.renew()
        renew_in_child(self)

    def renew(self) -> None:
        """Begin anew in the child of a fork."""
        self._turns = [threading.Lock() for _ in range(_LOCKS)]

    def upload(self, thread: str) -> int:
        """Bring what changed in a thread to the cold store; what changes meanwhile may go along or not.

        Returns:
            The life in the hot store, all of which the cold one had then; 0 if there was none.
        """
        lacked: list[int] = []
        try:
            with self._turns[hash(thread) % _LOCKS]:  # who waited finds little left to do
                for pause_s in pauses(thread):
                    born = self._upload(thread, lacked)
                    if born is not None:
                        return born
                    time.sleep(pause_s)
            raise AssertionError("pauses end with an error")
        finally:
            for count in lacked:  # not in its turn, as who is told may use the thread
                self.regained(thread, count)

    def _upload(self, thread: str, lacked: list[int]) -> int | None:
        # First the head: another worker may bring later changes there until the swap, which then fails; they would be
        # overwritten by those of a view that is older than the head.
        try:
            head, tag = self._cold.known(thread)
        except BadHead:
            if self._hot.changes(thread) is not None:
                raise
            self._bury_ended(thread)  # which asks nothing of it
            return 0
        changes = self._hot.changes(thread)
        if changes is None:
            self._bury_ended(thread)
            return 0
        state = changes.state
        if is_dead(state, head):
            self._hot.forget(thread, state.born)
            return 0
        unsure = state.epoch == head.life and state.gen < head.gen
        if state.clean and state.epoch in ("", head.life) and not unsure:
            return state.born
        if self._cold.is_dying(head):
            self._cold.head(thread)
            return None
        begun = head.live and not state.ended and (state.epoch == head.life or not self._cold.over(head, sure=True))
        base = own(head) if begun else new_life(thread, head)
        # What was stored or read here needs no look; so one request more for the first upload of a process.
        if begun and head.packs and not self._cold.packs.held(head, head.packs[-1].name) and self._mend(head):
            return None
        if unsure and begun and state.complete and not head.ahead:
            in_step = self._is_in_step(thread, head, tag, state, lacked)
            if not in_step:
                return in_step if in_step is None else state.born
            if state.clean:
                self._hot.uploaded(thread, state.born, changes.mark, state.epoch, head.gen, True)
                return state.born
        # The cold store is another one than before, or was a replica, or took saves alone.
        if state.epoch not in ("", head.life) or head.ahead:
            changes = self._hot.changes(thread, whole=True)
            if changes is None or changes.state.born != state.born:
                return None
        joins = begun and (not state.complete or state.epoch != head.life or head.ahead)
        told = self._joined(thread, head, changes) if joins else (changes.pack, True)
        if told is None:
            return None
        pack, complete = told
        adds, made = pack, next_head(base, changes, pack)
        if pack.gone_rows and made.packs:  # in the same step, so that what was removed is in no pack, whoever dies
            try:
                made, pack = self._cold.replaced(made, len(made.packs), pack)
            except Gone:
                self._mend(head)
                return None
            except Corrupt:
                if self._rewrite(head, tag):
                    return None
                raise
        new = self._cold.append(made, pack, tag)
        if new is None:
            return None
        self.sent.add(thread, adds)
        self._hot.uploaded(thread, state.born, changes.mark, new.epoch, new.gen, complete)
        with suppress(StatekitError):  # the upload counts
            if head.live and not begun:
                self._cold.clear(thread)  # what is left of the life before
            if self._cold.compact(thread) == new.gen + 1:
                self._hot.uploaded(thread, state.born, changes.mark, new.epoch, new.gen + 1, complete)
        return state.born

    def _joined(self, thread: str, head: ColdHead, changes: Changes) -> tuple[Pack, bool] | None:
        """Return what the hot store adds to a head, and whether that is all; None if the thread changed meanwhile."""
        found = self._reading.own_image(thread)
        if found is None or found[0].gen != head.gen:
            return None
        held, state = found[1], changes.state
        place_at = partial(self.placed, changes.header or head.header)
        if not (head.ahead and state.complete and state.epoch == head.life):
            told = changes.pack, changes.places, changes.seq
            return joined(held, *told, place_at, ahead=head.ahead, below=head.below)
        touched = self._hot.changes(thread)  # after the whole, so that none of its changes is left out
        if touched is None or (touched.state.born, touched.state.gen) != (state.born, state.gen):
            return None
        return regained(held, changes.pack, touched.pack, place_at, head.below), False

    def _is_in_step(self, thread: str, head: ColdHead, tag: str, state: State, lacked: list[int]) -> bool | None:
        """Say whether the hot store has all of a head that it was not told of.

        Mostly it has: who uploaded died, or has not told it yet. If not, it went back in time, as a copy that is put
        back does, or a replica of it that takes over. Then what it has alone is brought to the cold store, which stays
        as it is otherwise, and the hot one drops its copy. None if the thread changed meanwhile.
        """
        found = self._reading.own_image(thread)
        whole, touched = self._hot.changes(thread, whole=True), self._hot.changes(thread)
        if found is None or found[0].gen != head.gen or whole is None or touched is None:
            return None
        if any((each.state.born, each.state.gen) != (state.born, state.gen) for each in (whole, touched)):
            return None
        lacks = missing(found[1], whole.pack, touched.pack)
        if not lacks and head.header in (b"", whole.header):
            return True
        header = head.header or whole.header  # that of the hot store may be wrapped with a key that is gone
        pack = regained(found[1], whole.pack, touched.pack, partial(self.placed, header))
        new = head
        if not pack.empty:
            base = own(head)
            until_us = max(head.until_us, whole.until_us or 0) if head.until_us else None
            new = replace(next_head(base, whole, pack), header=header, ttl_us=head.ttl_us, until_us=until_us)
            if self._cold.append(new, pack, tag) is None:
                return None
        # It is not told of the new head: if it changes before it drops its copy, it is not in step still.
        self._hot.uploaded(thread, state.born, whole.mark, state.epoch, state.gen, True)
        self._hot.evict(thread, state.born, new.gen, True)
        lacked.append(len(lacks))
        return False

    def _bury_ended(self, thread: str) -> bool:
        """Remove from the cold store what has ended in the hot one; False if another life has begun there.

        Not what only its time ended, if in the cold store that was set anew since: the hot one went back in time.
        """
        born, is_over, begun = 0, False, False

        def ended() -> int | None:
            nonlocal born, is_over, begun
            state = self._hot.state(thread)
            begun = state is not None and state.here
            if state is None or begun:
                return None
            born, is_over = state.born, state.over
            return born

        if ended() is None:
            return not begun
        if is_over:
            head, _ = self._cold.head(thread)
            if head.live and not self._cold.over(head, sure=True):
                self._hot.buried(thread, born, head.gen)
                return True
        gen = self._cold.bury(thread, ended)
        if gen is not None:
            self._cold.clear(thread)
            self._hot.buried(thread, born, gen)
        return not begun

    def whole(self, thread: str) -> tuple[Thread | None, int]:
        """Return a thread as it is in the cold store; None if all of it is in the hot one, or there is none.

        With None comes when its life in the hot store began; if it is the same after a read, it was there all the time.
        A thread of which the hot store has only the end, since it lost the rest, is first brought to the cold one.
        """
        for pause_s in pauses(thread):
            state = self._hot.state(thread)
            born = 0 if state is None else state.born
            if state is None or state.over:  # for which the time may have been set anew
                found = self._reading.image(thread)
                return (None if found is None else found[1]), born
            if state.complete or not state.here:
                return None, born
            head = self._reading.head(thread)
            dead = is_dead(state, head)
            if not dead and (not head.live or self._cold.over(head)):
                return None, born
            if self._is_complete_now(thread, born):
                return None, born
            found = None if dead else self._reading.image(thread)
            if found is not None:
                return found[1], born
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def _is_complete_now(self, thread: str, born: int) -> bool:
        """Upload a thread, and say whether the hot store has all of it: an upload under way had not told so yet."""
        self.upload(thread)
        state = self._hot.state(thread)
        return state is not None and state.here and state.complete and state.born == born

    def image(self, thread: str) -> Thread | None:
        """Return a thread as the cold store has it now; None if it has none."""
        found = self._reading.own_image(thread)
        return None if found is None else found[1]

    def thaw(self, thread: str) -> bool:
        """Have the whole thread in the hot store; False if there is none. Harmless while others do the same."""
        for pause_s in pauses(thread):
            state = self._hot.state(thread)
            if state is not None and not state.here:
                self.upload(thread)  # buries it, or finds that it goes on in the cold store
                if not state.over:
                    return False
                continue
            if state is not None and state.complete:
                return True
            if state is None:
                found = self._reading.image(thread)
                if found is None:
                    return self._is_begun(thread)
                head, held = found
                held = replace(held, ttl_us=head.ttl_us, until_us=head.until_us)
                if self._hot.restore(thread, head.life, head.gen, held):
                    return True
                if head.is_copy and self._hot.state(thread) is None:
                    raise Unavailable(f"a replica has only an older state of thread {from_text(thread)!r}; try again")
            else:
                head = self._reading.head(thread)
                if not is_dead(state, head) and (not head.live or self._cold.over(head)):
                    return True
                if self._is_complete_now(thread, state.born):
                    return True
                self.evict(thread, leased=True)
            time.sleep(pause_s)
        raise AssertionError("pauses end with an error")

    def _is_begun(self, thread: str) -> bool:
        """Say whether somebody has begun a thread that the cold store has not; who begins it now is no deleted life."""
        if self._hot.state(thread) is not None:
            return True
        with suppress(Corrupt, Unavailable):  # then whoever uploads it is told
            head, _ = self._cold.known(thread)
            if head.dead_us and head.dead_us >= self._hot.now_us():  # the clock is behind that of the deletion
                self._hot.buried(thread, head.dead_us, head.gen)
        return False

    def bring_up(self, thread: str) -> bool:
        """As `thaw`; and bring the hot store up to the cold one if it went back in time."""
        if self._hot.state(thread) is not None:
            self._cold.head(thread)  # the one that is remembered here may be older
            self.upload(thread)
        return self.thaw(thread)

    def evict(self, thread: str, *, leased: bool = False) -> bool:
        """Let the hot store drop a thread, once the cold one has all of it; False if it changed meanwhile.

        Args:
            thread: The thread.
            leased: Also if it is leased, or has a time to live.
        """
        self.upload(thread)
        state = self._hot.state(thread)
        if state is None or not (state.here and state.clean and state.epoch):
            return False
        head, _ = self._cold.head(thread)
        if self._mend(head):
            head, _ = self._cold.head(thread)
        return head.life == state.epoch and self._hot.evict(thread, state.born, head.gen, leased)

    def _mend(self, head: ColdHead) -> bool:
        """Bring back packs that the cold store lost: from memory, from a replica, or all anew from the hot store.

        Args:
            head: Which packs there should be, unless it is out of date.

        Returns:
            False if all are there.

        Raises:
            Corrupt: Nobody has them.
        """
        if not self._cold.lost(head):
            return False
        head, tag = self._cold.head(head.thread)
        lost, left = self._cold.lost(head), []
        for name in lost:
            data = self._cold.packs.held(head, name)
            if data is None:
                left.append(name)
            else:
                self._cold.packs.put(head, name, data)
        try:
            if left:
                self._reading.bring_back(head)
        except Corrupt:
            if not self._rewrite(head, tag):
                raise
        finally:
            now, at = self._cold.head(head.thread)
            if now.epoch != head.epoch:  # it was deleted meanwhile
                self._cold.clear(head.thread)
            elif at != tag:
                self._cold.packs.remove(head, [name for name in lost if name not in now.names])
        return True

    def _rewrite(self, head: ColdHead, tag: str) -> bool:
        """Have one pack of all that the hot store has instead of all of a head; False if it may not have all."""
        whole = self._hot.changes(head.thread, whole=True)
        if whole is None or head.ahead or not is_whole(whole.state, head):
            return False
        now_s = int(time.time())
        garbage = [*head.garbage, *((now_s, ref.name) for ref in head.packs)]
        base = replace(own(head), packs=(), garbage=garbage)
        new = self._cold.append(next_head(base, whole, whole.pack), whole.pack, tag)
        if new is not None:
            self._hot.uploaded(head.thread, whole.state.born, whole.mark, new.epoch, new.gen, True)
        return True

    def delete(self, thread: str) -> None:
        """Remove a thread from both tiers: from the hot one in one step, after which nobody sees it any more.

        It leaves a tombstone also where neither has anything of it: an upload may be under way of what the hot store
        has lost since.
        """
        self._cold.last_head(thread)  # so that nothing is done while the cold store does not answer
        self._hot.end(thread)
        for pause_s in pauses(thread):
            if self._bury_ended(thread) or self.upload(thread):  # what has begun since takes its place
                break
            time.sleep(pause_s)
        ended_us = self._hot.now_us()
        while self._hot.now_us() == ended_us:  # what is born from now on was born later
            time.sleep(_TICK_S)
