"""The cache of values used lately."""

from __future__ import annotations

import os
import signal

import pytest

from langgraph_statekit.checkpoint.cache import Cache


def test_the_value_used_longest_ago_goes_first() -> None:
    cache = Cache[str, str](3_000)
    for key in "abc":
        cache.put(key, key, 800)
    assert cache.get("a") == "a"
    cache.put("d", "d", 800)
    assert [cache.get(key) for key in "abcd"] == ["a", None, "c", "d"]


def test_a_value_that_is_too_large_drives_out_no_other_and_replaces_its_own() -> None:
    cache = Cache[str, str](10_000, largest_bytes=1_000)
    cache.put("a", "old", 500)
    cache.put("b", "b", 500)
    cache.put("a", "new", 1_000)
    assert (cache.get("a"), cache.get("b")) == (None, "b")


def test_what_is_forgotten_makes_room() -> None:
    cache = Cache[str, str](2_000)
    for key in ("x/1", "y/1"):
        cache.put(key, key, 800)
    cache.forget(lambda key: key.startswith("x/"))
    cache.put("z/1", "z/1", 800)
    assert [cache.get(key) for key in ("x/1", "y/1", "z/1")] == [None, "y/1", "z/1"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_child_of_a_fork_gets_past_a_lock_that_its_parent_held() -> None:
    cache = Cache[str, str](2_000)
    cache.put("a", "a", 1)
    with cache._lock:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os._exit(0 if cache.get("a") is None else 1)
    assert os.waitpid(child, 0)[1] == 0
