"""The arrays of a save arrive in the server as they were sent."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend
from langgraph_statekit.checkpoint.backends.postgres_arrays import Blobs, Numbers, Texts, adapt
from langgraph_statekit.checkpoint.records import Ref, Write
from tests.stores.verbs import row, save, save_writes

_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
_NUMBERS = st.integers(-(2**31), 2**31 - 1)


def test_arrays_arrive_as_they_were_sent(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as conn, psycopg.RawCursor(conn) as cursor:
        adapt(cursor.adapters)

        @given(st.lists(st.none() | st.binary()), st.lists(_TEXTS), st.lists(_NUMBERS))
        def arrive(blobs: list[bytes | None], texts: list[str], numbers: list[int]) -> None:
            cursor.execute("SELECT $1, $2, $3", [Blobs(blobs), Texts(texts), Numbers(numbers)], binary=True)
            assert cursor.fetchone() == (blobs, texts, numbers)

        arrive()


@pytest.mark.parametrize("encoding", ["LATIN1", "UTF8"])
def test_ids_are_stored_in_whatever_encoding_a_connection_speaks(url: str, schema: str, encoding: str) -> None:
    wanted = Write("Aufgabe äöü", 0, "größe", "Straße", b"value")
    with psycopg.connect(url, client_encoding=encoding) as conn:
        backend = PostgresBackend(conn, schema=schema)
        backend.setup()
        assert save(backend, row("thread", "1"))
        save_writes(backend, Ref("thread", "", "1"), [wanted])
        stored = backend.load("thread", "", None)
    assert stored is not None
    assert stored.writes == [wanted]
