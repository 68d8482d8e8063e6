"""What the errors of redis-py mean: worth a repeat, or a fault that waiting cannot mend."""

# mypy: untyped-calls-exclude="redis"

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from typing import Final

from redis import exceptions as failures
from redis.sentinel import MasterNotFoundError

from langgraph_statekit.checkpoint.backends.redis_format import FORMAT
from langgraph_statekit.errors import Corrupt, Misuse, SchemaTooNew, StatekitError, Unavailable

DRIVER: Final = (failures.RedisError, failures.RedisClusterException)
"""Everything that redis-py raises on purpose."""
TRANSIENT: Final = (
    failures.ConnectionError,
    failures.TimeoutError,
    failures.ReadOnlyError,
    failures.ClusterError,
    failures.RedisClusterException,
    failures.TryAgainError,
    failures.AskError,
)
"""Errors after which a repeat may help."""
_TORN: Final = (
    "the server has only a part of the thread: it evicts keys (set maxmemory-policy to noeviction), or somebody removed"
    " some; bring the thread back from a copy or a backup, with a cold store by restore(at=...), and then delete it"
)
_LOGIN: Final = re.compile(r"AuthenticationError|username-password|Authentication required|invalid password")
_CLIENTS: Final = re.compile(r"<redis\..*?>\)>(?:\)>)*", re.DOTALL)


def explained(error: Exception, prefix: str, *, cluster: bool) -> Exception:
    """Return what to raise for an error of the driver: one of `TRANSIENT` if a repeat may help, else one of ours.

    Args:
        error: From redis-py.
        prefix: Of the keys, for the remedy.
        cluster: Whether the client knows of clusters.
    """
    if isinstance(error, MasterNotFoundError):
        # It shows the clients that asked the Sentinels, and some releases show a client with its password.
        error = MasterNotFoundError(_CLIENTS.sub("a Sentinel", str(error)))
    final = _final(error, prefix, cluster=cluster)
    if final is None and isinstance(error, TRANSIENT):
        return error
    told = final or _refusal(error)
    told.__cause__ = error
    return told


def _final(error: Exception, prefix: str, *, cluster: bool) -> StatekitError | None:
    """Return what to raise at once; None for what may pass, and for what has no remedy that is known."""
    text = _text(error)
    for each in _chain(error):
        if isinstance(each, failures.AuthenticationError):
            return Misuse(f"Redis refused the login, correct the user and the password: {text}")
        if isinstance(each, failures.NoPermissionError | failures.AuthorizationError):
            return Misuse(
                f"Redis refused the user: {text}; it needs the keys {prefix}:* and the commands on "
                "data and scripts (none of @admin or @dangerous)"
            )
        if isinstance(each, ssl.SSLCertVerificationError):
            return Misuse(f"Redis's certificate was refused, correct it or the ssl_ settings: {text}")
        if isinstance(each, PermissionError):
            return Misuse(f"the socket of Redis may not be opened, correct its permissions: {text}")
    if "unauthenticated" in text:  # what a server says to the first command if that is long
        return Misuse(f"Redis refused the login, correct the user and the password: {text}")
    if isinstance(error, MasterNotFoundError) and _LOGIN.search(text):
        return Misuse(f"a Sentinel refused the login, correct the user and the password: {text}")
    if isinstance(error, failures.MovedError) and not cluster:
        return Misuse(f"this Redis is a cluster, use redis+cluster:// or a RedisCluster: {text}")
    if isinstance(error, failures.RedisClusterException) and "Cluster mode is not enabled" in text:
        return Misuse(f"this Redis is no cluster, use redis:// or a Redis client: {text}")
    if isinstance(error, failures.RedisClusterException) and "``db``" in text:
        return Misuse(f"a cluster has no numbered databases, leave the number away: {text}")
    if isinstance(error, failures.InvalidResponse):
        return Misuse(f"what answers there is no Redis, correct the host and the port: {text}")
    if "DB index" in text:
        return Misuse(f"this Redis has no database of this number, choose another: {text}")
    if "unknown command 'SENTINEL'" in text:
        return Misuse(f"what answers there is no Sentinel, correct the host and the port, or use redis://: {text}")
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error, what it was raised from, and the error of the system below a lost connection."""
    while error is not None:
        yield error
        below = error.__context__ if isinstance(error.__context__, OSError) else None
        error = error.__cause__ or below


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _refusal(error: Exception) -> Exception:
    """Return what to raise for an error that the server reports, and for one that nobody knows."""
    text = str(error)
    if not isinstance(error, failures.ResponseError):
        return StatekitError(_text(error))
    if "SCHEMA " in text:
        return SchemaTooNew(f"the thread has a later format ({text}), this release reads {FORMAT}: upgrade it")
    if "TORN" in text:
        return Corrupt(_TORN)
    if isinstance(error, failures.OutOfMemoryError):
        return Unavailable(f"Redis is full, nothing was saved: raise maxmemory or prune threads ({text})")
    if text.startswith(("BUSY ", "NOREPLICAS ", "MISCONF ")):
        return failures.ConnectionError(text)
    if text.startswith("WRONGTYPE "):
        return Corrupt(f"a key of the thread is not ours: {text}; choose a prefix that nobody else uses")
    return StatekitError(f"Redis refused a command: {text}")
