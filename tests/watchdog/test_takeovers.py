"""Real processes that are stopped and killed: whatever they do later, each effect is made once and nothing forks."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit.processes import STOPPED, Process
from langgraph_statekit.watchdog.supervisor import Supervisor
from tests.programs import PIPE, Program
from tests.servers import wait_until
from tests.stores_under_test import Store
from tests.watchdog import worker
from tests.watchdog.worker import FOLDER, ITEMS, KIND, WIDE, Provider

STORES = ("sqlite", "redis", "postgres")
SUPERVISORS = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--stores").split(",")
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", [name for name in STORES if name in chosen])


class Stage:
    """A store, a world outside, and workers."""

    def __init__(self, store: Store, folder: Path, kind: str) -> None:
        self.store, self.folder, self.kind = store, folder, kind
        self.provider = Provider(folder, strict=kind == "strict")

    @contextmanager
    def worker(self, *acts: str, threads: str = "t") -> Iterator[Program]:
        given = (self.store.url, json.dumps(self.store.options), str(self.folder), threads, self.kind)
        command = [sys.executable, "-m", "tests.watchdog.worker", *given, *acts]
        with Program(command, stdout=PIPE, stderr=PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def supervisor(self, **options: Any) -> Iterator[Supervisor]:
        settings = {"quarantine_s": 0, "alert": lambda event: None, **options}
        with self.store.open() as saver:
            yield Supervisor(saver, {"items": worker.make_graph}, **settings)

    def made(self) -> Counter[str]:
        return Counter(key for _, key, made in self.provider.lines() if made)

    def by(self, pid: int) -> list[str]:
        return [key for other, key, made in self.provider.lines() if other == pid and made]

    def check_history(self, thread: str, items: list[int]) -> None:
        """One line of checkpoints, and all of the items in the state."""
        with self.store.open() as saver:
            found = list(saver.list({"configurable": {"thread_id": thread}}))
            parents = [item.parent_config and item.parent_config["configurable"]["checkpoint_id"] for item in found]
            assert len(set(parents)) == len(parents), "a fork"
            assert sorted(found[0].checkpoint["channel_values"]["done"]) == items


@pytest.fixture
def stage(
    name: str, new_store: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Stage]:
    def make(kind: str) -> Stage:
        monkeypatch.setenv(FOLDER, str(tmp_path))
        monkeypatch.setenv(KIND, kind)
        return Stage(new_store(name), tmp_path, kind)

    return make


def wait_stopped(process: Program) -> None:
    def stopped() -> bool:
        assert process.poll() is None, process.communicate()
        return (Path("/proc") / str(process.pid) / "stat").read_text().rpartition(")")[2].split()[0] == "T"

    wait_until(stopped, "stopped")


def taken_over(supervisor: Supervisor) -> list[str]:
    """Look until there was something to do, and return what was done."""
    outcomes: list[str] = []
    wait_until(lambda: bool(outcomes.extend(event.outcome for event in supervisor.once()) or outcomes), "taken over")
    return outcomes


def test_a_worker_that_is_stopped_past_its_lease_and_goes_on_later_makes_no_effect_and_no_fork(
    stage: Callable[[str], Stage],
) -> None:
    at = stage("plain")
    with at.worker("node:5=stop") as old:
        wait_stopped(old)
        before = at.by(old.pid)
        with at.supervisor() as supervisor:
            assert taken_over(supervisor) == ["resumed", "finished"]
        old.send_signal(signal.SIGCONT)
        out, err = old.communicate(timeout=60)
    assert (old.returncode, out) == (7, "Fenced\n"), err
    assert at.by(old.pid) == before == [f"t/{i}" for i in range(5)]
    assert at.made() == Counter(f"t/{i}" for i in range(ITEMS))
    at.check_history("t", list(range(ITEMS)))


def test_stopped_between_claim_and_effect_a_strict_provider_keeps_it_at_one(stage: Callable[[str], Stage]) -> None:
    at = stage("strict")
    with at.worker("effect:5=stop") as old:
        wait_stopped(old)
        with at.supervisor() as supervisor:
            assert taken_over(supervisor) == ["resumed", "finished"]
        old.send_signal(signal.SIGCONT)
        out, err = old.communicate(timeout=60)
    assert (old.returncode, out) == (7, "Fenced\n"), err
    assert at.made() == Counter(f"t/{i}" for i in range(ITEMS))
    refused = [(pid, key) for pid, key, made in at.provider.lines() if not made]
    assert refused == [(old.pid, "t/5")]
    at.check_history("t", list(range(ITEMS)))


def test_a_wide_step_that_is_killed_in_the_middle_makes_no_effect_twice(stage: Callable[[str], Stage]) -> None:
    at = stage("wide")
    with at.worker() as old:
        wait_until(lambda: len(at.provider.lines()) >= WIDE // 3, "a third of the items")
        old.kill()
        old.communicate()
    assert len(at.by(old.pid)) < WIDE
    with at.supervisor() as supervisor:
        assert taken_over(supervisor) == ["resumed", "finished"]
    assert at.made() == Counter(f"t/{i}" for i in range(WIDE))
    at.check_history("t", list(range(WIDE)))


def test_many_supervisors_together_recover_each_thread_once(stage: Callable[[str], Stage]) -> None:
    at = stage("plain")
    threads = [f"t{number}" for number in range(8)]
    with at.worker(threads=",".join(threads)) as old:
        old.communicate(timeout=60)
        assert old.returncode == -signal.SIGKILL
    url = at.store.url
    if at.store.options:
        url += "?" + "&".join(f"{key}={value}" for key, value in at.store.options.items())
    with at.supervisor() as looking:
        wait_until(lambda: sum(not each.held for each in looking.leases()) == len(threads), "all leases over")
    command = [sys.executable, "-m", "langgraph_statekit", "watch", "--url", url, "--json", "--every-s", "0.05"]
    command += ["--quarantine-s", "0", "--graph", "items=tests.watchdog.worker:make_graph"]
    watching = [Program(command, stdout=PIPE, stderr=PIPE, text=True) for _ in range(SUPERVISORS)]
    try:
        with at.supervisor() as looking:
            wait_until(lambda: not list(looking.leases()), "all recovered", 60)
    finally:
        for process in watching:
            process.send_signal(signal.SIGTERM)
        told = [process.communicate(timeout=60) for process in watching]
    assert [process.returncode for process in watching] == [0] * SUPERVISORS, told
    events = [json.loads(line) for out, _ in told for line in out.splitlines()]
    resumed = Counter(event["thread_id"] for event in events if event["outcome"] == "resumed")
    assert resumed == Counter(threads)
    assert Counter(event["thread_id"] for event in events if event["outcome"] == "finished") == Counter(threads)
    assert at.made() == Counter(f"{thread}/{i}" for thread in threads for i in range(ITEMS))
    for thread in threads:
        at.check_history(thread, list(range(ITEMS)))


def test_a_stopped_process_that_holds_the_lock_of_the_file_is_killed_and_said_so(
    new_store: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setenv(KIND, "plain")
    at = Stage(new_store("sqlite"), tmp_path, "plain")
    with at.worker("lock:5=stop") as old:
        wait_stopped(old)
        at.store.options["lock_wait_s"] = 0.2
        with at.supervisor() as supervisor:
            wait_until(lambda: not next(iter(supervisor.leases())).held, "over")
            assert next(iter(supervisor.leases())).process.state == STOPPED
            events = supervisor.once()
        old.communicate(timeout=60)
    assert old.returncode == -signal.SIGKILL
    assert [event.outcome for event in events] == ["killed", "resumed", "finished"]
    assert f"process {old.pid} is stopped" in events[0].message
    assert at.made() == Counter(f"t/{i}" for i in range(ITEMS))
    assert Process.here().state != STOPPED
