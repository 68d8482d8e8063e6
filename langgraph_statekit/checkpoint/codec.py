"""LangGraph objects to records and back.

A plain value is the length of its serializer's type tag (1 byte), the tag, and the serialized bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, cast

import ormsgpack
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    EXCLUDED_METADATA_KEYS,
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from langgraph_statekit.checkpoint import presence
from langgraph_statekit.checkpoint.claims import TOKEN_KEY, token_of
from langgraph_statekit.checkpoint.frames import seal, unseal
from langgraph_statekit.checkpoint.migrations import Pending, migrate, migrate_writes, stamp_of, stamped, with_migrated
from langgraph_statekit.checkpoint.records import Ref, Row, Write, from_text, to_text
from langgraph_statekit.errors import Corrupt, DataError, Misuse, SchemaTooNew
from langgraph_statekit.versions import VERSION_KEY, Schema, path_of, version_in

Read = Callable[[bytes], bytes | None]
"""Gives the plain value of a frame key, None if it has none."""

_DELTA_COUNTERS: Final = "counters_since_delta_snapshot"


@lru_cache(65536)
def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


@lru_cache(4096)
def _folded(key: str) -> str:
    return key.lower().replace("-", "_")


def channel_key(ns: str, channel: str) -> bytes:
    """Return the 8 bytes that name a channel of a namespace (as storage text) in frame keys."""
    return _digest(f"{ns}\0{to_text(channel)}")


@lru_cache(16384, typed=True)
def frame_key(ns: str, channel: str, version: str | int | float) -> bytes:
    """Return the 16-byte key of one version of a channel; equal numbers are one version, as in a dict."""
    if isinstance(version, float) and version.is_integer():
        version = int(version)
    return channel_key(ns, channel) + _digest(f"{type(version).__name__}\0{to_text(version)}")


def ref_of(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Return thread, namespace and checkpoint id (None: the latest) of a config, as storage text."""
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if thread is None:
        raise Misuse('the config names no thread: pass {"configurable": {"thread_id": ...}}')
    id = configurable.get("checkpoint_id")
    return to_text(thread), to_text(configurable.get("checkpoint_ns") or ""), to_text(id) if id else None


def config_of(ref: Ref, token: int | None = None) -> RunnableConfig:
    """Return the config that addresses a checkpoint; with a token, LangGraph's next save under it carries it on."""
    address: dict[str, Any] = {
        "thread_id": from_text(ref.thread),
        "checkpoint_ns": from_text(ref.ns),
        "checkpoint_id": from_text(ref.id),
    }
    return {"configurable": address if token is None else {**address, TOKEN_KEY: token}}


