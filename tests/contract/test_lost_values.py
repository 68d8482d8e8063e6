"""A value that was stored and is gone is reported: a graph never goes on without it as if it had never been."""

from __future__ import annotations

from typing import Any

import pytest

from langgraph_statekit.errors import Corrupt
from tests.faces import LONG, checkpoint, config, metadata
from tests.stores_under_test import Store

VERSIONS: dict[str, str | int | float] = {"log": "1.x", "count": "1.x", "gone": "1.x"}


def filled(saver: Any) -> Any:
    """Store a checkpoint with two values and a channel that has none, and one that changes one of the values."""
    at = saver.put(config(), checkpoint({"log": [LONG], "count": 1}, VERSIONS), metadata(0), VERSIONS)
    later = VERSIONS | {"count": "2.x"}
    return saver.put(at, checkpoint({"log": [LONG], "count": 2}, later), metadata(1), {"count": "2.x"})


@pytest.mark.parametrize("channel", ["log", "count"])
def test_a_value_that_is_gone_is_reported_by_its_channel(
    store: Store, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open() as saver:
        filled(saver)
        found = saver.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"log": [LONG], "count": 2}
        unpacked = type(saver._codec).unpack_value

        def lossy(self: Any, values: Any, name: str, *rest: Any) -> None:
            if name != channel:
                unpacked(self, values, name, *rest)

        monkeypatch.setattr(type(saver._codec), "unpack_value", lossy)
        for read in (lambda: saver.get_tuple(config()), lambda: list(saver.list(config()))):
            with pytest.raises(Corrupt, match=f"channel '{channel}'"):
                read()


def test_a_checkpoint_reads_as_it_was_put(store: Store) -> None:
    with store.open() as saver:
        filled(saver)
        found = saver.get_tuple(config())
        assert found is not None
        put = checkpoint({}, {}).keys()
        assert found.checkpoint.keys() == put


def test_a_copy_of_a_first_checkpoint_has_its_values_whatever_became_of_the_thread(store: Store) -> None:
    with store.open() as saver:
        saver.put(config(), checkpoint({"log": [LONG], "count": 1}, VERSIONS), metadata(0), VERSIONS)
        first = saver.get_tuple(config())
        assert first is not None
        saver.delete_thread("t")
        copy = {**first.checkpoint, "id": checkpoint()["id"]}
        at = saver.put(config(), copy, metadata(1), {})
        found = saver.get_tuple(at)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"log": [LONG], "count": 1}


def test_a_list_passes_over_what_retention_hides_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = {"counters_since_delta_snapshot": {"log": (1, 1)}}
    with store.open() as saver:
        first = saver.put(config(), checkpoint({"log": [LONG], "count": 1}, VERSIONS), metadata(0), VERSIONS)
        saver.put_writes(first, [("log", 1)], "task")
        later = dict.fromkeys(VERSIONS, "2.x")
        saver.put(first, checkpoint({"count": 2}, later), metadata(1, **counters), later)
        backend = saver.backend
        fill = backend.fill

        def late(*args: Any) -> Any:
            monkeypatch.undo()
            saver.prune(["t"], strategy="keep_latest")
            return fill(*args)

        monkeypatch.setattr(backend, "fill", late)
        assert [item.checkpoint["channel_values"] for item in saver.list(config())] == [{"count": 2}]
