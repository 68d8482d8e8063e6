"""Who waits for news of a store hears of it at once: a channel of Redis, by hints that may get lost."""

# mypy: untyped-calls-exclude="redis"

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redis import exceptions as failures
from redis.cluster import RedisCluster

from langgraph_statekit.checkpoint.backends.redis_calls import Calls
from langgraph_statekit.checkpoint.backends.redis_connections import close


class RedisBell:
    """The channel of a prefix.

    Args:
        calls: Sends commands.
        prefix: Of the store's keys.
    """

    def __init__(self, calls: Calls, prefix: str) -> None:
        self._calls, self._channel = calls, f"{prefix}:bell"

    def ring(self, text: str) -> None:
        """Tell a text to all who listen."""
        self._calls.pipeline([("PUBLISH", self._channel, text)])

    def heard(self) -> Iterator[str]:
        """Yield what is rung from now on, and an empty text now and then; raise when the connection is lost.

        Nothing, with a client of the caller's, which may have no connection to spare.
        """
        if self._calls.open is None:
            return
        client = self._calls.open()
        try:
            node: Any = client.get_default_node().redis_connection if isinstance(client, RedisCluster) else client
            conn = node.connection_pool.get_connection()
            try:
                conn.send_command("SUBSCRIBE", self._channel)
                while True:
                    try:
                        reply = conn.read_response(disconnect_on_error=False, push_request=True)
                    except failures.TimeoutError:
                        yield ""
                        continue
                    yield reply[2].decode() if reply[0] == b"message" else ""
            finally:
                conn.disconnect()
                node.connection_pool.release(conn)
        finally:
            close(client)
