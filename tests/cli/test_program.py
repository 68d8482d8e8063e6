"""Arguments, exit codes and the ways to start the command."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from langgraph_statekit import open_saver
from langgraph_statekit.cli import main
from tests.cli.kit import Run, address, chain, named, process
from tests.servers import free_ports
from tests.stores_under_test import Store

COMMANDS = ("ls", "show", "diff", "fork", "copy", "prune", "label", "migrate", "doctor")


def test_help_tells_the_exit_codes(run: Run) -> None:
    for args in ([], *([command] for command in COMMANDS)):
        told = run(*args, "--help")
        assert told.code == 0
        assert "3    the store did not answer" in told.out


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("nonsense",),
        ("ls", "--url", "nonsense"),
        ("ls", "--url", "oracle://user:hunter2@host/x"),
        ("ls", "--url", "redis://user:hunter2@127.0.0.1:1/0?nonsense=1"),
        ("ls", "--limit", "0"),
        ("show",),
        ("copy", "redis://:hunter2@127.0.0.1/0"),
        ("show", "a", "b", "redis://:x/hunter2@127.0.0.1/0"),
        ("show", "a", "b", "host=h password=hunter2"),
        ("prune", "t", "--max-age-days", "many"),
        ("copy", "redis://:hunter2@127.0.0.1/0", "postgresql://u:hunter2@h/db", "--from", "nobody"),
        ("ls", "--url", "memory://", "redis://u:hunter2@h", "--what"),
    ],
)
def test_wrong_arguments_exit_with_two_and_show_no_password(
    args: tuple[str, ...], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STATEKIT_URL", raising=False)
    told = run(*args)
    assert (told.code, told.out) == (2, "")
    assert told.err
    assert "hunter2" not in told.err


@pytest.mark.parametrize("option", [("--url", "redis://u:hunter2@h/0"), ("--url=redis://u:hunter2@h/0",), ("--json",)])
def test_an_option_before_the_command_is_told_where_it_belongs(option: tuple[str, ...], run: Run) -> None:
    told = run(*option, "ls")
    assert (told.code, told.out) == (2, "")
    assert "statekit COMMAND --url URL" in told.err
    assert "hunter2" not in told.err


def test_no_store_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STATEKIT_URL", raising=False)
    for command in (["ls"], ["doctor"]):
        told = run(*command)
        assert told.code == 2
        assert "STATEKIT_URL" in told.err


@pytest.mark.parametrize(
    "command", [("ls",), ("show", "t"), ("diff", "t"), ("doctor",), ("prune", "--all", "--keep-latest")]
)
def test_a_server_that_does_not_answer_exits_with_three(command: tuple[str, ...], run: Run) -> None:
    (port,) = free_ports(1)
    for url in (
        f"redis://:hunter2@127.0.0.1:{port}/0?retry_s=0",
        f"postgresql://u:hunter2@127.0.0.1:{port}/x?retry_s=0",
    ):
        told = run(*command, "--url", url)
        assert (told.code, told.out) == (3, "")
        assert "did not answer" in told.err
        assert "hunter2" not in told.err
        assert "\\n" not in told.err, "what a driver tells in several lines is one"


def test_reading_makes_nothing(durable_store: Store, run: Run) -> None:
    for command in (
        ["ls"],
        ["show", "t"],
        ["diff", "t"],
        ["fork", "t", "u"],
        ["prune", "t", "--keep-latest"],
        ["label", "t", "l"],
        ["migrate", "--all", "--state", "tests.versions.states:Third"],
    ):
        assert run(*command, "--url", address(durable_store)).code in (0, 2), command
    assert run("doctor", "--no-write", "--url", address(durable_store)).code in (0, 1)
    assert durable_store.raw_dump() == b""


def test_options_may_stand_between_arguments_and_ids_may_begin_with_a_dash(durable_store: Store, run: Run) -> None:
    url = ("--url", address(durable_store))
    with durable_store.open() as saver:
        chain("a", saver=saver).invoke({"log": []}, named("-t"))
    first, second, *_ = (each["checkpoint"] for each in run("show", "--history", "--json", *url, "--", "-t").json)
    assert run("diff", *url, "--", "-t", second, first).code == 1
    assert run("fork", *url, "--", "-t", "t").code == 0
    assert run("diff", "t", *url, second, "--json", first).json["before"] == second


def test_what_is_not_there_exits_with_two(durable_store: Store, run: Run) -> None:
    with durable_store.open() as saver:
        chain("a", saver=saver).invoke({"log": []}, named("t"))
    for command in (
        *(["show", "nobody"], ["show", "t", "--at", "x"], ["show", "t", "--ns", "x"], ["doctor", "nobody"]),
        *(["ls", "t", "nobody"], ["prune", "nobody", "--keep-latest"], ["fork", "nobody", "t2"], ["fork", "t", "t"]),
    ):
        told = run(*command, "--url", address(durable_store))
        assert (told.code, told.out) == (2, "")
        assert told.err.startswith("statekit: ")
    assert [each["thread"] for each in run("ls", "--json", "--url", address(durable_store)).json] == ["t"]


def test_the_store_may_be_named_in_the_environment_and_the_module_be_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agent.db"
    with open_saver(url) as saver:
        chain("a", saver=saver).invoke({"log": []}, named("t"))
    told = process("ls", "--json", STATEKIT_URL=url)
    assert (told.code, told.err) == (0, "")
    assert [each["thread"] for each in told.json] == ["t"]


def test_the_installed_command_runs(tmp_path: Path) -> None:
    (script,) = entry_points(group="console_scripts", name="statekit")
    assert script.load() is main
    command = Path(sys.executable).with_name("statekit")
    done = subprocess.run([command, "ls"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "STATEKIT_URL" in done.stderr
