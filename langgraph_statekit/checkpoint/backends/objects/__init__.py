"""Checkpoints in an object store: S3, Google Cloud Storage, Azure, or files in a local directory."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_statekit.checkpoint.backends.objects.backend import ObjectBackend
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.layout import checked_prefix
from langgraph_statekit.checkpoint.codec import SECRET_KEYS
from langgraph_statekit.checkpoint.saver import StatekitSaver
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
        serde: Serializer of values and metadata; None for `StatekitSerializer`.
        secret_keys: Keys that are never stored in metadata, in lower case with `_`.
        workers: Threads that serve async callers.
    """

    def __init__(
        self,
        store: ObjectStore | Driver,
        *,
        prefix: str = "",
        retry_s: float = 10.0,
        grace_s: float = 60.0,
        serde: SerializerProtocol | None = None,
        secret_keys: Collection[str] = SECRET_KEYS,
        workers: int = 8,
    ) -> None:
        if not isinstance(store, Driver):
            from langgraph_statekit.checkpoint.backends.objects.obstore_driver import ObstoreDriver

            store = ObstoreDriver(store)
        backend = ObjectBackend(store, prefix=checked_prefix(prefix), retry_s=retry_s, grace_s=grace_s)
        super().__init__(backend, serde=serde, secret_keys=secret_keys, workers=workers)

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        prefix: str = "",
        endpoint: str | None = None,
        region: str | None = None,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        retry_s: float = 10.0,
        grace_s: float = 60.0,
        serde: SerializerProtocol | None = None,
        secret_keys: Collection[str] = SECRET_KEYS,
        workers: int = 8,
        **config: Any,
    ) -> Self:
        """Open a saver.

        Args:
            url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or `file:///directory`. Further
                settings may stand in its query.
            prefix: As in the class; below the one in the URL.
            endpoint: Where the store is; one that starts with `http://` is used without TLS.
            region: Region of an S3 bucket.
            access_key_id: Credentials of S3. What is not given comes from the environment, as obstore reads it.
            secret_access_key: See `access_key_id`.
            retry_s: As in the class.
            grace_s: As in the class.
            serde: As in the class.
            secret_keys: As in the class.
            workers: As in the class.
            config: Further settings of the obstore store, and its `client_options` and `retry_config`.
        """
        named = {
            "endpoint": endpoint,
            "region": region,
            "access_key_id": access_key_id,
            "secret_access_key": secret_access_key,
        }
        given = {key: value for key, value in named.items() if value is not None}
        parts = urlsplit(url)
        config = {**dict(parse_qsl(parts.query)), **config, **given}
        path = unquote(parts.path)
        store: Driver
        if parts.scheme == "file":
            from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver

            if parts.netloc or not path or config:
                raise Misuse(f"{url!r}: a directory is given as file:///absolute/path, without further settings")
            store = FileDriver(path)
        elif parts.scheme in ("s3", "gs", "az") and parts.netloc:
            from langgraph_statekit.checkpoint.backends.objects.obstore_driver import connect

            store = connect(parts.scheme, parts.netloc, **config)
            prefix = f"{path.strip('/')}/{prefix}".strip("/")
        else:
            raise Misuse(f"{url!r} is no object store: use s3://bucket/prefix, gs://, az:// or file:///directory")
        return cls(
            store,
            prefix=prefix,
            retry_s=retry_s,
            grace_s=grace_s,
            serde=serde,
            secret_keys=secret_keys,
            workers=workers,
        )
