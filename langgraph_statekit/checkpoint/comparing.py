"""A thread on its way from one checkpointer to another: what of it is there, and whether both sides agree. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple

from langgraph_statekit.checkpoint.exact import lost


class Entry(NamedTuple):
    """A checkpoint of a thread, without its content."""

    ns: str
    id: str
    parent: str | None
    open: tuple[str, ...]
    """Delta channels without a value here."""


@dataclass(slots=True)
class Thread:
    """One thread under way.

    Attributes:
        id: Thread id.
        left_out: Metadata keys to leave out.
        entries: Checkpoints of the source, oldest first.
        labels: Namespace and id of those that have a label, if the target can keep it.
        held: Namespace, channel and version of what the target has, and whether with a value.
    """

    id: str
    left_out: Collection[str]
    entries: Sequence[Entry] = ()
    labels: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    held: dict[tuple[str, str, Any], bool] = field(default_factory=dict)

    @property
    def places(self) -> set[tuple[str, str]]:
        """Namespace and id of each checkpoint of the source."""
        return {(entry.ns, entry.id) for entry in self.entries}

    def at(self, entry: Entry) -> RunnableConfig:
        """Return the address of a checkpoint."""
        return address_of(self.id, entry.ns, entry.id)

    def metadata(self, item: CheckpointTuple) -> dict[str, Any]:
        """Return the metadata of a checkpoint that goes along."""
        return {key: value for key, value in item.metadata.items() if key not in self.left_out}

    def new_versions(self, ns: str, item: CheckpointTuple) -> dict[str, Any]:
        """Return the versions that are not stored yet, or stored without the value that is here."""
        values = item.checkpoint["channel_values"]
        return {
            channel: version
            for channel, version in item.checkpoint["channel_versions"].items()
            if (ns, channel, version) not in self.held or (channel in values and not self.held[ns, channel, version])
        }

    def hold(self, ns: str, item: CheckpointTuple) -> None:
        """Note that the target has a checkpoint."""
        values = item.checkpoint["channel_values"]
        for channel, version in item.checkpoint["channel_versions"].items():
            key = (ns, channel, version)
            self.held[key] = self.held.get(key, False) or channel in values


def is_behind(thread: Thread, ns: str, want: CheckpointTuple, got: CheckpointTuple) -> bool:
    """Say whether the target lacks nothing but some writes, which its source got since."""
    if difference_of(thread, ns, want._replace(pending_writes=[]), got._replace(pending_writes=[])) is not None:
        return False
    missing = list(want.pending_writes or [])
    for write in got.pending_writes or []:
        place = next((n for n, other in enumerate(missing) if lost(other, write) is None), None)
        if place is None:
            return False
        del missing[place]
    return True


def relabelled(thread: Thread, found: Mapping[str, tuple[str, str]]) -> str | None:
    """Return the first label of the target that names another checkpoint than in the source; None: none does."""
    for label, at in found.items():
        if (wanted := thread.labels.get(label, at)) != at:
            return f"label {label!r} names checkpoint {at[1]!r} and not {wanted[1]!r}"
    return None


def difference_of(thread: Thread, ns: str, want: CheckpointTuple, got: CheckpointTuple) -> str | None:
    """Return the first field in which a checkpoint of the target differs; None: in none."""
    if parent_of(want) != parent_of(got):
        return f"parent {parent_of(want)!r} becomes {parent_of(got)!r}"
    metadata = thread.metadata(want)
    if odd := metadata.keys() ^ got.metadata.keys():
        return f"metadata key {min(odd)!r} is {'lost' if min(odd) in metadata else 'added'} (see without_metadata)"
    before, after = ({**cast("dict[str, Any]", item.checkpoint)} for item in (want, got))
    values, others = before.pop("channel_values"), after.pop("channel_values")
    # A version has one value in most stores, so a snapshot shows also where the version was merely carried on.
    carried = {
        channel
        for channel in others.keys() - values.keys()
        if thread.held.get((ns, channel, want.checkpoint["channel_versions"].get(channel)))
    }
    others = {channel: value for channel, value in others.items() if channel not in carried}
    return next(
        (
            f"{field}{where}"
            for field, one, other in (
                ("metadata", metadata, dict(got.metadata)),
                ("checkpoint", before, after),
                ("channel_values", values, others),
                ("pending_writes", want.pending_writes or [], got.pending_writes or []),
            )
            if (where := lost(one, other)) is not None
        ),
        None,
    )


def delta_channels(item: CheckpointTuple) -> Iterable[str]:
    """Return the delta channels of a checkpoint."""
    counters: Any = item.metadata.get("counters_since_delta_snapshot") or ()
    return [channel for channel in counters if channel in item.checkpoint["channel_versions"]]


def parent_of(item: CheckpointTuple) -> str | None:
    """Return the id of a checkpoint's parent."""
    return item.parent_config["configurable"].get("checkpoint_id") if item.parent_config else None


def address_of(thread: str, ns: str, id: str | None) -> RunnableConfig:
    """Return the config of a checkpoint, without an id that of a namespace."""
    address = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": address if id is None else {**address, "checkpoint_id": id}}


def named(thread: Thread, entry: Entry) -> str:
    """Return how errors name a checkpoint."""
    return f"checkpoint {entry.id!r} of thread {thread.id!r}, namespace {entry.ns!r}"
