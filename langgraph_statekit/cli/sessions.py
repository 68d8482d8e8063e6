"""The command about sessions: which there are, and one or all of a user in a file and out of the store."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from langgraph_statekit.cli.stores import opened
from langgraph_statekit.cli.terminal import age, emit, table
from langgraph_statekit.errors import Misuse
from langgraph_statekit.readable import size
from langgraph_statekit.sessions.manager import SessionManager
from langgraph_statekit.sessions.records import Session


def sessions(given: Namespace) -> int:
    """List sessions, or export, import, end or erase some."""
    run = {"ls": _ls, "close": _close, "export": _export, "import": _import, "erase": _erase}[given.action]
    with opened(given.url, create=given.action == "import") as saver:
        document, lines = run(SessionManager(saver), given)
    emit(document, lines, given.json)
    return 0


def _ls(manager: SessionManager, given: Namespace) -> tuple[Any, list[str]]:
    _require(given, 0, "ls lists all sessions, or those of --user, --agent and --status")
    found: list[Session] = []
    left = given.limit or 1000
    page = manager.list(user_id=given.user, agent=given.agent, status=given.status, limit=min(left, 100))
    while page:
        found += page
        left -= len(page)
        page = (
            manager.list(
                user_id=given.user, agent=given.agent, status=given.status, before=page[-1], limit=min(left, 100)
            )
            if left
            else []
        )
    head = ("SESSION", "USER", "STATUS", "MESSAGES", "SIZE", "USED")
    return {"sessions": [_plain(each) for each in found]}, list(table(head, map(_row, found)))


def _close(manager: SessionManager, given: Namespace) -> tuple[Any, list[str]]:
    _require(given, 1, "say which session to close")
    session = manager.close(given.words[0], given.user)
    return _plain(session), [f"{session.session_id}: {session.status}"]


def _export(manager: SessionManager, given: Namespace) -> tuple[Any, list[str]]:
    if given.user is None:
        _require(given, 2, "say what to export, and where to: SESSION FILE, or FILE with --user")
        done = manager.export_session(*given.words)
    else:
        _require(given, 1, "say where to: FILE")
        done = manager.export_user(given.user, given.words[0])
    counts = f"{len(done.session_ids):,} sessions, {done.checkpoints:,} checkpoints, {size(done.size_bytes)}"
    return asdict(done), [f"{given.words[-1]}: {counts}"]


def _import(manager: SessionManager, given: Namespace) -> tuple[Any, list[str]]:
    _require(given, 1, "say which FILE to import")
    try:
        made = manager.import_sessions(given.words[0], as_new=given.as_new)
    except OSError as error:
        raise Misuse(f"the file cannot be read: {error.strerror}") from error
    return {"sessions": [_plain(each) for each in made]}, [session.session_id for session in made]


def _erase(manager: SessionManager, given: Namespace) -> tuple[Any, list[str]]:
    _require(given, 0, "erase removes all of one user: pass --user and nothing else")
    if given.user is None:
        raise Misuse("say whose sessions to erase: --user")
    done = manager.erase_user(given.user)
    lines = [f"removed: {len(done.session_ids):,} sessions; memories are elsewhere, so erase them in the application"]
    return asdict(done), [*lines, *(f"left: {what}" for what in done.left)]


def _require(given: Namespace, words: int, told: str) -> None:
    if len(given.words) != words:
        raise Misuse(f"statekit sessions {given.action}: {told}")


def _row(session: Session) -> tuple[str, ...]:
    count = "?" if session.message_count is None else f"{session.message_count:,}"
    since = age(time.time() - session.active_at.timestamp())
    return session.session_id, session.user_id, session.status, count, size(session.size_bytes), since


def _plain(session: Session) -> dict[str, Any]:
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in asdict(session).items()
    }
