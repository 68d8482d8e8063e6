"""The chat in a real browser: two tabs and another client are on one session, and strangers are not."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chromium import browser
from tests.servers import wait_until

__all__ = ["browser"]

pytest.importorskip("starlette", reason="starlette is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="uvicorn is not installed")


@pytest.fixture
def go_on() -> threading.Event:
    """Return what lets a slow answer go on."""
    return threading.Event()


@pytest.fixture
def site(tmp_path: Path, go_on: threading.Event) -> Iterator[str]:
    """Serve the chat on a free port."""
    from web_chat import create_app

    async def model(text: str) -> str:
        if text.startswith("slow"):
            await asyncio.to_thread(go_on.wait, 60)
        return f"You said: {text}"

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        app = create_app(f"sqlite:///{tmp_path / 'chat.db'}", model)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            wait_until(lambda: server.started, "the chat is served")
            yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(60)


def shows(page: Any, *texts: str) -> None:
    """Wait until a tab shows these messages."""
    page.wait_for_function(
        "texts => JSON.stringify([...document.querySelectorAll('#messages li')].map(i => i.textContent)) === texts",
        arg=json.dumps(list(texts), separators=(",", ":"), ensure_ascii=False),
    )


def send(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")


def test_two_tabs_show_one_conversation_and_take_turns(site: str, browser: Any, go_on: threading.Event) -> None:
    context = browser.new_context()
    context.set_default_timeout(60_000)
    one, two = context.new_page(), context.new_page()
    one.goto(site)
    two.goto(site)
    send(one, "hello <b>from one</b>")
    first = ("hello <b>from one</b>", "You said: hello <b>from one</b>")
    shows(one, *first)
    shows(two, *first)  # told by an event: nobody asked
    send(two, "slow one")
    one.wait_for_function("document.getElementById('status').textContent === 'active'")
    with one.expect_request("**/messages"):
        send(one, "quick one")
    go_on.set()
    both = (*first, "slow one", "You said: slow one", "quick one", "You said: quick one")
    shows(one, *both)
    shows(two, *both)
    send(one, "请记住我对花生过敏")
    shows(two, *both, "请记住我对花生过敏", "我记住了：「我对花生过敏」")
    assert two.evaluate("document.cookie") == ""  # scripts cannot read the session
    one.click("#new")
    shows(one)
    shows(two)  # moved on with it
    send(two, "What do you remember?")
    shows(one, "What do you remember?", "You asked me to remember:\n- 我对花生过敏")
    stranger = browser.new_context()
    other = stranger.new_page()
    other.goto(site)
    shows(other)
    send(other, "What do you remember?")
    shows(other, "What do you remember?", "I remember nothing that you asked me to.")
    two.reload()
    shows(two, "What do you remember?", "You asked me to remember:\n- 我对花生过敏")


def test_a_client_without_cookies_names_the_session_in_a_header(site: str) -> None:
    with httpx.Client(base_url=site, timeout=60) as browser, httpx.Client(base_url=site, timeout=60) as other:
        browser.get("/").raise_for_status()
        user, session = browser.cookies["user"], browser.cookies["session"]
        named = {"X-User-Id": user, "X-Session-Id": session}
        assert browser.post("/messages", json={"text": "hello"}).json() == {"text": "You said: hello"}
        seen = other.get("/session", headers=named).json()
        assert [message["text"] for message in seen["messages"]] == ["hello", "You said: hello"]
        with other.stream("GET", "/events", headers=named) as events:
            lines = (line for line in events.iter_lines() if line.startswith(("id:", "data:")))
            since = next(lines).removeprefix("id: ")
            next(lines)
            browser.post("/messages", json={"text": "again"}).raise_for_status()
            assert next(lines) != f"id: {since}"
        for wrong in (
            {"X-User-Id": "somebody", "X-Session-Id": session},
            {"X-User-Id": user, "X-Session-Id": f"chat_v1_{uuid.uuid4()}"},
            {"X-User-Id": user, "X-Session-Id": "chat_v1_1"},
            {},
        ):
            assert other.get("/session", headers=wrong).status_code == 404
            assert other.post("/messages", headers=wrong, json={"text": "x"}).status_code == 404
            assert other.get("/events", headers=wrong).status_code == 404
        for body in (b'{"text": " "}', b"", b"[]", b'{"text": 1}', b'{"text": "\\ud800"}', b"[" * 9_000):
            assert browser.post("/messages", content=body).status_code == 400
        far = {**named, "Last-Event-ID": "9" * 5_000}
        with other.stream("GET", "/events", headers=far) as events:
            assert next(events.iter_lines()).startswith("id:")
        browser.post("/sessions", json={}).raise_for_status()
        assert other.post("/messages", headers=named, json={"text": "late"}).status_code == 410
