"""Random histories of verbs leave the Redis backend as they leave the reference in memory."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.redis import RedisBackend
from langgraph_statekit.checkpoint.backends.redis_connections import opener
from langgraph_statekit.checkpoint.order import RACE_US
from langgraph_statekit.checkpoint.records import Change, Frame, Query, Ref, Row, SaveRow, SaveWrites, Write
from langgraph_statekit.checkpoint.retention import keep_only, without_runs
from tests.servers import Server
from tests.stores.redis_nodes import node, redis_binary, started
from tests.stores.redis_threads import fresh
from tests.stores.verbs import frame, made, ordered, prune, row, save, save_writes

THREADS = ("t", "a:b", "{x}", "", "user*1")
NAMESPACES = ("", "n", "n:1", "=n")
IDS = ("1", "2", "10", "=", "\N{PILE OF POO}", "\uffff", "a b")
KEYS = tuple(bytes(8 * [channel]) + bytes(8 * [version]) for channel in range(3) for version in range(3))
CHECKS = (b"ab\0d", b"abce")
RUNS = (None, "", "r1", "r2")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = node(tmp_path_factory.mktemp("redis"), redis_binary())
    with started(made):
        yield made


class History:
    """The same verbs on both."""

    def __init__(self, seed: int, stores: Sequence[Backend]) -> None:
        self.pick = random.Random(seed)
        self.stores = stores

    def ref(self, thread: str | None = None) -> Ref:
        thread = self.pick.choice(THREADS[:3]) if thread is None else thread
        return Ref(thread, self.pick.choice(NAMESPACES), self.pick.choice(IDS))

    def some(self, of: Sequence[Any]) -> list[Any]:
        return [each for each in of if self.pick.random() < 0.4]

    def row(self) -> SaveRow:
        row = Row(
            ref=self.ref(),
            parent=self.pick.choice((None, *IDS)),
            via=self.pick.choice((None, *IDS)),
            packed_keys=b"".join(self.some(KEYS)),
            packed_deltas=b"".join({key[:8] for key in self.some(KEYS)}) * (self.pick.random() < 0.3),
            run_id=self.pick.choice(RUNS),
            hidden=self.pick.random() < 0.1,
            body=self.pick.randbytes(self.pick.randrange(80)),
        )
        at = self.pick.choice((0, 0, self.pick.randrange(1, 40), 2 * RACE_US + self.pick.randrange(40)))
        return SaveRow(row, [self.frame(key) for key in self.some(KEYS)], at)

    def frame(self, key: bytes) -> Frame:
        kind, check = self.pick.choice("gwwdd"), self.pick.choice(CHECKS)
        if kind == "g":
            return Frame(key, None)
        base = frame(self.pick.choice(KEYS), b"", check=self.pick.choice(CHECKS)) if kind == "d" else None
        return frame(key, self.pick.randbytes(20), base, check=check)

    def writes(self) -> SaveWrites:
        task = self.pick.choice(("a", "b", "", "="))
        writes = [
            Write(task, self.pick.randrange(-4, 4), self.pick.choice(IDS), task, self.pick.randbytes(9))
            for _ in range(self.pick.randrange(1, 5))
        ]
        return SaveWrites(self.ref(), writes)

    def save(self) -> None:
        saves = [self.pick.choice((self.row, self.row, self.writes))() for _ in range(self.pick.randrange(1, 5))]
        first, second = (made(store, saves) for store in self.stores)
        assert first == second

    def change(self) -> None:
        thread = self.pick.choice(THREADS)
        outline = self.stores[0].outline(thread)
        refs = [row.ref for row in outline.rows]
        change = self.pick.choice(
            (
                lambda: keep_only(outline, set(self.some([row.ref for row in outline.rows if not row.hidden]))),
                lambda: without_runs(outline, {"r1"}),
                lambda: Change(
                    drop=self.some([*refs, self.ref(thread)]),
                    drop_frames=self.some(KEYS + tuple(outline.frames)),
                    relink=[
                        Row(
                            ref,
                            self.pick.choice((None, "1")),
                            self.pick.choice((None, "")),
                            hidden=self.pick.random() < 0.5,
                        )
                        for ref in self.some([*refs, self.ref(thread)])
                    ],
                ),
            )
        )()
        for store in self.stores:
            rev = store.outline(thread).rev
            assert not store.apply(thread, rev + 1, change)
            assert store.apply(thread, rev, change)

    def prune(self) -> None:
        thread = self.pick.choice(THREADS)
        first, second = (prune(store, thread) for store in self.stores)
        assert first == second

    def drop(self) -> None:
        thread = self.pick.choice(THREADS)
        for store in self.stores:
            store.drop_thread(thread)

    def copy(self) -> None:
        source, target = self.pick.sample(THREADS, 2)
        operation = self.pick.choice("12")
        first, second = (store.copy_thread(source, target, operation) for store in self.stores)
        assert first == second

    def step(self) -> None:
        verbs = (self.save, self.change, self.prune, self.drop, self.copy)
        self.pick.choices(verbs, (10, 1.5, 0.7, 0.2, 0.7))[0]()

    def queries(self) -> Iterator[Query]:
        for thread in THREADS:
            for ns in (None, *NAMESPACES):
                query = Query(thread, ns, limit=self.pick.choice((1, 3, 100)))
                yield query
                yield replace(query, id=self.pick.choice(IDS))
                yield replace(query, before=self.pick.choice((*IDS, "15", "z")))
                yield replace(query, before=self.pick.choice(IDS), below_seq=self.pick.randrange(12))
                yield replace(query, id=self.pick.choice(IDS), below_seq=self.pick.randrange(12))


def view(store: Backend, queries: Sequence[Query]) -> dict[Any, Any]:
    """Return all that can be read."""
    seen: dict[Any, Any] = {query: list(store.rows(query)) for query in queries}
    for thread in THREADS:
        refs = [Ref(thread, ns, id) for ns in NAMESPACES for id in IDS]
        for ns in (None, *NAMESPACES):
            outline = store.outline(thread, ns)
            seen[thread, ns] = (list(outline.rows), outline.frames)
        frames, writes = store.fill(thread, KEYS, refs)
        seen[thread, "frames"] = frames
        seen[thread, "writes"] = {ref: ordered(found) for ref, found in writes.items() if found}
        for address in [*refs, *(Ref(thread, ns, "") for ns in NAMESPACES)]:
            found = store.load(thread, address.ns, address.id or None)
            seen[address] = found and (found.row, dict(found.frames), ordered(found.writes))
    for runs in (None, ["r1"], ["r2", ""]):
        seen["threads", str(runs)] = sorted(thread for page in store.threads(runs) for thread in page)
    return seen


@pytest.mark.parametrize("seed", range(40))
def test_a_random_history_reads_as_in_memory(server: Server, seed: int) -> None:
    store = RedisBackend(opener(server.url), prefix=fresh())
    history = History(seed, (MemoryBackend(), store))
    try:
        for _ in range(6):
            for _ in range(12):
                history.step()
            queries = list(history.queries())
            expected, found = (view(each, queries) for each in history.stores)
            for what in expected:
                assert found[what] == expected[what], what
    finally:
        store.close()


def test_writes_that_came_before_a_copy_stand_instead_of_the_copied_ones(server: Server) -> None:
    store, seen = RedisBackend(opener(server.url), prefix=fresh()), []
    try:
        for each in (MemoryBackend(), store):
            for thread, task in (("s", "a"), ("s", "b"), ("t", "b")):
                save_writes(each, Ref(thread, "", "1"), [Write(task, 0, "m", "", thread.encode())])
            assert save(each, row("s", "1")) is True
            assert each.copy_thread("s", "t", "one")
            save_writes(each, Ref("t", "", "1"), [Write("a", 0, "m", "", b"later")])
            seen.append(ordered(each.fill("t", [], [Ref("t", "", "1")])[1][Ref("t", "", "1")]))
        assert seen[0] == seen[1]
        assert [write.data for write in seen[1]] == [b"later", b"t"]
    finally:
        store.close()
