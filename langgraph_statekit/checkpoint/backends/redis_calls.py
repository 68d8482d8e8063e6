"""Commands to Redis: the script whose verbs are those of the store, pipelines, and what becomes of errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final, TypeVar

from redis import RedisCluster
from redis import exceptions as failures

from langgraph_statekit.checkpoint.backends.redis_connections import (
    AsyncClient,
    Client,
    close,
    exchange,
    is_own,
    lender,
    require_bytes,
)
from langgraph_statekit.checkpoint.backends.redis_errors import DRIVER, TRANSIENT, explained
from langgraph_statekit.checkpoint.backends.redis_format import Argument, encoded
from langgraph_statekit.checkpoint.repeating import retrying
from langgraph_statekit.errors import Misuse

T = TypeVar("T")

_PARTS: Final = ("redis.lua", "redis_save.lua", "redis_read.lua", "redis_change.lua", "redis_tier.lua")


class Script:
    """A script and the name by which a server knows it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


_TEXT: Final = "\n".join(files(__package__).joinpath(name).read_text() for name in _PARTS)
_SCRIPT: Final = Script(f"local TIERED = false\n{_TEXT}")
_TIERED: Final = Script(f"local TIERED = true\n{_TEXT}")


class Calls:
    """A client, its own or a caller's, and how commands are sent over it.

    Args:
        client: See `RedisBackend`.
        prefix: Named in errors.
        retry_s: Seconds during which a call is repeated.

    Attributes:
        script: The one that `eval` calls.
        open: Opens a client, which is closed again; None if the caller gave one.
    """

    def __init__(self, client: Client | AsyncClient | Callable[[], Client], prefix: str, retry_s: float) -> None:
        self._prefix = prefix
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._client: Client | None = None
        self.script = _SCRIPT
        self.open: Callable[[], Client] | None = None
        if isinstance(client, Client):
            self._client = require_bytes(client)
        else:
            if isinstance(client, AsyncClient):
                client = lender(client)
            if not callable(client):
                raise Misuse(f"a client of redis-py is needed, not {type(client).__name__}; for a URL use from_url")
            self.open = client

    def close(self) -> None:
        """Close the client if it was opened here; a later call opens a new one."""
        if self.open is None:
            return
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            close(client)

    def note_changes(self) -> None:
        """From now on have the script note what changes, for a cold store."""
        self.script = _TIERED

    def eval(self, keys: Sequence[bytes], *args: Argument) -> Any:
        """Call the script: a verb and its arguments."""
        plain, script = encoded(args), self.script

        def call(client: Client) -> Any:
            try:
                return client.evalsha(script.sha, len(keys), *keys, *plain)
            except failures.NoScriptError:
                return client.eval(script.text, len(keys), *keys, *plain)

        return self.ask(call)

    def eval_all(
        self, calls: Sequence[tuple[Sequence[bytes], Sequence[Argument]]], script: Script | None = None
    ) -> list[Any]:
        """Return the reply or the error of each call, of another script if one is given."""
        script = script or self.script
        replies: list[Any] = [failures.NoScriptError()] * len(calls)
        commands = [evalsha(keys, args, script) for keys, args in calls]
        left = list(range(len(calls)))
        while left:
            for at, reply in zip(left, self.pipeline([commands[at] for at in left], errors=True), strict=True):
                replies[at] = reply
            left = [at for at in left if isinstance(replies[at], failures.NoScriptError)]
            if left:  # the first loads the script for the others, on a cluster for those of its node
                commands[left[0]] = ("EVAL", script.text, *commands[left[0]][2:])
        return replies

    def pipeline(self, commands: Sequence[tuple[Argument, ...]], *, errors: bool = False) -> list[Any]:
        """Return the replies; with `errors` an error of the server stands in its place, else the first is raised."""

        def call(client: Client) -> list[Any]:
            if errors and is_own(client):
                return [self._reply(each) for each in exchange(client, commands)]
            with client.pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                return [self._reply(each) for each in pipe.execute(raise_on_error=not errors)]

        return self.ask(call)

    def now_us(self) -> int:
        """Return the time by the server's clock, in a cluster by that of one of its nodes."""

        def call(client: Client) -> Any:
            return (
                client.time(target_nodes=RedisCluster.DEFAULT_NODE)
                if isinstance(client, RedisCluster)
                else client.time()
            )

        seconds, micros = self.ask(call)
        return int(seconds) * 1_000_000 + int(micros)

    def _reply(self, reply: Any) -> Any:
        if not isinstance(reply, Exception) or isinstance(reply, failures.NoScriptError):
            return reply
        told = self._explained(reply)
        if isinstance(told, TRANSIENT):
            raise told
        return told

    def ask(self, call: Callable[[Client], T]) -> T:
        """Return what a call with the client returns; a connection that broke is repeated."""

        def attempt() -> T:
            try:
                return call(self.connected())
            except DRIVER as error:
                told = self._explained(error)
            raise told  # outside of the handler, or it would carry what the driver said

        return retrying(attempt, TRANSIENT, self._retry_s, "Redis")

    def _explained(self, error: Exception) -> Exception:
        return explained(error, self._prefix, cluster=isinstance(self._client, RedisCluster))

    def connected(self) -> Client:
        """Return the client."""
        with self._lock:
            if self._client is None:
                assert self.open is not None
                self._client = require_bytes(self.open())
            return self._client


def evalsha(keys: Sequence[bytes], args: Sequence[Argument], script: Script) -> tuple[Argument, ...]:
    """Return the command that calls a script."""
    return ("EVALSHA", script.sha, len(keys), *keys, *encoded(args))
