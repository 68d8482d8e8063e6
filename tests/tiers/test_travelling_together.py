"""Two processes archive, thaw, read and grow the same threads at once, and are killed.

One at a random moment, one between a put and its acknowledgement: what such a put left is there for good or never.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.tiers.kit import CRASHES, Tiers, Workers, history, put

THREADS = 200 if CRASHES >= 100 else 12


@pytest.mark.slow
def test_histories_equal_what_was_put(tiers: Tiers, processes: Workers, tmp_path: Path) -> None:
    threads = [f"thread {number}" for number in range(THREADS)]
    reference: dict[str, list[str]] = {thread: [] for thread in threads}
    with tiers.open() as saver:
        for thread in threads:
            reference[thread] = put(saver, random.randint(1, 4), thread)
    options = tiers.options(max_lag_s=0.05)
    unsure: set[str] = set()
    written: set[str] = set()
    for crash in range(max(CRASHES // 4, 2)):
        untold = random.sample((0, random.randint(1, 8)), 2)
        pair = [
            processes.start(
                *("travel", tiers, options, tmp_path / f"{crash} {who}"),
                threads=threads,
                mine=threads[who::2],
                untold=untold[who],
            )
            for who in (0, 1)
        ]
        pair[untold.index(0)].kill(random.randint(10, 80))
        assert [worker.wait() for worker in pair] == [-9, -9], processes.errors
        for worker in pair:
            for what, *rest in (line.split("\t") for line in worker.lines):
                if what == "begin":
                    unsure.add(rest[0])
                elif what == "put":
                    reference[rest[1]].append(rest[0])
                    unsure.discard(rest[0])
                elif what == "written":
                    written.add(rest[0])
        with tiers.open() as survivor:
            for thread in threads if crash % 5 == 0 else random.sample(threads, 12):
                left = history(survivor, thread)
                assert [id for id in left if id not in unsure] == reference[thread]
                assert [values["last"] for values, _, _ in left.values()] == [*range(len(left))]
                assert all(left[id][2] for id in written & left.keys())
                reference[thread] = [*left]
                unsure -= left.keys()  # what was there once must stay
    pair = [
        processes.start(
            *("travel", tiers, options, tmp_path / f"last {who}"), threads=threads, mine=threads[who::2], rounds=20
        )
        for who in (0, 1)
    ]
    assert [worker.wait() for worker in pair] == [0, 0], processes.errors
    with tiers.open() as survivor:
        before = {thread: history(survivor, thread) for thread in threads}
        for thread in threads:
            survivor.archive(thread)
    tiers.lose_hot()
    with tiers.open() as survivor:
        assert {thread: history(survivor, thread) for thread in threads} == before