def matches(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Say whether every key has exactly the wanted value; a missing key counts as None, as in InMemorySaver."""
    return all(metadata.get(key) == want for key, want in filter.items())


class Codec:
    """Packs and unpacks with one serializer and the state schemas of one graph; holds no state of its own."""

    def __init__(
        self,
        serde: SerializerProtocol,
        secret_keys: Collection[str],
        *,
        require_lease: bool = False,
        schemas: Mapping[str, Schema] | None = None,
        audit: Callable[[Mapping[str, Any]], str] | None = None,
    ) -> None:
        self.serde = serde
        self.secret_keys = secret_keys
        self.require_lease = require_lease
        self.schemas = schemas or {}
        self.audit = audit

    def schema(self, ns: str) -> Schema | None:
        """Return the schema of a namespace (as storage text); None: its states have no versions."""
        return self.schemas.get(path_of(from_text(ns))) if self.schemas else None

    def token(self, config: RunnableConfig) -> int | None:
        """Return the token of the lease under which a config saves.

        Raises:
            Misuse: It has none and one is required, or it is no token.
        """
        token = token_of(config.get("configurable", {}))
        if token is None and self.require_lease:
            raise Misuse("the saver was made with require_lease=True: save with the config of saver.lease(thread_id)")
        return token

    def pack_put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        settled: Callable[[tuple[Ref, int]], Any] = lambda parent: False,
        held: Callable[[Ref], Collection[bytes] | None] = lambda parent: None,
    ) -> tuple[Row, list[tuple[bytes, bytes | None]]]:
        """Return the row of a checkpoint, and key and plain value of each new version, all serialized now.

        None in place of a plain value says that the version has none. Values that a migration changed count as new,
        unless `settled` says that they were stored with the parent. The row notes which channels have a value: those
        of new versions, and those that the parent has, as far as `held` knows its keys.

        Raises:
            DataError: A value cannot be stored; the message names the channel.
        """
        thread, ns, parent = ref_of(config)
        schema, origin = self.schema(ns), Ref(thread, ns, parent or "")
        if schema is not None and not settled((origin, schema.version)):
            new_versions = with_migrated(checkpoint, new_versions)
        plain = dict(checkpoint)
        values = cast("dict[str, Any]", plain.pop("channel_values"))
        versions = checkpoint["channel_versions"]
        if parent is None:  # a copy of a first checkpoint leans on nothing that the store could ask for
            new_versions = {**{name: version for name, version in versions.items() if name in values}, **new_versions}
        keys = {channel: frame_key(ns, channel, version) for channel, version in versions.items()}
        plains = [
            (
                frame_key(ns, channel, version),
                self.dump(f"channel {channel!r}", values[channel]) if channel in values else None,
            )
            for channel, version in new_versions.items()
        ]
        stored = held(origin) or ()
        present = [name for name, key in keys.items() if name in values and (name in new_versions or key in stored)]
        merged = self._metadata(config, metadata)
        if schema is not None and schema.version > 1 and VERSION_KEY not in metadata:
            merged[VERSION_KEY] = schema.version
        run_id = merged.get("run_id")
        row = Row(
            ref=Ref(thread, ns, to_text(checkpoint["id"])),
            parent=parent,
            packed_keys=b"".join(keys.values()),
            packed_deltas=b"".join(
                [channel_key(ns, channel) for channel in merged.get(_DELTA_COUNTERS) or () if channel in versions]
            ),
            run_id=None if run_id is None else to_text(run_id),
            body=self.pack_body(plain, present, merged),
            audit=None if self.audit is None else self.audit(merged),
        )
        return row, plains

    def pack_values(self, ns: str, checkpoint: Checkpoint, but: ChannelVersions) -> list[tuple[bytes, bytes | None]]:
        """Return key and plain value of each channel that has a value and is not in `but`."""
        values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
        return [
            (frame_key(ns, channel, version), self.dump(f"channel {channel!r}", values[channel]))
            for channel, version in versions.items()
            if channel in values and channel not in but
        ]

    def pack_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> tuple[Ref, list[Write]]:
        """Return the address of the checkpoint and the writes of one task, all serialized now.

        Raises:
            DataError: A value cannot be stored; the message names the channel.
        """
        thread, ns, id = ref_of(config)
        if id is None:
            raise Misuse("put_writes needs the checkpoint's id in configurable['checkpoint_id']")
        schema = self.schema(ns)
        path = to_text(task_path if schema is None else stamped(task_path, schema.version))
        return Ref(thread, ns, id), [
            Write(
                task=to_text(task_id),
                idx=WRITES_IDX_MAP.get(channel, position),
                channel=to_text(channel),
                path=path,
                data=seal(self.dump(f"channel {channel!r} (a write of task {task_id})", value)),
            )
            for position, (channel, value) in enumerate(writes)
        ]

    def metadata(self, row: Row) -> dict[str, Any]:
        """Return the metadata of a row without reading its checkpoint."""
        parts = _parts(row)
        return cast("dict[str, Any]", self._load_typed(parts[2], parts[3]))

    def checkpoint(self, row: Row) -> dict[str, Any]:
        """Return the checkpoint of a row without its values."""
        parts = _parts(row)
        return presence.taken(self._load_typed(parts[0], parts[1]))[0]

    def present(self, row: Row) -> dict[str, bytes]:
        """Return the channels of a row that have a value, as far as it notes them, and the keys of their values."""
        parts = _parts(row)
        plain, names = presence.taken(self._load_typed(parts[0], parts[1]))
        return {name: frame_key(row.ref.ns, name, plain["channel_versions"][name]) for name in names}

    def unpack(self, row: Row, read: Read, writes: Iterable[Write], token: int | None = None) -> CheckpointTuple:
        """Return LangGraph's tuple from a row, its values and writes; every object in it is new.

        Its configs carry the token. A state of an older version is migrated.

        Raises:
            Corrupt: A value that was stored is not there any more.
            SchemaTooNew: A worker with a later version of the state wrote it.
        """
        parts = _parts(row)
        plain, present = presence.taken(self._load_typed(parts[0], parts[1]))
        values: dict[str, Any] = {}
        for channel, version in plain["channel_versions"].items():
            self.unpack_value(values, channel, frame_key(row.ref.ns, channel, version), read)
        presence.require(present, values)
        plain["channel_values"] = values
        checkpoint = cast(Checkpoint, plain)
        metadata = self._load_typed(parts[2], parts[3])
        schema = self.schema(row.ref.ns)
        return CheckpointTuple(
            config=config_of(row.ref, token),
            checkpoint=checkpoint,
            metadata=cast(CheckpointMetadata, metadata),
            parent_config=None if row.parent is None else config_of(row.ref._replace(id=row.parent), token),
            pending_writes=[self.unpack_write(write) for write in in_order(writes)]
            if schema is None
            else self._newest(schema, row, checkpoint, metadata, in_order(writes)),
        )

    def _newest(
        self,
        schema: Schema,
        row: Row,
        checkpoint: Checkpoint,
        metadata: dict[str, Any],
        writes: Sequence[Write],
    ) -> list[tuple[str, str, Any]]:
        """Bring a checkpoint and its metadata to the schema's version, and return its pending writes."""
        version = version_in(metadata)
        stamps = [stamp_of(from_text(write.path)) for write in writes]
        if (newest := max(version, *stamps, 0)) > schema.version:
            raise SchemaTooNew(
                f"thread {from_text(row.ref.thread)!r} has version {newest} of the state {schema.name}, this worker "
                f"knows versions up to {schema.version}: run it with the newer code"
            )

        def dump(name: str, value: Any) -> bytes:
            return self.dump(f"channel {name!r}, migrated to version {schema.version},", value)

        deltas = metadata.get(_DELTA_COUNTERS) or ()
        if version < schema.version:
            migrate(schema, version, checkpoint, deltas, dump)
            metadata[VERSION_KEY] = schema.version
        pending = [Pending(at, *self.unpack_write(write)) for at, write in zip(stamps, writes, strict=True)]
        if all(at == schema.version for at in stamps):
            return [write[1:] for write in pending]
        return migrate_writes(schema, checkpoint, pending, deltas, dump)

    def unpack_value(self, values: dict[str, Any], channel: str, key: bytes, read: Read) -> None:
        """Add the value of a channel's version to `values`, if it has one."""
        with _naming(f"channel {channel!r}"):
            plain = read(key)
            if plain is not None:
                values[channel] = self._load(plain)

    def unpack_write(self, write: Write) -> tuple[str, str, Any]:
        """Return (task id, channel, value)."""
        channel = from_text(write.channel)
        with _naming(f"a write to channel {channel!r}"):
            return from_text(write.task), channel, self._load(unseal(write.data))

    def _load(self, plain: bytes) -> Any:
        start = 1 + plain[0] if plain else 1
        if len(plain) < start:
            raise Corrupt("the type of the value is cut off; restore the thread from a copy")
        try:
            tag = plain[1:start].decode()
        except UnicodeDecodeError as error:
            raise Corrupt("the type of the value is not readable; restore the thread from a copy") from error
        return self._load_typed(tag, plain[start:])

    def _metadata(self, config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
        merged: dict[str, Any] = {key: value for key, value in metadata.items() if not self._secret(key)}
        for extra in (config.get("metadata"), config.get("configurable")):
            for key, value in (extra or {}).items():
                if key in merged or key in EXCLUDED_METADATA_KEYS or str(key).startswith("__") or self._secret(key):
                    continue
                if isinstance(value, str | int | float):
                    merged[key] = value
        return merged

    def _secret(self, key: object) -> bool:
        return _folded(str(key)) in self.secret_keys

    def pack_body(
        self, checkpoint: Mapping[str, Any], values: Collection[str], metadata: Any, more: Sequence[bytes] = ()
    ) -> bytes:
        """Return the body of a row: a checkpoint, whose values are elsewhere, metadata, and parts no reader needs."""
        parts = (
            *self._typed("checkpoint", presence.noted(checkpoint, values)),
            *self._typed("metadata", metadata),
            *more,
        )
        return seal(ormsgpack.packb(parts))

    def dump(self, what: str, value: Any) -> bytes:
        """Return the plain bytes of a value; `what` names it in an error."""
        tag, payload = self._typed(what, value)
        mark = tag.encode()
        return b"".join((bytes((len(mark),)), mark, payload))

    def _typed(self, what: str, value: Any) -> tuple[str, bytes]:
        try:
            return self.serde.dumps_typed(value)
        except Exception as error:
            raise DataError(f"{what} cannot be stored: {error}") from error

    def _load_typed(self, tag: str, payload: bytes) -> Any:
        try:
            return self.serde.loads_typed((tag, payload))
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"the value cannot be read (type tag {tag!r}): {error}") from error


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise type(error)(f"{what}: {error}") from error


def in_order(writes: Iterable[Write]) -> list[Write]:
    """Return writes in the order in which a run applies them."""
    return sorted(writes, key=lambda w: writes_sort_key(w.path, w.task, w.idx))


def _parts(row: Row) -> tuple[str, bytes, str, bytes]:
    return cast("tuple[str, bytes, str, bytes]", ormsgpack.unpackb(unseal(row.body)))
