"""Leases in PostgreSQL, by the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from psycopg.rows import TupleRow

from langgraph_statekit.checkpoint.backends.postgres_format import columns
from langgraph_statekit.checkpoint.claims import Claim, Held, LeasePage, LeaseQuery

Run = Callable[..., list[TupleRow]]
"""Runs a statement and returns its rows."""

_COLUMNS: Final = "holder, owner, token, until_us, about, beat_us, progress_us, control"
_CLAIM: Final = (
    f"SELECT n, {_COLUMNS}"
    " FROM unnest(%b::text[], %b::text[], %b::text[], %b::bigint[], %b::bigint[], %b::boolean[], %b::bigint[],"
    " %b::text[], %b::bigint[], %b::text[]) WITH ORDINALITY"
    " AS c (thread, by, label, ttl_us, renewed, steal, instead, told, idle_us, word, n),"
    " {schema}.claim_2(thread, by, label, ttl_us, renewed, steal, instead, told, idle_us, word)"
)
_WHEN: Final = {None: "true", True: "until_us <= now_us", False: "until_us > now_us"}
_LIST: Final = (
    f"SELECT now_us, thread_id, {_COLUMNS} FROM (SELECT {{schema}}.clock_us_1() AS now_us) AS clock LEFT JOIN LATERAL ("
    "SELECT * FROM {schema}.leases WHERE until_us > 0 AND (until_us, thread_id) > (%b, %b::text) AND "
)


def claim(run: Run, claims: Sequence[Claim]) -> Sequence[Held | None]:
    """Decide claims in one statement."""
    order = sorted(range(len(claims)), key=lambda at: claims[at].thread)  # as saves lock them
    fields = (
        (c.thread, c.holder, c.owner, c.ttl_us, c.token, c.steal, c.instead, c.about, c.idle_us, c.control)
        for c in (claims[at] for at in order)
    )
    held: list[Held | None] = [None] * len(claims)
    for place, *lease in run(_CLAIM, *columns(fields, 10)):
        held[order[place - 1]] = Held(*lease)
    return held


def listed(run: Run, query: LeaseQuery) -> LeasePage:
    """Return a page of leases, by their ends."""
    until_us, _, thread = query.after.partition(":")
    statement = f"{_LIST}{_WHEN[query.ended]} ORDER BY until_us, thread_id LIMIT %b) AS found ON true"
    found = run(statement, int(until_us or 0), thread, query.limit)
    leases = [(name, Held(*lease)) for _, name, *lease in found if name is not None]
    full = len(leases) == query.limit
    return LeasePage(leases, found[0][0], f"{leases[-1][1].until_us}:{leases[-1][0]}" if full else "")
