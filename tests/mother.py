"""Forks the programs of `tests.programs`: `python -m tests.mother FD`, a request a message of that socket.

It opens nothing itself, so that its children may use libraries that do not survive a fork, and loads nothing that reads
the environment while it is loaded.
"""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

import langgraph.checkpoint.memory
import langgraph.graph
import obstore
import psycopg_pool

from langgraph_statekit import compat, sessions
from langgraph_statekit.checkpoint import sampled
from langgraph_statekit.checkpoint.backends import (
    postgres,
    postgres_tier,
    redis,
    redis_tier,
    sqlite,
    sqlite_tier,
    tiered,
)
from langgraph_statekit.cli import program as command_line
from langgraph_statekit.effects import ledger
from langgraph_statekit.watchdog import supervisor, watchdog
from tests.programs import TOLD

LOADED = (
    *(langgraph, obstore, psycopg_pool, compat, sessions, sampled, command_line, ledger, supervisor, watchdog),
    *(postgres, postgres_tier, redis, redis_tier, sqlite, sqlite_tier, tiered),
)
LONGEST = 1 << 20


def main(link: socket.socket) -> None:
    """Fork a process for each request, and return in each of them when its program is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: whoever started it ends it
    gc.freeze()
    while True:
        message, fds, _, _ = socket.recv_fds(link, LONGEST, 3)
        if not message:
            return
        if os.fork() == 0:
            link.close()
            out, err, told = fds
            child = os.fork()
            if child == 0:
                os.close(told)
                program(out, err, **json.loads(message))
                return  # and the interpreter ends as that of any process
            os.close(out)
            os.close(err)
            look_after(child, told)
        for each in fds:
            os.close(each)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def look_after(child: int, told: int) -> None:
    """Tell a process's id, and how it ended."""
    os.write(told, TOLD.pack(child))
    os.write(told, TOLD.pack(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    os._exit(0)


def program(out: int, err: int, args: list[str], cwd: str, env: dict[str, str]) -> None:
    """Do what `python ARGS` does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for given, own in ((out, 1), (err, 2)):
        os.dup2(given, own)
        os.close(given)
    sys.stdout = sys.__stdout__ = stream(1, "strict", bool(env.get("PYTHONUNBUFFERED")))
    sys.stderr = sys.__stderr__ = stream(2, "backslashreplace", True)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    what, *more = args
    if what == "-m":
        sys.path[0], sys.argv = cwd, more
        runpy.run_module(more[0], run_name="__main__", alter_sys=True)
    elif what == "-c":
        sys.path[0], sys.argv = "", ["-c", *more[1:]]
        sys.modules["__main__"] = main = ModuleType("__main__")
        values: dict[str, Any] = main.__dict__
        exec(compile(more[0], "<string>", "exec", dont_inherit=True), values)
    else:
        sys.path[0], sys.argv = os.path.dirname(os.path.abspath(what)), args
        runpy.run_path(what, run_name="__main__")


def stream(fd: int, errors: str, by_line: bool) -> io.TextIOWrapper:
    """Return what writes text, as the interpreter makes it."""
    return io.TextIOWrapper(open(fd, "wb", closefd=False), "utf-8", errors, line_buffering=by_line)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
