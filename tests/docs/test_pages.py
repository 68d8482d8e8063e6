"""What the README and the pages in docs/ show runs, block by block, and prints what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from langgraph.checkpoint.postgres import PostgresSaver

from langgraph_statekit import SessionManager
from langgraph_statekit.cli import main
from langgraph_statekit.cli.program import _parsers
from tests import programs
from tests.docs.pages import LANGUAGES, PAGES, ROOT, Block, blocks
from tests.servers import Servers
from tests.stores_under_test import Store, unique

SERVERS = {"redis": "redis://localhost:6379/0", "postgres": "postgresql://localhost/app"}
"""As pages name them."""
PROGRAMS = [
    pytest.param(block.text, id=f"{page.stem} {number}")
    for page in PAGES
    for number, block in enumerate((each for each in blocks(page) if each.language == "python"), 1)
    if not block.title
]
WITH_COMMANDS = [
    pytest.param(page, id=page.stem) for page in PAGES if any(each.language == "sh" for each in blocks(page))
]
QUESTIONS = [
    pytest.param(block.text, id=page.stem) for page in PAGES for block in blocks(page) if block.language == "sql"
]


@pytest.fixture
def served(servers: Servers, new_store: Callable[[str], Store]) -> Callable[[str], str]:
    """Return what puts the servers of the tests, and places of their own there, in place of those that pages name."""
    found: dict[str, str] = {}

    def replace(text: str) -> str:
        for kind, shown in SERVERS.items():
            if shown in text:
                if kind not in found:
                    (found[kind],) = new_store(kind).options.values()  # the store is removed after the test
                text = text.replace(shown, servers.url(kind))
                text = re.sub(r'"(shop|agents)"', f'"{found[kind]}"', text)
                text = re.sub(r"\b(prefix|schema)=(shop|agents)\b", rf"\1={found[kind]}", text)
        return text

    return replace


@pytest.fixture
def official(servers: Servers) -> Iterator[str]:
    """Yield the URL of a database that LangGraph's own saver has set up."""
    postgres, database = servers.url("postgres"), unique()
    own = f"{postgres.rpartition('/')[0]}/{database}"
    with psycopg.connect(postgres, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {database}")
        try:
            with PostgresSaver.from_conn_string(own) as saver:
                saver.setup()
            yield own
        finally:
            db.execute(f"DROP DATABASE {database} WITH (FORCE)")


def run(program: str) -> None:
    with patch.dict(os.environ):  # what a program sets is gone with it
        exec(compile(program, "docs", "exec", dont_inherit=True), {"__name__": "docs"})


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_code_of_a_page_runs(
    program: str, served: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(served(program))


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_run_and_print_what_it_says(
    page: Path,
    served: Callable[[str], str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("STATEKIT_URL", raising=False)
    for block, after in pairwise([*blocks(page), Block("", "", "")]):
        text = block.text
        if "--from langgraph-checkpoint-postgres" in text:
            text = text.replace(SERVERS["postgres"], request.getfixturevalue("official"))
        text = served(text)
        if block.language == "python" and block.title:
            Path(block.title).write_text(text)
        elif block.language == "python":
            run(text)
        elif block.language == "sh":
            capfd.readouterr()
            for line in text.splitlines():
                command(line, monkeypatch)
            if after.title == "prints":
                shown, printed = (" ".join(each.split()) for each in (after.text, capfd.readouterr().out))
                assert fnmatchcase(printed, shown.replace("[", "[[]").replace("...", "*")), printed


def command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a line of a shell; it ends with 0, or as its comment tells."""
    said = re.search(r"# exits with (\d+)", line)
    name, *args = shlex.split(line, comments=True)
    if name == "export":
        for each in args:
            monkeypatch.setenv(*each.split("=", 1))
        return
    if name == "statekit":
        code = main(args)
    else:
        assert name == "python"
        code = programs.run([sys.executable, *args], timeout=60).returncode
        code = code if code >= 0 else 128 - code  # as a shell tells of a signal
    assert code == int(said[1] if said else 0), line


@pytest.mark.parametrize("questions", QUESTIONS)
def test_the_sql_of_a_page_runs(questions: str, new_store: Callable[[str], Store]) -> None:
    store = new_store("postgres")
    with store.open(audit_keys=["source"]) as saver:
        SessionManager(saver, agent="support", version="1").create("ann")
    with psycopg.connect(store.url) as db:
        db.execute(questions.replace("agents", store.options["schema"]).encode())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_of_each_block_whether_it_is_code(page: Path) -> None:
    assert {each.language for each in blocks(page)} <= LANGUAGES
    for each in blocks(page):
        assert each.language != "json" or json.loads(each.text)
    assert len(re.findall("^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)) == 2 * len(blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_that_are_not_run_are_there(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    lines = [line for each in blocks(page) if each.language == "console" for line in each.text.splitlines()]
    for line in re.split(r" && |\n", "\n".join(lines)):
        match shlex.split(line, comments=True):
            case ["make", *words]:
                assert {each for each in words if "=" not in each} <= {*targets}, line
            case ["pip", "install", *words]:
                assert {each for word in words for each in re.findall(r"\w+", word.partition("[")[2])} <= {*extras}
            case ["statekit", name, *words]:
                _parsers()[1][name].parse_args(words)
            case [python, "-m", module, *_] if python.endswith("python"):
                assert (ROOT / f"{module.replace('.', '/')}.py").exists(), line
            case []:
                pass
            case _:
                raise AssertionError(f"nobody looks at this command: {line}")
