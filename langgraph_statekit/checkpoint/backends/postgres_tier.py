"""A schema of Postgres as the upper one of two tiers: triggers note what changes, whoever changes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any, Final, TypeVar

import psycopg
from psycopg.rows import TupleRow

from langgraph_statekit.checkpoint.backends.memory_thread import Thread
from langgraph_statekit.checkpoint.backends.objects.layout import digest
from langgraph_statekit.checkpoint.backends.postgres import PostgresBackend
from langgraph_statekit.checkpoint.backends.postgres_format import columns, row_of
from langgraph_statekit.checkpoint.backends.postgres_schema import statement
from langgraph_statekit.checkpoint.backends.tiered.hot import Changes, State
from langgraph_statekit.checkpoint.backends.tiered.layout import Pack
from langgraph_statekit.checkpoint.records import Write

T = TypeVar("T")
Cursor = psycopg.Cursor[TupleRow]

_STUB_US: Final = 24 * 3600 * 1_000_000
_ALIVE: Final = "(h.until_us IS NULL OR h.until_us > {schema}.clock_us_1())"
_STATE: Final = f"""
SELECT t.born, t.epoch, t.complete OR e.born IS NOT NULL, NOT EXISTS (
        SELECT 1 FROM {{schema}}.tier_touched d WHERE d.thread_id = w.id), e.born,
    CASE WHEN h.thread_id IS NULL THEN EXISTS (SELECT 1 FROM {{schema}}.writes o WHERE o.thread_id = w.id)
        ELSE {_ALIVE} END,
    h.thread_id IS NOT NULL AND NOT {_ALIVE}, t.gen
FROM (SELECT %b::text COLLATE "C" AS id) w LEFT JOIN {{schema}}.tier t ON t.thread_id = w.id
    LEFT JOIN {{schema}}.tier_ended e ON e.thread_id = w.id LEFT JOIN {{schema}}.threads h ON h.thread_id = w.id
"""
_ENDED: Final = f"""
SELECT thread_id FROM {{schema}}.tier_ended
UNION SELECT h.thread_id FROM {{schema}}.threads h JOIN {{schema}}.tier t USING (thread_id)
WHERE h.until_us IS NOT NULL AND NOT {_ALIVE}
"""
_DIRTY: Final = f"""
SELECT thread_id FROM (
    SELECT d.thread_id, min(d.at_us) AS at_us FROM {{schema}}.tier_touched d
        LEFT JOIN {{schema}}.threads h ON h.thread_id = d.thread_id
        WHERE h.thread_id IS NULL OR {_ALIVE} GROUP BY d.thread_id
    UNION ALL SELECT thread_id, at_us FROM {{schema}}.tier_ended
) AS w WHERE at_us < %b GROUP BY thread_id ORDER BY min(at_us) LIMIT %b
"""
_IDLE: Final = f"""
SELECT t.thread_id FROM {{schema}}.tier t JOIN {{schema}}.threads h USING (thread_id)
WHERE t.at_us < %b AND t.epoch <> '' AND t.complete AND h.ttl_us = 0 AND {_ALIVE}
    AND NOT EXISTS (SELECT 1 FROM {{schema}}.tier_touched d WHERE d.thread_id = t.thread_id)
