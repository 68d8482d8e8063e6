"""Checkpoints in an object store: S3, Google Cloud Storage, Azure, or files in a local directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from langgraph_statekit.checkpoint.backends.objects.backend import ObjectBackend
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.layout import checked_prefix
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.urls import query_options
from langgraph_statekit.errors import Misuse

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ObjectBackend", "ObjectStoreSaver"]


class ObjectStoreSaver(StatekitSaver):
    """A checkpointer that keeps threads as objects; the store must offer conditional writes.

    With obstore stores it does not survive a fork: create it in the process that uses it.

    Args:
        store: `S3Store`, `GCSStore`, `AzureStore` or `MemoryStore` of obstore, or a `Driver`.
        prefix: Folder of all objects, of letters, digits and `_.-/`.
        retry_s: Seconds for which a failed request is repeated before `Unavailable` is raised.
        grace_s: Seconds for which objects that `prune` and `delete_for_runs` made useless stay for readers that are
            under way; the thread's next change removes them. Deleted threads are removed at once.
        options: As in `StatekitSaver`.

    Raises:
        Misuse: The store is none of these, or the prefix has other characters.
    """

    def __init__(
        self,
        store: ObjectStore | Driver,
        *,
        prefix: str = "",
        retry_s: float = 10.0,
        grace_s: float = 60.0,
        **options: Any,
    ) -> None:
        if not isinstance(store, Driver):
            from langgraph_statekit.checkpoint.backends.objects.obstore_driver import ObstoreDriver

            store = ObstoreDriver(store)
        backend = ObjectBackend(store, prefix=checked_prefix(prefix), retry_s=retry_s, grace_s=grace_s)
        super().__init__(backend, **options)

    @classmethod
    @query_options
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Self:
        """Open a saver.

        Args:
            url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///directory`. Options may
                stand in its query; what is none is a setting of the obstore store.
            prefix: As in the class; below the one in the URL.
            endpoint: Where the store is; one that starts with `http://` is used without TLS.
            region: Region of an S3 bucket.
            access_key_id: Credentials of S3. What is not given comes from the environment, as obstore reads it.
            secret_access_key: See `access_key_id`.
            config: Further settings of the obstore store, and its `client_options` and `retry_config`.
            options: As in the class.

        Raises:
            Misuse: The URL is none of these, or a setting is unknown.
        """
        named = {
            "endpoint": endpoint,
            "region": region,
            "access_key_id": access_key_id,
            "secret_access_key": secret_access_key,
        }
        parts = urlsplit(url)
        path = unquote(parts.path)
        given = {key: value for key, value in named.items() if value is not None}
        settings = {**dict(parse_qsl(parts.query)), **(config or {}), **given}
        store: Driver
        if parts.scheme == "file":
            from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver

            if parts.netloc or not path or settings:
                raise Misuse("a directory is given as file:///absolute/path, without settings of an object store")
            store = FileDriver(path)
        elif parts.scheme in ("s3", "gs", "az") and parts.netloc:
            from langgraph_statekit.checkpoint.backends.objects.obstore_driver import connect

            store = connect(parts.scheme, parts.netloc, **settings)
            prefix = f"{path.strip('/')}/{prefix}".strip("/")
        else:
            raise Misuse(
                f"{parts.scheme}:// names no object store: use s3://bucket/prefix, gs://, az:// or file:///dir"
            )
        return cls(store, prefix=prefix, **options)
