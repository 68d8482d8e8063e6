"""What copy takes from one store to another: everything, without importing the user's classes."""

from __future__ import annotations

import dataclasses
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_statekit import StatekitSerializer
from tests.cli.kit import Run, address, asking, named
from tests.faces import checkpoint, config, metadata
from tests.servers import Servers, free_ports
from tests.stores_under_test import DEFAULTS, Store, unique

pytestmark = pytest.mark.without("retention")


@dataclasses.dataclass(frozen=True)
class Order:
    id: int
    note: Any = None


@pytest.fixture
def shop() -> Iterator[ModuleType]:
    """Return a module with a class, which is gone during a copy."""
    module = ModuleType("shop_of_copy")
    Order.__module__ = module.__name__
    module.Order = Order  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield module
    sys.modules.pop(module.__name__, None)


VALUES = {
    "order": Order(1, Order(2)),
    "set": {Order(3)},
    "messages": [HumanMessage("hi", additional_kwargs={"order": {"id": 4}}), AIMessage("yes", id="1")],
    "count": 1,
    "secret": None,
}


def put_all(saver: Any) -> None:
    at = saver.put(config("shop"), checkpoint(VALUES), metadata(), dict.fromkeys(VALUES, 1))
    saver.put_writes(at, [("order", Order(5)), ("log", [1])], "task", "path")
    asking(saver).invoke({"log": ["x"]}, named("asks"), durability="sync")


def require_all(saver: Any) -> None:
    found = saver.get_tuple(config("shop"))
    assert found.checkpoint["channel_values"] == VALUES
    assert found.pending_writes == [("task", "order", Order(5)), ("task", "log", [1])]
    state = asking(saver).get_state(named("asks"))
    assert [each.value["question"] for each in state.interrupts] == ["approve?"]


@pytest.mark.parametrize("target", ["redis", "postgres", "sqlite", "file"])
def test_threads_of_the_official_postgres_package_arrive_whole(
    servers: Servers, new_store: Callable[[str], Store], shop: ModuleType, target: str, run: Run
) -> None:
    name = unique()
    root = servers.url("postgres")
    with psycopg.connect(root, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}")
    source = f"{root.rpartition('/')[0]}/{name}"
    try:
        with PostgresSaver.from_conn_string(source) as old:
            old.setup()
            put_all(old)
        store = new_store(target)
        command = ("copy", source, address(store), "--from", "langgraph-checkpoint-postgres")
        del sys.modules[shop.__name__]
        told = run(*command, "--json")
        assert (told.code, told.err) == (0, "")
        assert told.json == {"threads": 2, "checkpoints": 3, "skipped": 0}
        assert run(*command, "--json").json == {"threads": 2, "checkpoints": 0, "skipped": 3}
        sys.modules[shop.__name__] = shop
        with store.open() as saver:
            require_all(saver)
    finally:
        with psycopg.connect(root, autocommit=True) as db:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_threads_go_to_the_official_sqlite_package_and_back(
    durable_store: Store, shop: ModuleType, tmp_path: Path, run: Run
) -> None:
    with durable_store.open() as saver:
        put_all(saver)
    package = "langgraph-checkpoint-sqlite"
    official = f"sqlite:///{tmp_path / 'official.db'}"
    del sys.modules[shop.__name__]
    assert run("copy", address(durable_store), official, "--to", package).code == 0
    assert run("copy", official, f"sqlite:///{tmp_path}/back.db", "--from", package, "asks", "shop").code == 0
    sys.modules[shop.__name__] = shop
    with closing(sqlite3.connect(tmp_path / "official.db", check_same_thread=False)) as db:
        require_all(SqliteSaver(db, serde=JsonPlusSerializer()))
    from langgraph_statekit import open_saver

    with open_saver(f"sqlite:///{tmp_path}/back.db", **DEFAULTS) as saver:
        require_all(saver)


def test_objects_inside_messages_are_copied_too(new_store: Callable[[str], Store], shop: ModuleType, run: Run) -> None:
    values = {
        "messages": [HumanMessage("hi", additional_kwargs={"order": Order(4)})],
        "one": AIMessage("x", o=Order(1)),
    }
    source, target = new_store("sqlite"), new_store("redis")
    with source.open() as saver:
        saver.put(config(), checkpoint(values), metadata(), dict.fromkeys(values, 1))
    del sys.modules[shop.__name__]
    assert run("copy", address(source), address(target)).code == 0
    sys.modules[shop.__name__] = shop
    with target.open() as saver:
        found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == values


def test_pickled_values_are_copied_unread(new_store: Callable[[str], Store], run: Run) -> None:
    source, target = new_store("sqlite"), new_store("redis")
    values = {"odd": {1, 3j}}
    with source.open(serde=StatekitSerializer(pickle_fallback=True)) as saver:
        saver.put(config(), checkpoint(values), metadata(), {"odd": 1})
    assert run("copy", address(source), address(target)).code == 0
    with target.open(serde=StatekitSerializer(pickle_fallback=True)) as saver:
        found = saver.get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == values


def test_a_target_that_differs_is_refused_unless_it_may_be_replaced(
    new_store: Callable[[str], Store], run: Run
) -> None:
    source, target = new_store("sqlite"), new_store("sqlite")
    for store, value in ((source, 1), (target, 2)):
        with store.open() as saver:
            saver.put(config(), checkpoint({"x": value}), metadata(), {"x": 1})
    command = ("copy", address(source), address(target))
    told = run(*command)
    assert (told.code, told.out) == (2, "")
    assert "differs" in told.err
    assert run(*command, "--replace").code == 0


def test_a_source_that_no_package_made_is_refused_and_left_as_it_is(servers: Servers, tmp_path: Path, run: Run) -> None:
    (tmp_path / "empty.db").touch()
    (port,) = free_ports(1)
    postgres = servers.url("postgres")
    target = f"sqlite:///{tmp_path}/new.db"
    for source, package, code in (
        (f"sqlite:///{tmp_path}/empty.db", "sqlite", 2),
        (postgres.rpartition("/")[0] + "/template1", "postgres", 2),
        (f"postgresql://u:hunter2@127.0.0.1:{port}/x", "postgres", 3),
        ("postgresql://u:hunter2@h:x/y", "postgres", 2),
        ("postgresql://u:x@hunter2@h/y", "postgres", 2),
        ("postgresql://u:hunter2@h/y?nonsense=hunter2", "postgres", 2),
        (f"redis://u:hunter2@127.0.0.1:{port}", "postgres", 2),
    ):
        told = run("copy", source, target, "--from", f"langgraph-checkpoint-{package}")
        assert (told.code, told.out) == (code, ""), told
        assert "hunter2" not in told.err
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("empty.db", 0)]


def test_a_source_that_is_not_there_is_not_made(tmp_path: Path, run: Run) -> None:
    for package in ((), ("--from", "langgraph-checkpoint-sqlite")):
        told = run("copy", f"sqlite:///{tmp_path}/old.db", f"sqlite:///{tmp_path}/new.db", *package)
        assert told.code == 2
    assert list(tmp_path.iterdir()) == []
