"""What a PostgreSQL tells of itself, and what follows for checkpoints. Pure but for the statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from langgraph_statekit.checkpoint.facts import BAD, NOTE, Fact, format_fact

SETTINGS: Final = (
    "SELECT name, coalesce(current_setting(name, true), '') FROM unnest(%b::text[]) AS name"
    " UNION ALL SELECT 'recovery', pg_is_in_recovery()::text"
    " UNION ALL SELECT 'replicas', count(*)::text FROM pg_stat_replication"
    " UNION ALL SELECT 'create', has_database_privilege(current_database(), 'CREATE')::text"
    " UNION ALL SELECT 'usage', has_schema_privilege(nspname, 'USAGE')::text FROM pg_namespace WHERE nspname = %b"
    " UNION ALL SELECT 'write', bool_and(has_table_privilege(c.oid, 'SELECT')"
    " AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')"
    " AND has_table_privilege(c.oid, 'DELETE'))::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
    " WHERE nspname = %b AND relkind IN ('r', 'p')"
    " AND relname IN ('threads', 'rows', 'frames', 'writes', 'leases', 'early')"
    " UNION ALL SELECT 'unlogged', count(*)::text FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
    " WHERE nspname = %b AND relkind IN ('r', 'p') AND relpersistence = 'u'"
)
NAMES: Final = (
    "server_version",
    "synchronous_commit",
    "fsync",
    "full_page_writes",
    "synchronous_standby_names",
    "default_transaction_read_only",
)
USAGE: Final = (
    "SELECT ((SELECT coalesce(sum(octet_length(body) + octet_length(keys) + octet_length(deltas)), 0)"
    " FROM {schema}.rows WHERE thread_id = %b)"
    " + (SELECT coalesce(sum(octet_length(data)), 0) FROM {schema}.frames WHERE thread_id = %b)"
    " + (SELECT coalesce(sum(octet_length(data)), 0) FROM {schema}.writes WHERE thread_id = %b))::bigint,"
    " (SELECT count(*) FROM (SELECT DISTINCT ns, id FROM {schema}.writes w WHERE thread_id = %b AND NOT EXISTS"
    " (SELECT 1 FROM {schema}.rows r WHERE (r.thread_id, r.ns, r.id) = (w.thread_id, w.ns, w.id))) AS early)"
)


def facts(told: Mapping[str, Any], stored: int | None, newest: int) -> Iterator[Fact]:
    """Yield the facts of a server, given what `SETTINGS` returns, and the schema's version and the newest one."""
    yield Fact("PostgreSQL", str(told.get("server_version", "unknown")))
    yield format_fact(stored, newest)
    if told.get("recovery") == "true":
        yield Fact("role", "replica", BAD, "saves are refused here: use the URL of the primary")
    elif told.get("default_transaction_read_only") == "on":
        yield Fact("default_transaction_read_only", "on", BAD, "saves are refused: turn it off for this role")
    yield _rights(told, stored)
    yield _commit(told)
    if told.get("fsync") == "off":
        yield Fact("fsync", "off", BAD, "a crash of the server's machine can destroy the database")
    if told.get("full_page_writes") == "off":
        yield Fact("full_page_writes", "off", NOTE, "safe only where the file system never tears a page")
    if (unlogged := int(told.get("unlogged") or 0)) > 0:
        yield Fact("unlogged tables", str(unlogged), BAD, "a crash empties them: ALTER TABLE ... SET LOGGED")
    yield _replicas(told)


def _rights(told: Mapping[str, Any], stored: int | None) -> Fact:
    if stored is None:
        if told.get("create") == "true" or told.get("usage") == "true":
            return Fact("permissions", "may create", meaning="schema and tables are made by the first save")
        return Fact("permissions", "may not create", BAD, "grant CREATE on the database, or make the schema")
    if told.get("write") == "true" and told.get("usage") == "true":
        return Fact("permissions", "read and write")
    return Fact("permissions", "not all", BAD, "grant SELECT, INSERT, UPDATE, DELETE on all tables of the schema")


def _commit(told: Mapping[str, Any]) -> Fact:
    how = str(told.get("synchronous_commit") or "unknown")
    standby = bool(told.get("synchronous_standby_names"))
    survives = "an acknowledged save survives a crash of the server's machine"
    match how:
        case "off":
            meaning = "a crash loses the last moments of acknowledged saves: set it to on"
            return Fact("synchronous_commit", how, BAD, meaning)
        case "on" | "remote_apply" | "remote_write" if standby:
            return Fact("synchronous_commit", how, meaning=f"{survives}, and its loss: a replica has it too")
        case "on" | "remote_apply" | "remote_write" | "local":
            return Fact("synchronous_commit", how, meaning=survives)
    return Fact("synchronous_commit", how, NOTE, "off would lose the last moments of acknowledged saves in a crash")


def _replicas(told: Mapping[str, Any]) -> Fact:
    count = int(told.get("replicas") or 0)
    if told.get("synchronous_standby_names"):
        return Fact("replicas", f"{count}, synchronous", meaning="saves wait for them")
    if count:
        return Fact("replicas", f"{count}, asynchronous", NOTE, "a failover loses what they had not received yet")
    return Fact("replicas", "0", NOTE, "the loss of the server's disk loses what is not backed up")
