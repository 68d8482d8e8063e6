"""`statekit sessions`, and what `statekit prune --expired` does to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from langgraph_statekit import SessionManager
from tests.cli.kit import Run, address
from tests.servers import wait_until
from tests.sessions.kit import chat, says
from tests.stores_under_test import Store


def test_sessions_are_listed_exported_imported_closed_and_erased(
    durable_store: Store, run: Run, tmp_path: Path
) -> None:
    url, file = address(durable_store), str(tmp_path / "ann")
    with durable_store.open() as saver:
        manager = SessionManager(saver, agent="support", version=1)
        ann, bob = manager.create("ann", metadata={"n": 1}), manager.create("bob")
        with manager.turn(ann.session_id) as turn:
            chat(saver).invoke(says("hello"), turn.config)
    listed = run("sessions", "ls", "--url", url, "--json").json["sessions"]
    assert [one["session_id"] for one in listed] == [ann.session_id, bob.session_id]
    assert (listed[0]["message_count"], listed[0]["status"], listed[0]["metadata"]) == (2, "idle", {"n": 1})
    told = run("sessions", "ls", "--user", "bob", "--status", "idle", "--url", url)
    assert (told.code, ann.session_id in told.out, bob.session_id in told.out) == (0, False, True)
    assert run("sessions", "export", ann.session_id, file, "--url", url).code == 0
    again = run("sessions", "import", file, "--url", url)
    assert (again.code, "already" in again.err) == (3, True)
    (copy,) = run("sessions", "import", file, "--as-new", "--url", url, "--json").json["sessions"]
    assert (copy["user_id"], copy["message_count"]) == ("ann", 2)
    done = run("sessions", "erase", "--user", "ann", "--url", url, "--json").json
    assert set(done["session_ids"]) == {ann.session_id, copy["session_id"]}
    assert run("sessions", "close", bob.session_id, "--url", url, "--json").json["status"] == "closed"
    (left,) = run("sessions", "ls", "--url", url, "--json").json["sessions"]
    assert left["session_id"] == bob.session_id


def test_expired_sessions_are_ended_by_prune(tmp_path: Path, run: Run) -> None:
    from langgraph_statekit import open_saver

    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with open_saver(url) as saver:
        for policy in ("keep", "delete", lambda session, values: {}):
            manager = SessionManager(saver, agent="support", version=1, idle_s=0.05, on_expiry=policy)
            last = manager.create("ann")
        wait_until(lambda: manager.get(last.session_id).status == "expired", "expired")
    cleaned = run("prune", "--expired", "--url", url, "--json").json["sessions"]
    assert cleaned == {"warned": 0, "expired": 2, "deleted": 1, "left": 1}
    assert "1 are in use, or left to the application" in run("prune", "--expired", "--url", url).out


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "x"),
        ("close",),
        ("close", "x"),
        ("export", "x"),
        ("export", "--user", "a", "b", "c"),
        ("import", "/nowhere/x"),
        ("erase",),
        ("erase", "x"),
    ],
)
def test_what_cannot_be_done_is_refused(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
    from langgraph_statekit import open_saver

    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with open_saver(url):
        pass
    assert run("sessions", *words, "--url", url).code == 2
