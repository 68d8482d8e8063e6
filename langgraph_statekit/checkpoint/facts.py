"""What a store tells of itself to those who look after it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

OK: Final = "ok"
NOTE: Final = "note"
BAD: Final = "bad"


class Fact(NamedTuple):
    """One thing that a store promises, or does not.

    Attributes:
        name: As the store calls it, such as `appendfsync`.
        value: As the store tells it; `unknown` if it does not.
        verdict: `OK`; `NOTE` for what one should know; `BAD` where data may be lost or cannot be written.
        meaning: What follows from it, in plain words.
    """

    name: str
    value: str
    verdict: str = OK
    meaning: str = ""


class Usage(NamedTuple):
    """What a thread takes up.

    Attributes:
        size_bytes: Bytes of its checkpoints, values and writes as the store counts them; None if it does not tell.
        orphans: Checkpoints that are not stored, but have writes: a run that stores them is under way, or has died.
    """

    size_bytes: int | None
    orphans: int


def unknown(name: str, why: str, promise: str = "") -> Fact:
    """Return the fact that a store does not tell a setting."""
    return Fact(name, "unknown", NOTE, f"{why}{'; ' * bool(promise)}{promise}")


def format_fact(stored: int | None, newest: int) -> Fact:
    """Return the fact of a stored format; None: nothing is stored yet."""
    if stored is None:
        return Fact("format", "none", NOTE, "nothing is set up here yet; the first save does it")
    if stored > newest:
        return Fact("format", str(stored), BAD, f"this release reads up to {newest}: upgrade it")
    return Fact("format", str(stored), OK, f"this release reads up to {newest}")


def space_fact(free_bytes: int, total_bytes: int) -> Fact:
    """Return the fact of a disk's free space."""
    share = free_bytes / max(total_bytes, 1)
    full = share < 0.05
    meaning = "saves will soon fail: free some space, or prune threads" if full else ""
    return Fact("free disk space", f"{free_bytes / 1e9:.1f} GB ({share:.0%})", BAD if full else OK, meaning)


def network_kind(mounts: Sequence[str], path: str) -> str | None:
    """Return the kind of the file system that holds a path if it lies on a network, given the lines of /proc/mounts."""
    best, kind = "", ""
    for line in mounts:
        parts = line.split()
        if len(parts) < 3:
            continue
        place = parts[1].replace("\\040", " ")
        inside = path == place or path.startswith(f"{place.rstrip('/')}/")
        if inside and len(place) >= len(best):
            best, kind = place, parts[2]
    return kind if kind.startswith(("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs", "ceph", "glusterfs")) else None
