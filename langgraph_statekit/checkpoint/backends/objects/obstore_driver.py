"""S3, Google Cloud Storage, Azure and memory, through obstore's blocking calls (its asyncio calls can abort the
interpreter at exit)."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import obstore
from obstore import exceptions
from obstore import store as stores

from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT, Changed, Driver, Found, Stat
from langgraph_statekit.checkpoint.facts import Fact
from langgraph_statekit.errors import Misuse

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=Exception)

_PAGE_KEYS: Final = 1000
_CLOCK_US: Final = 60_000_000
_PART_BYTES: Final = 8 * 1024 * 1024
_REFUSED: Final = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_WRONG: Final = (
    exceptions.InvalidPathError,
    exceptions.NotSupportedError,
    exceptions.UnknownConfigurationKeyError,
)
_NO_BUCKET: Final = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_DENIED: Final = re.compile(r"status code: 40[13]|InvalidToken|code: AccessDenied")
_FINAL: Final = re.compile(
    r"AuthorizationHeaderMalformed|InvalidBucketName|PermanentRedirect|configured region|BadScheme|UnknownIssuer"
    r"|NotValidForName"
)
"""What no repeat mends, of the errors that obstore does not tell apart."""
_LOGIN: Final = re.compile(r"(?<=://)[^/\s]*@")
_ENDPOINT: Final = re.compile(r"https?://[^\s@?#/]+(/[^\s@?#]*)?", re.IGNORECASE)
_ACCESS: Final[Mapping[type[Any], tuple[str, str, str]]] = {
    stores.S3Store: (
        "access_key_id|skip_signature|web_identity_token_file|container_credentials_|metadata_endpoint",
        "AWS_",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or pass access_key_id= and secret_access_key=; for a public "
        "bucket skip_signature=true; on EC2 metadata_endpoint=http://169.254.169.254",
    ),
    stores.GCSStore: (
        "service_account|application_credentials|token|metadata_",  # skip_signature is for reads only
        "GOOGLE_|SERVICE_ACCOUNT|GCE_",
        "set GOOGLE_SERVICE_ACCOUNT or pass service_account= or bearer_token=; on Google Cloud set "
        "GCE_METADATA_HOST=metadata.google.internal",
    ),
    stores.AzureStore: (
        "account_key|access_key|master_key|sas|token|client_secret|msi_|identity_endpoint|cli$|emulator|skip_signature"
        "|fabric",
        "AZURE_|IDENTITY_ENDPOINT",
        "set AZURE_STORAGE_ACCOUNT_KEY or pass account_key=; for a public container skip_signature=true; on Azure "
        "msi_endpoint=http://169.254.169.254/metadata/identity/oauth2/token",
    ),
}
"""What gives access to a store: a pattern of settings, the start of variables that hold such, and the remedy."""


def missing_access(kind: type[Any], settings: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return what to do when nothing gives access to a store; empty if something does.

    obstore would then ask a metadata service of the network for credentials.

    Args:
        kind: Of store.
        settings: Of the store.
        environ: The variables of the process.
    """
    known = [access for base, access in _ACCESS.items() if issubclass(kind, base)]
    if not known:
        return ""
    wanted, start, remedy = known[0]
    given = {**{name: value for name, value in environ.items() if re.match(start, name)}, **settings}
    held = [name for name, value in given.items() if str(value).lower() not in ("", "false", "none")]
    return "" if any(re.search(wanted, name.lower()) for name in held) else remedy


def _without_login(error: E) -> E:
    """Return the error, or one that does not show the user and the password of an endpoint."""
    text = str(error)
    return type(error)(_LOGIN.sub("***@", text)) if _LOGIN.search(text) else error


