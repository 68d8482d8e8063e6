"""Threads that are copied between checkpointers are the same on both sides, also when the copy was killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from langgraph_statekit import Conflict, Copied, DataError, Misuse, acopy_threads, copy_threads
from langgraph_statekit.checkpoint import sides
from langgraph_statekit.checkpoint.backends.memory import MemoryBackend
from langgraph_statekit.checkpoint.opening import open_saver
from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.sides import Side, task_paths
from tests.faces import LONG, checkpoint, config, id_of, metadata
from tests.graphs.builders import DeltaLog, SnapshotLog, chain, fan_out, nested, question
from tests.programs import run
from tests.servers import Servers
from tests.stores.pg import query
from tests.stores_under_test import Store

pytestmark = pytest.mark.without("retention")

GRAPHS: dict[str, Any] = {
    "asked": nested(),
    "waiting": question(),
    "fan-out": fan_out(20),
    "deltas": chain(DeltaLog),
    "snapshots": chain(SnapshotLog),
    "delta question": question(DeltaLog),
    "fork": chain(),
}


NULL_TASK = "00000000-0000-0000-0000-000000000000"


def fill(saver: Any) -> None:
    """Run every graph on its own thread."""
    for name, graph in GRAPHS.items():
        app = graph.compile(checkpointer=saver)
        for turn in range(1 if "fan" in name else 3):
            app.invoke({"log": [LONG, turn]}, config(name))
        if name == "asked":
            app.invoke(Command(resume="yes"), config(name))
        if name == "fork":
            history = list(app.get_state_history(config(name)))
            app.update_state(history[-2].config, {"log": ["fork"]})
            app.invoke(None, config(name))


def content(saver: Any) -> list[Any]:
    """Return what a saver lists of each thread and namespace."""
    return [
        [(t.config["configurable"], t.checkpoint, t.metadata, t.parent_config, t.pending_writes) for t in items]
        for name in GRAPHS
        for found in [list(saver.list({"configurable": {"thread_id": name}}))]
        for ns in sorted({t.config["configurable"]["checkpoint_ns"] for t in found})
        for items in [[t for t in found if t.config["configurable"]["checkpoint_ns"] == ns]]
    ]


def seen(saver: Any) -> list[Any]:
    """Return what graphs see of their threads."""
    return [
        (each.values, each.next, each.config, each.parent_config, each.interrupts)
        for name, graph in GRAPHS.items()
        for each in graph.compile(checkpointer=saver).get_state_history(config(name))
    ]


@pytest.fixture
def database(servers: Servers) -> Iterator[str]:
    """A database of its own, since the official saver has no schema to choose."""
    url, name = servers.url("postgres"), f"copy_{uuid4().hex}"
    query(url, f"CREATE DATABASE {name}")
    yield f"{url.rpartition('/')[0]}/{name}"
    query(url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["InMemorySaver", "SqliteSaver", "PostgresSaver"])
def official(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:
        if request.param == "InMemorySaver":
            saver: Any = InMemorySaver()
        elif request.param == "SqliteSaver":
            saver = stack.enter_context(SqliteSaver.from_conn_string(str(tmp_path / "official.db")))
        else:
            saver = stack.enter_context(PostgresSaver.from_conn_string(request.getfixturevalue("database")))
            saver.setup()
        yield saver


def test_threads_come_over_from_an_official_saver_and_go_back(official: Any, store: Store) -> None:
    fill(official)
    with store.open() as saver:
        result = copy_threads(official, saver)
        assert result.threads == len(GRAPHS) and result.skipped == 0
        assert seen(saver) == seen(official)
        if not isinstance(official, SqliteSaver):  # it alone keeps values by checkpoint, not by version
            assert content(saver) == content(official)
        again = copy_threads(official, saver)
        assert again == Copied(result.threads, 0, result.checkpoints)
        back = InMemorySaver()
        assert copy_threads(saver, back) == result
        assert content(back) == content(saver)
        assert seen(back) == seen(official)
        for app in (graph.compile(checkpointer=each) for each in (back, saver) for graph in [GRAPHS["waiting"]]):
            assert app.invoke(Command(resume="yes"), config("waiting"))["log"][-1] == "last"


def test_pages_of_the_official_postgres_saver_lose_nothing_when_threads_share_ids(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides, "PAGE", 2)
    made = [checkpoint({"a": number}, {"a": f"{number}.0"}) for number in range(5)]
    with PostgresSaver.from_conn_string(database) as source, StatekitSaver(MemoryBackend()) as target:
        source.setup()
        for thread in ("one", "two", "three"):
            for each in made:
                source.put(config(thread), each, metadata(), each["channel_versions"])
        source.put(config("four"), made[2], metadata(), made[2]["channel_versions"])
        assert copy_threads(source, target) == Copied(4, 16, 0)
        for thread in ("one", "two", "three", "four"):
            assert list(target.list(config(thread))) == list(source.list(config(thread)))


def test_threads_go_to_an_official_saver_and_stay_the_same(official: Any) -> None:
    with StatekitSaver(MemoryBackend()) as saver:
        fill(saver)
        copy_threads(saver, official)
        assert seen(official) == seen(saver)
        assert content(official) == content(saver)


def test_a_copy_between_our_stores_lists_the_same_in_the_same_order(store: Store) -> None:
    with StatekitSaver(MemoryBackend()) as source, store.open() as first, StatekitSaver(MemoryBackend()) as second:
        fill(source)
        copy_threads(source, first)
        copy_threads(first, second)
        for name in GRAPHS:
            at: Any = {"configurable": {"thread_id": name}}
            assert list(first.list(at)) == list(source.list(at)) == list(second.list(at))
            for item in source.list(at):
                tasks = [task for task, _, _ in item.pending_writes or []]
                paths = [
                    run_sync(task_paths(Side(each, False), item.config, tasks)) for each in (source, first, second)
                ]
                assert paths[0] == paths[1] == paths[2]
                assert all("__pregel_" in path for task, path in paths[0].items() if task != NULL_TASK)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_async_savers_are_called_by_their_async_methods(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with AsyncExitStack() as stack:
        if kind == "sqlite":
            source: Any = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")))
        else:
            url = request.getfixturevalue("database")
            source = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
            await source.setup()
        original = InMemorySaver()
        fill(original)
        result = await acopy_threads(original, source)
        async with StatekitSaver(MemoryBackend()) as saver:
            assert await acopy_threads(source, saver) == result
            assert seen(saver) == seen(original)
            assert await acopy_threads(source, saver) == Copied(result.threads, 0, result.checkpoints)


KILLED = """
import json, os, signal, sys
from langgraph_statekit import copy_threads, open_saver
left = int(sys.argv[4])
src = open_saver(sys.argv[1])
dst = open_saver(sys.argv[2], **json.loads(sys.argv[3]))
put = dst.put
def counted(*args):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return put(*args)
dst.put = counted
copy_threads(src, dst)
"""


def test_a_killed_copy_goes_on_and_writes_nothing_twice(durable_store: Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'source.db'}"
    with open_saver(url) as source:
        fill(source)
        total = len([item for name in GRAPHS for item in source.list({"configurable": {"thread_id": name}})])
        command = [sys.executable, "-c", KILLED, url, durable_store.url, json.dumps(durable_store.options), "30"]
        assert run(command, timeout=120).returncode == -9
        with durable_store.open() as target:
            result = copy_threads(source, target)
            assert (result.checkpoints, result.skipped) == (total - 29, 29)
            assert content(target) == content(source)


def test_namespaces_that_the_source_lists_one_by_one_are_merged_by_age() -> None:
    source = InMemorySaver()
    for ns, id in (("", "1"), ("", "4"), ("sub", "2"), ("sub", "3")):
        source.put(config(ns=ns), checkpoint(id=id), metadata(), {})
    with StatekitSaver(MemoryBackend()) as target:
        copy_threads(source, target)
        assert [id_of(item.config) for item in target.list({"configurable": {"thread_id": "t"}})] == [
            "4",
            "3",
            "2",
            "1",
        ]


def test_each_version_of_a_channel_is_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source, stored = InMemorySaver(), []
    fill(source)
    with StatekitSaver(MemoryBackend()) as target:
        put = target.put

        def noted(at: Any, made: Any, meta: Any, new_versions: Any) -> Any:
            address = at["configurable"]
            stored.extend((address["thread_id"], address["checkpoint_ns"], *item) for item in new_versions.items())
            return put(at, made, meta, new_versions)

        monkeypatch.setattr(target, "put", noted)
        copy_threads(source, target)
    assert stored and len(stored) == len(set(stored))


def test_a_later_copy_brings_what_the_source_got_since(store: Store) -> None:
    source = InMemorySaver()
    app = GRAPHS["waiting"].compile(checkpointer=source)
    app.invoke({"log": [LONG]}, config("waiting"))
    with store.open() as target:
        first = copy_threads(source, target)
        app.invoke(Command(resume="yes"), config("waiting"))
        second = copy_threads(source, target)
        assert second.checkpoints > 0 and second.skipped == first.checkpoints - 1  # the last one got writes
        assert content(target) == content(source)


def test_a_target_that_differs_is_refused_unchanged_and_replaced_on_request(store: Store) -> None:
    source = InMemorySaver()
    fill(source)
    with store.open() as target:
        copy_threads(source, target, ["fork"])
        GRAPHS["fork"].compile(checkpointer=target).invoke({"log": ["more"]}, config("fork"))
        before = content(target)
        with pytest.raises(Misuse, match="thread 'fork' of the target differs"):
            copy_threads(source, target, ["fork"])
        assert content(target) == before
        assert copy_threads(source, target, ["fork"], replace=True).skipped == 0
        assert content(target) == [items for items in content(source) if items[0][0]["thread_id"] == "fork"]


async def test_labels_go_along_and_those_of_the_target_stay(store: Store) -> None:
    with StatekitSaver(MemoryBackend()) as source, store.open() as target:
        chain().compile(checkpointer=source).invoke({"log": []}, config())
        newest, older, *_ = [item.config for item in source.list(config())]
        source.label(newest, "end")
        source.label(older, "before \\ \0")
        copy_threads(source, target)
        assert target.labels("t") == source.labels("t")
        target.label(older, "only here")
        source.label(older, "later")
        assert (await acopy_threads(source, target)).checkpoints == 0
        assert target.labels("t") == {**source.labels("t"), "only here": older}
        source.label(older, "end")
        with pytest.raises(Misuse, match="label 'end' names checkpoint"):
            copy_threads(source, target)
        copy_threads(source, target, replace=True)
        assert target.labels("t") == source.labels("t")
        copy_threads(target, back := InMemorySaver())
        assert copy_threads(back, target).skipped == len(list(back.list(config())))
        assert target.labels("t") == source.labels("t")


def test_a_value_metadata_or_write_that_differs_is_named(store: Store) -> None:
    first = checkpoint({"a": 1})
    for change, field in (
        ({"meta": metadata(1)}, "metadata"),
        ({"values": {"a": 2}}, "channel_values"),
        ({"write": "other"}, "pending_writes"),
        ({"parent": "elsewhere"}, "parent"),
    ):
        thread = field
        source = InMemorySaver()
        with store.open() as target:
            for saver, part in ((source, {}), (target, change)):
                made = {**first, "channel_values": part.get("values", {"a": 1})}
                saver.put(config(thread, id=part.get("parent")), made, part.get("meta", metadata()), {"a": 1})
                saver.put_writes(config(thread, id=first["id"]), [("a", part.get("write", "w"))], "task")
            with pytest.raises(Misuse, match=rf"{first['id']}.*{thread}.*: {field}"):
                copy_threads(source, target)


def test_metadata_that_the_target_drops_is_an_error_unless_it_is_left_out() -> None:
    source = InMemorySaver()
    made = checkpoint({"a": 1})
    source.put(config(), made, metadata(token="t"), made["channel_versions"])
    with StatekitSaver(MemoryBackend()) as target, StatekitSaver(MemoryBackend(), secret_keys=()) as all_kept:
        with pytest.raises(DataError, match=rf"{made['id']}.*metadata key 'token' is lost"):
            copy_threads(source, target)
        copy_threads(source, target, without_metadata=["token"])
        copy_threads(source, all_kept)
        assert next(all_kept.list(config())).metadata == metadata(token="t")


def test_a_source_that_grows_meanwhile_is_noticed() -> None:
    source = InMemorySaver()
    fill(source)

    def grow(thread: str, done: int, total: int) -> None:
        if done == total:
            GRAPHS["fork"].compile(checkpointer=source).invoke({"log": ["more"]}, config("fork"))

    with StatekitSaver(MemoryBackend()) as target:
        with pytest.raises(Conflict, match="'fork' changed in the source"):
            copy_threads(source, target, ["fork"], progress=grow)
        copy_threads(source, target, ["fork"])


def test_a_namespace_that_the_source_gets_meanwhile_is_noticed() -> None:
    with StatekitSaver(MemoryBackend()) as source, StatekitSaver(MemoryBackend()) as target:
        source.put(config(), checkpoint(), metadata(), {})

        def grow(thread: str, done: int, total: int) -> None:
            if done == total == 1:
                source.put(config(ns="sub"), checkpoint(), metadata(), {})

        with pytest.raises(Conflict, match="'t' changed in the source"):
            copy_threads(source, target, progress=grow)
        assert copy_threads(source, target) == Copied(1, 1, 1)


def test_a_pruned_delta_thread_is_refused_before_anything_is_written() -> None:
    with StatekitSaver(MemoryBackend()) as source, StatekitSaver(MemoryBackend()) as target:
        fill(source)
        source.prune(["deltas"])
        with pytest.raises(DataError, match=r"'deltas'.*builds on checkpoints"):
            copy_threads(source, target, ["deltas"])
        assert list(target.list(None)) == []


def test_progress_is_told_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    source = InMemorySaver()
    fill(source)
    told: list[tuple[str, int, int]] = []
    with StatekitSaver(MemoryBackend()) as target, closing(StatekitSaver(MemoryBackend())) as other:
        result = copy_threads(source, target, progress=lambda *step: told.append(step))
        assert {thread for thread, _, _ in told} == set(GRAPHS)
        assert sum(1 for _, done, _ in told if done) == result.checkpoints
        copy_threads(source, other, progress=True)
    assert f"{result.checkpoints}/{result.checkpoints}" in capsys.readouterr().err


def test_a_saver_is_not_copied_to_itself_and_ids_are_not_one_string() -> None:
    saver = InMemorySaver()
    with pytest.raises(Misuse, match="same saver"):
        copy_threads(saver, saver)
    with pytest.raises(Misuse, match="not one string"):
        copy_threads(saver, InMemorySaver(), "thread")


async def test_a_store_is_not_replaced_by_itself(store: Store) -> None:
    async with store.open() as source, store.open() as target:
        source.put(config(), checkpoint({"v": 1}), {**metadata(), "user": "u"}, {"v": 1})  # type: ignore[typeddict-unknown-key]
        before = content(source)
        options: dict[str, Any] = {"replace": True, "without_metadata": ["user"]}
        with pytest.raises(Misuse, match="same store"):
            copy_threads(source, target, **options)
        with pytest.raises(Misuse, match="same store"):
            await acopy_threads(source, target, **options)
        assert content(source) == before


def test_a_url_in_place_of_a_saver_is_refused() -> None:
    for pair in (("memory://", InMemorySaver()), (InMemorySaver(), "memory://")):
        with pytest.raises(Misuse, match="not str; for a URL use open_saver"):
            copy_threads(*pair)  # type: ignore[arg-type]
