"""Objects as files: written aside, synced, then renamed, so that a crash at any point leaves the old or the new one."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from langgraph_statekit.checkpoint.backends.local_facts import local_facts
from langgraph_statekit.checkpoint.backends.objects.drivers import ABSENT, Changed, Driver, Found
from langgraph_statekit.checkpoint.facts import Fact
from langgraph_statekit.errors import Misuse

_ATTEMPTS: Final = 16
_FINAL: Final = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG),
    *(errno.ELOOP, errno.EINVAL, errno.ENOTSUP),
}
"""What waiting does not change; a full disk may get free, and a busy system idle."""


class FileDriver(Driver):
    """Objects below a local directory, for any number of threads and processes of one machine.

    Args:
        root: The directory; created when first written to.
        lock_wait_s: Seconds to wait for others who replace objects of the same folder.
    """

    transient = (OSError,)

    def __init__(self, root: str | Path, *, lock_wait_s: float = 10.0) -> None:
        self._root = Path(root).absolute()
        self.name = f"file://{self._root}"
        self._lock_wait_s = lock_wait_s
        self._swept = False

    def final_error(self, error: Exception) -> Misuse | None:
        if not isinstance(error, OSError) or error.errno not in _FINAL:
            return None
        return Misuse(f"{self.name} cannot be used, correct the folder, its permissions or its mount: {error}")

    def get(self, key: str) -> Found | None:
        try:
            data = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        return Found(data, _tag(data))

    def put(self, key: str, data: bytes, expect: str | None = None) -> str:
        path = self._path(key)
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):  # a delete took the empty folder away meanwhile
                self._put(path, data, expect)
                return _tag(data)
        self._put(path, data, expect)
        return _tag(data)

    def _put(self, path: Path, data: bytes, expect: str | None) -> None:
        with self._aside(data) as aside:
            _make(path.parent)
            # Relative to the open folder: one that was removed and made again is not the one that is locked.
            with _opened(path.parent) as folder:
                if expect is not None:
                    self._lock(folder, path)
                    if expect != _tag_at(folder, path.name):
                        self._prune(path.parent)
                        raise Changed(path.name)
                os.replace(aside, path.name, dst_dir_fd=folder)
                os.fsync(folder)

    def list(self, prefix: str) -> Sequence[str]:
        found = []
        for folder, below, names in os.walk(self._path(prefix), onerror=_unless_gone):
            below[:] = [name for name in below if not name.startswith(".")]
            found += [(Path(folder) / name).relative_to(self._root).as_posix() for name in names]
        return found

    def exists(self) -> bool:
        return os.path.isdir(self._root)

    def facts(self) -> Sequence[Fact]:
        synced = Fact(
            "syncs", "each file and folder", meaning="an acknowledged save survives a crash and loss of power"
        )
        return [*local_facts(self._root), synced]

    def now_us(self, key: str) -> int:
        """Return the host's time: all who use the directory are on one machine."""
        return time.time_ns() // 1000

    def sizes(self, prefix: str) -> Mapping[str, int]:
        found = {}
        for key in self.list(prefix):
            with suppress(FileNotFoundError):
                found[key] = self._path(key).stat().st_size
        return found

    def folders(self, prefix: str) -> Sequence[str]:
        try:
            with os.scandir(self._path(prefix)) as found:
                return [entry.name for entry in found if entry.is_dir()]
        except FileNotFoundError:
            return []

    def copy(self, source: str, target: str) -> bool:
        found = self.get(source)
        if found is not None:
            self.put(target, found.data)
        return found is not None

    def delete(self, keys: Sequence[str]) -> None:
        names: dict[Path, list[str]] = {}
        for key in keys:
            path = self._path(key)
            names.setdefault(path.parent, []).append(path.name)
        for parent, group in names.items():
            with suppress(FileNotFoundError), _opened(parent) as folder:
                self._lock(folder, parent)
                for name in group:
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                os.fsync(folder)
            self._prune(parent)

    def _prune(self, folder: Path) -> None:
        with suppress(OSError):  # until one is not empty
            while folder != self._root:
                folder.rmdir()
                folder = folder.parent

    def _path(self, key: str) -> Path:
        return self._root / key

    @contextmanager
    def _aside(self, data: bytes) -> Iterator[Path]:
        """Write a file aside; its lock tells sweeps of other processes that the writer lives."""
        folder = self._root / ".tmp"
        _make(folder)
        if not self._swept:
            self._swept = True
            _sweep(folder)
        path = folder / os.urandom(12).hex()
        with open(path, "xb", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file)
                yield path
            finally:
                path.unlink(missing_ok=True)

    def _lock(self, folder: int, path: Path) -> None:
        """Lock an open folder until it is closed."""
        deadline = time.monotonic() + self._lock_wait_s
        pause_s = 0.0005
        while True:
            try:
                return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{path} was locked for lock_wait_s={self._lock_wait_s:g}") from None
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.02)


def _sweep(folder: Path) -> None:
    """Remove what writers left that were killed."""
    for path in folder.iterdir():
        with suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def _make(folder: Path) -> None:
    if folder.is_dir():
        return
    _make(folder.parent)
    folder.mkdir(exist_ok=True)
    with _opened(folder.parent) as parent:
        os.fsync(parent)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tag_at(folder: int, name: str) -> str:
    try:
        with open(os.open(name, os.O_RDONLY, dir_fd=folder), "rb") as file:
            return _tag(file.read())
    except FileNotFoundError:
        return ABSENT


def _tag(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
