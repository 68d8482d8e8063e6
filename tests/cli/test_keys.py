"""Encrypted threads on the command line: read with the keys of the environment, rotated, and never garbage without."""

from __future__ import annotations

from base64 import b64encode

import pytest

from langgraph_statekit import Encryption
from tests.cli.kit import Run, address, fill
from tests.stores_under_test import Store

OLD, NEW = b"o" * 32, b"n" * 32


def keys(**given: bytes) -> str:
    return ",".join(f"{name}={b64encode(key).decode()}" for name, key in given.items())


@pytest.fixture
def filled(durable_store: Store) -> dict[str, str]:
    with durable_store.open(encryption=Encryption({"old": OLD}, "old")) as saver:
        return fill(saver)


def test_threads_are_read_copied_checked_and_rotated_with_the_keys_of_the_environment(
    durable_store: Store, filled: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    url = address(durable_store)
    monkeypatch.setenv("STATEKIT_KEYS", keys(old=OLD))
    told = run("ls", "--url", url, "--json")
    assert {thread["thread"]: thread["status"] for thread in told.json} == filled
    assert "approve?" in run("show", "asks", "--url", url).out
    assert run("fork", "done", "forked", "--url", url).code == 0
    assert run("label", "done", "kept", "--url", url).code == 0
    assert run("prune", "--all", "--keep-latest", "--url", url).code == 0
    assert run("diff", "done", "--other", "forked", "--url", url).code == 0
    filled["forked"] = filled["done"]
    assert run("doctor", "--url", url, "--all", "--json").json["checked"]["problems"] == []
    monkeypatch.setenv("STATEKIT_KEYS", keys(new=NEW, old=OLD))
    assert run("rotate", "--url", url, "--json").json == {"rotated": len(filled)}
    assert run("rotate", "--url", url).out.startswith("0 threads")
    monkeypatch.setenv("STATEKIT_KEYS", keys(new=NEW))
    assert run("copy", url, f"sqlite:///{tmp_path}/copy.db").code == 0
    assert len(run("ls", "--url", f"sqlite:///{tmp_path}/copy.db", "--json").json) == len(filled)
    monkeypatch.delenv("STATEKIT_KEYS")
    for there in (url, f"sqlite:///{tmp_path}/copy.db"):
        told = run("show", "asks", "--url", there)
        assert (told.code, told.out) == (2, "")
        assert "STATEKIT_KEYS" in told.err
    assert run("rotate", "--url", url).code == 2


def test_a_thread_that_cannot_be_decrypted_is_told_and_keeps_no_other_from_being_shown(
    durable_store: Store, filled: dict[str, str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with durable_store.open(encryption=None) as saver:
        header = saver.backend.headers(["done"])["done"]
        assert saver.backend.rewrap([("done", header, header[:-1] + bytes((header[-1] ^ 1,)))]) == [True]
    monkeypatch.setenv("STATEKIT_KEYS", keys(old=OLD))
    url = address(durable_store)
    told = run("doctor", "--url", url, "--all", "--json")
    assert told.code == 1
    (problem,) = told.json["checked"]["problems"]
    assert (problem["thread"], problem["where"]) == ("done", "the thread")
    assert "cannot be decrypted" in problem["problem"]
    status = {each["thread"]: each["status"] for each in run("ls", "--url", url, "--json").json}
    assert status == {**filled, "done": "damaged"}


@pytest.mark.parametrize("text", ["x", "old=x", "old=", "=", "old=c2hvcnQ=", f"{keys(old=OLD)},{keys(old=NEW)}"])
def test_keys_that_cannot_be_read_are_refused_and_not_shown(
    text: str, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("STATEKIT_KEYS", text)
    told = run("ls", "--url", f"sqlite:///{tmp_path}/no.db")
    assert told.code == 2
    assert "key" in told.err.lower()
    assert "c2hv" not in told.err
    assert b64encode(OLD).decode() not in told.err
