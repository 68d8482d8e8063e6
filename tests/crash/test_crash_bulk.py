"""Copies between stores and migrations die at each of their calls in turn: nothing is between old and new, and a
repeat ends what was begun."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from langgraph.types import Command

from langgraph_statekit import Misuse, StatekitSaver, copy_threads, migrate_threads
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.migrating import Migrated
from tests.crash.faulty import Died, Faulty
from tests.crash.test_crash import BEFORE_OR_AFTER, SAYS_NO, _stand_before, with_acts
from tests.faces import LONG, checkpoint, config, metadata
from tests.graphs.builders import DeltaLog
from tests.graphs.builders import chain as delta_chain
from tests.graphs.builders import question as asking
from tests.stores_under_test import Store
from tests.versions.states import First, Third, question

pytestmark = pytest.mark.without("retention")

Doom = Callable[[StatekitSaver, int, bool], Faulty]
STEPS = ("migrate", "revert", "migrate", "commit")


def at_calls(saver: StatekitSaver, number: int, acts: bool) -> Faulty:
    """Let the process die at a call of its store, also one that gives a lease back."""
    faulty, _ = _stand_before(saver, Faulty(saver.backend, number, acts))
    saver._keeper._connect = lambda: faulty
    return faulty


def at_requests(saver: StatekitSaver, number: int, acts: bool) -> Faulty:
    """Let the process die at a request of the object store."""
    bucket = getattr(saver.backend, "inner", saver.backend)._bucket
    bucket._driver = faulty = Faulty(bucket._driver, number, acts)
    return faulty


@pytest.fixture
def doom(store_name: str) -> tuple[Doom, int]:
    """Return how a process dies, and each how many-th call is tried."""
    return (at_requests, 5) if store_name == "file" else (at_calls, 1)


def seen(saver: StatekitSaver, thread: str) -> list[Any]:
    """Return all that is stored of a thread, oldest first, without its id."""
    return [
        (each.config["configurable"]["checkpoint_id"], each.checkpoint, each.metadata, each.pending_writes)
        for each in reversed(list(saver.list({"configurable": {"thread_id": thread}})))
    ]


@with_acts("replace", (False, False), (True, True))
def test_a_copy_between_stores_that_dies_at_any_call_goes_on_where_it_stopped(
    store: Store, doom: tuple[Doom, int], replace: bool, acts: bool
) -> None:
    with StatekitSaver(MemoryBackend()) as source, store.open() as survivor:
        app = asking().compile(checkpointer=source)
        app.invoke({"log": [LONG]}, config("asked"))
        app.invoke(Command(resume="yes"), config("asked"))
        delta_chain(DeltaLog).compile(checkpointer=source).invoke({"log": [LONG]}, config("deltas"))
        source.label(config("asked"), "end")
        whole = {thread: seen(source, thread) for thread in ("asked", "deltas")}
        for number in range(1, SAYS_NO, doom[1]):
            before: list[Any] = []
            if replace:
                survivor.put(config("deltas"), checkpoint({"x": 1}), metadata(), {"x": 1})
                before = seen(survivor, "deltas")
            with store.open() as doomed:
                dying = doom[0](doomed, number, acts)
                with suppress(Died):
                    copy_threads(source, doomed, replace=replace)
            assert {thread: seen(source, thread) for thread in whole} == whole
            there = {thread: seen(survivor, thread) for thread in whole}
            for thread, found in there.items():
                assert found == whole[thread][: len(found)] or (thread, found) == ("deltas", before)
            if before and there["deltas"] == before:
                with pytest.raises(Misuse, match="replace=True"):
                    copy_threads(source, survivor, ["deltas"])
                there["deltas"] = []
            again = copy_threads(source, survivor, replace=replace)
            assert {thread: seen(survivor, thread) for thread in whole} == whole
            assert again.skipped == sum(map(len, there.values()))
            assert again.skipped + again.checkpoints == sum(map(len, whole.values()))
            assert survivor.labels("asked") == source.labels("asked")
            for thread in whole:
                survivor.delete_thread(thread)
            if not dying.died:
                return
    raise AssertionError("the copy has no end")


@BEFORE_OR_AFTER
def test_a_migration_that_dies_at_any_call_leaves_each_checkpoint_old_or_new_and_can_be_undone(
    store: Store, doom: tuple[Doom, int], acts: bool
) -> None:
    with store.open() as survivor:
        question(First, "old").compile(checkpointer=survivor).invoke({"euros": 1, "log": [LONG]}, config("old"))
        survivor.copy_thread("old", "new")
        newer = survivor.with_state(Third)
        migrate_threads(newer, ["new"])
        old, new = seen(survivor, "old"), seen(survivor, "new")
        assert all(before != after for before, after in zip(old, new, strict=True))
        migrate_threads(newer, ["new"], step="commit")
        frames = {
            "revert": set(survivor.backend.outline("old").frames),
            "commit": set(survivor.backend.outline("new").frames),
        }
        states = [old, new, old, new, new]
        for number in range(1, SAYS_NO, doom[1]):
            thread = f"dies at {number}"
            survivor.copy_thread("old", thread)
            done = 0
            with store.open() as doomed:
                dying = doom[0](doomed, number, acts)
                try:
                    for step in STEPS:
                        assert not migrate_threads(doomed.with_state(Third), [thread], step=step).left
                        done += 1
                except Died:
                    doomed._keeper._connect = survivor.backend.spare  # else closing would die as well
            assert [each[0] for each in seen(survivor, thread)] == [each[0] for each in old]
            for found, before, after in zip(
                seen(survivor, thread), states[done], states[min(done + 1, len(STEPS))], strict=True
            ):
                assert found in (before, after), f"call {number}, {dying.begun[number - 1 : number]}"
            assert [each[:3] for each in seen(newer, thread)] == [each[:3] for each in new]
            survivor.lease(thread, steal=True).release()  # the one who died may still have it
            for number_of, step in enumerate(STEPS[done:], done + 1):
                assert not migrate_threads(newer, [thread], step=step).left
                assert seen(survivor, thread) == states[number_of]
                left = set(survivor.backend.outline(thread).frames)
                assert left == frames.get(step, left), "no value stays that nothing needs"
            assert migrate_threads(newer, [thread], step="revert") == Migrated(0, 0, {})
            if not dying.died:
                return
    raise AssertionError("the migration has no end")
