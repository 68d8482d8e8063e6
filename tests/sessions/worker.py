"""Begins a turn, answers half of it, and is killed: `python -m tests.sessions.worker URL OPTIONS SESSION`."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from langgraph_statekit import SessionManager
from tests.sessions.kit import chat, says
from tests.stores_under_test import open_here


def stuck(state: Any) -> Any:
    print("in the turn", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    url, options, session_id = sys.argv[1:]
    saver = open_here(url, json.loads(options))
    sessions = SessionManager(saver, agent="support", version=1, lease_s=3.0)
    with sessions.turn(session_id, device="phone") as turn:
        chat(saver, stuck).invoke(says("from the phone"), turn.config, durability="sync")
