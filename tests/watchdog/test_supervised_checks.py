"""What a supervisor resumes is looked at by the checks of a Watchdog, if that is what its factory makes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.runtime import Runtime

from langgraph_statekit import DeadLetter, Fail, NoProgress, Rollback, StatekitSaver, Supervisor, Watchdog
from langgraph_statekit.checkpoint.claims import LeaseQuery
from langgraph_statekit.events import RolledBack
from langgraph_statekit.watchdog.attempts import dead
from tests.servers import wait_until
from tests.stores_under_test import Store
from tests.watchdog.kit import NOW, Clock, Hanging, State, astep, deadline, looped
from tests.watchdog.world import LONG_S

AT: Any = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def saver(store: Store, told: list[Any]) -> Iterator[StatekitSaver]:
    with store.open(hooks=[lambda event: told.append(event)]) as made:
        yield made


def orphan(saver: StatekitSaver) -> None:
    """Leave a thread as a worker that died after its first step."""
    lease = saver.lease("t", graph="shop", ttl_s=LONG_S)
    lease._keeper.forget(lease)
    looped(saver, astep).copy().update_state(lease.config, {"i": 1}, as_node="work")


def supervisor(dog: Any, **options: Any) -> Supervisor:
    return Supervisor(
        dog.graph.checkpointer,
        {"shop": lambda saver: dog},
        policy=Rollback(to="retry_head", backoff=NOW),
        quarantine_s=0,
        alert=lambda event: None,
        **options,
    )


def test_a_node_that_hangs_when_it_is_resumed_is_rolled_back_and_tried_again(
    saver: StatekitSaver, store: Store, told: list[Any]
) -> None:
    clock = Clock()
    work = Hanging(2, 1, clock)
    dog = Watchdog(looped(saver, work), policy=Rollback(backoff=NOW), **deadline(clock))
    orphan(saver)
    store.advance(LONG_S + 1)
    events = supervisor(dog).once()
    assert [(event.outcome, event.reason) for event in events] == [("resumed", "orphan"), ("finished", "orphan")]
    assert [(event.reason, event.item) for event in told if isinstance(event, RolledBack)][1:] == [
        ("item_deadline", "2")
    ]
    assert work.calls == [1, 2, 2, 3]
    assert dog.graph.get_state(AT).values["i"] == 4
    assert [*supervisor(dog).leases()] == []


@pytest.mark.parametrize("then", [Fail(), DeadLetter()])
def test_a_thread_that_the_watchdog_gives_up_is_left_or_dead(saver: StatekitSaver, store: Store, then: Any) -> None:
    async def nothing(state: State) -> State:
        return {"i": 1}

    check = NoProgress(project=lambda values: values["i"], supersteps=3)
    policy = Rollback(max_attempts=1, backoff=NOW, then=then)
    look = supervisor(Watchdog(looped(saver, nothing), checks=[check], policy=policy))
    orphan(saver)
    store.advance(LONG_S + 1)
    outcome = "dead" if isinstance(then, DeadLetter) else "left"
    assert [event.outcome for event in look.once()] == ["resumed", outcome]
    assert len([each for each in asyncio.run(dead(saver.async_cells)) if each.thread_id == "t"]) == (outcome == "dead")
    assert look.once() == []
    assert [*look.leases()] == []


def test_a_supervisor_that_is_stopped_hands_over_what_was_rolled_back(saver: StatekitSaver, store: Store) -> None:
    clock, again = Clock(), threading.Event()
    hanging = Hanging(2, 1, clock)

    async def work(state: State, runtime: Runtime[Any]) -> State:
        if hanging.calls == [1, 2]:
            again.set()
            while not runtime.drain_requested:  # noqa: ASYNC110  (the supervisor asks for it from its thread)
                await asyncio.sleep(0.01)
        return await hanging(state)

    dog = Watchdog(looped(saver, work), policy=Rollback(backoff=NOW), **deadline(clock))
    orphan(saver)
    store.advance(LONG_S + 1)
    look = supervisor(dog, every_s=0.01)
    running = threading.Thread(target=look.run)
    running.start()
    wait_until(again.is_set, "the item runs again")
    look.stop()
    running.join()
    ((thread, lease),) = saver.backend.leases(LeaseQuery(True)).leases
    assert (thread, lease.control) == ("t", "drain")
    assert [event.outcome for event in supervisor(dog).once()] == ["resumed", "finished"]
    assert dog.graph.get_state(AT).values["i"] == 4
