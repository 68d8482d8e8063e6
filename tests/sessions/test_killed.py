"""A process that is killed in its turn holds up the session for as long as its lease, and loses nothing it had saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from langgraph_statekit import Conflict, SessionManager
from tests.programs import PIPE, Program
from tests.sessions.kit import chat, says
from tests.stores_under_test import Store


@pytest.mark.parametrize("name", ["sqlite", "redis"])
def test_another_device_goes_on_where_a_killed_process_was(
    name: str, new_store: Callable[[str], Store], pytestconfig: pytest.Config
) -> None:
    if name not in pytestconfig.getoption("--stores"):
        pytest.skip("not asked for")
    store = new_store(name)
    with store.open() as saver:
        sessions = SessionManager(saver, agent="support", version=1)
        made = sessions.create("ann")
        args = [store.url, json.dumps(store.options), made.session_id]
        with Program([sys.executable, "-m", "tests.sessions.worker", *args], stdout=PIPE) as worker:
            try:
                assert worker.stdout is not None
                assert worker.stdout.readline() == b"in the turn\n"
                assert (sessions.get(made.session_id).status, sessions.get(made.session_id).device) == (
                    "active",
                    "phone",
                )
                with pytest.raises(Conflict):
                    sessions.turn(made.session_id, on_busy="reject").__enter__()
            finally:
                worker.kill()
        with sessions.turn(made.session_id, wait_s=60, device="laptop") as turn:
            got = chat(saver).invoke(says("from the laptop"), turn.config)
        assert [message.content for message in got["messages"]] == [
            "from the phone",
            "from the laptop",
            "you said from the laptop",
        ]
        assert sessions.get(made.session_id).status == "idle"
