"""What the pages list is what the code has."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import signature

import psycopg
from langgraph.checkpoint.base import empty_checkpoint

import langgraph_statekit
from langgraph_statekit.checkpoint.secret_keys import SECRET_KEYS
from langgraph_statekit.checkpoint.urls import SAVERS
from tests.docs.pages import PAGES, ROOT, blocks
from tests.faces import config
from tests.stores_under_test import Store

DOCS = ROOT / "docs"


def text(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def id_in(year: int, number: int) -> str:
    """Return a checkpoint id (UUID version 6) of a day of that year."""
    since = datetime(year, 6, 1, tzinfo=UTC) - datetime(1582, 10, 15, tzinfo=UTC)
    ticks = f"{int(since.total_seconds()) * 10**7 + number:015x}"
    return f"{ticks[:8]}-{ticks[8:12]}-6{ticks[12:]}-8000-0123456789ab"


def test_the_questions_of_an_auditor_have_answers(new_store: Callable[[str], Store]) -> None:
    store = new_store("postgres")
    (questions,) = (each.text for each in blocks(DOCS / "audit.md") if each.language == "sql")
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


def test_the_names_of_secrets_are_listed() -> None:
    _, listed, _ = re.split(r"<!-- secret names: (?:begin|end) -->", text("encryption"))
    assert re.findall(r"`([^`]+)`", listed) == sorted(SECRET_KEYS)


def test_the_table_of_stores_names_urls_and_defaults_that_exist() -> None:
    rows = [line.split("|")[1:-1] for line in text("stores").splitlines() if re.match(r"\|.*`\w[\w+]*://", line)]
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
    for page in (*PAGES, ROOT / "CHANGELOG.md"):
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name} links to {link}"
