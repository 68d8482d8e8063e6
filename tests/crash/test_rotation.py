"""Keys are rotated while threads are used, by workers that may die at any request; nothing becomes unreadable."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest

from langgraph_statekit import Encryption, Misuse
from langgraph_statekit.checkpoint.encrypted import EncryptedBackend
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.errors import Corrupt
from tests.crash.faulty import Died, Faulty
from tests.faces import checkpoint, config
from tests.stores_under_test import Store

OLD, NEW = b"o" * 32, b"n" * 32
BEFORE = Encryption({"old": OLD}, "old")
BOTH = Encryption({"old": OLD, "new": NEW}, "new")
AFTER = Encryption({"new": NEW}, "new")
THREADS = [f"thread {number}" for number in range(5)]


def fill(saver: StatekitSaver, thread: str, value: Any = 1) -> None:
    made = checkpoint({"x": value})
    at = saver.put(config(thread), made, {}, made["channel_versions"])
    saver.put_writes(at, [("x", value)], "task")


def readable(store: Store, encryption: Encryption) -> list[int]:
    with store.open(encryption=encryption) as saver:
        return [len(list(saver.list(config(thread)))) for thread in THREADS]


@pytest.mark.parametrize("acts", [False, True], ids=["before it acts", "after it acts"])
def test_a_rotation_that_dies_at_any_call_loses_nothing_and_is_finished_by_the_next(store: Store, acts: bool) -> None:
    with store.open(encryption=BEFORE) as saver:
        for thread in THREADS:
            fill(saver, thread)
        saver.put_writes(config("only writes", id="1"), [("x", 1)], "task")
    number = 0
    while True:
        number += 1
        with store.open(encryption=Encryption(BOTH.keys, "old")) as saver:
            saver.rotate_keys()
        with store.open(encryption=None) as plain, suppress(Died):
            faulty = Faulty(plain.backend, number, acts)
            EncryptedBackend(faulty, BOTH).rotate()
        assert readable(store, BOTH) == [1] * len(THREADS)
        if not faulty.died:
            break
    assert number > 3, "threads, headers, rewrap"
    with store.open(encryption=BOTH) as saver:
        saver.rotate_keys()
        assert saver.rotate_keys() == 0
    assert readable(store, AFTER) == [1] * len(THREADS)
    with store.open(encryption=AFTER) as saver:
        saver.put(config("only writes"), checkpoint({"x": 1}, id="1"), {}, {"x": 1})
        found = saver.get_tuple(config("only writes"))
        assert found is not None
        assert found.pending_writes == [("task", "x", 1)]
    with pytest.raises(Misuse, match="key 'new', which is none of the keys"):
        readable(store, BEFORE)


def test_threads_are_used_while_keys_are_rotated(store: Store) -> None:
    stop = threading.Event()
    puts = dict.fromkeys(THREADS, 0)

    def work() -> None:
        with store.open(encryption=BOTH) as saver:
            while not stop.is_set():
                for thread in THREADS:
                    fill(saver, thread)
                    puts[thread] += 1

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with store.open(encryption=BOTH) as one, store.open(encryption=Encryption(BOTH.keys, "old")) as two:
            while min(puts.values()) < 1 and worker.is_alive():
                stop.wait(0.01)
            assert sum(saver.rotate_keys() for _ in range(3) for saver in (two, one)) >= 5 * len(THREADS)
    finally:
        stop.set()
        worker.join()
    assert readable(store, AFTER) == list(puts.values())


async def test_a_thread_whose_key_is_unknown_or_damaged_keeps_no_other_from_being_rotated(store: Store) -> None:
    with store.open(encryption=Encryption({"lost": NEW}, "lost")) as saver:
        fill(saver, "a lost one")
    with store.open(encryption=BEFORE) as saver:
        for thread in (*THREADS, "b damaged"):
            fill(saver, thread)
        inner = saver.backend.inner
        header = inner.headers(["b damaged"])["b damaged"]
        assert inner.rewrap([("b damaged", header, header[:-1] + bytes((header[-1] ^ 1,)))]) == [True]
    async with store.open(encryption=BOTH) as both:
        with pytest.raises((Misuse, Corrupt), match=r"key 'lost', which is none of|header of thread 'b damaged'"):
            await both.arotate_keys()
    assert readable(store, AFTER) == [1] * len(THREADS)


def test_a_saver_without_keys_cannot_rotate_them(store: Store) -> None:
    with store.open(encryption=None) as saver, pytest.raises(Misuse, match="no keys"):
        saver.rotate_keys()
