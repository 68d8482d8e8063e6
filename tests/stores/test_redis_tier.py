"""Redis as the hot store: what changes is noted by whoever changes it, and a thread may go down and come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.redis import RedisBackend
from langgraph_statekit.checkpoint.backends.redis_connections import opener
from langgraph_statekit.checkpoint.backends.redis_tier import RedisTier
from langgraph_statekit.checkpoint.backends.tiered.hot import Changes
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack, folded
from langgraph_statekit.checkpoint.records import Frame, Ref
from tests.servers import Server
from tests.stores.redis_threads import fresh
from tests.stores.test_redis_model import THREADS, History, view

FAR = 1 << 62


class Cold:
    """What a cold store would have of each thread: the packs of its life, and the life."""

    def __init__(self, tier: RedisTier) -> None:
        self.tier = tier
        self.packs: dict[str, list[Pack]] = {}
        self.born: dict[str, int] = {}
        self.last: dict[str, Changes] = {}

    def take(self, thread: str, history: History | None = None) -> None:
        """Bring a thread up to date, perhaps while its history goes on."""
        state = self.tier.state(thread)
        if state is None:
            assert thread not in self.packs
            return
        if not state.here:
            self.tier.buried(thread, state.born, 1)
            self.packs.pop(thread, None)  # one that ended before anybody took it is told too
            return
        changes = self.tier.changes(thread)
        assert changes is not None
        if changes.state.born != self.born.get(thread):
            assert changes.state.ended or thread not in self.packs
            self.packs[thread] = []
        self.packs[thread].append(changes.pack)
        self.born[thread], self.last[thread] = changes.state.born, changes
        if history is not None and history.pick.random() < 0.5:
            history.step()
        self.tier.uploaded(thread, changes.state.born, changes.mark, "epoch", 0, True)

    def held(self, thread: str) -> Thread:
        last, all = self.last[thread], folded(self.packs[thread], whole=False)
        return Thread(
            seq=last.seq,
            copied_by=last.copied_by,
            rows={row.ref: row for row in all.rows.values()},
            frames={key: Frame(key, data) for key, data in all.frames.items()},
            writes={Ref(thread, *at): {(w.task, w.idx): w for w in each} for at, each in all.writes.items() if each},
            header=last.header,
        )


@pytest.fixture
def store(server: Server) -> Iterator[RedisBackend]:
    with closing(RedisBackend(opener(server.url), prefix=fresh())) as made:
        yield made


@pytest.fixture
def tier(server: Server, store: RedisBackend) -> Iterator[RedisTier]:
    with closing(RedisBackend(opener(server.url), prefix=store._prefix)) as other:
        yield RedisTier(other)


@pytest.mark.parametrize("seed", range(8))
def test_packs_of_a_random_history_are_the_thread_and_bring_it_back(
    store: RedisBackend, tier: RedisTier, seed: int
) -> None:
    """By a saver that knows nothing of a cold store."""
    history, cold = History(seed, (MemoryBackend(), store)), Cold(tier)
    for _ in range(seed % 3 * 5):
        history.step()  # before there was one
    tier.setup()
    for _ in range(60):
        history.step()
        thread = history.pick.choice(THREADS)
        cold.take(thread, history)
        state = tier.state(thread)
        if state is not None and state.clean and state.here:
            assert tier.evict(thread, state.born, 7, leased=False)
            assert tier.state(thread) is None
            assert not tier.restore(thread, "epoch", 6, cold.held(thread))
            assert tier.restore(thread, "epoch", 7, cold.held(thread))
            assert not tier.restore(thread, "epoch", 7, cold.held(thread))
            restored = tier.state(thread)
            assert restored is not None
            assert restored[1:] == ("epoch", True, True, False, True, 7, False)
            assert restored.born > state.born
            cold.born[thread] = restored.born
    queries = list(history.queries())
    expected, found = (view(each, queries) for each in history.stores)
    for what in expected:
        assert found[what] == expected[what], what
    for thread in THREADS:
        cold.take(thread)
        whole = tier.changes(thread, whole=True)
        if whole is None:
            assert thread not in cold.packs
            continue
        assert whole.state.clean
        all = folded(cold.packs[thread], whole=False)
        assert (all.rows, all.frames) == (whole.pack.rows, whole.pack.frames)
        assert {at: each for at, each in all.writes.items() if each} == {
            at: each for at, each in whole.pack.writes.items() if each
        }
        assert {at: row.seq for at, row in all.rows.items()} == whole.places
    assert tier.dirty(FAR, 100) == []
