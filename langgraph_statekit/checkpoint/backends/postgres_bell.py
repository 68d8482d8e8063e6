"""Who waits for news of a store hears of it at once: a channel of PostgreSQL, by hints that may get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import blake2b
from typing import Final

from psycopg import sql

from langgraph_statekit.checkpoint.backends.postgres_connections import Connections, Lender

_RING: Final = "SELECT pg_notify(%b, %b)"
_PAUSE_S: Final = 1.0


class PostgresBell:
    """The channel of a schema, by a name that is not too long for the server.

    Args:
        run: Runs a statement.
        lender: Where to borrow a connection.
        schema: Of the store.
    """

    def __init__(self, run: Callable[..., object], lender: Lender, schema: str) -> None:
        self._run, self._lender = run, lender
        self._channel = f"statekit_{blake2b(schema.encode(), digest_size=16).hexdigest()}"

    def ring(self, text: str) -> None:
        """Tell a text to all who listen."""
        self._run(_RING, self._channel, text)

    def heard(self) -> Iterator[str]:
        """Yield what is rung from now on, and an empty text now and then; raise when the connection is lost.

        Nothing, where only the caller of this package knows how to connect. A pooler in transaction mode passes nothing
        on.
        """
        client = self._lender.spare()
        if not isinstance(client, Connections):
            return
        with closing(client), client.lend() as conn:
            conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
            yield ""
            while True:
                for notice in conn.notifies(timeout=_PAUSE_S):
                    yield notice.payload
                yield ""
