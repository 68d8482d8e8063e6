"""What the README shows runs, and what it lists is what the code has."""

from __future__ import annotations

import re
import shlex
from ast import literal_eval
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path

import psycopg
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver

import langgraph_statekit
from langgraph_statekit.checkpoint.codec import SECRET_KEYS
from langgraph_statekit.checkpoint.urls import SAVERS
from langgraph_statekit.cli import main
from tests.faces import config
from tests.servers import Servers
from tests.stores_under_test import Store, unique

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
ORDERS = """
from typing import TypedDict
from langgraph_statekit import migrates, state_version

@state_version(2, migrates(from_=1)(lambda state: {**state, "total": str(state.get("total"))}))
class Order(TypedDict):
    total: str
"""
SERVERS = {"redis": "redis://localhost:6379/0", "postgres": "postgresql://localhost/app"}


@pytest.mark.parametrize("block", BLOCKS, ids=range(1, len(BLOCKS) + 1))
def test_the_readme_code_runs(
    block: str,
    servers: Servers,
    new_store: Callable[[str], Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, shown in SERVERS.items():
        if shown in block:
            (name,) = new_store(kind).options.values()  # the store is removed after the test
            block = re.sub('"(shop|agents)"', f'"{name}"', block.replace(shown, servers.url(kind)))
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})


def test_the_commands_of_the_readme_run(
    servers: Servers, new_store: Callable[[str], Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    quick_start = next(block for block in BLOCKS if "order 17" in block)
    exec(compile(quick_start, "README.md", "exec"), {"__name__": "readme"})
    (tmp_path / "orders.py").write_text(ORDERS)
    monkeypatch.syspath_prepend(tmp_path)
    (commands,) = (block for block in re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE))
    prefix, database = new_store("redis").options["prefix"], unique()
    postgres = servers.url("postgres")
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {database}")
    try:
        own = f"{postgres.rpartition('/')[0]}/{database}"
        with PostgresSaver.from_conn_string(own) as official:
            official.setup()
        commands = commands.replace(SERVERS["redis"], servers.url("redis")).replace("prefix=shop", f"prefix={prefix}")
        first, *lines = commands.replace(SERVERS["postgres"], own).splitlines()
        monkeypatch.setenv(*first.removeprefix("export ").split("="))
        for line in lines:
            name, *args = shlex.split(line, comments=True)
            assert name == "statekit"
            assert main(args) == 0, line
    finally:
        with psycopg.connect(postgres, autocommit=True) as db:
            db.execute(f"DROP DATABASE {database} WITH (FORCE)")


def id_in(year: int, number: int) -> str:
    """Return a checkpoint id (UUID version 6) of a day of that year."""
    since = datetime(year, 6, 1, tzinfo=UTC) - datetime(1582, 10, 15, tzinfo=UTC)
    ticks = f"{int(since.total_seconds()) * 10**7 + number:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}-8000-0123456789ab"


def test_the_questions_of_an_auditor_in_the_readme_have_answers(new_store: Callable[[str], Store]) -> None:
    store = new_store("postgres")
    (questions,) = re.findall(r"^```sql\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    with store.open(audit_keys=["source", "step", "user"]) as saver:
        for number, (user, run, year) in enumerate(
            [("ann", "run 5", 2026), ("bob", "run 6", 2026), ("ann", "x", 2027)]
        ):
            made = {**empty_checkpoint(), "id": id_in(year, number)}
            saver.put(config("order 17"), made, {"source": "loop", "user": user, "run_id": run, "step": number}, {})  # type: ignore[arg-type, typeddict-unknown-key]
    with psycopg.connect(store.url) as db:
        first, *others = questions.replace("agents", store.options["schema"]).strip().split(";\n")
        db.execute(first.encode())
        runs, threads, written, largest = (db.execute(each.rstrip(";").encode()).fetchall() for each in others)
    assert [(run, count) for run, _, _, count, _ in runs] == [("run 5", 1), ("run 6", 1), ("x", 1)]
    assert threads == [("order 17",)]
    assert [row[1] for row in written] == [id_in(2026, 0)]
    assert [row[:3] for row in largest] == [("order 17", 3, 3)]


def test_the_readme_lists_the_names_of_secrets() -> None:
    _, listed, _ = re.split(r"<!-- secret names: (?:begin|end) -->", README)
    assert re.findall(r"`([^`]+)`", listed) == sorted(SECRET_KEYS)


def test_the_table_of_stores_names_urls_and_defaults_that_exist() -> None:
    rows = [line.split("|")[1:-1] for line in README.splitlines() if re.match(r"\|.*`\w[\w+]*://", line)]
    shown = set()
    for _, urls, name, options in rows:
        schemes = re.findall(r"([\w+]+)://", urls)
        shown.update(schemes)
        for scheme in schemes:
            assert f"`{SAVERS[scheme][1]}`" in name or scheme == "memory"
        if name.strip():
            saver = getattr(langgraph_statekit, name.strip(" `"))
            given = {**signature(saver).parameters, **signature(saver.from_url).parameters}
            for option, default in re.findall(r"`(\w+)=([^`]+)`", options):
                assert given[option].default == literal_eval(default), option
    assert {"sqlite", "redis", "postgresql", "s3", "gs", "az", "file", "memory"} <= shown <= SAVERS.keys()


def test_links_between_the_documents_lead_somewhere() -> None:
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