ORDER BY t.at_us LIMIT %b
"""
_END: Final = "coalesce(until_us, {schema}.end_1(thread_id, ttl_us, NULL, {schema}.waits_1(thread_id)))"
_LET_END: Final = (
    f"UPDATE {{schema}}.threads SET until_us = {_END} WHERE thread_id = %b AND until_us IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM {schema}.tier_touched d WHERE d.thread_id = %b)"
)
_TOUCHED: Final = "SELECT kind, ns, id, key FROM {schema}.tier_touched WHERE thread_id = %b"
_EVERYTHING: Final = """
SELECT kind, ns, id, key FROM {schema}.tier_touched WHERE thread_id = %b
UNION ALL SELECT 1, ns, id, NULL FROM {schema}.rows WHERE thread_id = %b
UNION ALL SELECT 2, NULL, NULL, key FROM {schema}.frames WHERE thread_id = %b
UNION ALL SELECT 3, ns, id, NULL FROM {schema}.writes WHERE thread_id = %b
"""
_ROWS: Final = """
SELECT d.ns, d.id, r.seq, r.ns, r.id, r.parent, r.via, r.hidden, r.run_id, r.keys, r.deltas, r.body, r.metadata::text
FROM (SELECT DISTINCT ns, id FROM ({}) AS a WHERE kind = 1) d
LEFT JOIN {{schema}}.rows r ON (r.thread_id, r.ns, r.id) = (%b, d.ns, d.id)
"""
_FRAMES: Final = """
SELECT d.key, f.data FROM (SELECT DISTINCT key FROM ({}) AS a WHERE kind = 2) d
LEFT JOIN {{schema}}.frames f ON (f.thread_id, f.key) = (%b, d.key)
"""
_WRITES: Final = """
SELECT d.ns, d.id, w.task, w.idx, w.channel, w.path, w.data
FROM (SELECT DISTINCT ns, id FROM ({}) AS a WHERE kind = 3) d
LEFT JOIN {{schema}}.writes w ON (w.thread_id, w.ns, w.id) = (%b, d.ns, d.id)
"""
_STUB: Final = """
INSERT INTO {schema}.tier_gone AS g VALUES (%b, %b, %b, {schema}.clock_us_1()) ON CONFLICT (name) DO UPDATE
SET born = greatest(g.born, excluded.born), gen = greatest(g.gen, excluded.gen), at_us = excluded.at_us
"""
# An upload that notes itself locks the row of `tier` first, so that all do, or they would wait for each other.
_LOCK: Final = "SELECT 1 FROM {schema}.tier WHERE thread_id = %b FOR UPDATE"
_DROP: Final = (
    "SELECT {schema}.drop_1(%b)",
    "DELETE FROM {schema}.tier_touched WHERE thread_id = %b",
    "DELETE FROM {schema}.tier WHERE thread_id = %b",
)
_INSERTS: Final = (
    "INSERT INTO {schema}.rows (thread_id, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body, metadata)"
    " SELECT %b, ns, id, seq, parent, via, hidden, run_id, keys, deltas, body, audit::jsonb"
    " FROM unnest(%b::text[], %b::text[], %b::bigint[], %b::text[], %b::text[], %b::boolean[], %b::text[],"
    " %b::bytea[], %b::bytea[], %b::bytea[], %b::text[])"
    " AS a (ns, id, seq, parent, via, hidden, run_id, keys, deltas, body, audit)",
    "INSERT INTO {schema}.frames (thread_id, key, base, data)"
    " SELECT %b, a.* FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS a",
    "INSERT INTO {schema}.writes (thread_id, ns, id, task, idx, channel, path, data)"
    " SELECT %b, a.* FROM unnest(%b::text[], %b::text[], %b::text[], %b::int[], %b::text[], %b::text[], %b::bytea[])"
    " AS a",
    "INSERT INTO {schema}.early (thread_id, ns, id, at_us)"
    " SELECT %b, ns, id, {schema}.clock_us_1() FROM unnest(%b::text[], %b::text[]) AS a (ns, id)",
)


class PostgresTier:
    """What `Tier` asks of a schema.

    Args:
        backend: The schema.
    """

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend, self._schema = backend, backend._schema

    def setup(self) -> None:
        if self._is_set_up():
            return

        def create(cursor: Cursor) -> None:
            with cursor.connection.transaction():
                cursor.execute(self._sql("LOCK TABLE {schema}.migrations IN SHARE ROW EXCLUSIVE MODE"))
                if not cursor.execute(_SET_UP, (self._schema,)).fetchall():
                    script = files(__package__).joinpath("postgres_tier.sql").read_text("utf-8")
                    cursor.execute(self._sql(script))

        self._backend._use(create)

    def _is_set_up(self) -> bool:
        return bool(self._backend._run(_SET_UP, self._schema))

    def _sql(self, text: str) -> bytes:
        return statement(self._schema, text)

    def now_us(self) -> int:
        [[now_us]] = self._backend._run("SELECT {schema}.clock_us_1()")
        return int(now_us)

    def state(self, thread: str) -> State | None:
        return _state(self._backend._run(_STATE, thread)[0])

    def ended(self) -> Sequence[str]:
        return [thread for (thread,) in self._backend._run(_ENDED)]

    def dirty(self, before_us: int, limit: int) -> Sequence[str]:
        return [thread for (thread,) in self._backend._run(_DIRTY, before_us, limit)]

    def idle(self, before_us: int, limit: int) -> Sequence[str]:
        return [thread for (thread,) in self._backend._run(_IDLE, before_us, limit)]

    def changes(self, thread: str, whole: bool = False) -> Changes | None:
        def read(ask: Callable[..., list[Any]]) -> Changes | None:
            ask("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            state = _state(ask(_STATE, thread)[0])
            if state is None or not state.here:
                return None
            found = f"SELECT seq, copied_by, ttl_us, {_END}, header FROM {{schema}}.threads WHERE thread_id = %b"
            values = ask(found, thread)
            seq, copied_by, ttl_us, until_us, header = values[0] if values else (0, None, 0, None, None)
            marks = [mark for (mark,) in ask("SELECT mark FROM {schema}.tier_touched WHERE thread_id = %b", thread)]
            places = {}
            if whole or not state.complete:
                every = ask("SELECT ns, id, seq FROM {schema}.rows WHERE thread_id = %b", thread)
                places = {(ns, id): at for ns, id, at in every}
            pack = _pack(ask, thread, whole)
            return Changes(state, marks, pack, places, header or b"", seq, copied_by or "", ttl_us, until_us)

        return self._in_transaction(read)

    def uploaded(self, thread: str, born: int, mark: Any, epoch: str, gen: int, complete: bool) -> None:
        def note(ask: Callable[..., list[Any]]) -> None:
            ends = ask("SELECT 1 FROM {schema}.threads WHERE thread_id = %b AND ttl_us <> 0 FOR NO KEY UPDATE", thread)
            found = ask(
                "SELECT 1 FROM {schema}.tier WHERE thread_id = %b AND born = %b FOR NO KEY UPDATE", thread, born
            )
            if found:
                ask(
                    "WITH done AS (DELETE FROM {schema}.tier_touched WHERE thread_id = %b AND mark = ANY (%b::bigint[])"
                    " RETURNING at_us) UPDATE {schema}.tier SET complete = %b OR (complete AND epoch = %b), epoch = %b,"
                    " at_us = greatest(at_us, (SELECT max(at_us) FROM done)), gen = greatest(gen, %b)"
                    " WHERE thread_id = %b",
                    *(thread, mark, complete, epoch, epoch, gen, thread),
                )
                if ends:
                    self._quiet(ask)
                    ask(_LET_END, thread, thread)
                ask("DELETE FROM {schema}.tier_ended WHERE thread_id = %b AND born < %b", thread, born)
                ask(_STUB, digest(thread), born, gen)

        self._in_transaction(note)

    def evict(self, thread: str, born: int, gen: int, leased: bool) -> bool:
        def drop(ask: Callable[..., list[Any]]) -> bool:
            held = ask("SELECT ttl_us FROM {schema}.threads WHERE thread_id = %b FOR UPDATE", thread)
            found = ask("SELECT 1 FROM {schema}.tier WHERE thread_id = %b AND born = %b FOR UPDATE", thread, born)
            if not found or ask("SELECT 1 FROM {schema}.tier_touched WHERE thread_id = %b LIMIT 1", thread):
                return False
            running = "SELECT 1 FROM {schema}.leases WHERE thread_id = %b AND until_us > {schema}.clock_us_1()"
            if not leased and (ask(running, thread) or (held and held[0][0])):
                return False
            self._drop(ask, thread)
            ask(_STUB, digest(thread), born, gen)
            ask("DELETE FROM {schema}.tier_gone WHERE at_us < {schema}.clock_us_1() - %b", _STUB_US)
            return True

        return self._in_transaction(drop)

    def restore(self, thread: str, epoch: str, gen: int, held: Thread) -> bool:
        def take(ask: Callable[..., list[Any]]) -> bool:
            [[rev]] = ask("SELECT {schema}.lock_1(%b)", thread)
            stub = ask("SELECT gen, born FROM {schema}.tier_gone WHERE name = %b", digest(thread))
            last, before = stub[0] if stub else (0, 0)
            if rev or last > gen or ask("SELECT 1 FROM {schema}.tier_ended WHERE thread_id = %b", thread):
                return False
            made = ask(
                "INSERT INTO {schema}.tier (thread_id, born, epoch, complete, at_us, gen) SELECT %b,"
                " greatest(now_us, %b), %b, true, now_us, %b FROM {schema}.clock_us_1() AS now_us"
                " ON CONFLICT DO NOTHING RETURNING 1",
                *(thread, before + 1, epoch, gen),
            )
            if not made:
                return False
            self._quiet(ask)
            ask(
                "UPDATE {schema}.threads SET seq = %b, rev = {schema}.clock_us_1(), copied_by = %b, ttl_us = %b,"
                " until_us = %b, header = %b WHERE thread_id = %b",
                *(held.seq, held.copied_by or None, held.ttl_us, held.until_us, held.header or None, thread),
            )
            for text, values in zip(_INSERTS, _values(held), strict=True):
                ask(text, thread, *values)
            return True

        return self._in_transaction(take, unless=False)

    def end(self, thread: str) -> bool:
        def remove(ask: Callable[..., list[Any]]) -> bool:
            ask("SELECT 1 FROM {schema}.threads WHERE thread_id = %b FOR UPDATE", thread)
            ask(_LOCK, thread)
            state = _state(ask(_STATE, thread)[0])
            self._drop(ask, thread)
            ask("DELETE FROM {schema}.leases WHERE thread_id = %b", thread)
            ask(
                "INSERT INTO {schema}.tier_ended AS e SELECT %b, greatest(now_us, %b), now_us"
                " FROM {schema}.clock_us_1() AS now_us"
                " ON CONFLICT (thread_id) DO UPDATE SET born = greatest(e.born, excluded.born)",
                *(thread, 0 if state is None else state.born),
            )
            return state is not None

        return self._in_transaction(remove)

    def buried(self, thread: str, born: int, gen: int) -> None:
        def note(ask: Callable[..., list[Any]]) -> None:
            held = ask("SELECT 1 FROM {schema}.threads WHERE thread_id = %b FOR UPDATE", thread)
            # With the locks, and no later life, nobody begins one before this counts.
            old = ask("SELECT 1 FROM {schema}.tier WHERE thread_id = %b AND born <= %b FOR UPDATE", thread, born)
            ask("DELETE FROM {schema}.tier_ended WHERE thread_id = %b AND born <= %b", thread, born)
            # It has expired, or a sweep has left something of it.
            if old and not (_state(ask(_STATE, thread)[0]) or State(0)).here:
                self._quiet(ask)
                for text in _DROP if held else _DROP[1:]:
                    ask(text, thread)
            ask(_STUB, digest(thread), born, gen)

        self._in_transaction(note)

    def forget(self, thread: str, born: int) -> None:
        def drop(ask: Callable[..., list[Any]]) -> None:
            ask("SELECT 1 FROM {schema}.threads WHERE thread_id = %b FOR UPDATE", thread)
            if ask("SELECT 1 FROM {schema}.tier WHERE thread_id = %b AND born = %b FOR UPDATE", thread, born):
                self._drop(ask, thread)

        self._in_transaction(drop)

    def _drop(self, ask: Callable[..., list[Any]], thread: str) -> None:
        self._quiet(ask)
        for text in _DROP:
            ask(text, thread)

    def _quiet(self, ask: Callable[..., list[Any]]) -> None:
        ask("SELECT set_config('statekit.quiet', 'on', true)")

    def _in_transaction(self, call: Callable[[Callable[..., list[Any]]], T], *, unless: object = _STUB_US) -> T:
        """Return what a call gives that asks the server in one transaction, which is undone if it gives `unless`."""

        def attempt(cursor: Cursor) -> T:
            def ask(text: str, *args: object) -> list[Any]:
                cursor.execute(self._sql(text), args, binary=True)
                return cursor.fetchall() if cursor.description else []

            with cursor.connection.transaction():
                result = call(ask)
                if result is unless:
                    raise psycopg.Rollback
            return result

        return self._backend._use(attempt)


_SET_UP: Final = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'tier_gone'"


def _state(found: tuple[Any, ...]) -> State | None:
    born, epoch, complete, clean, ended, here, over, gen = found
    if here and born is not None:
        return State(born, epoch, complete, clean, ended is not None, gen=gen)
    swept = complete and born is not None  # it had writes only
    if ended is None and not (over and born is not None) and not swept:
        return None
    return State(max(ended or 0, born or 0), ended=True, here=False, over=bool(over) and ended is None)


def _pack(ask: Callable[..., list[Any]], thread: str, whole: bool) -> Pack:
    touched, count = (_EVERYTHING, 4) if whole else (_TOUCHED, 1)
    named = touched.replace("{schema}", "{{schema}}")

    def read(text: str) -> list[Any]:
        return ask(text.format(named).replace("{{schema}}", "{schema}"), *[thread] * (count + 1))

    rows, gone_rows = {}, set()
    for ns, id, *values in read(_ROWS):
        if values[0] is None:
            gone_rows.add((ns, id))
        else:
            rows[ns, id] = row_of(thread, tuple(values))
    frames = dict(read(_FRAMES))
    writes: dict[tuple[str, str], list[Write]] = {}
    for ns, id, task, *rest in read(_WRITES):
        each = writes.setdefault((ns, id), [])
        if task is not None:
            each.append(Write(task, *rest))
    return Pack(
        rows,
        {key: data for key, data in frames.items() if data is not None},
        writes,
        frozenset(gone_rows),
        frozenset(key for key, data in frames.items() if data is None),
    )


def _values(held: Thread) -> list[list[list[object]]]:
    """Return what `_INSERTS` take, as columns."""
    rows = (
        (
            r.ref.ns,
            r.ref.id,
            r.seq,
            r.parent,
            r.via,
            r.hidden,
            r.run_id,
            r.packed_keys,
            r.packed_deltas,
            r.body,
            r.audit,
        )
        for r in held.rows.values()
    )
    frames = ((f.key, b"".join(f.base) if f.base else None, f.stored) for f in held.frames.values())
    writes = (
        (ref.ns, ref.id, w.task, w.idx, w.channel, w.path, w.data)
        for ref, each in held.writes.items()
        for w in each.values()
    )
    early = ((ref.ns, ref.id) for ref in held.writes.keys() - held.rows.keys())
    return [columns(rows, 11), columns(frames, 3), columns(writes, 7), columns(early, 2)]
