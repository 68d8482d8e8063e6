"""Which channels of a checkpoint have a value: so that a lost one is not read as one that never was.

A row names all versions of channels, and a version may have no value. Without a note of which have one, a graph would
go on without a channel whose value somebody removed, or a server evicted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from langgraph_statekit.errors import Corrupt

_KEY: Final = "$"
"""Where a stored checkpoint has the note: bits as a hexadecimal number, the lowest for the first channel by name."""


def noted(checkpoint: Mapping[str, Any], values: Collection[str]) -> dict[str, Any]:
    """Return a checkpoint without values, with a note of the channels that have one."""
    bits = 0
    for name in sorted(checkpoint["channel_versions"], reverse=True):
        bits = bits << 1 | (name in values)
    return {**checkpoint, _KEY: f"{bits:x}"}


def taken(stored: Any) -> tuple[dict[str, Any], list[str]]:
    """Return a stored checkpoint without its note, and the channels that have a value: none if there was no note."""
    bits = int(stored.pop(_KEY, "0"), 16)
    names = sorted(stored["channel_versions"]) if bits else ()
    return stored, [name for at, name in enumerate(names) if bits >> at & 1]


def require(present: Collection[str], values: Collection[str]) -> None:
    """Return if all values are there.

    Raises:
        Corrupt: One was removed or lost, in the store.
    """
    if lost := [name for name in present if name not in values]:
        raise Corrupt(
            f"channel {lost[0]!r}: its value was stored and is not there any more; restore the thread from a copy, or"
            " go on from a checkpoint that is whole"
        )
