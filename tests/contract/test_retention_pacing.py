"""The reply of a put says when retention is due: of any number of processes one then makes the pass."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from itertools import pairwise

import pytest

from langgraph_statekit import Retention
from langgraph_statekit.checkpoint.records import Change, Ref, SaveRow, SaveWrites, Write
from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import LONG, checkpoint, config, metadata
from tests.stores.verbs import row
from tests.stores_under_test import Store

KEEP = 5
PERIOD = 16


@pytest.mark.without("encryption", "retention")
def test_a_saved_row_raises_the_rev_by_one_and_the_reply_says_so(store: Store) -> None:
    with store.open() as saver:
        saver.setup()
        backend = saver.backend
        backend.save([SaveRow(row("t", "0"), ())])
        writes = SaveWrites(Ref("t", "", "0"), [Write("task", 0, "x", "", b"1")])
        rows = [SaveRow(row(thread, id), ()) for thread, id in ("t1", "u1", "t0", "t2")]
        first, _, other, again, last = backend.save([rows[0], writes, *rows[1:]])
        assert (again, last) == (first + 1, first + 2)
        assert backend.outline("t").rev == last
        assert backend.outline("u").rev == other
        assert backend.apply("t", last, Change(drop=[Ref("t", "", "1")]))
        backend.save([writes])
        assert backend.save([SaveRow(row("t", "3"), ())]) == [last + 2]


@pytest.mark.parametrize("processes", [1, 3, 8, None])
def test_a_thread_that_many_processes_save_to_is_bounded_and_each_period_has_one_pass(
    store: Store, store_name: str, processes: int | None
) -> None:
    """Each saver knows as little of the others as a process does. None: each put is of a process of its own."""
    if store_name.startswith("evicting") and processes != 1:
        pytest.skip("a thread that comes back from the cold store is counted by each process for itself")
    at, lengths, revs = config(), list[int](), list[int]()
    with ExitStack() as stack, store.open(retention=None) as looker:
        savers = [stack.enter_context(_opened(store)) for _ in range(processes or 0)]
        for number in range(5 * PERIOD):
            with nullcontext(savers[number % processes]) if processes else _opened(store) as saver:
                at = saver.put(at, checkpoint({"x": LONG}, {"x": 1}), metadata(), {})
            lengths.append(len([*looker.list(config())]))
            revs.append(looker.backend.outline("t").rev)
    passed = [after for before, after in pairwise(lengths) if after <= before]
    assert max(lengths) <= KEEP + PERIOD
    assert set(passed) == {KEEP}
    if not store_name.startswith("evicting"):
        assert -2 <= len(passed) - (revs[-1] - revs[0]) / PERIOD <= 1, "the first ones may find the thread too short"


def _opened(store: Store) -> StatekitSaver:
    return store.open(retention=Retention(keep_last=KEEP))
