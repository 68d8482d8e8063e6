"""SQLite: values stored as deltas, and random histories of verbs read as in the reference store."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit.checkpoint.backend import Backend
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.backends.sqlite import SqliteBackend, SqliteSaver
from langgraph_statekit.checkpoint.frames import CHAIN_FRAMES, Chain, encode
from langgraph_statekit.checkpoint.order import RACE_US
from langgraph_statekit.checkpoint.records import Change, Frame, Query, Ref, Row, Save, SaveRow, SaveWrites, Write
from langgraph_statekit.checkpoint.retention import keep_only, without_runs
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import checkpoint, config, metadata
from tests.stores.verbs import deltas, frame, key, made, ordered, prune, row, save, save_writes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteBackend]:
    with closing(SqliteBackend(path)) as made:
        made.setup()
        yield made


class Chat:
    """A list that grows by one text with each checkpoint, three checkpoints a run."""

    def __init__(self, saver: StatekitSaver) -> None:
        self.saver, self.at = saver, config()
        self.said: list[str] = []
        self.states: dict[str, list[str]] = {}

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            step = len(self.said)
            self.said.append(random.randbytes(150).hex())
            made = checkpoint({"said": self.said}, {"said": f"{step:032}.0"}, id=f"{step:08}")
            self.at = self.saver.put(self.at, made, metadata(step, run_id=f"run {step // 3}"), made["channel_versions"])
            self.states[made["id"]] = list(self.said)


def stored(saver: StatekitSaver, thread: str = "t") -> dict[str, Any]:
    return {item.checkpoint["id"]: item.checkpoint["channel_values"].get("said") for item in saver.list(config(thread))}


def test_a_put_whose_base_is_gone_is_stored_whole(path: Path) -> None:
    with SqliteSaver(path) as saver, SqliteSaver(path) as other:
        chat = Chat(saver)
        chat.go_on(9)
        assert deltas(saver.backend, "t") > 0
        other.delete_thread("t")
        chat.go_on(1)
        assert deltas(saver.backend, "t") == 0
        chat.go_on(5)
        assert deltas(saver.backend, "t") > 0
        assert stored(other) == {id: chat.states[id] for id in list(chat.states)[9:]}


def test_prune_delete_for_runs_and_copy_keep_what_deltas_build_on(path: Path) -> None:
    with SqliteSaver(path) as saver, SqliteSaver(path) as other:
        chat = Chat(saver)
        chat.go_on(3 * CHAIN_FRAMES)
        assert deltas(saver.backend, "t") > CHAIN_FRAMES
        assert stored(other) == chat.states
        other.copy_thread("t", "copy")
        other.delete_for_runs([f"no run {number}" for number in range(40_000)] + ["run 2", "run 5", "run 12"])
        left = {id: said for id, said in chat.states.items() if int(id) // 3 not in (2, 5, 12)}
        assert stored(other, "copy") == stored(other) == left
        last = max(chat.states)
        other.prune(["t", "copy"])
        assert stored(other, "copy") == stored(other) == {last: chat.said}
        assert len(saver.backend.outline("t").frames) <= CHAIN_FRAMES
        chat.go_on(3)
        assert stored(other) == {id: chat.states[id] for id in list(chat.states)[-4:]}


def test_bytes_of_a_growing_list_stay_near_linear(tmp_path: Path) -> None:
    def per_step(steps: int) -> float:
        path = tmp_path / f"{steps}.db"
        with SqliteSaver(path) as saver:
            Chat(saver).go_on(steps)
        with closing(sqlite3.connect(path)) as db:
            size: int = db.execute("SELECT sum(length(data)) FROM frames").fetchone()[0]
        return size / steps

    assert per_step(320) < 2 * per_step(80)


THREADS, NAMESPACES, IDS = ("t", "u", ""), ("", "n|ö"), ("1", "2", "10", "é", "\uffff")
KEYS = tuple(key(channel, version) for channel in "ab" for version in range(4))
RUNS = (None, "", "r1", "r2")


class History:
    """The same random verbs on a store and on the reference."""

    def __init__(self, seed: int, stores: Sequence[Backend]) -> None:
        self.pick, self.stores = random.Random(seed), stores
        self.chain: Chain | None = None
        self.text = b""

    def ref(self, thread: str | None = None) -> Ref:
        thread = self.pick.choice(THREADS) if thread is None else thread
        return Ref(thread, self.pick.choice(NAMESPACES), self.pick.choice(IDS))

    def some(self, of: Sequence[Any]) -> list[Any]:
        return [each for each in of if self.pick.random() < 0.4]

    def link(self) -> tuple[str | None, str | None]:
        return self.pick.choice((None, *IDS)), self.pick.choice((None, *IDS))

    def frame(self, key: bytes) -> Frame:
        if self.pick.random() < 0.2:
            return Frame(key, None)
        if self.pick.random() < 0.1:
            return frame(key, b"small")
        self.text += self.pick.randbytes(self.pick.choice((0, 300)))
        made, chain = encode(key, bytes(2000) + self.text, self.chain)
        self.chain = self.pick.choice((chain, chain, self.chain))
        return made

    def one(self) -> Save:
        if self.pick.random() < 0.3:
            task = self.pick.choice("ab")
            data = self.pick.randbytes(9)
            return SaveWrites(self.ref(), [Write(task, idx, task, "", data) for idx in [0, *self.some(range(-3, 3))]])
        parent, via = self.link()
        names = b"".join({key[:8] for key in self.some(KEYS)}) if self.pick.random() < 0.3 else b""
        run, hidden, body = self.pick.choice(RUNS), self.pick.random() < 0.1, self.pick.randbytes(9)
        made = Row(self.ref(), parent, via, 0, b"".join(self.some(KEYS)), names, run, hidden, body)
        at = self.pick.choice((0, 0, self.pick.randrange(1, 40), 2 * RACE_US + self.pick.randrange(40)))
        return SaveRow(made, [self.frame(key) for key in self.some(KEYS)], at)

    def step(self) -> None:
        thread, other = self.pick.sample(THREADS, 2)
        kind, operation = (
            self.pick.choices(("save", "apply", "prune", "copy", "drop"), (10, 2, 1, 1, 0.4))[0],
            self.pick.choice("12"),
        )
        batch = [self.one() for _ in range(self.pick.choice((1, 1, 2, 6)))]
        outline = self.stores[0].outline(thread)
        refs = [each.ref for each in outline.rows]
        visible = [each.ref for each in outline.rows if not each.hidden]
        relink = [
            Row(ref, *self.link(), hidden=self.pick.random() < 0.4) for ref in self.some([*refs, self.ref(thread)])
        ]
        change = self.pick.choice(
            (
                keep_only(outline, set(self.some(visible))),
                without_runs(outline, {"r1"}),
                Change(
                    drop=self.some([*refs, self.ref(thread)]),
                    drop_frames=self.some([*outline.frames, KEYS[0]]),
                    relink=relink,
                ),
            )
        )
        late = self.pick.random() < 0.2
        calls: dict[str, Callable[[Backend], Any]] = {
            "save": lambda store: made(store, batch),
            "apply": lambda store: store.apply(thread, store.outline(thread).rev + late, change),
            "prune": lambda store: prune(store, thread),
            "copy": lambda store: store.copy_thread(thread, other, operation),
            "drop": lambda store: store.drop_thread(thread),
        }
        first, second = map(calls[kind], self.stores)
        assert first == second, kind


def view(store: Backend) -> dict[Any, Any]:
    """Return all that a store answers, but revs."""
    seen: dict[Any, Any] = {
        runs: [thread for page in store.threads(runs) for thread in page] for runs in (None, ("r1",), ("r2", "", "r3"))
    }
    refs = [Ref(*address) for address in itertools.product(THREADS, NAMESPACES, IDS)]
    for thread, ns in itertools.product(THREADS, (None, *NAMESPACES)):
        outline = store.outline(thread, ns)
        seen[thread, ns] = (list(outline.rows), outline.frames)
        for query in (
            *(Query(thread, ns, before=id, limit=4) for id in (None, "15", *IDS)),
            *(Query(thread, ns, id) for id in IDS),
            *(Query(thread, ns, before="2", below_seq=seq, limit=3) for seq in (3, 9, 2 * RACE_US)),
        ):
            seen[query] = list(store.rows(query))
    for address in [*refs, *(Ref(thread, ns, "") for thread in THREADS for ns in NAMESPACES)]:
        found = store.load(address.thread, address.ns, address.id or None)
        seen[address] = found and (found.row, found.frames, ordered(found.writes))
    for thread in THREADS:
        frames, writes = store.fill(thread, KEYS, [ref for ref in refs if ref.thread == thread])
        seen[thread, "fill"] = frames, {ref: ordered(each) for ref, each in writes.items() if each}
    return seen


@pytest.mark.parametrize("seed", range(12))
def test_any_history_gives_the_answers_of_the_reference_store(store: SqliteBackend, seed: int) -> None:
    history = History(seed, (MemoryBackend(), store))
    for _ in range(8):
        for _ in range(15):
            history.step()
        expected, found = map(view, history.stores)
        for what in expected:
            assert found[what] == expected[what], what


def test_writes_that_came_before_a_copy_stand_instead_of_the_copied_ones(store: SqliteBackend) -> None:
    for thread, task in (("s", "a"), ("s", "b"), ("t", "b")):
        save_writes(store, Ref(thread, "", "1"), [Write(task, 0, "m", "", thread.encode())])
    assert save(store, row("s", "1")) is True
    assert store.copy_thread("s", "t", "one")
    save_writes(store, Ref("t", "", "1"), [Write("a", 0, "m", "", b"later")])
    found = ordered(store.fill("t", [], [Ref("t", "", "1")])[1][Ref("t", "", "1")])
    assert [write.data for write in found] == [b"later", b"t"]


def test_pruned_writes_go_though_they_came_before_their_checkpoint_was_copied(store: SqliteBackend) -> None:
    for id in ("1", "2"):
        save(store, row("t", id))
        save_writes(store, Ref("copy", "", id), [Write("early", 0, "x", "", id.encode())])
    save_writes(store, Ref("copy", "", "3"), [Write("early", 0, "x", "", b"3")])
    store.copy_thread("t", "copy", "operation")
    assert prune(store, "copy") == (1, 1, 0)
    for id in ("1", "3"):
        save(store, row("copy", id))
    _, writes = store.fill("copy", (), [Ref("copy", "", id) for id in "123"])
    assert {ref.id: [each.data for each in found] for ref, found in writes.items()} == {
        "1": [],
        "2": [b"2"],
        "3": [b"3"],
    }
