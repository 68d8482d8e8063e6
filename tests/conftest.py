"""Fixtures: a fresh store of each kind, a saver on it, and the same saver through its sync methods."""

from __future__ import annotations

import os
import signal
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from langgraph_statekit.checkpoint.saver import StatekitSaver
from tests.faces import Face, SyncFace
from tests.servers import Servers
from tests.stores_table import DURABLE, ON_REQUEST, SERVED, STORES
from tests.stores_under_test import DEFAULTS, FEATURES, Store, all_features

# A busy machine is slow; what never ends is found all the same.
settings.register_profile("busy", deadline=20_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stores", default=",".join(STORES), help="stores to test, by name and comma")
    parser.addoption("--all-features", action="store_true", help="with all that a saver can do, where a test opens one")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all-features"):
        DEFAULTS.update(all_features())
        os.environ[FEATURES] = ",".join(DEFAULTS)
        os.environ["STATEKIT_KEYS"] = f"tests={b64encode(b'k' * 32).decode()}"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not config.getoption("numprocesses", None):  # workers of xdist end by themselves when it is gone
        # As Ctrl-C: what the fixtures started is stopped and removed.
        signal.signal(signal.SIGTERM, signal.default_int_handler)


class TimedOut(BaseException):
    """A test took too long. Hypothesis would take pytest's own exception for a failure, and run the example again."""


def pytest_timeout_set_timer(settings: Any) -> bool:
    """Set the timer instead of pytest-timeout, whose timer fires once, and never while a failed test is torn down."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimedOut(f"not done within {settings.timeout:g} s")

    signal.signal(signal.SIGALRM, end)
    # Again and again: an event loop swallows what is raised in its own code, and may lose a task by it.
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout)
    return True


def pytest_runtest_logfinish() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--stores").split(",")
    tables = {
        "store_name": (*STORES, *ON_REQUEST),
        "durable_name": (*DURABLE, *ON_REQUEST),
        "served_name": SERVED,
        "suite_name": ("sqlite", "redis", "tiered"),
        "hard_name": ("redis", "tiered"),  # the latter keeps in SQLite what is hot
        "killed_name": ("sqlite", "redis", "postgres"),
    }
    for fixture, names in tables.items():
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, [name for name in names if name in chosen])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long ones, so that none is left to one core when all others are done."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def _without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the features of `--all-features` that a test's `without` marks name."""
    for mark in request.node.iter_markers("without"):
        for name in mark.args:
            monkeypatch.delitem(DEFAULTS, name, raising=False)
    monkeypatch.setenv(FEATURES, ",".join(DEFAULTS))


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with closing(Servers()) as found:
        yield found


@pytest.fixture
def new_store(servers: Servers, tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """Return a maker of fresh stores by name."""
    made: list[Store] = []

    def make(name: str) -> Store:
        made.append({**STORES, **ON_REQUEST}[name](servers.url, tmp_path))
        return made[-1]

    yield make
    for store in made:
        store.clean()


@pytest.fixture
def store(new_store: Callable[[str], Store], store_name: str) -> Store:
    return new_store(store_name)


@pytest.fixture
def durable_store(new_store: Callable[[str], Store], durable_name: str) -> Store:
    return new_store(durable_name)


@pytest.fixture(params=["async", "sync"])
def face(request: pytest.FixtureRequest) -> Callable[[StatekitSaver], Face]:
    """Return what shows a saver with async methods: itself, or its sync methods called inside the running loop."""
    faces: dict[str, Callable[[StatekitSaver], Any]] = {"async": lambda saver: saver, "sync": SyncFace}
    return faces[request.param]


@pytest.fixture
async def real(store: Store) -> AsyncIterator[StatekitSaver]:
    """Yield a saver on a fresh store."""
    async with store.open() as saver:
        yield saver


@pytest.fixture
def saver(real: StatekitSaver, face: Callable[[StatekitSaver], Face]) -> Face:
    """Return a saver on a fresh store, once by its async and once by its sync methods."""
    return face(real)
