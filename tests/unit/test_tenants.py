"""Names of tenants in a store, and thread ids of agents: what they are, and that no two share one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langgraph_statekit import Misuse, ThreadId, open_saver, parse_thread_id, tenant_name, thread_id
from langgraph_statekit.checkpoint.tenants import path_of

TRICKY = st.text("aA_v1%25Fé-@:\0\ud800 ", min_size=1, max_size=60)
AGENTS = st.text("a_v12%5F\n", min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("tenant", "name"),
    [
        ("acme", "acme"),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ("Acme", "_41cme"),
        ("a:b", "a_3ab"),
        ("é", "_c3_a9"),
        ("x" * 64, "xxxxxxxx__jxznnpxcv5lpn6cj64wlijtq6m"),
    ],
)
def test_the_name_of_a_tenant_stays_what_it_is(tenant: str, name: str) -> None:
    assert tenant_name(tenant) == name


@given(TRICKY, TRICKY)
@example("a" * 36, "a" * 37)
@example("ab__", "ab_5f_5f")
def test_no_two_tenants_share_a_name_and_no_store_needs_care_with_it(one: str, other: str) -> None:
    assert (tenant_name(one) == tenant_name(other)) == (one == other)
    assert re.fullmatch(r"[a-z0-9_-]{1,36}", tenant_name(one))


def test_a_file_of_a_tenant_is_none_that_sqlite_puts_beside_one() -> None:
    assert path_of("a/agent.db", "acme") == Path("a/agent@acme.db")
    assert path_of("agent", "acme-wal") != Path(f"{path_of('agent', 'acme')}-wal")
    assert path_of("agent.db", None) == Path("agent.db")


def test_a_schema_that_postgres_would_cut_is_refused() -> None:
    open_saver("postgresql://h/db", schema="s" * 26, tenant="x" * 99).close()
    open_saver("postgresql://h/db", schema="s" * 58, tenant="acme").close()
    with pytest.raises(Misuse, match="1 characters too long"):
        open_saver("postgresql://h/db", schema="s" * 27, tenant="x" * 99)


def test_a_thread_id_names_agent_version_and_instance() -> None:
    assert thread_id("pricing", 3, "eu-1") == "pricing_v3_eu-1"
    assert parse_thread_id("pricing_v3_eu-1") == ThreadId("pricing", 3, "eu-1")
    assert thread_id("a_v1_b", 2, "c") == "a%5Fv1_b_v2_c"


@given(AGENTS, st.integers(0, 10**18 - 1), AGENTS)
@example("a_", 1, "_v2_")
@example("\0\ud800", 0, "💥")
def test_a_thread_id_is_read_back_as_it_was_made(agent: str, version: int, instance: str) -> None:
    assert parse_thread_id(thread_id(agent, version, instance)) == (agent, version, instance)


@pytest.mark.parametrize("parts", [("", 1, "x"), ("a", 1, ""), ("a", -1, "x"), ("a", True, "x"), ("a", "1", "x")])
def test_what_names_nothing_makes_no_thread_id(parts: Any) -> None:
    with pytest.raises(Misuse, match="must be"):
        thread_id(*parts)


@pytest.mark.parametrize("text", ["", "a", "a_v1_", "_v1_b", "a_v01_b", "a_vx_b", "a%_v1_b", "a_v" + "9" * 5000 + "_b"])
def test_another_thread_id_is_not_taken_for_one(text: str) -> None:
    with pytest.raises(Misuse, match="is no thread id of the form"):
        parse_thread_id(text)
