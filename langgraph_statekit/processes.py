"""Which process of which host somebody is, told so that nobody takes a later process of the same number for it."""

from __future__ import annotations

import os
import platform
import signal
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

STOPPED: Final = "stopped"
RUNNING: Final = "running"
GONE: Final = "gone"
UNKNOWN: Final = "unknown"

_PROC: Final = Path("/proc")


class Process(NamedTuple):
    """A process; empty fields where the system does not tell.

    Attributes:
        host: Name of the host, its boot, and the namespace in which `pid` counts.
        pid: Process id.
        start: When it began, in the ticks of the host.
    """

    host: str = ""
    pid: int = 0
    start: str = ""

    @classmethod
    def here(cls) -> Process:
        """Return this process."""
        return _here()

    @classmethod
    def parse(cls, text: str) -> Process:
        """Return the process that `str` told; one without fields for any other text."""
        host, _, rest = text.partition(" ")
        pid, _, start = rest.partition(" ")
        return cls(host, int(pid), start) if pid.isdecimal() else cls()

    def __str__(self) -> str:
        return f"{self.host} {self.pid} {self.start}"

    @property
    def state(self) -> str:
        """Say what it does: `STOPPED`, `RUNNING`, `GONE`, or `UNKNOWN` for one of another host or system."""
        here = Process.here()
        if not self.start or self.host != here.host:
            return UNKNOWN
        if self == here:
            return RUNNING
        told = _stat(self.pid)
        if told is None:  # or it may only be hidden from this user
            return UNKNOWN if _exists(self.pid) else GONE
        if told[1] != self.start or told[0] in ("Z", "X"):
            return GONE
        return STOPPED if told[0] in ("T", "t") else RUNNING

    def kill(self) -> bool:
        """End it at once, and say whether it is gone or about to be; never touches another process."""
        with suppress(OSError):
            handle = os.pidfd_open(self.pid)  # what is asked and what is killed are one process
            try:
                if self.state in (STOPPED, RUNNING):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    return True
            finally:
                os.close(handle)
        return self.state == GONE


@cache
def _here() -> Process:
    pid = os.getpid()
    parts = [platform.node().replace(" ", "_")]
    with suppress(OSError):
        parts.append((_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8])
        parts.append(os.readlink(_PROC / "self/ns/pid").strip("pid:[]"))
    return Process("/".join(parts), pid, (_stat(pid) or ("", ""))[1])


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_here.cache_clear)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _stat(pid: int) -> tuple[str, str] | None:
    """Return state and start of a process of this host; None if there is none, or no `/proc`."""
    try:
        told = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = told[told.rindex(")") + 2 :].split()  # its name may hold anything
    return fields[0], fields[19]
