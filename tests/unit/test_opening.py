"""From a URL to a saver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_statekit import Misuse, SqliteSaver, open_saver
from langgraph_statekit.checkpoint.opening import SAVERS


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "no store URL"),
        ("agent.db", "no store URL"),
        ("mysql://host/db", "must begin with one of memory, sqlite, redis"),
        ("sqlite://", "names no SQLite file"),
        ("sqlite:///", "names no SQLite file"),
        ("sqlite:///x.db?colour=red", "unknown option 'colour=red'"),
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
        assert saver.backend._lock_wait_s == expected  # type: ignore[attr-defined]
        assert saver._threads._workers == 3


def test_an_empty_query_is_none(tmp_path: Path) -> None:
    assert isinstance(open_saver(f"sqlite:///{tmp_path}/x.db?"), SqliteSaver)


def test_a_password_in_a_wrong_url_is_not_repeated() -> None:
    with pytest.raises(Misuse) as caught:
        open_saver("mysql://user:hush@host/db?password=hush")
    assert "hush" not in str(caught.value)


def test_every_scheme_has_a_saver() -> None:
    assert {"memory", "sqlite", "redis", "rediss", "postgresql", "s3", "gs", "az", "file"} <= set(SAVERS)
