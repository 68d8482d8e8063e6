"""What holds for stores in local files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from langgraph_statekit.checkpoint.facts import BAD, Fact, network_kind, space_fact


def local_facts(path: Path) -> Iterator[Fact]:
    """Yield facts of the disk and the permissions of a file or folder, which need not exist."""
    folder = path
    while not os.path.exists(folder):
        folder = folder.parent
    place = folder if os.path.isdir(folder) else folder.parent
    writable = os.access(folder, os.R_OK | os.W_OK) and os.access(place, os.W_OK | os.X_OK)
    told = "" if writable else "this user may not write there: correct the owner or the mode"
    yield Fact("permissions", "read and write" if writable else "not writable", "ok" if writable else BAD, told)
    usage = shutil.disk_usage(place)
    yield space_fact(usage.free, usage.total)
    mounts = Path("/proc/mounts")
    if mounts.exists():
        kind = network_kind(mounts.read_text(errors="replace").splitlines(), str(path.resolve()))
        if kind is not None:
            yield Fact("file system", kind, BAD, "locks and syncs of network file systems cannot be trusted")
