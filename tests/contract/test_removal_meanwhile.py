"""A reader that another process removes checkpoints under sees whole checkpoints or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import checkpoint, config, metadata
from tests.graphs.builders import SnapshotLog, chain
from tests.stores_under_test import Store


def once_after(saver: StatekitSaver, verb: str, act: Callable[[], None]) -> None:
    """Have `act` done after the next call of a verb of the store."""
    call = getattr(saver.backend, verb)

    def then_act(*args: Any) -> Any:
        delattr(saver.backend, verb)
        found = call(*args)
        act()
        return found

    setattr(saver.backend, verb, then_act)


def put_chain(saver: StatekitSaver, count: int) -> None:
    at = config("t")
    for step in range(count):
        values = {"a": f"value {step}", "b": "x" * 3000}
        versions = dict.fromkeys(values, f"{step + 1:032}.0")
        at = saver.put(at, checkpoint(values, versions), metadata(step), versions)
        saver.put_writes(at, [("a", step)], "task")


@pytest.mark.parametrize("how", ["keep_latest", "delete"])
def test_a_list_shows_no_checkpoint_without_its_values(store: Store, how: str) -> None:
    with store.open() as saver, store.open() as other:
        put_chain(saver, 5)
        saver.setup()
        once_after(saver, "rows", lambda: other.prune(["t"], strategy=how))
        found = list(saver.list(config("t")))
        for item in found:
            assert item.checkpoint["channel_values"].keys() == {"a", "b"}


def test_a_delta_channel_is_read_whole_or_not_at_all(store: Store) -> None:
    with store.open() as saver, store.open() as other:
        app = chain(SnapshotLog).compile(checkpointer=saver)
        for turn in range(4):
            app.invoke({"log": [turn]}, config("t"))
        expected = app.get_state(config("t")).values
        once_after(saver, "outline", lambda: other.prune(["t"]))
        assert app.get_state(config("t")).values == expected
        assert app.get_state(config("t")).values == expected
