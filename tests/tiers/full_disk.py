"""A process that works on two tiers until a disk is full, and goes on when it is not: `python -m tests.tiers.full_disk`.

Its arguments: URL of the hot store, its options as JSON, folder of the cold store, and `quota`, under which no file may
grow beyond a size, or a folder that is made a small disk of its own, in which either store lies.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langgraph_statekit import Unavailable, open_saver
from tests.faces import checkpoint, config, id_of, metadata

SIZE_BYTES = 1 << 20


def grow(saver: Any, count: int, size_bytes: int) -> Iterator[str]:
    """Put checkpoints with values that do not compress below the latest one."""
    found = saver.get_tuple(config())
    number = found.checkpoint["channel_values"]["number"] + 1 if found else 0
    at = found.config if found else config()
    for each in range(number, number + count):
        values = {"noise": os.urandom(size_bytes), "number": each}
        made = checkpoint(values, dict.fromkeys(values, f"{each:04}.x"))
        at = saver.put(at, made, metadata(each), made["channel_versions"])
        yield id_of(at)


class Quota:
    """No file may be larger than this."""

    def __enter__(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE_BYTES, resource.RLIM_INFINITY))

    def __exit__(self, *error: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


class Disk:
    """A folder is a disk of this size; it gets a larger one."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._mount(f"size={2 * SIZE_BYTES}")

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self._folder], check=True)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self._mount(f"remount,size={200 * SIZE_BYTES}")


def main(hot: str, options: str, cold: str, limit: str) -> None:
    small = Quota() if limit == "quota" else Disk(limit)
    given = {**json.loads(options), "cold": f"file://{cold}?retry_s=0", "mode": "write_through"}
    with open_saver(hot, **given) as saver:
        put = [*grow(saver, 3, 2_000)]
        with small:
            told = ""
            try:
                for id in grow(saver, 50, 200_000 if limit != "quota" else 2 * SIZE_BYTES):
                    put.append(id)  # noqa: PERF402 - what came before the error counts
            except Unavailable as error:
                told = str(error)
            assert told, "the disk did not get full"
            assert set(put) <= {id_of(item.config) for item in saver.list(config())}
        put += grow(saver, 3, 2 * SIZE_BYTES)
        before = {id_of(item.config): item.checkpoint for item in saver.list(config())}
        assert set(put) <= before.keys()
    with open_saver(f"sqlite:///{Path(cold).parent}/empty.db", cold=f"file://{cold}") as below:
        assert {id_of(item.config): item.checkpoint for item in below.list(config())} == before
    print(told)


if __name__ == "__main__":
    main(*sys.argv[1:])
