"""Faults that waiting cannot mend: every store says at once what to change, however long it may retry."""

from __future__ import annotations

import errno
import json
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
import pytest
import redis
from obstore.store import AzureStore, GCSStore, S3Store
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout
from redis import exceptions as failures
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from langgraph_statekit import ObjectStoreSaver, PostgresSaver, RedisSaver, StatekitSaver, open_saver
from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver
from langgraph_statekit.checkpoint.backends.objects.obstore_driver import connect, missing_access
from langgraph_statekit.checkpoint.backends.redis_errors import explained
from langgraph_statekit.errors import Misuse, Unavailable
from tests.faces import checkpoint, config, metadata
from tests.servers import Server, free_ports, postgres_server, s3_server
from tests.stores.pg import query
from tests.stores.redis_nodes import ask, cluster, node, port_of, redis_binary, started
from tests.unit.test_secrets import SECRETS

LONG_S = 10_000
"""Longer than a test may take."""
HUSH = SECRETS[0]


def refused(saver: StatekitSaver, says: str, cause: type[BaseException]) -> None:
    """Check that a read, a save and a setup are refused with a remedy and the driver's error."""
    calls: list[Callable[[], object]] = [
        lambda: saver.put(config("t"), checkpoint({"v": 1}), metadata(), {"v": 1}),
        lambda: saver.get_tuple(config("t")),
        lambda: list(saver.list(None)),
    ]
    with closing(saver):
        for call in calls:
            with pytest.raises(Misuse, match=says) as caught:
                call()
            assert isinstance(caught.value.__cause__, cause)
            seen: BaseException | None = caught.value
            while seen is not None:
                assert HUSH not in str(seen)
                seen = seen.__cause__ or seen.__context__


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Yield the address of a server that asks all but its owner for a password."""
    with postgres_server() as server:
        query(server.url, "CREATE ROLE app LOGIN PASSWORD 'right'")
        query(server.url, "CREATE ROLE barred NOLOGIN PASSWORD 'right'")
        query(server.url, "CREATE ROLE stranger LOGIN")
        rules = "host all statekit all trust\nhost all stranger all reject\nhost all all all scram-sha-256\n"
        (server._dir / "data/pg_hba.conf").write_text(rules)
        query(server.url, "SELECT pg_reload_conf()")
        yield server.url


LOGINS = [
    ({"dbname": "none"}, "create the database or correct its name"),
    ({"user": "nobody", "password": HUSH}, "correct the user and the password"),
    ({"user": "app", "password": HUSH}, "correct the user and the password"),
    ({"user": "app"}, "correct the user and the password"),
    ({"user": "barred", "password": "right"}, "create the role or correct the user"),
    ({"user": "stranger"}, "let this user, host and database in"),
    ({"sslmode": "require"}, "correct the ssl settings"),
    ({"sslmode": "colour"}, "correct this setting"),
]


@pytest.mark.parametrize(("wrong", "says"), LOGINS)
def test_what_postgres_refuses_for_good_is_told_at_once(postgres: str, wrong: dict[str, str], says: str) -> None:
    url = make_conninfo(postgres, **wrong)
    refused(PostgresSaver.from_url(url, retry_s=LONG_S), says, psycopg.OperationalError)


@pytest.mark.parametrize(("wrong", "says"), LOGINS[:2])
def test_why_a_given_pool_cannot_connect_is_told_at_once(
    postgres: str, wrong: dict[str, str], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "psycopg.pool")
    url = make_conninfo(postgres, **wrong)
    with ConnectionPool(url, open=True, timeout=LONG_S) as pool:
        refused(PostgresSaver(pool, retry_s=LONG_S), says, psycopg.OperationalError)
    kwargs = {"conninfo": lambda: url, "kwargs": lambda: {"autocommit": True}}
    with ConnectionPool(**kwargs, open=True, timeout=LONG_S) as pool:  # type: ignore[arg-type]
        refused(PostgresSaver(pool, retry_s=LONG_S), says, psycopg.OperationalError)


def test_a_given_pool_without_a_server_is_unavailable_with_the_reason() -> None:
    (port,) = free_ports(1)
    with ConnectionPool(f"host=127.0.0.1 port={port}", open=True, timeout=LONG_S) as pool:
        with pytest.raises(Unavailable, match=r"retry_s=0.*refused") as caught:
            PostgresSaver(pool, retry_s=0).setup()
        assert isinstance(caught.value.__cause__, psycopg.OperationalError)


def test_a_given_pool_that_is_only_busy_is_named(postgres: str) -> None:
    with ConnectionPool(postgres, min_size=1, max_size=1, timeout=0.05, open=True) as pool:
        pool.wait()
        with pool.connection(), pytest.raises(Unavailable, match=r"pool given became free within 0\.05 s") as caught:
            PostgresSaver(pool, retry_s=0).setup()
        assert isinstance(caught.value.__cause__, PoolTimeout)


def test_a_given_pool_that_cannot_read_its_address_does_not_show_it() -> None:
    with ConnectionPool(f"host=h password=a {HUSH}", open=True, timeout=LONG_S) as pool:
        with pytest.raises(Misuse, match="conninfo") as caught:
            PostgresSaver(pool, retry_s=LONG_S).setup()
    assert HUSH not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yield a Redis that asks for a password."""
    made = node(tmp_path_factory.mktemp("redis"), redis_binary())
    with started(made):
        ask(made, "CONFIG", "SET", "requirepass", "right")
        yield made


