"""A sampled run that dies at any node goes on from what is stored, and comes to the same end."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from langgraph_statekit import Misuse, Sampled, StatekitSaver
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from tests.crash.faulty import Died
from tests.crash.mortal import GRAPHS, Build, Effects, Fate, Mortal, Place, loop, remembering
from tests.crash.sampled_worker import graph as worker_graph
from tests.faces import LONG, config
from tests.programs import Program, run
from tests.servers import wait_until
from tests.stores_under_test import Store

NEVER_S = 3600.0


def _run(build: Build, saver: Any, fate: Fate, effects: Effects, mode: str, durability: str) -> Any:
    """Begin or go on, whatever is stored, until the run is over; return its values."""
    app = build(fate, effects).compile(checkpointer=saver)

    def step(given: Any) -> None:
        try:
            if mode == "sync":
                app.invoke(given, config(), durability=durability)
            else:
                asyncio.run(app.ainvoke(given, config(), durability=durability))
        except ConnectionError:
            pass

    for _ in range(12):
        now = app.get_state(config())
        if now.created_at is None:
            step({"log": [LONG]})
        elif now.interrupts:
            step(Command(resume="yes"))
        else:
            step(None)
            after = app.get_state(config())
            if after.config == now.config and not after.next:
                return after.values
    raise AssertionError("the run does not end")


def _sampled(saver: Any, every: int, idle_s: float = NEVER_S, **options: Any) -> Sampled:
    return Sampled(saver, every=every, idle_s=idle_s, **options)


def _forget(saver: Sampled) -> None:
    """What the process held dies with it."""
    saver._lanes.renew()
    saver._timer.look()


def _steps(saver: Any) -> list[tuple[int, Any]]:
    return [(item.metadata["step"], item.checkpoint["channel_values"].get("log")) for item in saver.list(config(ns=""))]


def _deaths(
    build: Build, kind: str, mode: str, durability: str, every: int
) -> Iterator[tuple[Place, Fate, Effects, dict[str, Any]]]:
    """Let a run die at each of its points in turn, and yield what is left."""
    for number in count(1):
        place, fate, effects = Place(kind), Fate(number), Counter[str]()
        doomed = _sampled(place.open(fate), every)
        try:
            done = _run(build, doomed, fate, effects, mode, durability)
        except Died:
            done = {}
        _forget(doomed)
        yield place, fate, effects, done
        if not fate.dead:
            return


def _ends(values: dict[str, Any], name: str, mode: str, durability: str) -> Any:
    """Return what a run must come to however it died."""
    if (name, mode, durability) == ("stateful question", "sync", "async"):
        # LangGraph saves from several threads then: a subgraph that keeps its state may be stored before the step of its
        # caller, which runs it again. So with any saver.
        return {key: set(value) for key, value in values.items()}
    return values


@pytest.mark.parametrize(
    ("kind", "durability", "every"),
    [("ours", "sync", 3), ("ours", "sync", 7), ("ours", "async", 3), ("ours", "exit", 7), ("another's", "async", 7)],
)
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_run_that_dies_at_any_node_comes_to_the_same_end(
    name: str, mode: str, durability: str, kind: str, every: int
) -> None:
    build = GRAPHS[name]
    wanted = Counter[str]()
    expected = _run(build, InMemorySaver(), Fate(), wanted, mode, durability)
    for place, fate, effects, done in _deaths(build, kind, mode, durability, every):
        if fate.dead:
            for item in place.open(Fate()).list(config()):
                at = item.parent_config
                assert at is None or place.open(Fate()).get_tuple(at) is not None
        else:
            assert done == expected
        saver = _sampled(place.open(Fate()), every)
        found = _run(build, saver, Fate(), effects, mode, durability)
        assert _ends(found, name, mode, durability) == _ends(expected, name, mode, durability), f"{fate.dies_at=}"
        assert effects.keys() == wanted.keys()
        saver.close()


@pytest.mark.parametrize("kind", ["ours", "another's"])
@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("name", sorted(GRAPHS.keys() - {"failing"}))  # LangGraph may lose an error beside other tasks
def test_what_ends_asks_or_fails_is_stored_when_the_call_returns(name: str, mode: str, kind: str) -> None:
    def stored(place: Place, every: int | None) -> Any:
        fate = Fate()
        inner = place.open(fate)
        saver = inner if every is None else _sampled(inner, every)
        app = GRAPHS[name](fate, Counter()).compile(checkpointer=saver)
        with suppress(ConnectionError):
            if mode == "sync":
                app.invoke({"log": [LONG]}, config())
            else:
                asyncio.run(app.ainvoke({"log": [LONG]}, config()))
        if isinstance(saver, Sampled):
            _forget(saver)
        now = GRAPHS[name](Fate(), Counter()).compile(checkpointer=place.open(Fate())).get_state(config())
        return now.values, now.next, now.metadata["step"], [each.value for each in now.interrupts]

    assert stored(Place(kind), 50) == stored(Place(kind), None)


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_a_subgraph_that_keeps_its_state_is_not_run_twice(durability: str) -> None:
    wanted = Counter[str]()
    expected = _run(remembering, InMemorySaver(), Fate(), wanted, "sync", durability)
    for place, fate, effects, _ in _deaths(remembering, "ours", "sync", "sync", 5):
        # A plain saver runs the turn again that died before its caller's step was stored, no other.
        plain = StatekitSaver(MemoryBackend())
        again = Fate(fate.dies_at)
        with_plain = Counter[str]()
        with suppress(Died):
            _run(remembering, plain, again, with_plain, "sync", "sync")
        assert _run(remembering, plain, Fate(), with_plain, "sync", "sync")
        saver = _sampled(place.open(Fate()), 5)
        assert len(_run(remembering, saver, Fate(), effects, "sync", "sync")["log"]) == len(expected["log"])
        assert effects == with_plain
        saver.close()


@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_death_loses_at_most_the_steps_since_the_last_multiple(every: int) -> None:
    lost = []
    for place, fate, effects, _ in _deaths(loop(steps=22), "ours", "sync", "sync", every):
        if fate.dead:
            app = loop(steps=22)(Fate(), Counter()).compile(checkpointer=place.open(Fate()))
            assert app.get_state(config()).next
            ((_, log), *_) = _steps(place.open(Fate())) or [(0, [LONG])]
            lost.append(sum(effects.values()) - 1 - (len(log or [LONG]) - 1))
    assert max(lost) == every - 1
    assert min(lost) == 0


def test_of_a_long_run_about_each_fifth_checkpoint_is_stored_each_as_it_was() -> None:
    whole, sampled = StatekitSaver(MemoryBackend()), _sampled(StatekitSaver(MemoryBackend()), 5)
    for saver in (whole, sampled):
        _run(loop(steps=42), saver, Fate(), Counter(), "sync", "sync")
    every, some = _steps(whole), _steps(sampled.saver)
    assert [step for step, _ in reversed(some)] == [-1, 0, *range(5, 41, 5), 43]
    assert [each for each in every if each in some] == some


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_reads_see_what_was_put(mode: str) -> None:
    saver = _sampled(StatekitSaver(MemoryBackend()), 50)
    seen: list[int] = []

    class Probe(Fate):
        def point(self) -> None:
            seen.append(len(app.get_state(config()).values.get("log", [])))

    build = loop(steps=8)
    app = build(Fate(), Counter()).compile(checkpointer=saver)
    _run(build, saver, Probe(), Counter(), mode, "sync")
    assert seen == [*range(min(seen), 10)]
    saver.close()


def test_what_nodes_change_in_place_later_does_not_reach_what_is_held() -> None:
    class Items(TypedDict):
        items: list[int]
        step: int

    def change(state: Items) -> Any:
        state["items"].append(state["step"])
        if state["step"] == 8:
            fate.dead = True
            raise Died
        return {"items": [*state["items"]], "step": state["step"] + 1}

    fate = Fate()
    backend = MemoryBackend()
    saver = _sampled(StatekitSaver(backend), 50)
    graph = StateGraph(Items)
    graph.add_node("change", change)
    graph.add_edge(START, "change")
    graph.add_conditional_edges("change", lambda state: "change")
    with pytest.raises(Died):
        graph.compile(checkpointer=saver).invoke({"items": [], "step": 0}, config(), durability="sync")
    ((newest, *_),) = [list(StatekitSaver(backend).list(config()))]
    assert newest.checkpoint["channel_values"]["items"] == [*range(8)]
    saver.close()


def test_a_run_that_stops_in_silence_is_stored_after_a_while() -> None:
    backend = MemoryBackend()
    saver = _sampled(StatekitSaver(backend), 50, idle_s=0.01)
    app = loop()(Fate(), Counter()).compile(checkpointer=saver, interrupt_before=["last"])
    app.invoke({"log": [LONG]}, config(), durability="sync")
    wait_until(lambda: _steps(StatekitSaver(backend))[0][0] == 12, "the breakpoint is stored")
    wait_until(lambda: saver._timer._thread is None, "nothing is left to do")
    saver.close()


def test_clones_share_what_is_held() -> None:
    backend = MemoryBackend()
    saver = _sampled(StatekitSaver(backend), 50)
    clone = saver.with_allowlist({("tests.crash.test_sampled", "Fate")})
    app = loop()(Fate(), Counter()).compile(checkpointer=saver, interrupt_before=["last"])
    app.invoke({"log": [LONG]}, config(), durability="sync")
    assert _steps(StatekitSaver(backend))[0][0] == 0
    assert _steps(clone)[0][0] == 12
    saver.close()


def test_no_more_is_held_than_allowed() -> None:
    backend = MemoryBackend()
    saver = _sampled(StatekitSaver(backend), 50, held_bytes=10_000)
    for n in range(20):
        app = loop()(Fate(), Counter()).compile(checkpointer=saver, interrupt_before=["last"])
        app.invoke({"log": [LONG]}, config(f"{n}"), durability="sync")
        assert saver._lanes._bytes <= 10_000
    saver.flush()
    assert saver._lanes._bytes == 0
    assert {item.metadata["step"] for item in (saver.get_tuple(config(f"{n}")) for n in range(20)) if item} == {12}
    saver.close()


def test_a_failed_save_stays_held_and_is_told() -> None:
    fate, backend = Fate(), MemoryBackend()
    saver = _sampled(StatekitSaver(Mortal(backend, fate)), 50)  # type: ignore[arg-type]
    app = loop()(Fate(), Counter()).compile(checkpointer=saver, interrupt_before=["last"])
    app.invoke({"log": [LONG]}, config(), durability="sync")
    fate.dead = True
    with pytest.raises(Died):
        saver.flush()
    fate.dead = False
    saver.flush()
    assert _steps(StatekitSaver(backend))[0][0] == 12
    saver.close()


def test_wrong_options_are_refused() -> None:
    for options in ({"every": 0}, {"idle_s": -1.0}, {"held_bytes": -1}):
        with pytest.raises(Misuse):
            Sampled(InMemorySaver(), **options)
    with pytest.raises(Misuse):
        Sampled("sqlite:///x.db")  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_killed_process_loses_fewer_than_so_many_steps(durable_store: Store, tmp_path: Path) -> None:
    items, every = 60, 5
    effects = tmp_path / "effects"
    effects.touch()
    command = [
        *(sys.executable, "-m", "tests.crash.sampled_worker", durable_store.url, json.dumps(durable_store.options)),
        *("t", str(items), str(effects), str(every), ""),
    ]
    for _ in range(3):
        aim = len(effects.read_text().splitlines()) + random.randint(1, items // 3 - 8)
        with Program(command) as process:

            def reached() -> bool:
                return len(effects.read_text().splitlines()) >= aim or process.poll() is not None

            wait_until(reached, f"{aim} items")
            process.kill()
        assert process.returncode == -9
        with durable_store.open() as saver:
            done = worker_graph(items, effects).compile(checkpointer=saver).get_state(config()).values.get("done", [])
            noted = [int(line) for line in effects.read_text().splitlines()]
            assert done == list(range(len(done)))
            assert noted[-1] - len(done) < every
    run(command, check=True, timeout=120)
    with durable_store.open() as saver:
        done = worker_graph(items, effects).compile(checkpointer=saver).get_state(config()).values["done"]
    assert done == sorted({int(line) for line in effects.read_text().splitlines()}) == list(range(items))


def test_a_process_that_ends_at_a_breakpoint_leaves_nothing_behind(durable_store: Store, tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    command = [
        *(sys.executable, "-m", "tests.crash.sampled_worker", durable_store.url, json.dumps(durable_store.options)),
        *("t", "7", str(effects), "50", "last"),
    ]
    run(command, check=True, timeout=120)
    with durable_store.open() as saver:
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["done"] == list(range(7))
