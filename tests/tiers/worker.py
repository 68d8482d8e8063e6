"""Forks processes that work on two tiers and may be killed: `python -m tests.tiers.worker`, a job a line.

It never opens a store itself, so that its children may use libraries that do not survive a fork.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import psycopg_pool

from langgraph_statekit import open_saver
from langgraph_statekit.checkpoint.backends import (
    postgres,
    postgres_tier,
    redis,
    redis_tier,
    sqlite,
    sqlite_tier,
    tiered,
)
from tests.tiers.kit import grow, history

LOADED = (obstore, psycopg_pool, postgres, postgres_tier, redis, redis_tier, sqlite, sqlite_tier, tiered)

Tell = Callable[..., None]


class Fate:
    """Counts steps and ends the process at one of them with SIGKILL, before or after it acts."""

    def __init__(self, dies_at: int, acts: bool) -> None:
        self._dies_at, self._acts, self.steps = dies_at, acts, 0
        self._lock = threading.Lock()

    def step(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            self.steps += 1
            last = self.steps == self._dies_at
        if last and self._acts:
            call()
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return call()


class Mortal:
    """Stands before a store; each call is a step."""

    def __init__(self, inner: Any, fate: Fate) -> None:
        self._inner, self._fate = inner, fate

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name in ("close", "setup", "final_error", "facts", "exists"):
            return found
        return lambda *args, **options: self._fate.step(lambda: found(*args, **options))


def life(saver: Any, tell: Tell, *, thread: str, dies_at: int = 0, acts: bool = False) -> None:
    """Live through all that may become of a thread: each step of it can be the last."""
    saver.setup()
    fate, tiers = Fate(dies_at, acts), saver.tiers
    tiers._tier = tiers.moving._hot = tiers.uploading._hot = Mortal(tiers._tier, fate)
    tiers._hot = tiers.saving._hot = Mortal(tiers._hot, fate)
    tiers._cold.bucket._driver = Mortal(tiers._cold.bucket._driver, fate)

    def more(count: int) -> None:
        for what, id in grow(saver, count, thread):
            tell(what, id)

    more(5)
    saver.flush()
    tell("flushed")
    saver.archive(thread)
    more(2)  # thaws it
    saver.copy_thread(thread, f"{thread} copy")
    tell("copied")
    saver.archive(f"{thread} copy")
    more(1)
    saver.flush()
    tell("prune")
    saver.prune([thread])
    saver.archive(thread)
    tell("pruned")
    more(1)
    tell("delete")
    saver.delete_thread(thread)
    tell("deleted")
    more(1)
    saver.flush()
    tell("steps", str(fate.steps))


def below(saver: Any, tell: Tell, *, thread: str, dies_at: int = 0, acts: bool = False) -> None:
    """Grow a thread while the hot store is away: each request to the cold one can be the last step."""
    fate = Fate(dies_at, acts)
    saver.tiers._cold.bucket._driver = Mortal(saver.tiers._cold.bucket._driver, fate)
    for what, id in grow(saver, 2, thread):
        tell(what, id)
    tell("steps", str(fate.steps))
    os._exit(0)  # closing it would wait for the hot store


def write(saver: Any, tell: Tell, *, threads: list[str]) -> None:
    """Grow threads in any order, until it is killed."""
    while True:
        thread = random.choice(threads)
        for what, id in grow(saver, random.randint(1, 3), thread):
            tell(what, id, thread)


def travel(saver: Any, tell: Tell, *, threads: list[str], mine: list[str], rounds: int = 0, untold: int = 0) -> None:
    """Archive, thaw and read threads that others do the same with, and grow some that only this process grows.

    Args:
        saver: Does it.
        tell: Told of it.
        threads: All.
        mine: Those that grow.
        rounds: How often; 0: until it is killed.
        untold: The number of the put that it dies of once the store has it, before anybody is told; 0: of none.
    """
    puts = 0
    for _ in range(rounds) if rounds else iter(int, 1):
        thread = random.choice(threads)
        match random.randrange(4):
            case 0:
                saver.archive(thread)
            case 1:
                saver.tiers.moving.thaw(thread)
            case 2:
                history(saver, thread)
            case _:
                own = random.choice(mine)
                for what, id in grow(saver, 1, own):
                    puts += what == "put"
                    if puts == untold and what == "put":
                        os.kill(os.getpid(), signal.SIGKILL)
                    tell(what, id, own)
        tell("round")


def leave(saver: Any, tell: Tell, *, thread: str) -> None:
    """End in the midst of uploads, without closing anything."""
    for number in range(random.randint(1, 6)):
        for what, id in grow(saver, 3, f"{thread} {number}"):
            tell(what, id, f"{thread} {number}")


JOBS: dict[str, Callable[..., None]] = {
    "life": life,
    "below": below,
    "write": write,
    "travel": travel,
    "leave": leave,
}


def main() -> None:
    """Fork a process for each line, and tell its id."""
    for line in sys.stdin:
        if os.fork() == 0:
            asked = json.loads(line)
            child = os.fork()
            if child == 0:
                _work(**asked)
                return  # and the interpreter ends as that of any process
            _tell_end(child, asked["log"])


def _tell_end(child: int, log: str) -> None:
    """Write how a process ended into a file beside its log."""
    print(child, flush=True)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    aside = Path(f"{log}.{child} ends")
    aside.write_text(f"{code}")
    aside.rename(f"{log}.{child}")
    os._exit(0)


def _work(job: str, url: str, options: dict[str, Any], log: str, given: dict[str, Any]) -> None:
    lines = open(log, "a")  # noqa: SIM115  (it ends with the process)

    def tell(*words: str) -> None:
        lines.write("\t".join(words) + "\n")
        lines.flush()

    saver = open_saver(url, **options)
    JOBS[job](saver, tell, **given)
    if job != "leave":
        saver.close()


if __name__ == "__main__":
    main()
