"""What a thread is asked for is answered alike on every saver, sync and async."""

from __future__ import annotations

import operator
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from langgraph_statekit import CheckpointMissing, Misuse, TimeTravel, migrates, state_version
from langgraph_statekit.checkpoint import messages
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.timetravel import history
from tests.timetravel.kit import START_OF_SHOP, monitor, named, put, talk


class Face:
    """Calls the sync or the async version of a method."""

    def __init__(self, travel: TimeTravel, is_async: bool) -> None:
        self._travel, self._is_async = travel, is_async

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            found = getattr(self._travel, f"a{name}" if self._is_async else name)(*args, **options)
            return await found if self._is_async else found

        return call


async def travel(saver: Any, thread: str = "shop") -> Face:
    """Return a time machine of the incident, by the side that the saver has."""
    is_async = isinstance(saver, AsyncSqliteSaver)
    graph = monitor(saver)
    if is_async:
        await graph.ainvoke(START_OF_SHOP, named(thread), durability="sync")
    else:
        graph.invoke(START_OF_SHOP, named(thread), durability="sync")
    return Face(TimeTravel(graph, named(thread)), is_async)


@pytest.fixture(params=["memory", "sqlite", "sqlite-async", "statekit"])
async def any_saver(request: pytest.FixtureRequest, tmp_path: Any) -> AsyncIterator[Any]:
    """Yield a saver of each kind: LangGraph's own, and one of this package on a file."""
    match request.param:
        case "memory":
            yield InMemorySaver()
        case "sqlite":
            with SqliteSaver.from_conn_string(str(tmp_path / "official.db")) as saver:
                yield saver
        case "sqlite-async":
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "async.db")) as saver:
                yield saver
        case _:
            from langgraph_statekit import SqliteSaver as Own

            with Own.from_url(f"sqlite:///{tmp_path}/own.db") as saver:
                yield saver


async def test_any_saver_answers_every_question(any_saver: Any) -> None:
    tt = await travel(any_saver)
    assert (await tt.at()).step == 18
    assert (await tt.at(-2)).step == 17
    found = await tt.at(5)
    assert (found.step, found.values["pages"], found.next, found.moment.nodes) == (5, [], ["cut"], ["crawl"])
    assert (await tt.at(found.id)).id == (await tt.at(found.id[:24])).id == found.id
    assert (await tt.at(lambda state: bool(state["pages"]))).step == 4
    assert [each.path for each in await tt.diff(1, 2)] == ["prices.A-0", "done[0]", "cuts[0]"]
    assert [each.path for each in await tt.diff(b=3)] == ["round"]
    assert [each.name for each in await tt.branches()] == ["current"]
    assert (await tt.find(lambda state: state["pages"] == [] and state["round"] > 2)).step == 5
    assert await tt.find(lambda state: "no such channel" in state) is None
    with pytest.raises(KeyError):  # of the latest it tells what is wrong with the question
        await tt.find(lambda state: state["no such channel"])
    why = await tt.why("prices.A-0", 4)
    assert (why.point.step, why.nodes, why.before, why.after) == (2, ["cut"], 1000.0, 950.0)
    assert (await tt.why("pages")).point.step == 5
    assert "pages" in (await tt.why("prices")).read
    sizes = await tt.size()
    assert sizes["cuts"].size_bytes > sizes["round"].size_bytes > 0
    assert (await tt.timeline()).page.moments[0].point.step == 18
    assert await tt.pending() == []
    for wrong in (99, "nothing", -99, lambda state: state["round"] > 99):
        with pytest.raises(CheckpointMissing):
            await tt.at(wrong)


async def test_an_async_saver_says_what_to_call(tmp_path: Any) -> None:
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "async.db")) as saver:
        await travel(saver)
        tt = TimeTravel(saver, thread_id="shop")
        assert "await tt.atimeline()" in repr(tt)
        assert "await tt.atimeline()" in tt._repr_html_()
        assert "pages became empty" in repr(await tt.atimeline())


