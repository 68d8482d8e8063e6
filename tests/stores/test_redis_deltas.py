"""Batches of saves, and values stored as deltas: what builds on what, in how many round trips and bytes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from langchain_core.runnables import RunnableConfig

from langgraph_statekit.checkpoint.backends.redis import RedisSaver
from langgraph_statekit.checkpoint.records import Ref, SaveRow, SaveWrites, Write, is_made
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Corrupt
from tests.faces import checkpoint, config, metadata
from tests.servers import Server
from tests.stores.redis_threads import contents
from tests.stores.verbs import deltas, frame, row, save

RANDOM = random.Random(5)
WORDS = ["".join(RANDOM.choices("abcdefghijklmnopqrstuvwxyz", k=RANDOM.randrange(2, 9))) for _ in range(2000)]


@pytest.fixture
def other(server: Server, client: redis.Redis) -> Iterator[RedisSaver]:
    """Yield a second saver, which knows nothing of what the first one stored."""
    with RedisSaver.from_url(server.url) as made:
        yield made


class Chat:
    """A list that grows by one text with each checkpoint, three checkpoints a run."""

    def __init__(self, saver: StatekitSaver, thread: str = "t") -> None:
        self.saver = saver
        self.at: RunnableConfig = config(thread)
        self.said: list[str] = []
        self.states: dict[str, list[str]] = {}

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.said.append(" ".join(RANDOM.choices(WORDS, k=60)))
            step = len(self.said)
            made = checkpoint({"said": self.said}, {"said": f"{step:032}.0"}, id=f"{step:08}")
            meta = metadata(step, run_id=f"run {step // 3}")
            self.at = self.saver.put(self.at, made, meta, made["channel_versions"])
            self.saver.put_writes(self.at, [("said", self.said[-1])], f"task {step}")
            self.states[made["id"]] = list(self.said)


def stored(saver: StatekitSaver, thread: str = "t") -> dict[str, Any]:
    return {item.checkpoint["id"]: item.checkpoint["channel_values"].get("said") for item in saver.list(config(thread))}


def heads_chain(saver: StatekitSaver, thread: str = "t") -> int:
    """Return how many frames make the latest value."""
    latest = saver.backend.load(thread, "", None)
    assert latest is not None
    return len(latest.frames)


def test_a_put_whose_base_is_gone_stores_the_value_whole(saver: RedisSaver, other: RedisSaver) -> None:
    chat = Chat(saver)
    chat.go_on(9)
    assert deltas(saver.backend, "t") > 0
    other.delete_thread("t")
    chat.go_on(1)
    assert deltas(saver.backend, "t") == 0
    assert stored(other) == {"00000010": chat.said}
    chat.go_on(5)
    assert deltas(saver.backend, "t") > 0
    assert stored(other) == {id: chat.states[id] for id in list(chat.states)[9:]}


def test_a_put_on_a_base_that_another_saver_replaced_is_complete(saver: RedisSaver, other: RedisSaver) -> None:
    chat = Chat(saver)
    chat.go_on(9)
    made = checkpoint({"said": ["other"] * 500}, {"said": f"{9:032}.0"}, id="x")
    other.put(config(), made, metadata(), made["channel_versions"])
    chat.go_on(3)
    found = stored(other)
    assert found["00000012"] == chat.said
    assert found["00000009"] == found["x"] == ["other"] * 500
    other.prune(["t"])
    assert stored(other) == {"00000012": chat.said}


def test_prune_delete_for_runs_and_copy_keep_what_deltas_build_on(saver: RedisSaver, other: RedisSaver) -> None:
    chat = Chat(saver)
    chat.go_on(40)
    while heads_chain(saver) == 1:
        chat.go_on(1)
    other.copy_thread("t", "copy")
    assert stored(other, "copy") == chat.states
    other.delete_for_runs(["run 2", "run 5", "run 12"])
    left = {id: said for id, said in chat.states.items() if int(id) // 3 not in (2, 5, 12)}
    assert stored(other) == left
    chain, last = heads_chain(saver), max(chat.states)
    other.prune(["t", "copy"])
    for thread in ("t", "copy"):
        assert stored(other, thread) == {last: chat.said}
        assert len(saver.backend.outline(thread).frames) == chain
    chat.go_on(3)
    assert stored(other) == {last: chat.states[last]} | {id: chat.states[id] for id in list(chat.states)[-3:]}


def test_prune_keeps_writes_that_came_before_their_checkpoint(saver: RedisSaver, client: redis.Redis) -> None:
    Chat(saver).go_on(30)
    saver.put_writes(config(id="later"), [("said", "early")], "task")
    saver.prune(["t"])
    saver.put(config(), checkpoint(id="later"), metadata(), {})
    found = saver.get_tuple(config())
    assert found is not None
    assert found.pending_writes == [("task", "said", "early")]
    saver.put(config(), checkpoint(id="last"), metadata(), {})
    saver.prune(["t"])
    assert len(list(saver.list(config()))) == 1
    assert not any(b":w:" in key for key in contents(client))


def test_a_batch_is_one_round_trip_and_a_bad_save_fails_alone(
    saver: RedisSaver, client: redis.Redis, trips: Counter[str]
) -> None:
    store = saver.backend
    first = frame(b"k" * 16, b"abcd")
    missing = frame(b"m" * 16, b"abcd")
    assert save(store, row("bad", "1")) is True
    client.set(next(key for key in client.scan_iter() if b":h:" in key), "not ours")
    saves = [
        SaveRow(row("t", "1"), [first]),
        SaveRow(row("bad", "2"), []),
        SaveRow(row("t", "2"), [frame(b"n" * 16, b"efgh", missing)]),
        SaveRow(row("t", "3"), [frame(b"n" * 16, b"efgh", first)]),
        SaveWrites(Ref("t", "", "3"), [Write("task", 0, "m", "", b"x")]),
        *(SaveRow(row(f"t{i}", "1"), []) for i in range(40)),
    ]
    for flushed in (False, True):
        if flushed:
            client.script_flush()
        trips.clear()
        good, bad, refused, *others = store.save(saves)
        assert trips["trips"] == 1 + flushed
        assert isinstance(bad, Corrupt)
        assert (is_made(good), is_made(refused)) == (True, False)
        assert [*map(is_made, others)] == [True] * 42
        assert [each.ref.id for each in store.outline("t").rows] == ["1", "3"]
        loaded = store.load("t", "", None)
        assert loaded is not None
        assert [write.data for write in loaded.writes] == [b"x"]


def test_a_chain_is_read_in_one_round_trip(saver: RedisSaver, other: RedisSaver, trips: Counter[str]) -> None:
    chat = Chat(saver)
    chat.go_on(60)
    while heads_chain(saver) < 3:
        chat.go_on(1)
    assert other.get_tuple(config("nobody")) is None
    trips.clear()
    found = other.get_tuple(config())
    assert trips["trips"] == 1
    assert found is not None
    assert found.checkpoint["channel_values"]["said"] == chat.said
    trips.clear()
    assert len(list(other.list(config(), limit=50))) == 50
    assert trips["trips"] == 2


def test_memory_of_a_turn_hardly_grows_with_the_length_of_a_chat(saver: RedisSaver, client: redis.Redis) -> None:
    def size_bytes() -> int:
        return sum(int(client.memory_usage(key, samples=0) or 0) for key in client.scan_iter())

    chat = Chat(saver)
    chat.go_on(200)
    short = size_bytes()
    chat.go_on(800)
    assert size_bytes() / 1000 <= 1.4 * short / 200
    assert stored(saver)["00001000"] == chat.said
