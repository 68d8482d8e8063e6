"""A process that is killed with SIGKILL at any call to a store, before or after the store acts, loses nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from langgraph_statekit import TieredSaver
from tests.faces import config
from tests.tiers.kit import Tiers, Workers, grow, history, sample


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["write_through", "write_behind"])
def test_nothing_acknowledged_is_lost_nothing_deleted_returns_and_all_stays_readable(
    tiers: Tiers, processes: Workers, tmp_path: Path, mode: str
) -> None:
    """Puts, uploads, compactions, evictions, thaws, copies, removals and deletions, each step of each of them."""
    options = tiers.options(mode=mode)
    whole = processes.start("life", tiers, options, tmp_path / "whole", thread="whole")
    assert whole.wait() == 0, processes.errors
    steps = int(whole.lines[-1].split("\t")[1])
    with tiers.open(mode=mode) as survivor, tiers.open_below(read_cold=True) as below:
        for dies_at in sample(steps):
            thread, acts = f"thread {dies_at}", random.random() < 0.5
            given = {"thread": thread, "dies_at": dies_at, "acts": acts}
            worker = processes.start("life", tiers, options, tmp_path / thread, **given)
            assert worker.wait() in (-9, 0), processes.errors
            lines = [line.split("\t") for line in worker.lines]
            if mode == "write_through":
                _check(below, thread, lines, there=False)
            _check(survivor, thread, lines, there=True)
            _goes_on(survivor, thread)


def _check(saver: TieredSaver, thread: str, lines: list[list[str]], *, there: bool) -> None:
    """Check what is left of a thread.

    Args:
        saver: Looks.
        thread: The thread.
        lines: What the process told.
        there: Whether the hot store is there: without it what was not acknowledged may be there or not.
    """
    said = [line[0] for line in lines]
    left = history(saver, thread)
    since = said.index("deleted") if "deleted" in said else 0
    before = {line[1] for line in lines[:since] if line[0] == "begin"}
    assert not before & left.keys()  # nothing deleted returns
    put = [line[1] for line in lines[since:] if line[0] == "put"]
    written = {line[1] for line in lines[since:] if line[0] == "written"}
    if "delete" in said and "deleted" not in said:
        assert not left or put[-1] in left
    elif "prune" in said and not since:
        kept = put[put.index(_last_before(lines, "prune")) :]
        assert left.keys() >= set(kept)
    else:
        assert [id for id in left if id in put] == put
        assert len(left) - len(put) in (0, 1)  # the one that it was killed in
    for id, (_, parent, writes) in left.items():
        assert parent is None or parent in left or "prune" in said
        assert writes or id not in written
    if "copied" in said:
        copied = history(saver, f"{thread} copy")
        assert [values["last"] for values, _, _ in copied.values()] == [*range(7)]
    if since and there and "begin" not in said[since:]:
        assert saver.deleted(thread)


def _last_before(lines: list[list[str]], what: str) -> str:
    at = next(index for index, line in enumerate(lines) if line[0] == what)
    return [line[1] for line in lines[:at] if line[0] == "put"][-1]


def _goes_on(saver: TieredSaver, thread: str) -> None:
    """Check that a thread grows, moves and goes as if nothing had happened."""
    before = history(saver, thread)
    assert len([*grow(saver, 2, thread)]) == 6
    after = history(saver, thread)
    assert {id: after[id] for id in before} == before
    assert saver.archive(thread)
    assert history(saver, thread) == after
    assert len([*grow(saver, 1, thread)]) == 3
    saver.delete_thread(thread)
    assert saver.get_tuple(config(thread)) is None
    assert saver.deleted(thread)