class ObstoreDriver(Driver):
    """An obstore store.

    Args:
        store: `S3Store`, `GCSStore`, `AzureStore` or `MemoryStore`. Its `retry_config` should be low, since
            the saver repeats what failed.
    """

    transient = (exceptions.BaseError, OSError, NotImplementedError)

    def __init__(self, store: ObjectStore) -> None:
        if isinstance(store, stores.LocalStore | stores.HTTPStore):
            raise Misuse(
                f"{type(store).__name__} cannot replace an object on condition: "
                "use ObjectStoreSaver.from_url('file:///dir') for files"
            )
        if not isinstance(store, stores.S3Store | stores.GCSStore | stores.AzureStore | stores.MemoryStore):
            raise Misuse(f"a store of obstore is needed, not {type(store).__name__}; for a URL use from_url")
        self.name = type(store).__name__
        if getattr(store, "credential_provider", None) is None:
            login = Path("~/.config/gcloud/application_default_credentials.json").expanduser()
            found = {"GOOGLE_APPLICATION_CREDENTIALS": str(login)} if login.is_file() else {}
            if remedy := missing_access(type(store), getattr(store, "config", {}), {**found, **os.environ}):
                raise Misuse(f"{self.name} has no credentials: {remedy}")
        self._store = store
        self._clock = (-_CLOCK_US, 0)
        self._asking = threading.Lock()
        self._pid = os.getpid()

    def final_error(self, error: Exception) -> Misuse | None:
        text = str(error).partition("\n\nDebug source")[0]
        if isinstance(error, _REFUSED) or _DENIED.search(text):
            return Misuse(f"{self.name} refused the credentials: {text}")
        if _NO_BUCKET.search(text):
            return Misuse(f"{self.name}: the bucket does not exist: create it first, or correct its name")
        if isinstance(error, (*_WRONG, NotImplementedError)) or _FINAL.search(str(error)):
            return Misuse(f"{self.name} cannot be used so, correct endpoint, region, bucket and credentials: {text}")
        return None

    def get(self, key: str) -> Found | None:
        try:
            return self._call(self._get, key)
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                raise
            return None

    def _get(self, key: str) -> Found:
        answer = obstore.get(self._store, key)
        return Found(bytes(answer.bytes()), _tag(answer.meta["e_tag"], answer.meta["version"]))

    def put(self, key: str, data: bytes, expect: str | None = None) -> str:
        mode: Any = {None: "overwrite", ABSENT: "create"}.get(expect) or _version(expect or "")
        try:
            done = self._call(obstore.put, self._store, key, data, mode=mode, chunk_size=_PART_BYTES)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise Changed(key) from error
        except FileNotFoundError as error:
            if expect and not _NO_BUCKET.search(str(error)):
                raise Changed(key) from error
            raise Misuse(f"{self.name}: the bucket does not exist: create it first, or correct its name") from error
        return _tag(done["e_tag"], done["version"])

    def list(self, prefix: str) -> Sequence[str]:
        return self._call(
            lambda: [item["path"] for item in obstore.list(self._store, prefix, chunk_size=_PAGE_KEYS).collect()]
        )

    def facts(self) -> Sequence[Fact]:
        told = "an acknowledged save survives what the service promises; versions and copies are set at the service"
        return [Fact("service", self.name, meaning=told)]

    def now_us(self, key: str) -> int:
        """Return the time by which the service dates an object; exact to a second, as HTTP dates are.

        Two requests at most once a minute, made by one thread; between them, and while the store has no answer, as it
        may when many hosts ask at once, the monotonic clock counts.
        """
        asked_us, told_us = self._clock
        if _since_us(asked_us) > _CLOCK_US:
            mine = self._asking.acquire(blocking=False)
            try:
                if mine or not told_us:
                    told_us = self._told_us(key)
                    self._clock = time.monotonic_ns() // 1000, told_us
            finally:
                if mine:
                    self._asking.release()
        asked_us, told_us = self._clock
        return told_us + _since_us(asked_us)

    def _told_us(self, key: str) -> int:
        asked_us, told_us = self._clock
        try:
            self._call(obstore.put, self._store, key, b"clock")
            return int(self._call(obstore.head, self._store, key)["last_modified"].timestamp() * 1e6)
        except self.transient as error:
            if not told_us or self.final_error(error) is not None:
                raise
            return told_us + _since_us(asked_us)

    def stats(self, prefix: str) -> Mapping[str, Stat]:
        items = self._call(lambda: obstore.list(self._store, prefix, chunk_size=_PAGE_KEYS).collect())
        return {item["path"]: Stat(item["size"], item["last_modified"].timestamp()) for item in items}

    def folders(self, prefix: str) -> Sequence[str]:
        found = self._call(obstore.list_with_delimiter, self._store, prefix)
        return [path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"]]

    def copy(self, source: str, target: str) -> bool:
        try:
            self._call(obstore.copy, self._store, source, target)
        except FileNotFoundError:
            return False
        return True

    def delete(self, keys: Sequence[str]) -> None:
        try:
            self._call(obstore.delete, self._store, keys)
        except FileNotFoundError:  # some stores stop a batch at a missing key
            for key in keys:
                try:
                    self._call(obstore.delete, self._store, key)
                except FileNotFoundError:
                    continue

    def _call(self, request: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if os.getpid() != self._pid:
            raise Misuse(
                "this process was forked from one that had opened the object store, and obstore does not survive "
                "a fork: create the saver in the child, or start processes with the 'spawn' method"
            )
        try:
            return request(*args, **kwargs)
        except self.transient as error:
            shown = _without_login(error)
        raise shown  # outside of the handler, or it would carry what obstore said


def connect(scheme: str, bucket: str, **config: Any) -> ObstoreDriver:
    """Open a bucket; what `config` leaves out comes from the environment, as obstore reads it.

    Args:
        scheme: `s3`, `gs` or `az`.
        bucket: Name of the bucket or container.
        config: obstore's settings of this kind of store, and `client_options`.
    """
    for name, value in config.items():
        if "endpoint" in name.lower() and not _ENDPOINT.fullmatch(str(value)):
            raise Misuse(
                f"the option {name} must be http://host:port or https://host, without user and password (it is not "
                "shown, as it may hold them): pass access_key_id= and secret_access_key="
            )
    kinds: dict[str, Any] = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}
    options: ClientConfig = {"timeout": "60s", "connect_timeout": "5s"}
    if str(config.get("endpoint", "")).startswith("http://"):
        options["allow_http"] = True
    if scheme == "gs" and "endpoint" in config:
        config["base_url"] = config.pop("endpoint")  # its name there
    options.update(config.pop("client_options", {}))
    retries: RetryConfig = {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}
    try:
        store = kinds[scheme](
            bucket, client_options=options, retry_config=config.pop("retry_config", retries), **config
        )
    except (ValueError, TypeError, exceptions.BaseError) as error:
        shown = _without_login(error)
    else:
        return ObstoreDriver(store)
    raise Misuse(f"{scheme}://{bucket} cannot be opened: {str(shown).splitlines()[0]}") from shown


def _since_us(asked_us: int) -> int:
    return time.monotonic_ns() // 1000 - asked_us


def _tag(e_tag: str | None, version: str | None) -> str:
    return f"{version or ''}\n{e_tag or ''}"


def _version(tag: str) -> dict[str, str]:
    version, _, e_tag = tag.partition("\n")
    return {name: value for name, value in (("e_tag", e_tag), ("version", version)) if value}
