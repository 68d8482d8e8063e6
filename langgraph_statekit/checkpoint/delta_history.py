"""From the rows that a delta channel goes back to, to what LangGraph rebuilds it from. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory, PendingWrite

from langgraph_statekit.checkpoint.codec import Codec, Read, in_order
from langgraph_statekit.checkpoint.records import Ref, Row, Write, to_text


def assembled(
    codec: Codec,
    names: Mapping[bytes, str],
    seeds: Mapping[bytes, bytes],
    steps: Sequence[tuple[Row, Any, Collection[bytes]]],
    writes: Mapping[Ref, Sequence[Write]],
    read: Read,
) -> dict[str, DeltaChannelHistory]:
    """Return for each channel its writes, oldest first, and the value that they begin from if there is one.

    Args:
        codec: Unpacks values and writes.
        names: Channels by their 8-byte names.
        seeds: Frame keys of the values to begin from.
        steps: The rows, newest first, each with the names of the channels whose writes are wanted.
        writes: Of each row.
        read: Gives values.
    """
    found: dict[str, list[PendingWrite]] = {channel: [] for channel in names.values()}
    for row, _, open_channels in reversed(steps):
        wanted = {to_text(names[name]): names[name] for name in open_channels}
        for write in in_order(writes[row.ref]):
            if write.channel in wanted:
                found[wanted[write.channel]].append(codec.unpack_write(write))
    values: dict[str, Any] = {}
    result: dict[str, DeltaChannelHistory] = {}
    for name, channel in names.items():
        result[channel] = {"writes": found[channel]}
        if name in seeds:
            codec.unpack_value(values, channel, seeds[name], read)
        if channel in values:
            result[channel]["seed"] = values[channel]
    return result
