"""Steps of which the saver tells are those that LangGraph streams: the same states, and the same nodes that run next."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel, UntrackedValue
from langgraph.constants import TAG_HIDDEN
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel

from langgraph_statekit import StatekitSaver, Watchdog, open_saver
from langgraph_statekit.errors import GaveUp
from langgraph_statekit.watchdog.checks import Invariant, ItemDeadline
from langgraph_statekit.watchdog.policy import Backoff, Fail, Rollback
from langgraph_statekit.watchdog.told import telling
from langgraph_statekit.watchdog.view import Finding, View

# Sync nodes, which a watchdog warns of, are called by sync and async runs alike.
pytestmark = pytest.mark.filterwarnings("ignore::langgraph_statekit.watchdog.errors.WatchdogWarning")

Told = list[tuple[int, Any, tuple[str, ...]]]


class State(TypedDict, total=False):
    count: int
    log: Annotated[list[str], operator.add]
    note: str


def _add(name: str) -> Callable[[State], State]:
    return lambda state: {"count": state.get("count", 0) + 1, "log": [name]}


def _log(name: str) -> Callable[[State], State]:
    return lambda state: {"log": [name]}


def _loop(saver: StatekitSaver, **options: Any) -> Any:
    graph = StateGraph(State)
    graph.add_node("work", _add("work"))
    graph.add_node("rest", _log("rest"))
    graph.add_edge(START, "work")
    graph.add_edge("rest", "work")
    graph.add_conditional_edges("work", lambda state: "rest" if state["count"] < 4 else END, ["rest", END])
    return graph.compile(checkpointer=saver, **options)


def _joined(saver: StatekitSaver) -> Any:
    """Two branches of different length, a join of them, and a node that waits for all others."""
    graph = StateGraph(State)
    for name in ("short", "long", "longer", "joined"):
        graph.add_node(name, _log(name))
    graph.add_node("last", _log("last"), defer=True)
    graph.add_edge(START, "short")
    graph.add_edge(START, "long")
    graph.add_edge("long", "longer")
    graph.add_edge(["short", "longer"], "joined")
    graph.add_edge("short", "last")
    graph.add_edge("joined", "last")
    return graph.compile(checkpointer=saver)


def _sent(saver: StatekitSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("split", lambda state: Command(update={"note": "split"}, goto=[Send("one", {"note": "a"}), "two"]))
    graph.add_node("one", lambda state: {"log": [str(state["note"])]})
    graph.add_node("two", _log("two"))
    graph.add_edge(START, "split")
    graph.add_conditional_edges("two", lambda state: [Send("one", {"note": n}) for n in "bcd"], ["one"])
    return graph.compile(checkpointer=saver)


def _asking(saver: StatekitSaver) -> Any:
    graph = StateGraph(State)
    graph.add_node("ask", lambda state: {"note": interrupt("what now?"), "log": ["ask"]})
    graph.add_node("work", _add("work"))
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "work")
    return graph.compile(checkpointer=saver)


class Listening:
    """A check that finds nothing and remembers each step."""

    def __init__(self) -> None:
        self.told: Told = []
        self._ids: list[str] = []

    def __call__(self, view: View) -> Finding | None:
        if view.step is not None and view.step.id not in self._ids:
            self._ids.append(view.step.id)
            values = view.step.values
            self.told.append((view.step.number, dict(values) if isinstance(values, dict) else values, view.step.next))
        return None


_CALLS: dict[str, tuple[Callable[..., Any], list[Any], dict[str, Any]]] = {
    "a loop": (_loop, [{"count": 0}], {}),
    "a loop that is begun again": (_loop, [{"count": 0}, {"count": 2, "note": "again"}], {}),
    "a breakpoint before": (_loop, [{"count": 0}, None, None], {"interrupt_before": ["rest"]}),
    "a breakpoint after": (_loop, [{"count": 0}, None, None, None], {"interrupt_after": ["work"]}),
    "joins": (_joined, [{"note": "x"}], {}),
    "tasks that are sent": (_sent, [{"note": "x"}], {}),
    "a question": (_asking, [{"count": 0}, Command(resume="on", update={"count": 7})], {}),
}


@pytest.fixture
def memory() -> Iterator[StatekitSaver]:
    with open_saver("memory://") as saver:
        yield saver


def _uses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the threads of whose steps a saver tells from now on."""
    used: list[str] = []

    def noted(graph: Any, saver: Any, thread_id: str, *rest: Any) -> Any:
        used.append(thread_id)
        return telling(graph, saver, thread_id, *rest)

    monkeypatch.setattr("langgraph_statekit.watchdog.supervise.telling", noted)
    return used


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("case", _CALLS)
async def test_steps_told_by_the_saver_are_those_that_the_graph_streams(
    case: str, is_async: bool, memory: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = _uses(monkeypatch)
    build, inputs, options = _CALLS[case]
    seen: dict[str, tuple[Told, Any]] = {}
    for mode in ("told", "streamed"):
        check = Listening()
        dog = Watchdog(build(memory), checks=[check])
        modes = ["values"] if mode == "told" else ["values", "checkpoints"]
        for given in inputs:
            at: Any = {"configurable": {"thread_id": mode}}
            if is_async:
                [_ async for _ in dog.astream(given, at, stream_mode=modes, **options)]
            else:
                list(dog.stream(given, at, stream_mode=modes, **options))
        seen[mode] = check.told, dog.graph.get_state(at).values
    assert seen["told"] == seen["streamed"]
    assert len(seen["told"][0]) >= 3
    assert set(used) == {"told"}


def _untracked(saver: StatekitSaver) -> Any:
    class Private(TypedDict, total=False):
        count: int
        secret: Annotated[int, UntrackedValue]

    graph = StateGraph(Private)
    graph.add_node("work", lambda state: {"count": state.get("count", 0) + 1, "secret": 1})
    graph.add_edge(START, "work")
    return graph.compile(checkpointer=saver)


def _of_objects(saver: StatekitSaver) -> Any:
    class Page(BaseModel):
        count: int = 0

    graph = StateGraph(Page)
    graph.add_node("work", lambda state: {"count": state.count + 1})
    graph.add_edge(START, "work")
    return graph.compile(checkpointer=saver)


def _entrypoint(saver: StatekitSaver) -> Any:
    page = task(lambda number: number + 1, name="page")

    @entrypoint(checkpointer=saver)
    def pages(given: dict[str, int]) -> int:
        return int(page(page(given["count"]).result()).result())

    return pages


_STREAMED = [
    "a channel that is not stored",
    "async",
    "exit",
    "a subgraph",
    "an older checkpoint",
    "an entrypoint",
    "a hidden call",
    "a hidden node",
    "objects of a schema",
    "the run id of the head",
    "a put of its own",
]


@pytest.mark.parametrize("case", _STREAMED)
def test_what_the_saver_cannot_tell_is_streamed(
    case: str, memory: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = _uses(monkeypatch)
    at: Any = {"configurable": {"thread_id": "t"}}
    options: dict[str, Any] = {"durability": case if case in ("async", "exit") else "sync"}
    build = {
        "a channel that is not stored": _untracked,
        "an entrypoint": _entrypoint,
        "objects of a schema": _of_objects,
    }.get(case, _loop)
    graph = build(memory)
    given: Any = {"count": 0}
    if case == "a hidden call":
        at |= {"tags": [TAG_HIDDEN]}
    if case == "a hidden node":
        graph.nodes["work"].tags = [TAG_HIDDEN]
    if case == "objects of a schema":
        options["version"] = "v2"
    if case == "the run id of the head":
        at |= {"metadata": {"run_id": "one"}}
    if case == "a put of its own":
        memory.put = memory.put  # type: ignore[method-assign]
    if case == "a subgraph":
        outer = StateGraph(State)
        outer.add_node("inner", _loop(None))  # type: ignore[arg-type]
        outer.add_edge(START, "inner")
        graph = outer.compile(checkpointer=memory)
    if case == "an older checkpoint":
        graph.invoke(given, at)
        at, given = list(graph.get_state_history(at))[3].config, None
    check = Listening()
    Watchdog(graph, checks=[check]).invoke(given, at, **options)
    assert check.told and not used


def test_a_graph_that_a_node_calls_is_watched_whatever_saver_it_gets(
    memory: StatekitSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, check = _uses(monkeypatch), Listening()
    dog = Watchdog(_loop(memory), checks=[check])
    outer = StateGraph(State)
    outer.add_node("call", lambda state: dog.invoke({"count": 0}, {"configurable": {"thread_id": "inner"}}))
    outer.add_edge(START, "call")
    with open_saver("memory://") as others:
        outer.compile(checkpointer=others).invoke({"count": 0}, {"configurable": {"thread_id": "outer"}})
    assert check.told and not used


def test_the_last_step_of_a_run_is_checked_too(memory: StatekitSaver) -> None:
    rule = Invariant("count stays below 4", lambda before, after: after.get("count", 0) < 4)
    dog = Watchdog(_loop(memory), checks=[rule], policy=lambda finding, attempt: Fail())
    with pytest.raises(GaveUp, match="count stays below 4"):
        dog.invoke({"count": 0}, {"configurable": {"thread_id": "t"}})


def test_what_a_node_reads_of_its_thread_is_no_step_of_the_run(memory: StatekitSaver) -> None:
    def read(state: State, config: RunnableConfig) -> State:
        if state["count"] == 3:
            older = list(memory.list({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}))[2]
            assert older.checkpoint["channel_values"]["count"] < 3
            config["configurable"]["__pregel_checkpointer"].get_tuple(older.config)
            raise ValueError("it did not work")
        return {"count": state["count"] + 1}

    graph = StateGraph(State)
    graph.add_node("work", read)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["count"] < 9 else END, ["work", END])
    rule = Invariant("count rises", lambda before, after: after.get("count", 0) >= before.get("count", 0))
    with pytest.raises(ValueError, match="it did not work"):
        Watchdog(graph.compile(checkpointer=memory), checks=[rule]).invoke(
            {"count": 0}, {"configurable": {"thread_id": "t"}}
        )


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("mode", ["told", "streamed"])
async def test_a_function_that_fails_on_a_state_ends_no_run_and_is_logged_once(
    mode: str, is_async: bool, memory: StatekitSaver, caplog: pytest.LogCaptureFixture
) -> None:
    def left(values: Any) -> int:
        return min(values["left"])  # fails on the last states

    class Pages(TypedDict):
        left: list[int]

    graph = StateGraph(Pages)
    graph.add_node("work", lambda state: {"left": state["left"][1:]})
    graph.add_node("end", lambda state: state)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: "work" if state["left"] else "end", ["work", "end"])
    dog = Watchdog(graph.compile(checkpointer=memory), checks=[ItemDeadline(seconds=60, key=left)], item=left)
    at: Any = {"configurable": {"thread_id": "t"}}
    modes = ["values"] if mode == "told" else ["values", "checkpoints"]
    with caplog.at_level(logging.ERROR):
        if is_async:
            [_ async for _ in dog.astream({"left": [1, 2]}, at, stream_mode=modes)]
        else:
            list(dog.stream({"left": [1, 2]}, at, stream_mode=modes))
    assert dog.graph.get_state(at).values == {"left": []}
    assert ["logged once" in record.message for record in caplog.records] == [True, True]


@pytest.mark.parametrize("mode", ["told", "streamed"])
def test_a_run_that_does_not_get_beyond_its_input_has_no_step(mode: str, memory: StatekitSaver) -> None:
    def route(state: State) -> str:
        if state.get("count"):
            raise ValueError("the route failed")
        return "work"

    graph = StateGraph(State)
    graph.add_node("work", _add("work"))
    graph.add_conditional_edges(START, route, ["work"])
    app, at = graph.compile(checkpointer=memory), {"configurable": {"thread_id": mode}}
    app.invoke({"note": "well"}, at)
    check = Listening()
    modes = ["values"] if mode == "told" else ["values", "checkpoints"]
    with pytest.raises(ValueError, match="the route failed"):
        list(Watchdog(app, checks=[check]).stream({"count": 1}, at, stream_mode=modes))
    assert check.told == []


def test_after_a_rollback_to_what_a_command_wrote_to_its_update_is_in_the_state(memory: StatekitSaver) -> None:
    graph, found, check = _loop(memory), list[str](), Listening()
    at: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"count": 0}, at)

    def once(view: View) -> Finding | None:
        if view.step is None or view.step.values["count"] != 11 or found:
            return None
        found.append(view.step.id)
        return Finding("once", "a page failed", since=view.step.id)

    policy = Rollback(backoff=Backoff(first_s=0))
    dog = Watchdog(graph, checks=[check, once], policy=policy)
    assert dog.invoke(Command(goto="work", update={"count": 10}), at)["count"] == 11
    assert [(values["count"], following) for _, values, following in check.told] == [
        (10, ("work",)),
        (11, ()),
        (10, ("work",)),
        (11, ()),
    ]


@pytest.mark.parametrize("frequency", [1, 1000])
def test_a_channel_that_kept_changes_before_is_told_with_its_value(frequency: int, memory: StatekitSaver) -> None:
    def fold(state: list[str], writes: Any) -> list[str]:
        return [*state, *(each for write in writes for each in write)]

    def build(kind: Any, **options: Any) -> Any:
        graph = StateGraph(TypedDict("Logged", {"log": Annotated[list[str], kind]}, total=False))
        graph.add_node("first", lambda state: {"log": ["first"]})
        graph.add_node("second", lambda state: {"log": ["second"]})
        graph.add_edge(START, "first")
        graph.add_edge("first", "second")
        return graph.compile(checkpointer=memory, **options)

    at: Any = {"configurable": {"thread_id": "t"}}
    build(DeltaChannel(fold, list, snapshot_frequency=frequency), interrupt_before=["second"]).invoke(
        {"log": ["0"]}, at
    )
    check = Listening()
    Watchdog(build(operator.add), checks=[check]).invoke(None, at)
    assert [values["log"] for _, values, _ in check.told] == [["0", "first"], ["0", "first", "second"]]
