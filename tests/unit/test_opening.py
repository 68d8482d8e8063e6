"""From a URL to a saver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Misuse, ObjectStoreSaver, PostgresSaver, RedisSaver, SqliteSaver, open_saver
from langgraph_statekit.checkpoint.opening import SAVERS
from langgraph_statekit.checkpoint.urls import own_options


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no store URL"),
        ("agent.db", "no store URL"),
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


def test_a_password_in_a_wrong_url_is_not_repeated() -> None:
    with pytest.raises(Misuse) as caught:
        open_saver("mysql://user:hush@host/db?password=hush")
    assert "hush" not in str(caught.value)


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
def test_every_saver_takes_the_common_options_in_its_query_and_beside_it(url: str) -> None:
    assert open_saver(f"{url}?workers=3&cache_bytes=1000")._threads._workers == 3
    assert open_saver(f"{url}?workers=3", workers=2, cache_bytes=1000)._threads._workers == 2


def test_from_url_reads_the_query_as_open_saver_does() -> None:
    assert PostgresSaver.from_url("postgresql://h/db?schema=agents&max_size=2").backend._schema == "agents"  # type: ignore[attr-defined]
    assert RedisSaver.from_url("redis://h?prefix=shop").backend._prefix == "shop"  # type: ignore[attr-defined]


def test_settings_of_the_driver_reach_it_unchanged() -> None:
    url = "postgresql://h/db?application_name=my%20app&options=-c%20statement_timeout%3D5&workers=2"
    assert own_options(PostgresSaver, url, {}) == (url.removesuffix("&workers=2"), {"workers": 2})


@pytest.mark.parametrize("saver", [RedisSaver, PostgresSaver, ObjectStoreSaver])
@pytest.mark.parametrize("given", ["redis://h", None, 3])
def test_a_constructor_given_no_client_says_what_it_needs(saver: Any, given: Any) -> None:
    with pytest.raises(Misuse, match=r"needed, not .*; for a URL use from_url"):
        saver(given)


@pytest.mark.parametrize("url", [None, b"redis://h", Path("x.db")])
def test_what_is_no_string_is_no_url(url: Any) -> None:
    with pytest.raises(Misuse, match="a store URL is a string"):
        open_saver(url)


def test_one_name_in_place_of_the_secret_keys_is_refused() -> None:
    with pytest.raises(Misuse, match="not one string"):
        open_saver("memory://", secret_keys="token")
