"""One sampled saver in many threads, loops and processes at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from langgraph_statekit import Fenced, Misuse, Sampled, StatekitSaver, acopy_threads, copy_threads
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.records import SaveRow
from tests.conformance import conforms
from tests.crash.mortal import GRAPHS, Fate, loop
from tests.faces import LONG, config

STEPS = 12
NEVER_S = 3600.0


def _app(saver: Any, build: Any = None, **options: Any) -> Any:
    return (build or loop(steps=STEPS))(Fate(), Counter()).compile(checkpointer=saver, **options)


def _check(saver: Any, thread: str) -> None:
    """Every checkpoint has its parent and all of its values."""
    items = {item.config["configurable"]["checkpoint_id"]: item for item in saver.list(config(thread, ns=""))}
    assert items
    for item in items.values():
        assert item.parent_config is None or item.parent_config["configurable"]["checkpoint_id"] in items
        if "log" in item.checkpoint["channel_versions"]:
            assert item.checkpoint["channel_values"]["log"][0] == LONG


def _meanwhile(act: Callable[[], Any], work: Callable[[], None]) -> None:
    """Do the work while another thread acts again and again."""
    done = threading.Event()

    def again() -> None:
        while not done.is_set():
            act()

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(again)
        try:
            work()
        finally:
            done.set()
        acting.result()


@pytest.mark.parametrize("kind", ["flush", "list"])
def test_runs_in_many_threads_go_on_while_others_flush_and_read(kind: str) -> None:
    backend = MemoryBackend()
    saver = Sampled(StatekitSaver(backend), every=4, idle_s=0.001)
    wanted = [LONG, *(f"work {n}" for n in range(1, STEPS + 1)), "last"]

    def run(n: int) -> None:
        at = config(f"{n}")
        if n % 2:
            assert _app(saver).invoke({"log": [LONG]}, at)["log"] == wanted
        else:
            assert asyncio.run(_app(saver).ainvoke({"log": [LONG]}, at))["log"] == wanted

    def work() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(run, range(16)))

    _meanwhile(saver.flush if kind == "flush" else lambda: list(saver.list(None)), work)
    saver.close()
    for n in range(16):
        stored = StatekitSaver(backend)
        _check(stored, f"{n}")
        assert _app(stored).get_state(config(f"{n}")).values["log"] == wanted


def test_runs_that_race_on_one_thread_leave_whole_checkpoints() -> None:
    backend = MemoryBackend()
    saver = Sampled(StatekitSaver(backend), every=4, idle_s=NEVER_S)
    app = _app(saver)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: app.invoke({"log": [LONG]}, config()), range(24)))
    saver.close()
    _check(StatekitSaver(backend), "t")


async def test_a_sync_read_in_a_running_loop_sees_what_an_async_run_holds() -> None:
    saver = Sampled(StatekitSaver(MemoryBackend()), every=50, idle_s=NEVER_S)
    app = _app(saver, interrupt_before=["last"])
    await app.ainvoke({"log": [LONG]}, config())
    assert app.get_state(config()).next == ("last",)
    await app.ainvoke(None, config())
    assert app.get_state(config()).next == ()
    await saver.aclose()


def test_a_child_of_a_fork_leaves_to_its_parent_what_that_holds() -> None:
    backend = MemoryBackend()
    saver = Sampled(StatekitSaver(backend), every=50, idle_s=NEVER_S)
    _app(saver, interrupt_before=["last"]).invoke({"log": [LONG]}, config("parent"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of a fork beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(100)
        before = len(list(saver.list(config("parent"))))
        ended = _app(saver).invoke({"log": [LONG]}, config("child"))["log"][-1] == "last"
        saver.flush()
        os._exit(0 if ended and len(list(saver.list(config("parent")))) == before else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert _app(saver).get_state(config("parent")).next == ("last",)
    saver.close()


@pytest.mark.parametrize("every", [1, 5])
async def test_passes_the_conformance_kit(every: int) -> None:
    await conforms(lambda: Sampled(StatekitSaver(MemoryBackend()), every=every))  # type: ignore[arg-type,return-value]


def test_what_a_deleted_thread_held_does_not_come_back() -> None:
    backend = MemoryBackend()
    saver = Sampled(StatekitSaver(backend), every=50, idle_s=NEVER_S)
    _app(saver, interrupt_before=["last"]).invoke({"log": [LONG]}, config())
    saver.delete_thread("t")
    saver.close()
    assert list(StatekitSaver(backend).list(None)) == []


def test_updates_and_forks_go_on_from_what_was_held() -> None:
    plain, sampled = StatekitSaver(MemoryBackend()), Sampled(StatekitSaver(MemoryBackend()), every=50, idle_s=NEVER_S)
    seen = []
    for saver in (plain, sampled):
        app = _app(saver, GRAPHS["question"], interrupt_before=["two"])
        app.invoke({"log": [LONG]}, config())
        at = app.update_state(config(), {"log": ["edit"]}, as_node="one")
        app.invoke(None, at)
        first = list(app.get_state_history(config()))[-1]
        app.invoke(None, first.config)
        state = app.get_state(config())
        seen.append((state.values, state.next))
        _check(saver, "t")
    assert seen[0] == seen[1]
    sampled.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_copy_takes_what_is_held_and_leaves_no_step_out(mode: str) -> None:
    def copied(*savers: Any) -> None:
        if mode == "sync":
            copy_threads(*savers)
        else:
            asyncio.run(acopy_threads(*savers))

    plain, store, back = (StatekitSaver(MemoryBackend()) for _ in range(3))
    _app(plain).invoke({"log": [LONG]}, config())
    plain.label(config(), "end")
    saver = Sampled(store, every=50, idle_s=NEVER_S)
    copied(plain, saver)
    assert list(store.list(None)) == list(plain.list(None))
    _app(saver, interrupt_before=["last"]).invoke({"log": [LONG]}, config("held"), durability="sync")
    assert saver._lanes.keys()
    copied(saver, back)
    assert list(back.list(None)) == list(store.list(None))
    assert list(back.labels("t")) == ["end"]
    with pytest.raises(Misuse, match="same saver"):
        copied(saver, store)
    saver.close()


def test_what_a_worker_held_that_was_taken_over_is_dropped() -> None:
    store = StatekitSaver(MemoryBackend())
    saver = Sampled(store, every=50, idle_s=NEVER_S)
    for act in (saver.flush, lambda: saver.get_tuple(config())):
        with store.lease("t", steal=True) as lease:
            _app(saver, interrupt_before=["last"]).invoke({"log": [LONG]}, lease.config)
            with store.lease("t", steal=True):
                before = list(store.list(config()))
                with suppress(Fenced):
                    act()
                saver.flush()
                assert list(store.list(config())) == before
        store.delete_thread("t")
    saver.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_run_that_is_over_before_its_first_put_is_done_is_stored_too(mode: str) -> None:
    asked = threading.Event()
    backend = MemoryBackend()
    save = backend.save

    def slow(saves: Any) -> Any:
        if any(isinstance(each, SaveRow) for each in saves):
            assert asked.wait(60)
        elif any(write.channel == "__interrupt__" for each in saves for write in each.writes):
            asked.set()
        return save(saves)

    backend.save = slow  # type: ignore[method-assign]
    saver = Sampled(StatekitSaver(backend), every=50, idle_s=NEVER_S)
    app = GRAPHS["question"](Fate(), Counter()).compile(checkpointer=saver)
    if mode == "sync":
        app.invoke({"log": [LONG]}, config())
    else:
        asyncio.run(app.ainvoke({"log": [LONG]}, config()))
    saver._lanes.renew()
    now = _app(StatekitSaver(backend), GRAPHS["question"]).get_state(config())
    assert (now.metadata["step"], [each.value for each in now.interrupts]) == (3, ["approve?"])
    saver.close()
