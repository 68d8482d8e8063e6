"""Threads as they were at a time or at a checkpoint, made from the cold store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from langgraph_statekit import Encryption, ObjectStoreSaver, SqliteSaver, TieredSaver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.order import clock_us
from langgraph_statekit.errors import CheckpointMissing, Misuse
from tests.faces import checkpoint, config, id_of, metadata
from tests.stores.test_tiered import THREAD, Place, grow, here, local, seen
from tests.stores_under_test import Store

__all__ = ["here", "local"]


def time_of(id: str) -> datetime:
    """Return the time at which a checkpoint was made."""
    return datetime.fromtimestamp(clock_us(id) / 1e6, UTC) + timedelta(microseconds=1)


def test_a_thread_is_as_it_was_at_a_time_or_a_checkpoint(here: Place) -> None:
    keys = Encryption({"k": b"k" * 32}, "k")
    with here.open(retry_s=10.0, encryption=keys) as saver:
        ids = list(grow(saver, 9))
        for id in (ids[2], ids[7]):
            saver.label(config(id=id), f"step {ids.index(id)}")
    here.lose_hot()
    with here.open(retry_s=10.0, encryption=keys) as saver:
        whole = seen(saver)
        for at in (ids[4], time_of(ids[4])):
            suffix = f" {type(at).__name__}"
            for _ in range(2):  # a repeat finds what it made
                assert saver.restore([THREAD], at=at, suffix=suffix) == [f"{THREAD}{suffix}"]
            then = seen(saver, f"{THREAD}{suffix}")
            assert list(then) == ids[4::-1]
            for id, (values, parent, writes) in then.items():
                assert values == whole[id][0]
                assert (parent and id_of(parent)) == (whole[id][1] and id_of(whole[id][1]))
                assert writes == (whole[id][2] if id != ids[4] else [])  # no task of the last one is done
            assert list(saver.labels(f"{THREAD}{suffix}")) == ["step 2"]
            assert len(list(grow(saver, 2, f"{THREAD}{suffix}"))) == 2  # and it goes on
        assert seen(saver) == whole


def test_a_prefix_of_ids_is_restored_into_an_empty_store_under_the_same_ids(local: Place, tmp_path: Path) -> None:
    with local.open() as saver:
        first = [list(grow(saver, 2, f"shop {number}"))[-1] for number in range(2)]
        assert len(list(grow(saver, 2, "mail"))) == 2
        at = time_of(first[-1])
        assert len(list(grow(saver, 2, "shop 0"))) == 2
        assert len(list(grow(saver, 1, "shop that opened later"))) == 1
    local.lose_hot()
    elsewhere = ObjectStoreSaver(FileDriver(tmp_path / "elsewhere"))
    with local.open() as saver, TieredSaver(SqliteSaver(tmp_path / "empty.db"), elsewhere) as empty:
        assert sorted(saver.restore(prefix="shop", at=at, into=empty)) == ["shop 0", "shop 1"]
        assert sorted(thread for page in empty.backend.threads() for thread in page) == ["shop 0", "shop 1"]
        assert list(seen(empty, "shop 0")) == list(seen(saver, "shop 0"))[2:]
        assert len(list(grow(empty, 3, "shop 0"))) == 3
        assert len(seen(saver, "shop 0")) == 4


def test_keys_go_along_to_a_store_with_others(local: Place, tmp_path: Path) -> None:
    elsewhere = ObjectStoreSaver(FileDriver(tmp_path / "elsewhere"))
    with local.open(encryption=Encryption({"k": b"k" * 32}, "k")) as saver:
        ids = list(grow(saver, 3))
        other = Encryption({"other": b"o" * 32}, "other")
        with TieredSaver(SqliteSaver(tmp_path / "empty.db"), elsewhere, encryption=other) as empty:
            assert saver.restore([THREAD], at=ids[1], into=empty) == [THREAD]
            assert list(seen(empty)) == ids[1::-1]
        with (
            TieredSaver(SqliteSaver(tmp_path / "plain.db"), elsewhere) as plain,
            pytest.raises(Misuse, match="encryption"),
        ):
            saver.restore([THREAD], at=ids[1], into=plain)


class State(TypedDict):
    said: str


def test_a_run_that_waited_for_an_answer_then_waits_for_it_again(local: Place) -> None:
    def ask(state: State) -> dict[str, Any]:
        return {"said": f"{state['said']} {interrupt('how many?')}"}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask").add_edge("ask", END)
    with local.open() as saver:
        graph = builder.compile(checkpointer=saver)
        at = config(THREAD)
        graph.invoke({"said": "I want"}, at)
        asked_at = time_of(id_of(graph.get_state(at).config))
        assert graph.invoke(Command(resume="two"), at)["said"] == "I want two"
        saver.restore([THREAD], at=asked_at, suffix=" again")
        then = graph.get_state(config(f"{THREAD} again"))
        assert [each.value for each in then.interrupts] == ["how many?"]
        assert graph.invoke(Command(resume="three"), config(f"{THREAD} again"))["said"] == "I want three"
        assert graph.get_state(at).values["said"] == "I want two"


def test_what_was_pruned_is_in_no_restored_thread(local: Place) -> None:
    with local.open() as saver:
        ids = list(grow(saver, 4))
        saver.label(config(id=ids[0]), "kept")
        saver.prune([THREAD])
        saver.restore([THREAD], at=time_of(ids[2]), suffix="@2")
        assert list(seen(saver, f"{THREAD}@2")) == [ids[0]]
        with pytest.raises(CheckpointMissing):
            saver.restore([THREAD], at=ids[2], suffix="@id")


def test_a_restore_that_is_none_is_refused(local: Place) -> None:
    with local.open() as saver:
        ids = list(grow(saver, 2))
        assert len(list(grow(saver, 1, "another"))) == 1
        early = time_of(ids[0]) - timedelta(days=1)
        with pytest.raises(CheckpointMissing):
            saver.restore([THREAD], at=early, suffix="@")
        assert saver.restore(prefix="", at=early, suffix="@") == []
        at = time_of(ids[1])
        refused: list[Callable[[], object]] = [
            lambda: saver.restore([THREAD], at=at),
            lambda: saver.restore(THREAD, at=at, suffix="@"),
            lambda: saver.restore([THREAD], prefix="t", at=at, suffix="@"),
            lambda: saver.restore(at=at, suffix="@"),
            lambda: saver.restore([THREAD], at=at.replace(tzinfo=None), suffix="@"),
            lambda: saver.restore([THREAD, "another"], at=ids[0], suffix="@"),
            lambda: saver.restore(prefix="", at=ids[0], suffix="@"),
        ]
        for wrong in refused:
            with pytest.raises(Misuse):
                wrong()
        saver.restore([THREAD], at=at, suffix="@")
        with pytest.raises(Misuse, match="another thread"):
            saver.restore([THREAD], at=ids[0], suffix="@")
        saver.put(config("untimed"), checkpoint({"x": 1}, id="7"), metadata(), {"x": 1})
        with pytest.raises(Misuse, match="hold no time"):
            saver.restore(["untimed"], at=at, suffix="@")


@pytest.mark.without("ttl_s")  # with which a thread stays in the hot store
@pytest.mark.parametrize("hot", ["redis", "postgres"])
def test_other_hot_stores_restore_replicate_and_go_on_from_a_replica(
    new_store: Callable[[str], Store], tmp_path: Path, hot: str
) -> None:
    store = new_store(f"tiered-{hot}")
    second = f"file://{tmp_path}/second"
    options: dict[str, Any] = {
        "max_lag_s": 3600.0,
        "offload_bytes": 64,
        "encryption": Encryption({"k": b"k" * 32}, "k"),
    }
    with store.open(**options, replicas=[second]) as saver:
        assert isinstance(saver, TieredSaver)
        ids = list(grow(saver, 4))
        saver.restore([THREAD], at=ids[2], suffix="@")
        assert list(seen(saver, f"{THREAD}@")) == ids[2::-1]
        assert saver.archive(THREAD)
        saver.restore([THREAD], at=time_of(ids[1]), suffix="@1")
        assert list(seen(saver, f"{THREAD}@1")) == ids[1::-1]
    with store.open(**options) as saver:
        assert len(list(grow(saver, 2))) == 2  # of which the replica knows nothing
        before = seen(saver)
    with store.open(**{**options, "cold": second}) as saver:
        assert isinstance(saver, TieredSaver)
        assert saver.archive(THREAD)
        assert seen(saver) == before