@pytest.mark.parametrize("login", ["", f":{HUSH}@", f"user:{HUSH}@"])
@pytest.mark.parametrize("kind", ["redis", "redis+cluster"])
def test_a_login_that_redis_refuses_is_told_at_once(locked: Server, kind: str, login: str) -> None:
    url = f"{kind}://{login}127.0.0.1:{port_of(locked)}"
    # A cluster's client wraps the server's error in its own.
    cause = failures.RedisClusterException if "cluster" in kind else failures.RedisError
    refused(RedisSaver.from_url(url, retry_s=LONG_S), "refused the login, correct the user and the password", cause)


def test_a_login_that_a_sentinel_refuses_is_told_at_once(tmp_path: Path) -> None:
    watcher = node(tmp_path, redis_binary(), sentinel="sentinel monitor main 127.0.0.1 1 1\nrequirepass right\n")
    watcher._ready = lambda: True
    with started(watcher):
        port = port_of(watcher)
        while True:  # until it listens
            try:
                redis.Redis(port=port).ping()
            except failures.AuthenticationError:
                break
            except failures.ConnectionError:
                continue
        asked = redis.Sentinel(
            [("127.0.0.1", port)], sentinel_kwargs={"password": HUSH, "retry": Retry(NoBackoff(), 0)}
        )
        refused(RedisSaver(asked.master_for("main"), retry_s=LONG_S), "refused the login", failures.ConnectionError)


def test_a_redis_of_another_kind_or_without_that_database_is_told_at_once(locked: Server, tmp_path: Path) -> None:
    address = f"127.0.0.1:{port_of(locked)}"
    for url, says, cause in (
        (f"redis://:right@{address}/99", "no database of this number", failures.ResponseError),
        (f"redis+cluster://:right@{address}", "is no cluster, use redis://", failures.RedisClusterException),
    ):
        refused(RedisSaver.from_url(url, retry_s=LONG_S), says, cause)
    open_cluster = lambda: RedisCluster.from_url(f"redis://:right@{address}/1")  # noqa: E731
    refused(RedisSaver(open_cluster, retry_s=LONG_S), "no numbered databases", failures.RedisClusterException)
    with cluster(tmp_path) as nodes:
        saver = RedisSaver.from_url(nodes[0].url, retry_s=LONG_S)
        with closing(saver), pytest.raises(Misuse, match=r"is a cluster, use redis\+cluster") as caught:
            list(saver.list(None))
        assert isinstance(caught.value.__cause__, failures.MovedError)


@pytest.mark.parametrize(
    ("below", "lasts"),
    [
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), True),
        (PermissionError(errno.EACCES, "Permission denied"), True),
        (FileNotFoundError(errno.ENOENT, "No such file"), False),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), False),
        (failures.NoScriptError("No matching script"), False),
    ],
)
def test_what_the_system_said_decides_whether_a_lost_connection_lasts(below: Exception, lasts: bool) -> None:
    lost = failures.ConnectionError("lost")
    lost.__context__ = below
    told = explained(lost, "prefix", cluster=False)
    assert isinstance(told, Misuse) if lasts else told is lost


def test_a_sentinel_that_is_none_is_told_at_once(locked: Server) -> None:
    asked = redis.Sentinel([("127.0.0.1", port_of(locked))], sentinel_kwargs={"password": "right"})
    refused(RedisSaver(asked.master_for("main"), retry_s=LONG_S), "no Sentinel", failures.ResponseError)


@pytest.fixture(scope="module")
def s3() -> Iterator[Server]:
    with s3_server() as found:
        yield found


@pytest.mark.parametrize(
    ("bucket", "wrong", "says"),
    [
        ("no-such-bucket", {}, "the bucket does not exist"),
        (None, {"access_key_id": "nobody"}, "refused the credentials"),
        (None, {"secret_access_key": HUSH}, "refused the credentials"),
    ],
)
def test_what_an_object_store_refuses_for_good_is_told_at_once(
    s3: Server, bucket: str | None, wrong: dict[str, str], says: str
) -> None:
    parts = urlsplit(s3.url)
    saver = open_saver(f"s3://{bucket or parts.netloc}", **{**dict(parse_qsl(parts.query)), **wrong}, retry_s=LONG_S)
    refused(saver, says, Exception)


