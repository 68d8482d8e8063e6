"""A supervisor goes on with what no worker does any more, once, and with nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from langgraph_statekit import Fenced, Misuse, StatekitSaver, migrates, state_version
from langgraph_statekit.checkpoint.claims import DRAIN, Claim, LeaseQuery
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.events import RolledBack, Supervised
from langgraph_statekit.watchdog.attempts import dead, revive
from langgraph_statekit.watchdog.policy import Backoff, DeadLetter, Fail, Rollback
from langgraph_statekit.watchdog.supervisor import Supervisor
from tests.servers import wait_until
from tests.stores_under_test import Store
from tests.watchdog.world import LONG_S, Died, State, World

SHOP = {"configurable": {"thread_id": "t"}}


@pytest.fixture
def told() -> list[Supervised]:
    return []


@pytest.fixture
def saver(store: Store, told: list[Any]) -> Iterator[StatekitSaver]:
    with store.open(hooks=[lambda event: told.append(event)]) as made:
        yield made


def supervisor(saver: StatekitSaver, world: World, to: Any = "retry_head", **options: Any) -> Supervisor:
    policy = Rollback(to=to, max_attempts=2, backoff=Backoff(0), then=DeadLetter())
    options = {"policy": policy, "quarantine_s": 0, "alert": lambda event: None, **options}
    return Supervisor(saver, {"shop": world.graph, **options.pop("graphs", {})}, **options)


def outcomes(events: list[Supervised]) -> list[str]:
    return [event.outcome for event in events]


def test_an_orphan_goes_on_where_it_stopped_and_its_late_worker_can_write_no_more(
    saver: StatekitSaver, store: Store, told: list[Any]
) -> None:
    world = World()
    world.dies = {3: 1}
    world.start(saver)
    look = supervisor(saver, world)
    assert look.once() == []
    (running,) = look.leases()
    assert (running.thread_id, running.graph, running.problem, running.held) == ("t", "shop", "", True)
    store.advance(LONG_S + 1)
    (orphan,) = look.leases()
    assert (orphan.problem, orphan.held, orphan.owner) == ("orphan", False, "worker")
    events = look.once()
    assert outcomes(events) == ["resumed", "finished"]
    assert (events[0].reason, events[0].item, events[0].attempt) == ("orphan", "step 3", 1)
    assert [event for event in told if isinstance(event, Supervised)] == events
    assert world.effects == [0, 1, 2, 3, 4, 5]
    graph = world.graph(saver)
    state = graph.get_state(SHOP)
    assert (state.values["done"], state.next) == ([0, 1, 2, 3, 4, 5], ())
    with pytest.raises(Fenced):
        graph.update_state({"configurable": {"thread_id": "t", "statekit_token": running.token}}, {"i": 0})
    assert look.once() == []
    assert list(look.leases()) == []


def test_what_is_finished_released_empty_or_waits_for_a_human_is_not_run(saver: StatekitSaver, store: Store) -> None:
    world = World(2)
    world.start(saver, "released")
    saver.lease("empty", graph="shop", ttl_s=LONG_S)
    world.start(saver, "finished")
    saver.lease("finished", graph="shop", ttl_s=LONG_S)
    world.asks = 1
    asks = saver.lease("asks", graph="shop", ttl_s=LONG_S)
    world.graph(saver).invoke({"i": 0}, asks.config)
    for name, options in (("before", {"interrupt_before": ["work"]}), ("after", {"interrupt_after": ["work"]})):
        lease = saver.lease(name, graph=name, ttl_s=LONG_S)
        world.graph(saver, **options).invoke({"i": 0}, lease.config)
    effects = [*world.effects]
    store.advance(LONG_S + 1)
    graphs = {
        "before": lambda each: world.graph(each, interrupt_before=["work"]),
        "after": lambda each: world.graph(each, interrupt_after=["work"]),
    }
    events = supervisor(saver, world, graphs=graphs).once()
    assert {event.thread_id: event.outcome for event in events} == {
        "empty": "empty",
        "finished": "finished",
        "asks": "waiting",
        "before": "waiting",
        "after": "waiting",
    }
    assert {event.thread_id for event in events if event.alert} == {"empty"}
    assert world.effects == effects
    assert supervisor(saver, world, graphs=graphs).once() == []
    # Once it is answered it is no longer anybody's turn but the worker's.
    world.dies = {1: 1}
    world.start(saver, "asks", Command(resume="yes"))
    world.asks = 1
    store.advance(LONG_S + 1)
    assert outcomes(supervisor(saver, world).once()) == ["resumed", "finished"]
    assert world.graph(saver).get_state({"configurable": {"thread_id": "asks"}}).values["answer"] == "yes"


def test_a_question_in_a_subgraph_and_a_breakpoint_in_one_are_waited_for(saver: StatekitSaver, store: Store) -> None:
    world = World(2)
    for name, options in (("asks", {}), ("breaks", {"interrupt_before": ["work"]})):
        world.asks = 0 if name == "asks" else None
        inner = world.builder().compile(**options)

        def graph(each: StatekitSaver, inner: Any = inner) -> Any:
            outer = StateGraph(State)
            outer.add_node("inner", inner)
            outer.add_edge(START, "inner")
            return outer.compile(checkpointer=each)

        lease = saver.lease(name, graph="outer", ttl_s=LONG_S)
        graph(saver).invoke({"i": 0}, lease.config)
        store.advance(LONG_S + 1)
        events = supervisor(saver, world, graphs={"outer": graph}).once()
        assert outcomes(events) == ["waiting"], name
    assert world.effects == []


def test_a_thread_of_another_graph_or_of_later_code_is_left_to_others_and_told_of_once(
    saver: StatekitSaver, store: Store
) -> None:
    world = World()
    world.dies = {2: 2}
    world.start(saver, "other", graph=world.graph(saver), owner="w")
    later = world.builder("renamed").compile(checkpointer=saver)
    world.start(saver, "later", graph=later)
    store.advance(LONG_S + 1)
    leases = dict(saver.backend.leases(LeaseQuery()).leases)
    saver.backend.claim([Claim("other", "x", "w", 1, about="{}")])
    wait_until(lambda: len(saver.backend.leases(LeaseQuery(True)).leases) == 2, "over")
    look = supervisor(saver, world)
    assert {event.thread_id: event.outcome for event in look.once()} == {"other": "unknown", "later": "unfit"}
    assert look.once() == []
    found = dict(saver.backend.leases(LeaseQuery()).leases)
    assert found["later"] == leases["later"]
    right = Supervisor(saver, {"shop": lambda each: later, "": world.graph}, quarantine_s=0)
    assert {event.thread_id for event in right.once() if event.outcome == "finished"} == {"other", "later"}
    assert world.effects.count(5) == 2
    world.graph(saver).invoke({"i": 5}, {"configurable": {"thread_id": "never leased"}})
    assert sorted(look.unknown()) == ["later", "never leased", "other"]


def test_attempts_are_counted_in_the_store_until_the_thread_is_dead(saver: StatekitSaver, store: Store) -> None:
    world = World()
    world.fails = {2: 9}
    world.dies = {2: 1}
    world.start(saver)
    store.advance(LONG_S + 1)
    seen: list[tuple[str, str, int]] = []
    for _ in range(4):  # each time another supervisor
        seen += [(event.outcome, event.reason, event.attempt) for event in supervisor(saver, world).once()]
    assert seen == [
        ("resumed", "orphan", 1),
        ("failed", "orphan", 1),
        ("resumed", "failed", 1),
        ("failed", "failed", 1),
        ("resumed", "failed", 2),
        ("failed", "failed", 2),
        ("dead", "failed", 0),
    ]
    assert supervisor(saver, world).once() == []
    (letter,) = run_sync(dead(saver.cells))
    assert (letter.thread_id, letter.reason, letter.attempts) == ("t", "failed", 2)
    # A worker that tries it all the same is not gone on with; one that revives it is.
    world.fails, world.dies = {}, {2: 1}
    world.start(saver, given=None)
    store.advance(LONG_S + 1)
    assert outcomes(supervisor(saver, world).once()) == ["dead"]
    run_sync(revive(saver.cells, "t"))
    world.dies = {2: 1}
    world.start(saver, given=None)
    store.advance(LONG_S + 1)
    assert outcomes(supervisor(saver, world).once()) == ["resumed", "finished"]
    assert world.effects == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("to", "often"), [("retry_head", 2), ("retry_head", 1), ("parent", 2)])
def test_a_thread_that_gets_on_between_its_deaths_is_never_given_up(
    saver: StatekitSaver, store: Store, to: Any, often: int
) -> None:
    world = World(12)
    world.dies = dict.fromkeys(range(1, 12, often), 1)
    world.start(saver)
    store.advance(LONG_S + 1)
    events = [event for _ in world.dies for event in supervisor(saver, world, to).once()]
    assert [event.attempt for event in events if event.outcome == "resumed"] == [1] * len(world.dies)
    assert outcomes(events) == [*["resumed", "failed"] * (len(world.dies) - 1), "resumed", "finished"]
    assert sorted({*world.effects}) == list(range(12))


def test_a_thread_that_always_dies_at_one_place_is_given_up(saver: StatekitSaver, store: Store) -> None:
    world = World()
    world.dies = {3: 9}
    world.start(saver)
    store.advance(LONG_S + 1)
    events = [event for _ in range(5) for event in supervisor(saver, world, ("parent", "retry_head")).once()]
    tried = [(event.reason, event.attempt) for event in events if event.outcome == "resumed"]
    assert tried == [("orphan", 1), ("failed", 1), ("failed", 2)]
    assert events[-1].outcome == "dead"


def test_a_thread_that_is_stuck_is_drained_and_if_that_does_not_help_taken_away(
    saver: StatekitSaver, store: Store, told: list[Any]
) -> None:
    world = World()
    world.hangs = 2
    fenced: list[BaseException] = []

    def worker() -> None:
        try:
            world.start(saver, ttl_s=LONG_S)
        except Fenced as error:
            fenced.append(error)

    running = threading.Thread(target=worker)
    running.start()
    assert world.hung.wait(60)
    back = Rollback(to="parent", max_attempts=2, backoff=Backoff(0))
    patient = supervisor(saver, world, policy=back, stuck_s=0.2, drain_s=LONG_S)
    wait_until(lambda: outcomes(patient.once()) == ["draining"], "draining")
    assert patient.once() == []
    (held,) = patient.leases()
    assert (held.problem, held.control, held.held) == ("stuck", "stuck", True)
    events = supervisor(saver, world, policy=back, stuck_s=0.2, drain_s=0).once()
    assert outcomes(events) == ["resumed", "finished"]
    assert (events[0].reason, events[0].attempt) == ("stuck", 1)
    (rolled,) = [event for event in told if isinstance(event, RolledBack)]
    assert (rolled.reason, rolled.attempt) == ("stuck", 1)
    world.let_go.set()
    running.join(60)
    assert len(fenced) == 1
    assert world.graph(saver).get_state(SHOP).values["done"] == [0, 1, 2, 3, 4, 5]


def test_a_holder_that_is_asked_to_stop_hands_the_thread_over_to_any_supervisor(saver: StatekitSaver) -> None:
    from langgraph.runtime import RunControl

    world = World()
    world.hangs = 2
    control = RunControl()
    lease = saver.lease("t", graph="shop", ttl_s=1.5, on_control=lambda each: control.request_drain(each.control))
    done: list[str] = []

    def worker() -> None:
        try:
            world.graph(saver).invoke({"i": 0}, lease.config, durability="sync", control=control)
        except Exception as error:
            done.append(type(error).__name__)
        lease.release()

    running = threading.Thread(target=worker)
    running.start()
    assert world.hung.wait(60)
    saver.backend.claim([Claim("t", "", "", 0, lease.token, control=DRAIN)])
    wait_until(lambda: control.drain_requested, "asked")
    world.let_go.set()
    running.join(60)
    assert done == ["GraphDrained"]
    events = supervisor(saver, world).once()
    assert outcomes(events) == ["resumed", "finished"]
    assert (events[0].reason, events[0].attempt) == (DRAIN, 0)
    assert world.effects == [0, 1, 2, 3, 4, 5]


def test_a_supervisor_that_is_stopped_hands_over_what_it_runs(saver: StatekitSaver, store: Store) -> None:
    world = World()
    world.dies = {1: 1}
    world.start(saver)
    store.advance(LONG_S + 1)
    world.hangs = 2
    first = supervisor(saver, world, every_s=0.05)
    running = threading.Thread(target=first.run)
    running.start()
    assert world.hung.wait(60)
    assert supervisor(saver, world).once() == [], "it is under way elsewhere"
    first.stop()
    threading.Timer(0.2, world.let_go.set).start()
    running.join(60)
    assert not running.is_alive()
    assert outcomes(supervisor(saver, world).once()) == ["resumed", "finished"]
    assert world.effects == [0, 1, 2, 3, 4, 5]


async def test_async_nodes_and_the_async_face(saver: StatekitSaver, store: Store) -> None:
    effects: list[int] = []

    async def work(state: State) -> State:
        effects.append(state["i"])
        if len(effects) == 2:
            raise Died
        return {"i": state["i"] + 1}

    def graph(each: StatekitSaver) -> Any:
        builder = StateGraph(State)
        builder.add_node("work", work)
        builder.add_edge(START, "work")
        builder.add_conditional_edges("work", lambda state: "work" if state["i"] < 3 else END, ["work", END])
        return builder.compile(checkpointer=each)

    lease = await saver.alease("t", graph="async", ttl_s=LONG_S)
    with pytest.raises(Died):
        await graph(saver).ainvoke({"i": 0}, lease.config, durability="sync")
    saver._keeper.forget(lease)
    store.advance(LONG_S + 1)
    look = Supervisor(saver, {"async": graph}, quarantine_s=0)
    assert outcomes(await look.aonce()) == ["resumed", "finished"]
    assert effects == [0, 1, 1, 2]


def test_what_the_policy_leaves_is_left(saver: StatekitSaver, store: Store) -> None:
    world = World()
    world.dies = {1: 1}
    world.start(saver)
    store.advance(LONG_S + 1)
    alerts: list[Supervised] = []
    look = supervisor(saver, world, policy=Rollback(max_attempts=0, then=Fail()), alert=alerts.append)
    assert outcomes(look.once()) == ["left"]
    assert outcomes(alerts) == ["left"]
    assert world.effects == [0]


@pytest.mark.parametrize(
    "wrong", [{"every_s": 0}, {"stuck_s": "x"}, {"workers": 0}, {"policy": 3}, {"graphs": ["shop"]}, {"saver": None}]
)
def test_a_wrong_setting_is_refused(wrong: dict[str, Any]) -> None:
    from langgraph_statekit import open_saver

    with open_saver("memory://") as made, pytest.raises(Misuse):
        Supervisor(**{"saver": made, "graphs": {}, **wrong})


def test_a_thread_that_a_later_release_wrote_is_left_to_it(saver: StatekitSaver, store: Store) -> None:
    @state_version(2, migrates(from_=1)(lambda state: state))
    class Later(State):
        pass

    class Earlier(State):
        pass

    world = World()
    world.dies = {2: 1}
    world.start(saver, graph=world.builder().compile(checkpointer=saver.with_state(Later)))
    store.advance(LONG_S + 1)
    tokens = [each.token for each in supervisor(saver, world).leases()]
    early = {"shop": lambda each: world.builder().compile(checkpointer=each.with_state(Earlier))}
    look = supervisor(saver.with_state(Earlier), world, graphs=early)
    assert outcomes(look.once()) == ["unfit"]
    assert look.once() == []
    assert [each.token for each in look.leases()] == tokens
