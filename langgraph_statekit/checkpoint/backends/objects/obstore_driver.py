"""S3, Google Cloud Storage, Azure and memory, through obstore's blocking calls (its asyncio calls can abort the
interpreter at exit)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import obstore
from obstore import exceptions
from obstore import store as stores

from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT, Changed, Driver, Found
from langgraph_statekit.errors import Misuse

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

P = ParamSpec("P")
T = TypeVar("T")

_PAGE_KEYS: Final = 1000
_PART_BYTES: Final = 32 * 1024 * 1024
_REFUSED: Final = (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)
_WRONG: Final = (
    exceptions.InvalidPathError,
    exceptions.NotSupportedError,
    exceptions.UnknownConfigurationKeyError,
)


class ObstoreDriver(Driver):
    """An obstore store.

    Args:
        store: `S3Store`, `GCSStore`, `AzureStore` or `MemoryStore`. Its `retry_config` should be low, since
            the saver repeats what failed.
    """

    transient = (exceptions.BaseError, OSError)

    def __init__(self, store: ObjectStore) -> None:
        if isinstance(store, stores.LocalStore | stores.HTTPStore):
            raise Misuse(
                f"{type(store).__name__} cannot replace an object on condition: "
                "use ObjectStoreSaver.from_url('file:///dir') for files"
            )
        if not isinstance(store, stores.S3Store | stores.GCSStore | stores.AzureStore | stores.MemoryStore):
            raise Misuse(f"a store of obstore is needed, not {type(store).__name__}; for a URL use from_url")
        self.name = type(store).__name__
        self._store = store
        self._pid = os.getpid()

    def get(self, key: str) -> Found | None:
        try:
            return self._call(self._get, key)
        except FileNotFoundError:
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
            if expect:
                raise Changed(key) from error
            raise Misuse(f"{self.name}: the bucket does not exist: create it first") from error
        return _tag(done["e_tag"], done["version"])

    def list(self, prefix: str) -> Sequence[str]:
        return self._call(
            lambda: [item["path"] for item in obstore.list(self._store, prefix, chunk_size=_PAGE_KEYS).collect()]
        )

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
        except _REFUSED as error:
            raise Misuse(f"{self.name} refused the credentials: {error}") from error
        except (*_WRONG, NotImplementedError) as error:
            raise Misuse(f"{self.name}: {error}") from error
        except exceptions.GenericError as error:
            if "NoSuchBucket" in str(error):
                raise Misuse(f"{self.name}: the bucket does not exist: create it first") from error
            raise


def connect(scheme: str, bucket: str, **config: Any) -> ObstoreDriver:
    """Open a bucket; what `config` leaves out comes from the environment, as obstore reads it.

    Args:
        scheme: `s3`, `gs` or `az`.
        bucket: Name of the bucket or container.
        config: obstore's settings of this kind of store, and `client_options`.
    """
    kinds: dict[str, Any] = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}
    options: ClientConfig = {"timeout": "60s", "connect_timeout": "5s"}
    if str(config.get("endpoint", "")).startswith("http://"):
        options["allow_http"] = True
    options.update(config.pop("client_options", {}))
    retries: RetryConfig = {"max_retries": 0, "retry_timeout": timedelta(seconds=60)}
    try:
        return ObstoreDriver(
            kinds[scheme](bucket, client_options=options, retry_config=config.pop("retry_config", retries), **config)
        )
    except (ValueError, exceptions.BaseError) as error:
        raise Misuse(f"{scheme}://{bucket} cannot be opened: {str(error).splitlines()[0]}") from error


def _tag(e_tag: str | None, version: str | None) -> str:
    return f"{version or ''}\n{e_tag or ''}"


def _version(tag: str) -> dict[str, str]:
    version, _, e_tag = tag.partition("\n")
    return {name: value for name, value in (("e_tag", e_tag), ("version", version)) if value}