async def test_steps_branches_and_forks_on_any_saver(any_saver: Any) -> None:
    tt = await travel(any_saver)
    fork = await tt.fork(4, reason="the crawl was empty")
    assert fork.values == (await tt.at(4)).values
    assert fork.next == ["crawl"]
    edited = await tt.fork(fork, edit={"round": 8}, as_node="cut")
    assert (edited.values["round"], edited.next) == (8, ["crawl"])
    assert (await tt.at()).id == edited.id
    current, left = await tt.branches()
    assert left.reason == "the crawl was empty"
    assert (current.tip.id, left.tip.step, left.fork.step, left.steps) == (edited.id, 18, 4, 14)
    compared = await tt.compare(left)
    assert compared.ancestor.step == 4
    assert (len(compared.only_x), len(compared.only_y)) == (14, 2)
    assert {"pages[0]", "done[0]", "round"} <= {each.path for each in compared.changes}
    assert (await tt.at(5)).id in {fork.id, edited.id}  # of the current branch, though the other one has a step 5 too
    undone = await tt.undo()
    assert undone.values == fork.values
    with pytest.raises(Misuse, match="at least 1"):
        await tt.undo(0)


async def test_the_fork_is_what_the_graph_goes_on_from(real: StatekitSaver) -> None:
    tt = TimeTravel(graph := monitor(real, empty_from=99), named("shop"))
    graph.invoke({**START_OF_SHOP, "round": 5}, named("shop"), durability="sync")
    tt.fork(2)
    before = tt.at(2).values
    result = graph.invoke(None, named("shop"), durability="sync")
    assert result["cuts"][0] == before["cuts"][0]
    assert len(result["done"]) == 4
    assert len(tt.branches()) == 2


async def test_labels_name_checkpoints(real: StatekitSaver) -> None:
    graph = monitor(real)
    await graph.ainvoke(START_OF_SHOP, named("shop"), durability="sync")
    tt = TimeTravel(graph, named("shop"))
    tt.label("before the crawl", 4)
    assert tt["before the crawl"].step == 4
    assert "[before the crawl]" in repr(tt)
    assert "before the crawl" in tt._repr_html_()
    with pytest.raises(Misuse, match="has no labels"):
        TimeTravel(InMemorySaver(), thread_id="t").label("x")


def test_the_first_view_reads_as_much_of_a_long_thread_as_of_a_short_one() -> None:
    class Counting(JsonPlusSerializer):
        loads = 0

        def loads_typed(self, data: tuple[str, bytes]) -> Any:
            self.loads += 1
            return super().loads_typed(data)

    counts = []
    for length in (300, 3_000):
        saver = InMemorySaver(serde=(serde := Counting()))
        put(saver, "t", [{"n": at, "log": "x"} for at in range(length)])
        serde.loads = 0
        shown = TimeTravel(saver, thread_id="t").timeline(limit=50)
        assert (len(shown.page.moments), shown.page.older) == (50, True)
        counts.append(serde.loads)
    assert counts[0] == counts[1]


