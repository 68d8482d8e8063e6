"""Values of options: what cannot be meant is refused when the saver is made, by name and with what is allowed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from langgraph_statekit import Misuse, ObjectStoreSaver, PostgresSaver, RedisSaver, SqliteSaver, open_saver
from langgraph_statekit.checkpoint.backends.postgres_connections import Connections

INF, NAN = float("inf"), float("nan")
SECONDS = (NAN, INF, -INF, -1, -0.001, 1e300, "3", None, True, 1j)
COUNTS = (0, -1, 2.5, NAN, "3", None, True)


@pytest.mark.parametrize("bad", SECONDS)
def test_seconds_are_finite_numbers_that_are_not_negative(bad: Any, tmp_path: Path) -> None:
    redis, postgres = "redis://h", "postgresql://h/db"
    for url, name in (
        (f"sqlite:///{tmp_path}/x.db", "lock_wait_s"),
        *((redis, name) for name in ("retry_s", "connect_timeout_s", "socket_timeout_s")),
        *((postgres, name) for name in ("retry_s", "wait_s")),
        *((f"file://{tmp_path}/x", name) for name in ("retry_s", "grace_s")),
    ):
        with pytest.raises(Misuse, match=rf"the option {name} must be a finite number of at least 0.*, not "):
            open_saver(url, **{name: bad})
        if isinstance(bad, float):
            with pytest.raises(Misuse, match=f"the option {name} must be"):
                open_saver(f"{url}?{name}={bad}")


@pytest.mark.parametrize("bad", COUNTS)
def test_counts_are_whole_numbers_of_at_least_one(bad: Any) -> None:
    for url, name in (
        ("memory://", "workers"),
        ("memory://", "max_pending"),
        ("redis://h", "workers"),
        ("redis://h", "max_connections"),
        ("redis+sentinel://h/main", "max_connections"),
        ("postgresql://h/db", "max_size"),
    ):
        with pytest.raises(Misuse, match=f"the option {name} must be a whole number of at least 1, not "):
            open_saver(url, **{name: bad})


@pytest.mark.parametrize("bad", [-1, 2.5, "3", None, True])
def test_sizes_are_whole_numbers_that_are_not_negative(bad: Any) -> None:
    for url, name in (
        ("memory://", "cache_bytes"),
        ("memory://", "max_pending_bytes"),
        ("postgresql://h/db", "min_size"),
    ):
        with pytest.raises(Misuse, match=f"the option {name} must be a whole number of at least 0, not "):
            open_saver(url, **{name: bad})


@pytest.mark.parametrize("bad", [NAN, -1, "3"])
def test_constructors_check_what_from_url_checks(bad: Any, tmp_path: Path) -> None:
    connections = Connections("host=h")
    for make in (
        lambda: RedisSaver(lambda: None, retry_s=bad),  # type: ignore[arg-type, return-value]
        lambda: PostgresSaver(connections, retry_s=bad),
        lambda: ObjectStoreSaver(MemoryStore(), grace_s=bad),
        lambda: SqliteSaver(tmp_path / "x.db", lock_wait_s=bad),
    ):
        with pytest.raises(Misuse, match=r"the option \w+ must be a finite number"):
            make()


def test_zero_and_whole_seconds_are_allowed(tmp_path: Path) -> None:
    open_saver("redis://h", retry_s=0, connect_timeout_s=1)
    open_saver("postgresql://h/db?retry_s=0&min_size=0&max_size=1")
    open_saver(f"sqlite:///{tmp_path}/x.db", lock_wait_s=0, cache_bytes=0)


def test_a_minimum_beyond_the_maximum_is_refused() -> None:
    with pytest.raises(Misuse, match="min_size=3 must be at most max_size=2"):
        open_saver("postgresql://h/db", min_size=3, max_size=2)


@pytest.mark.parametrize("bad", [5, "json", object()])
def test_what_is_no_serializer_is_refused(bad: Any) -> None:
    with pytest.raises(Misuse, match="the option serde must be a serializer"):
        open_saver("memory://", serde=bad)


@pytest.mark.parametrize("bad", ["token", 5, [1], None])
def test_secret_keys_are_a_collection_of_names(bad: Any) -> None:
    with pytest.raises(Misuse, match="secret_keys must be a collection of names"):
        open_saver("memory://", secret_keys=bad)


@pytest.mark.parametrize("bad", [5, None, b"x"])
def test_texts_are_strings(bad: Any, tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/x"
    for url, name in (("redis://h", "prefix"), ("postgresql://h/db", "schema"), (folder, "prefix")):
        with pytest.raises(Misuse, match=f"the option {name} must be a string, not {type(bad).__name__}"):
            open_saver(url, **{name: bad})
    if bad is not None:
        with pytest.raises(Misuse, match="the option endpoint must be a string"):
            open_saver("s3://bucket", endpoint=bad)
    with pytest.raises(Misuse, match="the option config must be a mapping"):
        open_saver("s3://bucket", config=[5])


@pytest.mark.parametrize("url", ["redis://h/abc", "redis://h/1/2", "redis://h/-1", "rediss://h/1x"])
def test_a_redis_database_is_a_number(url: str) -> None:
    with pytest.raises(Misuse, match="the number of a database"):
        open_saver(url)


@pytest.mark.parametrize("url", ["redis+cluster://h/1", "redis+cluster://h?db=1", "rediss+cluster://h:1/3"])
def test_a_cluster_takes_no_database_number(url: str) -> None:
    with pytest.raises(Misuse, match="a cluster has no numbered databases"):
        open_saver(url)
    open_saver("redis+cluster://h/0")


@pytest.mark.parametrize("port", ["65536", "99999", "x", "-1"])
def test_a_port_is_a_number_that_exists(port: str) -> None:
    for url in (f"redis://h:{port}", f"redis+sentinel://h:{port}/main", f"postgresql://h:{port}/db"):
        with pytest.raises(Misuse, match="port"):
            open_saver(url)


@pytest.mark.parametrize(
    ("name", "library", "extra", "url"),
    [
        ("RedisSaver", "redis", "redis", "redis://h"),
        ("PostgresSaver", "psycopg", "postgres", "postgresql://h/db"),
        ("PostgresSaver", "psycopg_pool", "postgres", "postgresql://h/db"),
        ("ObjectStoreSaver", "obstore", "s3", "s3://bucket"),
    ],
)
def test_a_missing_client_library_is_an_import_error_that_names_the_extra(
    name: str, library: str, extra: str, url: str
) -> None:
    code = f"""
import sys
sys.modules[{library!r}] = None
try:
    from langgraph_statekit import {name}
    {name}.from_url({url!r})
except ImportError as error:
    assert "pip install 'langgraph-statekit[{extra}]'" in str(error), error
    assert error.__cause__.name == {library!r}
else:
    raise AssertionError
from langgraph_statekit import Misuse, open_saver
try:
    open_saver({url!r})
except Misuse as error:
    assert "pip install 'langgraph-statekit[{extra}]'" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True)
