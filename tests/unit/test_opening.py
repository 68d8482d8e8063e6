"""From a URL to a saver."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Misuse, ObjectStoreSaver, PostgresSaver, RedisSaver, SqliteSaver, open_saver
from langgraph_statekit.checkpoint.urls import SAVERS, own_options


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no scheme: a SQLite file is sqlite:///agent.db"),
        ("agent.db", "no scheme: a SQLite file is sqlite:///agent.db"),
        ("mysql://host/db", "must begin with one of memory, sqlite, redis"),
        ("sqlite://", "names no SQLite file"),
        ("sqlite:///", "names no SQLite file"),
        ("sqlite:///x.db?colour=red", "no option 'colour'; it takes"),
        ("sqlite:///x.db?lock_wait_s=soon", "lock_wait_s='soon' in the URL is no float"),
        ("memory://name", "has no name"),
    ],
)
def test_a_wrong_url_says_what_to_change(url: str, says: str) -> None:
    with pytest.raises(Misuse, match=says.replace("?", r"\?")):
        open_saver(url)


def test_an_unknown_option_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no option 'ttl'; it takes .*lock_wait_s.*serde"):
        open_saver(f"sqlite:///{tmp_path}/x.db", ttl=5)


def test_options_stand_in_the_query_and_arguments_win(tmp_path: Path) -> None:
    path = f"sqlite:///{tmp_path}/x.db?lock_wait_s=2.5&workers=3"
    options: list[dict[str, Any]] = [{}, {"lock_wait_s": 4}]
    for given, expected in zip(options, (2.5, 4), strict=True):
        saver = open_saver(path, **given)
        assert isinstance(saver, SqliteSaver)
        assert saver.backend._connections._wait_s == expected  # type: ignore[attr-defined]
        assert saver._threads._workers == 3


def test_an_empty_query_is_none(tmp_path: Path) -> None:
    assert isinstance(open_saver(f"sqlite:///{tmp_path}/x.db?"), SqliteSaver)


def test_every_scheme_has_a_saver() -> None:
    assert {"memory", "sqlite", "redis", "rediss", "postgresql", "s3", "gs", "az", "file"} <= set(SAVERS)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://h/0?colour=red", "unknown setting 'colour'"),
        ("redis+sentinel://h:1/service?colour=red", "unknown setting 'colour'"),
        ("postgresql://h/db?colour=red", 'invalid URI query parameter: "colour"'),
        ("s3://bucket?colour=red", "'colour' is not valid"),
        ("file:///tmp/x?colour=red", "without settings"),
        ("memory://?colour=red", "no option 'colour'; it takes cache_bytes"),
        ("redis://h/0?retry_s=soon", "retry_s='soon' in the URL is no float"),
    ],
)
def test_an_unknown_setting_is_named(url: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        open_saver(url)


@pytest.mark.parametrize(
    "url", ["memory://", "redis://h", "redis+cluster://h:1", "postgresql://h/db", "s3://bucket", "file:///tmp/x"]
)
def test_every_saver_takes_the_common_options_in_its_query_and_beside_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert open_saver(f"{url}?workers=3&cache_bytes=1000")._threads._workers == 3
    assert open_saver(f"{url}?workers=3", workers=2, cache_bytes=1000)._threads._workers == 2


def test_from_url_reads_the_query_as_open_saver_does() -> None:
    assert PostgresSaver.from_url("postgresql://h/db?schema=agents&max_size=2").backend._schema == "agents"  # type: ignore[attr-defined]
    assert RedisSaver.from_url("redis://h?prefix=shop").backend._prefix == "shop"  # type: ignore[attr-defined]


def test_settings_of_the_driver_reach_it_unchanged() -> None:
    url = "postgresql://h/db?application_name=my%20app&options=-c%20statement_timeout%3D5&workers=2"
    assert own_options(PostgresSaver, url, {}) == (url.removesuffix("&workers=2"), {"workers": 2})
    password = "postgresql://h/db?password=a+b%2Bc"  # libpq takes a + for itself
    assert own_options(PostgresSaver, f"{password}&schema=x", {}) == (password, {"schema": "x"})
    conninfo = "host=h password='a?b' dbname=db"
    assert own_options(PostgresSaver, conninfo, {}) == (conninfo, {})


def test_a_scheme_may_be_in_upper_case(tmp_path: Path) -> None:
    for url in (f"SQLITE:///{tmp_path}/x.db", "Redis://h/0", "POSTGRESQL://h/db", "Memory://", f"FILE://{tmp_path}"):
        open_saver(url)


@pytest.mark.parametrize(
    ("saver", "url"),
    [
        (RedisSaver, "postgresql://h/db"),
        (PostgresSaver, "redis://h"),
        (SqliteSaver, "file:///x"),
        (ObjectStoreSaver, "sqlite:///x"),
        (RedisSaver, ""),
    ],
)
def test_the_url_of_another_store_is_refused_with_the_schemes_that_fit(saver: Any, url: str) -> None:
    with pytest.raises(Misuse, match=r"it must begin with .*://"):
        saver.from_url(url)
    with pytest.raises(Misuse, match="a store URL is a string"):
        saver.from_url(None)


@pytest.mark.parametrize("saver", [RedisSaver, PostgresSaver, ObjectStoreSaver])
@pytest.mark.parametrize("given", ["redis://h", None, 3])
def test_a_constructor_given_no_client_says_what_it_needs(saver: Any, given: Any) -> None:
    with pytest.raises(Misuse, match=r"needed, not .*; for a URL use from_url"):
        saver(given)


@pytest.mark.parametrize("given", ["sqlite:///x.db", sqlite3.connect, None, 3])
def test_a_sqlite_saver_given_no_path_says_what_it_needs(given: Any) -> None:
    with pytest.raises(Misuse, match="path of its file, no connection; for a URL use from_url"):
        SqliteSaver(given)


@pytest.mark.parametrize("url", [None, b"redis://h", Path("x.db")])
def test_what_is_no_string_is_no_url(url: Any) -> None:
    with pytest.raises(Misuse, match="a store URL is a string"):
        open_saver(url)


def test_one_name_in_place_of_the_secret_keys_is_refused() -> None:
    with pytest.raises(Misuse, match="not one string"):
        open_saver("memory://", secret_keys="token")
