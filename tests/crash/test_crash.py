"""A run dies at each of its calls to the store in turn; what is left is whole, and the next process finishes it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from langgraph_statekit.checkpoint.records import Change, Frame, Query, Ref, Row, SaveRow, SaveWrites, Write, is_made
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.crash.faulty import Died, Faulty
from tests.faces import LONG, config
from tests.graphs.builders import _fold
from tests.stores.verbs import deltas, save, save_writes
from tests.stores_under_test import Store

SAYS_NO = 400
LOG = [LONG, "first", "task 0", "task 1", "yes", "after"]


class State(TypedDict, total=False):
    log: Annotated[list[str], DeltaChannel(_fold, snapshot_frequency=3)]
    total: Annotated[int, operator.add]
    last: list[str]


def _graph() -> StateGraph[Any]:
    def node(name: str) -> Callable[[Any], Any]:
        return lambda _: {"log": [name], "total": 1, "last": [LONG, name]}

    graph = StateGraph(State)
    graph.add_node("first", node("first"))
    graph.add_node("task", lambda item: {"log": [f"task {item['n']}"], "total": 1})
    graph.add_node("ask", lambda _: {"log": [interrupt("approve?")], "total": 1, "last": [LONG, "ask"]})
    graph.add_node("after", node("after"))
    graph.add_edge(START, "first")
    graph.add_conditional_edges("first", lambda _: [Send("task", {"n": n}) for n in range(2)], ["task"])
    return graph.add_edge("task", "ask").add_edge("ask", "after").add_edge("after", END)


def _run(saver: StatekitSaver, thread: str, durability: Any) -> Any:
    """Begin or go on, whatever is stored, until the run is over; return its values."""
    app = _graph().compile(checkpointer=saver)
    at = config(thread)
    for number in range(10):
        now = app.get_state(at)
        run: Any = {**at, "metadata": {"run_id": f"{thread}, run {number}"}}
        if now.created_at is None:
            app.invoke({"log": [LONG], "total": 0}, run, durability=durability)
        elif now.interrupts:
            app.invoke(Command(resume="yes"), run, durability=durability)
        else:  # a step whose writes are stored counts as done in `next`, so only a run that adds nothing is over
            app.invoke(None, run, durability=durability)
            after = app.get_state(at)
            if after.config == now.config and not after.next:
                return after.values
    raise AssertionError("the run does not end")


def _check_whole(saver: StatekitSaver, thread: str, faulty: Faulty) -> None:
    """Every acknowledged save is there, every checkpoint loads, and no batch of writes is cut."""
    app = _graph().compile(checkpointer=saver)
    found = {item.checkpoint["id"]: item for item in saver.list(config(thread))}
    sent: dict[tuple[str, str], list[set[str]]] = {}
    for each in (each for name, args in faulty.begun if name == "save" for each in args[0]):
        if isinstance(each, SaveWrites):
            batch = {write.channel for write in each.writes}
            sent.setdefault((each.ref.id, each.writes[0].task), []).append(batch)
    acknowledged = [
        one
        for name, args, results in faulty.done
        if name == "save"
        for one, result in zip(args[0], results, strict=True)
        if is_made(result)
    ]
    for one in acknowledged:
        if isinstance(one, SaveRow):
            assert one.row.ref.id in found
        elif one.ref.id in found:
            stored = {(task, channel) for task, channel, _ in found[one.ref.id].pending_writes or []}
            assert {(write.task, write.channel) for write in one.writes} <= stored
    for id, item in found.items():
        assert item.parent_config is None or item.parent_config["configurable"]["checkpoint_id"] in found
        values = app.get_state(item.config).values
        assert values.get("total", 0) == max(len(values.get("log", ())) - 1, 0)
        by_task: dict[str, set[str]] = {}
        for task, channel, _ in item.pending_writes or []:
            by_task.setdefault(task, set()).add(channel)
        for task, channels in by_task.items():
            assert channels == set().union(*(batch for batch in sent[id, task] if batch <= channels))


BEFORE_OR_AFTER = pytest.mark.parametrize("acts", [False, True], ids=["before it acts", "after it acts"])


def with_acts(name: str, *cases: tuple[Any, bool]) -> pytest.MarkDecorator:
    """Pair values with whether the call acts that a process dies at.

    A store is left the same by a death after one call and by one before the next, so a value that is tried with one of
    them has been in each place.
    """
    ids = [f"{value}-{'after' if acts else 'before'} it acts" for value, acts in cases]
    return pytest.mark.parametrize((name, "acts"), cases, ids=ids)


@with_acts("durability", ("sync", False), ("sync", True), ("async", True), ("exit", False))
def test_a_run_that_dies_at_any_call_is_whole_and_finishes_later(store: Store, durability: str, acts: bool) -> None:
    _die_at_every_call(
        store, durability, lambda saver, number: _stand_before(saver, Faulty(saver.backend, number, acts))
    )


@with_acts("durability", ("sync", True), ("exit", False))
def test_a_run_that_dies_at_any_request_of_a_call_is_whole_too(
    new_store: Callable[[str], Store], durability: str, acts: bool
) -> None:
    """Where one call is many requests, a process can die between them."""

    def stand_before_driver(saver: StatekitSaver, number: int) -> tuple[Faulty, Faulty]:
        bucket = getattr(saver.backend, "inner", saver.backend)._bucket
        bucket._driver = driver = Faulty(bucket._driver, number, acts)
        return driver, _stand_before(saver, Faulty(saver.backend))[0]

    _die_at_every_call(new_store("file"), durability, stand_before_driver)


def _die_at_every_call(
    store: Store, durability: str, doom: Callable[[StatekitSaver, int], tuple[Faulty, Faulty]]
) -> None:
    options = {"ttl_s": 3600} if durability != "async" else {}
    with store.open(**options) as survivor:
        expected = _run(survivor, "undisturbed", durability)
        assert expected["log"] == LOG
        assert (deltas(survivor.backend, "undisturbed") > 0) == survivor.backend.deltas
        for number in range(1, SAYS_NO):
            thread = f"dies at {number}"
            with store.open(**options) as doomed:
                dying, seen = doom(doomed, number)
                try:
                    _run(doomed, thread, durability)
                except Exception as error:
                    if not _caused_by_death(error):
                        raise
            _check_whole(survivor, thread, seen)
            assert _run(survivor, thread, durability) == expected, f"call {number}, {dying.begun[number - 1 : number]}"
            if not dying.died:
                return
    raise AssertionError("the run has no end")


def _stand_before(saver: StatekitSaver, faulty: Faulty) -> tuple[Faulty, Faulty]:
    saver.backend = faulty
    for engine in (saver._sync, saver._async):
        engine._backend = saver.backend
        engine._saves._call = faulty.save
    return faulty, faulty


def _caused_by_death(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, Died):
            return True
        error = error.__cause__ or error.__context__
    return False


@BEFORE_OR_AFTER
def test_prune_copy_and_deletion_that_die_at_any_call_can_be_repeated(store: Store, acts: bool) -> None:
    options = {"ttl_s": 3600} if acts else {}
    with store.open(**options) as survivor:
        for number in range(1, SAYS_NO):
            name, copy = f"{number}", f"{number} copy"
            assert _run(survivor, name, "sync")["log"] == LOG
            assert (deltas(survivor.backend, name) > 0) == survivor.backend.deltas
            every = _seen(survivor, name)
            first_run = [f"{name}, run 0"]
            later = _without(every, survivor.list(config(name), filter={"run_id": first_run[0]}))
            head = dict(list(every.items())[:1])
            assert len(every) > len(later) > len(head)
            with store.open(**options) as doomed:
                faulty, _ = _stand_before(doomed, Faulty(doomed.backend, number, acts))
                with suppress(Died):
                    doomed.copy_thread(name, copy)
                    doomed.delete_for_runs(first_run)
                    doomed.prune([name])
                    doomed.delete_thread(copy)
            left = _seen(survivor, name)
            assert left in (every, later, head)
            assert _seen(survivor, copy) in (every, later, {})
            survivor.delete_for_runs(first_run)
            assert _seen(survivor, name) == (head if left == head else later)
            assert _seen(survivor, copy) in (later, {})
            survivor.prune([name])
            assert _seen(survivor, name) == head
            survivor.delete_thread(copy)
            survivor.copy_thread(name, copy)
            assert _seen(survivor, copy) == head
            if not faulty.died:
                return
    raise AssertionError("there is no end")


def _seen(saver: StatekitSaver, thread: str) -> dict[str, Any]:
    """Return the state at each checkpoint, newest first, and what rebuilds the log where it is not stored."""
    app = _graph().compile(checkpointer=saver)
    found: dict[str, Any] = {}
    for item in saver.list(config(thread)):
        stored = "log" in item.checkpoint["channel_values"]
        history = None if stored else saver.get_delta_channel_history(config=item.config, channels=["log"])
        found[item.checkpoint["id"]] = app.get_state(item.config).values, history
    return found


def _without(seen: dict[str, Any], gone: Iterable[CheckpointTuple]) -> dict[str, Any]:
    ids = {item.checkpoint["id"] for item in gone}
    return {id: each for id, each in seen.items() if id not in ids}


def test_a_repeat_of_any_verb_after_a_lost_reply_changes_nothing(store: Store) -> None:
    with store.open() as saver:
        saver.setup()
        backend = saver.backend
        row = Row(Ref("t", "", "1"), packed_keys=b"k" * 16, body=b"body")
        later = Row(Ref("t", "", "2"), parent="1", body=b"body")
        batch = [Write("task", 0, "a", "", b"1"), Write("task", -1, "b", "", b"2")]

        def seen() -> Any:
            everything = backend.rows(Query("t")), backend.rows(Query("u")), backend.outline("t").rows
            return everything, backend.fill("t", [b"k" * 16], [row.ref, later.ref]), backend.load("t", "", None)

        def twice(act: Callable[[], Any]) -> None:
            first = act()
            before = seen()
            assert act() == first
            assert seen() == before

        twice(lambda: save(backend, row, [Frame(b"k" * 16, b"value")]))
        twice(lambda: save(backend, later, []))
        twice(lambda: save_writes(backend, row.ref, batch))
        twice(lambda: backend.copy_thread("t", "u", "operation"))
        assert backend.copy_thread("t", "u", "another operation") is False
        rev = backend.outline("t").rev
        assert backend.apply("t", rev, Change(drop=[later.ref])) is True
        assert backend.apply("t", rev, Change(drop=[row.ref])) in (False, True)
        twice(lambda: backend.drop_thread("t"))
        assert backend.load("t", "", None) is None
