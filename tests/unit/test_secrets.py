"""No error shows a password, in its text or in that of an error behind it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from langgraph_statekit import Misuse, ObjectStoreSaver, PostgresSaver, RedisSaver, Unavailable, open_saver

SERVED = (
    "redis://user:{}@127.0.0.1:1/0",
    "rediss://:{}@[::1]:1",
    "unix://user:{}@/tmp/none.sock",
    "redis+cluster://:{}@127.0.0.1:1",
    "redis+sentinel://:{}@127.0.0.1:1/main",
    "postgresql://user:{}@127.0.0.1:1/db",
    "postgres://user:{}@127.0.0.1:1,127.0.0.1:1/db",
)
RAW = (
    "{}#{}",
    "{}/{}",
    "{}?{}",
    "{}%{}",
    "{}@{}",
    "{}[{}",
    "{}]{}",
    "[{}{}]",
    "{}%00{}",
    "{} {}",
    "{}\u2100{}",
    "12/{}{}",
)
SECRETS = ("hush", "qqxx")  # neither is a word of a message, nor do they begin like a hexadecimal number


def refused(call: Callable[[], Any], error: type[Exception] = Misuse) -> str:
    """Return the message of the error of a call after a look at all that a log would show."""
    with pytest.raises(error) as caught:
        call()
    seen: BaseException | None = caught.value
    while seen is not None:
        texts = [str(seen), repr(seen), *map(str, seen.args)]
        assert not [secret for secret in SECRETS if any(secret in text for text in texts)], texts
        seen = seen.__cause__ or seen.__context__
    return str(caught.value)


@pytest.mark.parametrize("url", SERVED)
@pytest.mark.parametrize("raw", RAW)
def test_a_password_that_is_not_encoded_is_refused_with_the_remedy(url: str, raw: str) -> None:
    assert "percent-encode" in refused(lambda: open_saver(url.format(raw.format(*SECRETS)), retry_s=0))


@pytest.mark.parametrize("url", SERVED)
def test_an_encoded_password_is_taken_and_not_shown_when_nobody_listens(url: str) -> None:
    whole = url.format("hush%23%2F%3F%25%40%5B%5Dqqxx:")
    with closing(open_saver(whole, retry_s=0)) as saver:
        refused(lambda: list(saver.list(None)), Unavailable)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:hush@host/db?password=qqxx",
        "sqlite://user:hush@qqxx",
        "sqlite://user:hush@qqxx?colour=red",
        "memory://user:hush@qqxx",
        "file://user:hush@qqxx/folder",
        "s3://hush:qqxx@bucket/prefix",
        "s3://hush:qq[x@bucket",
        "s3://key:hush/qqxx@bucket/prefix",
        "gs://hush:qqxx@bucket",
        "s3://bucket?endpoint=http://user:hush@host",
        "s3://bucket?endpoint=http%3A%2F%2Fuser%3Ahush%40host",
        "redis://:hush",
        "redis://user:hush/0",
        "redis://h/hush",
        "redis://h/0?password=qq&hush",
        "redis://h/0?password=hush%",
        "redis://h/0?password=hush#qqxx",
        "redis://h/0?db=hush",
        "postgresql://user:hush",
        "postgresql://h/db?password=qq hush",
        "postgresql://h/db?password=hush%zz",
        "redis+sentinel://h:1/main/hush",
    ],
)
def test_a_url_that_is_refused_is_not_shown(url: str) -> None:
    refused(lambda: open_saver(url))


@pytest.mark.parametrize("saver", [RedisSaver, PostgresSaver, ObjectStoreSaver])
def test_a_url_of_another_store_is_not_shown(saver: Any) -> None:
    refused(lambda: saver.from_url("mysql://user:hush@host/qqxx"))


@pytest.mark.parametrize("text", ["host=h password=qq hush", "password='hush", "host=h password=qq hush=1", "hush"])
async def test_a_conninfo_string_that_cannot_be_read_is_not_shown(text: str) -> None:
    refused(lambda: PostgresSaver.from_url(text))
    pool = AsyncConnectionPool(text, open=False)
    refused(lambda: PostgresSaver(pool))


def test_what_an_object_store_says_of_its_endpoint_hides_the_login(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore.store import S3Store

    keys = {"access_key_id": "key", "secret_access_key": "qqxx", "region": "r"}
    store = S3Store("bucket", endpoint="http://user:hush@127.0.0.1:1", **keys, client_options={"allow_http": True})  # type: ignore[arg-type]
    given = ObjectStoreSaver(store, retry_s=0)
    refused(lambda: list(given.list(None)), Unavailable)
    given.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:hush@127.0.0.1:1")
    own = ObjectStoreSaver.from_url("s3://bucket", retry_s=0, config={"client_options": {"allow_http": True}}, **keys)
    refused(lambda: list(own.list(None)), Unavailable)
    own.close()
