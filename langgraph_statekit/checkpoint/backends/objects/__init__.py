"""Checkpoints in an object store: S3, Google Cloud Storage, Azure, or files in a local directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote

from langgraph_statekit.checkpoint.backends.objects.backend import ObjectBackend
from langgraph_statekit.checkpoint.backends.objects.drivers import Driver
from langgraph_statekit.checkpoint.backends.objects.layout import checked_prefix
from langgraph_statekit.checkpoint.options import require_texts
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.tenants import of_tenant
from langgraph_statekit.checkpoint.urls import query_options, settings_of
from langgraph_statekit.errors import Misuse
from langgraph_statekit.extras import load

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["ObjectBackend", "ObjectStoreSaver"]

_OBSTORE = "checkpoint.backends.objects.obstore_driver"


class ObjectStoreSaver(StatekitSaver):
    """A checkpointer that keeps threads as objects; the store must offer conditional writes.

    With obstore stores it does not survive a fork: create it in the process that uses it.

    Args:
        store: `S3Store`, `GCSStore`, `AzureStore` or `MemoryStore` of obstore, or a `Driver`.
        prefix: Folder of all objects, of letters, digits and `_.-/`.
        tenant: Whose threads these are, any text; a saver sees those of its tenant only. They have a folder of their
            own in that of the prefix, `@acme/`. None: of none.
        retry_s: Seconds for which a failed request is repeated before `Unavailable` is raised: when nobody answers, or
            a disk is full. What waiting cannot mend raises `Misuse` at once, from any call: refused credentials, a
            bucket that does not exist, a folder that may not be written.
        grace_s: Seconds for which objects that `prune` and `delete_for_runs` made useless stay for readers that are
            under way; the thread's next change removes them. Deleted threads are removed at once; only the token of a
            lease that somebody took in the last ten seconds stays, until the next deletion.
        options: As in `StatekitSaver`.

    Raises:
        Misuse: The store is none of these or has no credentials, the prefix has other characters, or an option has a
            wrong value.
    """

    def __init__(
        self,
        store: ObjectStore | Driver,
        *,
        prefix: str = "",
        tenant: str | None = None,
        retry_s: float = 10.0,
        grace_s: float = 60.0,
        **options: Any,
    ) -> None:
        made: Driver = store if isinstance(store, Driver) else load(_OBSTORE, "ObstoreDriver")(store)
        folder = f"{checked_prefix(prefix)}/{of_tenant('', tenant)}".strip("/")
        backend = ObjectBackend(made, prefix=folder, retry_s=retry_s, grace_s=grace_s)
        super().__init__(backend, tenant=tenant, **options)

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
            access_key_id: Credentials of S3. What is not given comes from the environment, as obstore reads it; the
                network is asked for credentials only if `metadata_endpoint` or AWS_METADATA_ENDPOINT says where.
            secret_access_key: See `access_key_id`.
            config: Further settings of the obstore store, and its `client_options` and `retry_config`.
            options: As in the class.

        Raises:
            Misuse: The URL is none of these, nothing gives access to the store, or a setting is unknown or has a wrong
                value.
        """
        named = {
            "endpoint": endpoint,
            "region": region,
            "access_key_id": access_key_id,
            "secret_access_key": secret_access_key,
        }
        given = {key: value for key, value in named.items() if value is not None}
        require_texts(prefix=prefix, **given)
        if config is not None and not isinstance(config, Mapping):
            raise Misuse(f"the option config must be a mapping of settings, not {type(config).__name__}")
        settings = {**settings_of(url), **(config or {}), **given}
        scheme, _, place = url.partition("?")[0].partition("://")
        bucket, _, path = place.partition("/")
        store: Driver
        if scheme == "file":
            if bucket or not path or settings:
                raise Misuse("a directory is given as file:///absolute/path, without settings of an object store")
            # Not at the top: it needs a POSIX system, which the others do not.
            from langgraph_statekit.checkpoint.backends.objects.file_driver import FileDriver

            store = FileDriver(unquote(f"/{path}"))
        elif any(mark in place for mark in "@:#"):
            raise Misuse(
                f"{scheme}:// takes the bucket and a prefix only (what stands there is not shown, as it may be a "
                "password): pass access_key_id= and secret_access_key=, or what the store needs, as options"
            )
        elif not bucket:
            raise Misuse(f"{scheme}:// names no bucket: use s3://bucket/prefix, gs://, az:// or file:///dir")
        else:
            store = load(_OBSTORE, "connect")(scheme, bucket, **settings)
            prefix = f"{unquote(path).strip('/')}/{prefix}".strip("/")
        return cls(store, prefix=prefix, **options)
