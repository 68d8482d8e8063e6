"""Checkpoints in PostgreSQL: one statement, and so one round trip, for each verb.

What must be one step or is asked often is a function in the database (`postgres_sql/`): the server keeps its plan even
where prepared statements cannot be kept (PgBouncer in transaction mode). A released function never changes; its
successor gets the next number, so that workers of two releases can share a database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg.rows import TupleRow, tuple_row

from langgraph_statekit.checkpoint.audit import audit_text, checked_keys
from langgraph_statekit.checkpoint.backends import postgres_cells, postgres_facts, postgres_leases
from langgraph_statekit.checkpoint.backends.postgres_arrays import adapt
from langgraph_statekit.checkpoint.backends.postgres_bell import PostgresBell
from langgraph_statekit.checkpoint.backends.postgres_connections import (
    TRANSIENT,
    Client,
    Connections,
    final_error,
    is_lost,
    lender,
)
from langgraph_statekit.checkpoint.backends.postgres_format import (
    REKEYED,
    columns,
    row_of,
    save_calls,
    saved,
    size_bytes,
)
from langgraph_statekit.checkpoint.backends.postgres_schema import (
    migrate,
    migrations,
    schema_of,
    statement,
    version,
    warmed,
)
from langgraph_statekit.checkpoint.cells import CellChange, CellPage, CellQuery, Changed, effects_of
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery, rekeyed
from langgraph_statekit.checkpoint.expiry import Swept
from langgraph_statekit.checkpoint.facts import Fact, Usage
from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.checkpoint.records import (
    HEAD_BYTES,
    Change,
    Frame,
    Heads,
    Outline,
    Query,
    Ref,
    Row,
    Save,
    Stored,
    Write,
)
from langgraph_statekit.checkpoint.repeating import retrying
from langgraph_statekit.checkpoint.saver import StatekitSaver
from langgraph_statekit.checkpoint.urls import query_options
from langgraph_statekit.errors import SchemaTooNew, StatekitError, Unavailable

T = TypeVar("T")
Cursor = psycopg.Cursor[TupleRow]

PAGE_THREADS: Final = 1000
_SWEEP_THREADS: Final = 4
MESSAGE_BYTES: Final = 64 << 20
"""Saves that weigh more together are made one by one, as the server ends a connection at a message of 1 GB."""
_ROW: Final = "seq, ns, id, parent, via, hidden, run_id, keys, deltas"
_ROWS: Final = f"SELECT {_ROW}, body, metadata::text FROM {{schema}}"
_ALIVE: Final = "(SELECT {schema}.alive_1(%b, %b))"
_NOT_OVER: Final = (
    "NOT EXISTS (SELECT 1 FROM {schema}.threads e"
    " WHERE e.thread_id = t.thread_id AND e.until_us <= {schema}.clock_us_1())"
)
_BEFORE: Final = (
    "(SELECT coalesce(r.seq < bound.seq, r.id < wanted.id)"
    ' FROM (SELECT %b::text COLLATE "C" AS id) AS wanted LEFT JOIN {schema}.rows AS bound'
    " ON (bound.thread_id, bound.ns, bound.id) = (r.thread_id, r.ns, wanted.id))"
)


class PostgresBackend:
    """Threads in six tables of one schema, and cells in two, `thread_id` first in every key.

    Args:
        client: `psycopg_pool.ConnectionPool`, `psycopg.Connection` (one verb at a time) or `Connections`. An
            `AsyncConnectionPool` or `AsyncConnection` only lends its address: the backend opens its own connections.
        schema: Schema of the tables, see `schema_of`; created by `setup`.
        retry_s: Seconds for which a call is repeated after the server was lost.
    """

    deltas = True
    sweeps = True
    crowd = 16  # the server works on them while the event loop makes further ones

    def __init__(self, client: Client, *, schema: str = "statekit", retry_s: float = 10.0) -> None:
        require_numbers(float, 0, retry_s=retry_s)
        self._lender = lender(client)
        self._schema = schema
        self._retry_s = retry_s
        self.bell = PostgresBell(self._run, self._lender, schema)

    def _sql(self, text: str) -> bytes:
        return statement(self._schema, text)

    def _use(self, call: Callable[[Cursor], T], kind: type[Cursor] = psycopg.Cursor) -> T:
        def attempt() -> T:
            try:
                with self._lender.lend() as conn, kind(conn, row_factory=tuple_row) as cursor:
                    try:
                        return call(cursor)
                    except TRANSIENT as error:
                        if is_lost(error):
                            conn.close()
                        raise
            except psycopg.Error as error:
                if final := final_error(error):
                    raise final from error
                raise

        return retrying(attempt, TRANSIENT, self._retry_s, "PostgreSQL")

    def _run(self, text: str, *args: object) -> list[TupleRow]:
        statement = self._sql(text)
        return self._use(lambda cursor: cursor.execute(statement, args, binary=True).fetchall())

    def setup(self) -> None:
        done, latest = self._use(lambda cursor: warmed(cursor, self._schema)), max(migrations())
        if done > latest:
            raise SchemaTooNew(
                f"the PostgreSQL schema {self._schema!r} has version {done}, this release knows up to {latest}:"
                " upgrade it"
            )
        if done < latest:
            self._use(lambda cursor: migrate(cursor, self._schema))

    def _version(self) -> int:
        return self._use(lambda cursor: version(cursor, self._schema))

    def close(self) -> None:
        self._lender.close()

    def spare(self) -> PostgresBackend:
        return PostgresBackend(self._lender.spare(), schema=self._schema, retry_s=0)

    def exists(self) -> bool:
        return self._version() > 0

    def facts(self) -> Sequence[Fact]:
        told: dict[str, str] = dict(self._run(postgres_facts.SETTINGS, list(postgres_facts.NAMES), *[self._schema] * 3))
        return list(postgres_facts.facts(told, self._version() or None, max(migrations())))

    def usage(self, thread: str) -> Usage:
        [[size, orphans]] = self._run(postgres_facts.USAGE, *[thread] * 4)
        return Usage(size, orphans)

    def save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        if len(saves) == 1:
            return self._save(saves)
        if sum(map(size_bytes, saves)) <= MESSAGE_BYTES:
            try:
                return self._save(saves)
            except StatekitError as error:
                if isinstance(error, Unavailable) and is_lost(error.__cause__):
                    raise
        return [self._save_alone(save) for save in saves]

    def _save_alone(self, save: Save) -> int | Exception:
        try:
            return self._save([save])[0]
        except StatekitError as error:
            return error

    def _save(self, saves: Sequence[Save]) -> Sequence[int | Exception]:
        """Make all saves in one statement."""
        text, calls = save_calls(saves)
        query = text.encode().replace(b"{schema}", self._sql("{schema}"))  # kept for no other batch, unlike `_sql`
        args = [value for _, values in calls for value in values]

        def send(cursor: Cursor) -> list[TupleRow]:
            adapt(cursor.adapters)
            return cursor.execute(query, args, binary=True).fetchall()

        done = self._use(send, psycopg.RawCursor)
        results: list[int | Exception] = [True] * len(saves)
        for (places, _), (result,) in zip(calls, done, strict=True):
            for at in places:
                results[at] = saved(saves[at], result)
        return results

    def claim(self, claims: Sequence[Claim]) -> Sequence[Held | None]:
        return postgres_leases.claim(self._run, claims)

    def leases(self, query: LeaseQuery) -> LeasePage:
        return postgres_leases.listed(self._run, query)

    def change_cells(self, changes: Sequence[CellChange]) -> Sequence[Changed | Exception]:
        return postgres_cells.change(self._run, changes)

    def cells(self, query: CellQuery) -> CellPage:
        return postgres_cells.read(self._run, query)

    def load(self, thread: str, ns: str, id: str | None, refresh: bool = False) -> Stored | None:
        found: Row | None = None
        frames: dict[bytes, Frame] = {}
        writes: list[Write] = []
        header = b""
        for kind, num, a, b, c, d, data, keys, deltas in self._run(
            "SELECT * FROM {schema}.load_1(%b, %b, %b, %b)", thread, ns, id, refresh
        ):
            if kind == 0:
                found = row_of(thread, (num, ns, a, b, c, False, d, keys, deltas, data))
            elif kind == 1:
                frames[keys] = Frame(keys, data)
            elif kind == 2:
                writes.append(Write(a, num, b, c, data))
            else:
                header = data
        return None if found is None else Stored(found, frames, writes, header)

    def rows(self, query: Query) -> Sequence[Row]:
        thread, alive = query.thread, (query.thread, query.refresh)
        if query.id is None and not query.hidden:
            page = (thread, query.ns, query.before, query.below_seq, query.limit)
            table = "rows_1(%b, %b, %b, %b, %b)"
            found = self._run(f"{_ROWS}.{table} WHERE {_ALIVE} ORDER BY seq DESC", *page, *alive)
        else:
            wanted = {"ns = %b": query.ns, "id = %b": query.id, "seq < %b": query.below_seq, _BEFORE: query.before}
            given = {condition: value for condition, value in wanted.items() if value is not None}
            where = " AND ".join([_ALIVE, "thread_id = %b", "hidden" if query.hidden else "NOT hidden", *given])
            bounds = (*alive, thread, *given.values(), query.limit)
            found = self._run(f"{_ROWS}.rows r WHERE {where} ORDER BY seq DESC LIMIT %b", *bounds)
        return [row_of(thread, values) for values in found]

    def fill(
        self, thread: str, keys: Collection[bytes], refs: Collection[Ref]
    ) -> tuple[Mapping[bytes, Frame], Mapping[Ref, Sequence[Write]]]:
        frames: dict[bytes, Frame] = {}
        writes: dict[Ref, list[Write]] = {}
        stored: list[Ref] = []
        wanted = columns({(ref.ns, ref.id) for ref in refs}, 2)
        for key, data, ns, id, task, idx, channel, path in self._run(
            "SELECT frame_key, frame_data, NULL, NULL, NULL, NULL::int, NULL, NULL"
            f" FROM {{schema}}.frames_1(%b, %b::bytea[]) WHERE {_ALIVE}"
            " UNION ALL SELECT NULL, data, ns, id, task, idx, channel, path FROM {schema}.writes"
            " JOIN unnest(%b::text[], %b::text[]) AS wanted (ns, id) USING (ns, id) WHERE thread_id = %b"
            " UNION ALL SELECT NULL, NULL, ns, id, NULL, NULL, NULL, NULL"
            " FROM unnest(%b::text[], %b::text[]) AS wanted (ns, id), LATERAL (SELECT 1 FROM {schema}.rows r"
            f" WHERE (r.thread_id, r.ns, r.id) = (%b, wanted.ns, wanted.id) LIMIT 1) AS stored WHERE {_ALIVE}",
            *(thread, sorted(keys), thread, False, *wanted, thread, *wanted, thread, thread, False),
        ):
            if key is not None:
                frames[key] = Frame(key, data)
            elif task is None:
                stored.append(Ref(thread, ns, id))
            else:
                writes.setdefault(Ref(thread, ns, id), []).append(Write(task, idx, channel, path, data))
        return frames, {ref: writes.get(ref, []) for ref in stored}

    def outline(self, thread: str, ns: str | None = None, heads: bool = False) -> Outline:
        rev = 0
        rows: list[Row] = []
        stored: dict[bytes, bytes] = {}
        for found in self._run(
            f"SELECT {_ROW}, NULL::bytea[], NULL::bytea[] FROM {{schema}}.rows"
            f" WHERE {_ALIVE} AND thread_id = %b AND (%b::text IS NULL OR ns = %b)"
            " UNION ALL SELECT rev, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, f.* FROM {schema}.threads,"
            " (SELECT array_agg(key), array_agg(substring(data FOR %b)) FROM {schema}.frames WHERE thread_id = %b) AS f"
            f" WHERE {_ALIVE} AND seq > 0 AND thread_id = %b",
            *(thread, False, thread, ns, ns, HEAD_BYTES, thread, thread, False, thread),
        ):
            *values, keys, tops = found
            if values[2] is None:
                rev = values[0]
                stored = dict(zip(keys or (), tops or (), strict=True))
            else:
                rows.append(row_of(thread, (*values, b"")))
        return Outline(rev, sorted(rows, key=lambda row: row.seq), Heads(stored))

    def apply(self, thread: str, rev: int, change: Change) -> bool:
        keep, refs, keys = change.shorter
        [[done]] = self._run(
            "SELECT {schema}.apply_1(%b, %b, %b, %b::text[], %b::text[], %b::bytea[],"
            " %b::text[], %b::text[], %b::text[], %b::text[], %b::boolean[])",
            *(thread, rev, keep, *columns(((ref.ns, ref.id) for ref in refs), 2), list(keys)),
            *columns(((row.ref.ns, row.ref.id, row.parent, row.via, row.hidden) for row in change.relink), 5),
        )
        return bool(done)

    def drop_thread(self, thread: str) -> bool:
        wanted = f"SELECT {{schema}}.delete_1(%b), {postgres_cells.LISTED}"
        [[_, left]] = self._run(wanted, thread, *postgres_cells.list_of(effects_of(thread)))
        return bool(left)

    def copy_thread(self, source: str, target: str, operation: str, header: bytes = b"") -> bool:
        [[done]] = self._run("SELECT {schema}.copy_1(%b, %b, %b, %b)", source, target, operation, header or None)
        if done == REKEYED:
            raise rekeyed(source)
        return bool(done)

    def headers(self, threads: Sequence[str]) -> Mapping[str, bytes]:
        wanted = f"thread_id = ANY (%b::text[]) AND header IS NOT NULL AND {_NOT_OVER}"
        return dict(self._run(f"SELECT thread_id, header FROM {{schema}}.threads t WHERE {wanted}", list(threads)))

    def rewrap(self, changes: Sequence[tuple[str, bytes, bytes]]) -> Sequence[bool]:
        done = self._run("SELECT {schema}.rewrap_1(%b::text[], %b::bytea[], %b::bytea[])", *columns(changes, 3))
        made = {thread for (thread,) in done}
        return [thread in made for thread, _, _ in changes]

    def threads(self, run_ids: Collection[str] | None = None) -> Iterator[Sequence[str]]:
        table, given = ("threads", ()) if run_ids is None else ("rows", (list(run_ids),))
        wanted = (
            "(seq > 0 OR header IS NOT NULL)" if run_ids is None else "run_id IS NOT NULL AND run_id = ANY (%b::text[])"
        )
        last: str | None = None
        while True:
            found = self._run(
                f"SELECT DISTINCT thread_id FROM {{schema}}.{table} AS t WHERE {wanted} AND {_NOT_OVER}"
                " AND (%b::text IS NULL OR thread_id > %b) ORDER BY thread_id LIMIT %b",
                *(*given, last, last, PAGE_THREADS),
            )
            if found:
                yield [thread for (thread,) in found]
            if len(found) < PAGE_THREADS:
                return
            last = found[-1][0]

    def sweep(self, orphans_us: int) -> Swept:
        [[threads]] = self._run("SELECT {schema}.sweep_threads_1(%b)", _SWEEP_THREADS)
        [[orphans]] = self._run("SELECT {schema}.sweep_orphans_1(%b)", orphans_us)
        [[cells]] = self._run(postgres_cells.SWEEP, postgres_cells.SWEEP_CELLS)
        more = threads > 0 or orphans is not None or cells == postgres_cells.SWEEP_CELLS
        return Swept(threads, orphans or 0, more)


class PostgresSaver(StatekitSaver):
    """LangGraph's checkpointer on PostgreSQL; one object for sync and async callers.

    Behind PgBouncer in transaction mode use `from_url`, or a pool whose connections have `prepare_threshold=None`.

    Args:
        pool_or_connection: `psycopg_pool.ConnectionPool`, or a `psycopg.Connection`, which then serves one call at a
            time. An `AsyncConnectionPool` or `AsyncConnection` only lends its address: the saver opens its own
            connections. What is given stays the caller's to close.
        schema: Schema of the tables; created on first use.
        tenant: Whose threads these are, any text; a saver sees those of its tenant only. They have a schema of their
            own, `statekit@acme`. None: of none.
        audit_keys: Metadata keys that each checkpoint also stores readable, as `jsonb`, for the view `audit`. Values
            that JSON lacks are shown as texts or by their fields, secrets inside of them as `***`.
        retry_s: Seconds for which a call is repeated after the server was lost, or while it starts or is full. What
            waiting cannot mend raises `Misuse` at once, from any call: a database or role that does not exist, a
            refused password, host or certificate, a missing right.
        options: As in `StatekitSaver`.

    Raises:
        Misuse: What is given is no pool or connection, an option has a wrong value, or the schema's name cannot be
            used or is too long with the tenant's.
    """

    def __init__(
        self,
        pool_or_connection: Client,
        *,
        schema: str = "statekit",
        tenant: str | None = None,
        audit_keys: Sequence[str] = (),
        retry_s: float = 10.0,
        **options: Any,
    ) -> None:
        keys = checked_keys(audit_keys)
        backend = PostgresBackend(pool_or_connection, schema=schema_of(schema, tenant), retry_s=retry_s)
        super().__init__(backend, tenant=tenant, **options)
        self._audit = partial(audit_text, keys) if keys else None

    @classmethod
    @query_options
    def from_url(cls, url: str, *, min_size: int = 1, max_size: int = 10, wait_s: float = 30.0, **options: Any) -> Self:
        """Return a saver with connections of its own, which `close` or the end of `with` closes.

        Args:
            url: `postgresql://...` or a conninfo string. Options may stand in a URL's query; what is none goes to
                libpq.
            min_size: Connections that stay open while they are not used; others are closed after five minutes.
            max_size: At most so many connections; further callers wait.
            wait_s: Seconds that a caller waits for a connection before `Unavailable`.
            options: As in the class.

        Raises:
            Misuse: The URL cannot be read, or an option is unknown or has a wrong value.
        """
        return cls(Connections(url, min_size=min_size, max_size=max_size, wait_s=wait_s), **options)
