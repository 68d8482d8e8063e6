"""What a Redis or Valkey tells of itself, and what follows for checkpoints. Pure, but for `ask`."""

# mypy: untyped-calls-exclude="redis"

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from redis import exceptions as failures
from redis.cluster import RedisCluster

from langgraph_statekit.checkpoint.backends.redis_connections import Client
from langgraph_statekit.checkpoint.facts import BAD, NOTE, Fact, Usage, unknown

Told: TypeAlias = Mapping[str, Any] | None
"""What a server tells; None: it refuses to."""
_OLDEST: Final = 7
_ASKED: Final = ("appendfsync", "min-replicas-to-write", "save")
_REFUSED: Final = "the server does not tell it to this user"


def ask(client: Client) -> Sequence[Fact]:
    """Return the facts of a server, of a cluster those of each primary; what may not be read is unknown."""
    if not isinstance(client, RedisCluster):
        return list(facts(_told(lambda: client.info()), _told(lambda: _config(client))))
    found: list[Fact] = []
    for node in client.get_primaries():
        info = _told(lambda node=node: client.info(target_nodes=node))  # type: ignore[misc]
        config = _told(lambda node=node: _config(client, target_nodes=node))  # type: ignore[misc]
        found += (fact._replace(name=f"{fact.name} of {node.name}") for fact in facts(info, config))
    return found


def _config(client: Any, **where: Any) -> dict[str, str]:
    return {name: value for asked in _ASKED for name, value in client.config_get(asked, **where).items()}


def _told(call: Callable[[], Any]) -> Told:
    try:
        told: Mapping[str, Any] = call()
    except failures.ResponseError:  # also a missing right, and a command that was renamed away
        return None
    return told


def facts(info: Told, config: Told) -> Iterator[Fact]:
    """Yield the facts of one server, given what INFO and CONFIG GET say."""
    if info is None:
        for name in ("version", "persistence", "maxmemory_policy", "role"):
            yield unknown(name, f"{_REFUSED} (INFO)")
        info = {}
    else:
        yield _version(info)
        yield from _role(info, config)
        yield from _memory(info)
    yield from _persistence(info, config)


def _version(info: Mapping[str, Any]) -> Fact:
    name, version = (
        ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info.get("redis_version", "?"))
    )
    old = str(version).split(".")[0].isdigit() and int(str(version).split(".")[0]) < _OLDEST
    return Fact(name, str(version), BAD if old else "ok", f"{_OLDEST}.0 or later is needed" if old else "")


def _role(info: Mapping[str, Any], config: Told) -> Iterator[Fact]:
    if info.get("role") == "slave":
        yield Fact("role", "replica", BAD, "saves are refused here: use the URL of the primary")
        return
    replicas = int(info.get("connected_slaves", 0))
    if not replicas:
        yield Fact("replicas", "0", NOTE, "the loss of the server's disk loses everything")
        return
    needed = None if config is None else int(config.get("min-replicas-to-write") or 0)
    told = "a failover can lose what a replica had not received yet"
    if needed:
        told += f"; saves are refused with fewer than {needed} replicas"
    yield Fact("replicas", str(replicas), NOTE, told)


def _memory(info: Mapping[str, Any]) -> Iterator[Fact]:
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy.startswith("allkeys"):
        yield Fact("maxmemory-policy", policy, BAD, "a full server deletes checkpoints: set it to noeviction")
    elif policy.startswith("volatile"):
        yield Fact(
            "maxmemory-policy",
            policy,
            NOTE,
            "a full server forgets leases and tears threads with ttl_s: set it to noeviction",
        )
    elif policy == "noeviction":
        yield Fact("maxmemory-policy", policy, meaning="a full server refuses saves and deletes nothing")
    else:
        yield unknown("maxmemory-policy", _REFUSED, "it must be noeviction, or checkpoints are deleted when it is full")
    if limit:
        full = used > 0.9 * limit
        told = "it is nearly full: raise maxmemory or prune threads" if full else ""
        yield Fact("memory", f"{used / limit:.0%} of {limit / 1e6:.0f} MB", BAD if full else "ok", told)
    if evicted := int(info.get("evicted_keys", 0)):
        bad = policy.startswith("allkeys")
        yield Fact("evicted_keys", str(evicted), BAD if bad else NOTE, "keys were deleted since the server started")


def _persistence(info: Mapping[str, Any], config: Told) -> Iterator[Fact]:
    if info.get("aof_enabled"):
        yield _appendfsync(config)
        if (last := info.get("aof_last_write_status", "ok")) != "ok":
            yield Fact("aof_last_write_status", str(last), BAD, "the log of writes cannot be written: see the server")
        return
    if "aof_enabled" not in info:
        yield unknown("appendfsync", _REFUSED, "always survives a crash, everysec loses about the last second")
        return
    save = None if config is None else str(config.get("save", ""))
    if save == "":
        yield Fact("appendonly", "no", BAD, "nothing is on disk: a restart of the server loses everything")
    else:
        told = "a crash of the server loses everything since the last snapshot: set appendonly yes"
        yield Fact("appendonly", "no", BAD, told)
        yield Fact("save", save or "unknown", NOTE, "when snapshots are made")
    if (last := info.get("rdb_last_bgsave_status", "ok")) != "ok":
        yield Fact("rdb_last_bgsave_status", str(last), BAD, "the last snapshot failed: see the server")


def _appendfsync(config: Told) -> Fact:
    how = str((config or {}).get("appendfsync", ""))
    match how:
        case "always":
            return Fact("appendfsync", how, meaning="an acknowledged save survives a crash of the server's machine")
        case "everysec":
            told = "a crash of the server's machine loses about the last second; always loses nothing"
            return Fact("appendfsync", how, NOTE, told)
        case "no":
            told = "a crash of the server's machine loses what the system had not written yet, often 30 seconds"
            return Fact("appendfsync", how, BAD, told)
    return unknown("appendfsync", f"{_REFUSED} (CONFIG GET)", "the log of writes is on, how often it is synced is open")


def usage(sizes: Sequence[Any], meta: Any) -> Usage:
    """Return what a thread takes up, given MEMORY USAGE of its keys and the fields of its meta hash, or errors."""
    if isinstance(meta, Exception):
        raise meta
    told = not any(isinstance(size, Exception) for size in sizes)
    return Usage(sum(size or 0 for size in sizes) if told else None, sum(field.startswith(b"e:") for field in meta))