def test_without_credentials_nobody_is_asked_for_some(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "GCE_", "AZURE_", "IDENTITY_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = ("s3://bucket?skip_signature=false", "gs://bucket?skip_signature=true")
    for url in ("s3://bucket", "gs://bucket", "az://bucket?account_name=name", *settings):
        with pytest.raises(Misuse, match=r"has no credentials: set \w+.* or pass \w+="):
            open_saver(url)
    stores: list[Any] = [S3Store("bucket"), GCSStore("bucket"), AzureStore("bucket", account_name="name")]
    for store in stores:
        with pytest.raises(Misuse, match="has no credentials"):
            ObjectStoreSaver(store)
    for name, value in (("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")):
        monkeypatch.setenv(name, value)
    open_saver("s3://bucket")
    (tmp_path / ".config/gcloud").mkdir(parents=True)
    login = {"type": "authorized_user", "client_id": "id", "client_secret": "secret", "refresh_token": "token"}
    (tmp_path / ".config/gcloud/application_default_credentials.json").write_text(json.dumps(login))
    open_saver("gs://bucket")


@pytest.mark.parametrize(
    ("kind", "settings", "environ"),
    [
        (S3Store, {"access_key_id": "key"}, {}),
        (S3Store, {"skip_signature": "true"}, {}),
        (S3Store, {"metadata_endpoint": "http://169.254.169.254"}, {}),
        (S3Store, {}, {"AWS_METADATA_ENDPOINT": "http://169.254.169.254"}),
        (S3Store, {}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}),
        (S3Store, {}, {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/uri"}),
        (GCSStore, {"service_account_key": "{}"}, {}),
        (GCSStore, {"bearer_token": "token"}, {}),
        (GCSStore, {}, {"GOOGLE_APPLICATION_CREDENTIALS": "/file"}),
        (GCSStore, {}, {"GCE_METADATA_HOST": "metadata.google.internal"}),
        (AzureStore, {"account_name": "name", "sas_key": "key"}, {}),
        (AzureStore, {}, {"AZURE_STORAGE_ACCOUNT_KEY": "key"}),
        (AzureStore, {"use_azure_cli": "true"}, {}),
        (AzureStore, {}, {"IDENTITY_ENDPOINT": "http://169.254.169.254"}),
    ],
)
def test_every_way_to_get_access_is_known(kind: type[Any], settings: dict[str, str], environ: dict[str, str]) -> None:
    assert missing_access(kind, settings, environ) == ""
    assert missing_access(kind, {**dict.fromkeys(settings, "false"), "region": "r"}, {"AWS_REGION": "r"}) != ""


def test_credentials_may_come_from_a_function() -> None:
    ObjectStoreSaver(
        S3Store(
            "bucket", credential_provider=lambda: {"access_key_id": "key", "secret_access_key": "x", "expires_at": None}
        )
    )  # type: ignore[arg-type, return-value, typeddict-item]


@pytest.mark.parametrize("endpoint", ["host:9000", "ftp://host", "http://", "http://user:hush@host", ""])
def test_an_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(Misuse, match="the option endpoint must be http://host:port"):
        connect("s3", "bucket", endpoint=endpoint, access_key_id="key", secret_access_key="secret")


def test_a_folder_that_may_not_be_used_is_told_at_once(tmp_path: Path) -> None:
    code = f"""
        import os, pathlib
        from langgraph_statekit import Misuse, open_saver
        from tests.faces import checkpoint, config, metadata
        folder = pathlib.Path({str(tmp_path)!r})
        for each in (folder, *folder.parents[:2]):
            each.chmod(0o755)
        (folder / "whole").mkdir()
        (folder / "whole").chmod(0o555)
        (folder / "a file").write_bytes(b"")
        savers = []
        for path in ("whole", "whole/below", "a%20file", "a%20file/below"):
            savers.append(open_saver(f"file://{{folder}}/{{path}}?retry_s={LONG_S}"))
            savers.append(open_saver(f"sqlite:///{{folder}}/{{path}}/state.db"))
        if os.getuid() == 0:
            os.seteuid(65534)
        for saver in savers:
            try:
                saver.put(config("t"), checkpoint({{"v": 1}}), metadata(), {{"v": 1}})
            except Misuse as error:
                assert "check" in str(error) or "correct" in str(error) or "cannot be made" in str(error), error
                assert error.__cause__ is not None
            else:
                raise AssertionError(saver)
        if os.getuid() == 0:
            os.seteuid(0)
        (folder / "whole").chmod(0o755)
    """
    lines = "\n".join(line[8:] for line in code.splitlines())
    subprocess.run([sys.executable, "-c", lines], check=True, cwd=Path(__file__).parents[2])


def test_of_the_errors_of_a_disk_those_that_may_pass_are_repeated(tmp_path: Path) -> None:
    driver = FileDriver(tmp_path)
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT):
        assert driver.final_error(OSError(code, "text")) is None
    for code in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENAMETOOLONG):
        assert "correct the folder" in str(driver.final_error(OSError(code, "text")))
