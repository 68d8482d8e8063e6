"""Versions differ between processes that seed Python's generator alike, and leave that generator alone."""

from __future__ import annotations

import multiprocessing
import random
from typing import Any

from langgraph_statekit import open_saver


def versions(seed: int, count: int = 3) -> list[str]:
    random.seed(seed)
    saver = open_saver("memory://")
    return [str(saver.get_next_version(None, None)) for _ in range(count)]


def _send(pipe: Any) -> None:
    pipe.send(versions(1))


def test_runs_with_one_seed_make_different_versions_also_in_a_forked_process() -> None:
    ours, theirs = multiprocessing.Pipe()
    found = versions(1) + versions(1)
    child = multiprocessing.get_context("fork").Process(target=_send, args=(theirs,))
    child.start()
    found += ours.recv() + versions(1)
    child.join()
    ours.close()
    theirs.close()
    assert len(set(found)) == len(found) == 12


def test_a_seeded_program_gets_the_numbers_that_it_would_get_without_a_saver() -> None:
    random.seed(7)
    expected = random.random()
    versions(7)
    assert random.random() == expected
