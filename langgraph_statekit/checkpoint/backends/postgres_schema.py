"""The schema of the tables: its name, and the numbered scripts in `postgres_sql/` that bring it up to date."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Final, LiteralString

import psycopg
from psycopg import errors as pg
from psycopg.rows import TupleRow
from psycopg.sql import SQL, Identifier

from langgraph_statekit.checkpoint.options import require_texts
from langgraph_statekit.checkpoint.tenants import of_tenant
from langgraph_statekit.errors import Misuse

Cursor = psycopg.Cursor[TupleRow]

_MOST_NAME_BYTES: Final = 63
"""PostgreSQL cuts longer names without a word, which could make one of two."""


def schema_of(schema: str, tenant: str | None) -> str:
    """Return the schema of a tenant: `statekit@acme`; without a tenant the schema itself.

    Raises:
        Misuse: It would need care, or is too long.
    """
    require_texts(schema=schema)
    if not re.fullmatch(r"[A-Za-z_][\w-]{0,62}", schema, re.ASCII):
        raise Misuse(f"schema must be 1 to 63 letters, digits, '_' or '-', not {schema!r}")
    name = of_tenant(schema, tenant)
    if (over := len(name) - _MOST_NAME_BYTES) > 0:
        raise Misuse(f"the schema {name!r} of a tenant is {over} characters too long: shorten schema={schema!r}")
    return name


@lru_cache(4096)  # some for each tenant's schema
def statement(schema: str, text: LiteralString) -> bytes:
    """Return a statement with the quoted name of the schema in place of `{schema}`."""
    return SQL(text).format(schema=Identifier(schema)).as_bytes(None)


def migrations() -> dict[int, str]:
    """Return the scripts by number; files of one number are one script."""
    found: dict[int, str] = {}
    for file in sorted(files(__package__).joinpath("postgres_sql").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            number = int(file.name[:3])
            found[number] = found.get(number, "") + file.read_text("utf-8")
    return found


_VERSION: Final = "SELECT coalesce(max(version), 0) FROM {schema}.migrations"
_WARMED: Final = (
    "SELECT coalesce(max(version), 0), (SELECT count(*) FROM (SELECT 1) AS one"
    " LEFT JOIN (SELECT thread_id, ns FROM {schema}.rows WHERE NOT hidden LIMIT 1) AS r ON true,"
    " LATERAL {schema}.load_1(coalesce(thread_id, ''), coalesce(ns, ''), NULL, false)) FROM {schema}.migrations"
)
"""A server process compiles a function when it is called first, and plans each statement of it when that is reached
first, which takes longer than a read. Only where there is a checkpoint are all of them reached."""


def warmed(cursor: Cursor, schema: str) -> int:
    """Return what `version` does, and make the first read of this connection quicker."""
    try:
        cursor.execute(statement(schema, _WARMED))
    except (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName):
        return version(cursor, schema)
    return int(cursor.fetchall()[0][0])


def version(cursor: Cursor, schema: str) -> int:
    """Return the number of the last script that was run; 0 if there is nothing yet."""
    try:
        cursor.execute(statement(schema, _VERSION))
    except pg.UndefinedTable:
        return 0
    return int(cursor.fetchall()[0][0])


def migrate(cursor: Cursor, schema: str) -> None:
    """Run the scripts that were not run yet, all or none; other workers that would do the same wait."""
    scripts = migrations()
    name = f"langgraph-statekit\0{schema}"
    lock = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
    with cursor.connection.transaction():
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        cursor.execute("SELECT pg_advisory_xact_lock(%s::bigint)", (lock,))
        # CREATE SCHEMA IF NOT EXISTS would ask for the right to create one even where it exists.
        if not cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchall():
            cursor.execute(statement(schema, "CREATE SCHEMA {schema}"))
        cursor.execute(
            statement(
                schema,
                "CREATE TABLE IF NOT EXISTS {schema}.migrations"
                " (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())",
            )
        )
        done = version(cursor, schema)
        for number in sorted(scripts):
            if number > done:
                cursor.execute(statement(schema, scripts[number]))
                cursor.execute(statement(schema, "INSERT INTO {schema}.migrations (version) VALUES (%s)"), (number,))