async def test_the_first_view_asks_the_store_as_often_however_long_the_thread(
    real: StatekitSaver, monkeypatch: Any
) -> None:
    asked: list[str] = []

    def count(verb: str, call: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            asked.append(verb)
            return call(*args, **options)

        return counted

    for verb in ("load", "rows", "fill", "outline", "headers", "cells", "leases"):
        monkeypatch.setattr(real.backend, verb, count(verb, getattr(real.backend, verb)))
    counts = []
    for length in (60, 150):
        put(real, f"t{length}", [{"n": at, "log": "x"} for at in range(length)])
        tt = TimeTravel(real, thread_id=f"t{length}")
        tt.label("begin", tt.at(0).id)
        asked.clear()
        shown = tt.timeline(limit=50)
        assert (len(shown.page.moments), shown.page.older, [*shown.labels]) == (50, True, ["begin"])
        counts.append(sorted(asked))
    assert counts[0] == counts[1]
    assert "outline" not in asked
    assert len(asked) <= 9, asked


def test_a_page_keeps_no_values(real_sqlite: StatekitSaver) -> None:
    put(real_sqlite, "t", [{"big": f"{at}" + "x" * 2_000_000} for at in range(60)])
    tt = TimeTravel(real_sqlite, thread_id="t")
    tt.timeline(limit=5)
    tracemalloc.start()
    try:
        tt._repr_html_()
        assert tracemalloc.get_traced_memory()[1] < 60_000_000  # the values of the page weigh 100 MB
    finally:
        tracemalloc.stop()


def test_a_page_of_a_growing_chat_makes_each_message_once_and_tells_the_same(
    real_sqlite: StatekitSaver, monkeypatch: Any
) -> None:
    said = [HumanMessage(f"{at} " + "word " * 40, id=f"m{at}") for at in range(70)]
    put(real_sqlite, "t", [{"messages": said[: at + 1], "n": at // 2} for at in range(70)])
    tt, made = TimeTravel(real_sqlite, thread_id="t"), []
    make = messages._messages

    def counted(rows: Any, decode: Any) -> Any:
        made.extend(rows)
        return make(rows, decode)

    monkeypatch.setattr(messages, "_messages", counted)
    found = tt.timeline(limit=50)
    assert len(made) == 70
    monkeypatch.setattr(history, "looking", lambda side: side)
    assert tt.timeline(limit=50).page == found.page
    assert len(made) > 1000


def test_what_was_lost_long_ago_is_on_the_first_page(in_memory: Any) -> None:
    pages = [{"sku": "A-1"}, {"sku": "A-2"}]
    put(in_memory, "t", [{"n": at, "pages": pages if at < 700 else []} for at in range(1500)])
    shown = TimeTravel(in_memory, thread_id="t").timeline(limit=20)
    assert [(each.level, each.point.step) for each in shown.findings] == [("bad", 699)]
    assert "pages became empty at step 699" in repr(shown)
    assert "it was 2 items before" in shown._repr_html_()


def test_find_reads_about_as_often_as_a_bisection_does(in_memory: Any) -> None:
    put(in_memory, "t", [{"n": at} for at in range(1000)])
    asked: list[int] = []

    def late(state: Any) -> bool:
        asked.append(state["n"])
        return bool(state["n"] >= 321)

    found = TimeTravel(in_memory, thread_id="t").find(late)
    assert found is not None
    assert found.values["n"] == 321
    assert len(asked) <= 12


def test_a_checkpoint_far_back_is_found_without_reading_those_between(
    real_sqlite: StatekitSaver, monkeypatch: Any
) -> None:
    put(real_sqlite, "t", [{"n": at} for at in range(200)])
    tt = TimeTravel(real_sqlite, thread_id="t")
    asked: list[str] = []
    load = real_sqlite.backend.load
    monkeypatch.setattr(
        real_sqlite.backend, "load", lambda *args, **options: asked.append("") or load(*args, **options)
    )
    assert [tt[-where].values["n"] for where in (1, 20, 21, 22, 150, 200)] == [199, 180, 179, 178, 50, 0]
    asked.clear()
    tt[-150]
    assert len(asked) < 10
    with pytest.raises(CheckpointMissing, match="has only 200 checkpoints"):
        tt[-201]


class Deltas(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], DeltaChannel(lambda old, new: [*old, *(x for one in new for x in one)])]
    n: int


def test_delta_channels_are_rebuilt_and_forked(real_sqlite: StatekitSaver) -> None:
    graph: Any = StateGraph(Deltas)
    for name in "abcd":
        graph.add_node(name, lambda _, name=name: {"messages": [HumanMessage(name, id=name)]})
    graph.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c").add_edge("c", "d")
    graph = graph.compile(checkpointer=real_sqlite)
    graph.invoke({"messages": [HumanMessage("in", id="in")]}, named("t"), durability="sync")
    tt = TimeTravel(graph, named("t"))
    assert [each.id for each in tt[2].values["messages"]] == ["in", "a", "b"]
    assert "messages" in repr(tt)
    assert [each.path for each in tt.diff(1, 2)] == ["messages[b]"]
    assert "$delta" in TimeTravel(real_sqlite, thread_id="t")[2].values["messages"]
    fork = tt.fork(2)
    assert [each.id for each in fork.values["messages"]] == ["in", "a", "b"]
    assert [each.id for each in graph.invoke(None, named("t"))["messages"]] == ["in", "a", "b", "c", "d"]


def test_states_of_older_versions_are_shown_as_they_were_stored(real_sqlite: StatekitSaver) -> None:
    class Old(TypedDict, total=False):
        total: float

    def move(state: dict[str, Any]) -> dict[str, Any]:
        return {"cents": round(state["total"] * 100)}

    @state_version(2, migrates(from_=1)(move))
    class New(TypedDict, total=False):
        cents: int

    def build(schema: Any, saver: StatekitSaver) -> Any:
        graph = StateGraph(schema)
        graph.add_node("a", lambda state: {name: value + 1 for name, value in state.items()})
        graph.add_node("b", lambda state: {name: value + 1 for name, value in state.items()})
        return graph.add_edge(START, "a").add_edge("a", "b").compile(checkpointer=saver, interrupt_before=["b"])

    build(Old, real_sqlite).invoke({"total": 1.0}, named("t"), durability="sync")
    graph = build(New, real_sqlite.with_state(New))
    assert graph.invoke(None, named("t"), durability="sync") == {"cents": 201}
    tt = TimeTravel(graph, named("t"))
    assert [each.values for each in tt] == [{"cents": 201}, {"total": 2.0}, {"total": 1.0}, {}]
    assert "total" in tt._repr_html_()
    assert tt.fork(1).values == {"cents": 200}
    assert graph.invoke(None, named("t"), durability="sync") == {"cents": 201}


def test_a_checkpoint_that_cannot_be_read_does_not_hide_the_others(real_sqlite: StatekitSaver, tmp_path: Any) -> None:
    put(real_sqlite, "t", [{"n": at, "text": "x" * 100 + str(at)} for at in range(40)])
    with sqlite3.connect(tmp_path / "threads.db") as db:
        rows = db.execute("SELECT id FROM rows ORDER BY seq").fetchall()
        for at in (20, 39):
            db.execute("UPDATE rows SET body = x'00' WHERE id = ?", rows[at])
    tt = TimeTravel(real_sqlite, thread_id="t")
    shown = tt.timeline(limit=100)
    assert [moment.point.step for moment in shown.page.moments] == [at - 1 for at in reversed(range(39)) if at != 20]
    assert set(shown.page.damaged) == {rows[20][0], rows[39][0]}
    assert f"checkpoint {rows[20][0]} cannot be read" in repr(shown)
    assert f"checkpoint {rows[39][0]} cannot be read" in shown._repr_html_()


def test_tasks_are_told_by_node_and_state(real_sqlite: StatekitSaver) -> None:
    graph = talk(real_sqlite)
    tt = TimeTravel(graph, named("agent"))
    assert [(each.node, each.state) for each in tt.pending()] == [("ask", "waits")]
    assert "Cut the price?" in str(tt.pending()[0].told)
    assert "hunter2" not in str(tt.pending())
    graph.invoke(Command(resume="yes"), named("agent"), durability="sync")
    assert tt.pending() == []
    assert tt.at().values["found"] == "yes"


def test_a_subgraph_is_seen_and_not_forked(real_sqlite: StatekitSaver) -> None:
    tt = TimeTravel(talk(real_sqlite), named("agent"))
    (inside,) = tt.inside(6)
    assert inside.values["found"] == "inside noted"
    assert inside.point.ns.startswith("research:")
    assert tt.at(inside.id).id == inside.id
    lanes = tt.timeline().lanes
    assert [(lane.name, lane.depth, len(lane.points)) for lane in lanes] == [("current", 0, 9), ("research", 1, 4)]
    for refused in (tt.fork, tt.replay):
        with pytest.raises(Misuse, match=tt[6].id):
            refused(inside)


def test_what_cannot_be_meant_is_refused() -> None:
    saver = InMemorySaver()
    graph: Any = StateGraph(Annotated[list, operator.add])  # type: ignore[type-arg]
    with pytest.raises(Misuse, match="no thread is named"):
        TimeTravel(saver)
    with pytest.raises(Misuse, match="needed, not StateGraph"):
        TimeTravel(graph, named("t"))
    with pytest.raises(Misuse, match="without a checkpointer"):
        TimeTravel(monitor(None), named("t"))
    put(saver, "t", [{"n": 1}])
    tt = TimeTravel(saver, thread_id="t")
    with pytest.raises(Misuse, match="needs the graph"):
        tt.replay()
    with pytest.raises(Misuse, match="needs the graph"):
        tt.fork(edit={"n": 2})
    with pytest.raises(Misuse, match="its channels are 'n'"):
        tt.why("m")
    with pytest.raises(Misuse, match="limit"):
        tt.timeline(limit=0)
    with pytest.raises(Misuse, match="names no checkpoint"):
        tt.at(1.5)  # type: ignore[arg-type]
    with pytest.raises(CheckpointMissing, match="an empty id"):
        tt.at("")
    assert "no checkpoints" in repr(TimeTravel(saver, thread_id="other"))
    assert "<svg" not in TimeTravel(saver, thread_id="other")._repr_html_()
