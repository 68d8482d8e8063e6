"""A chat in the browser: one session on all tabs and devices of a user.

    pip install 'langgraph-statekit' starlette uvicorn
    python examples/web_chat.py sqlite:///chat.db 8000

The session id stands in a cookie that scripts cannot read, or in the header `X-Session-Id` for clients without cookies.
Who the user is a real application knows from its login; here it is a random cookie. A message is one turn: while it is
answered, a second one from another tab waits. `GET /events` tells every tab when something changed (by server-sent
events), and each then reads the conversation anew.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.memory import InMemoryStore
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from langgraph_statekit import (
    Conflict,
    Memories,
    Session,
    SessionEnded,
    SessionManager,
    SessionMissing,
    memory_node,
    open_saver,
)
from langgraph_statekit.sessions.memory_nodes import memory_requests

Model = Callable[[str], Awaitable[str]]
AGENT, VERSION = "chat", 1
COOKIES: dict[str, Any] = {"httponly": True, "samesite": "lax", "max_age": 30 * 86_400}
QUIET_S = 15.0
PAGE = """<!doctype html>
<meta charset="utf-8"><title>Chat</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40em; margin: 2em auto; padding: 0 1em }
  li { list-style: none; margin: .5em 0; white-space: pre-wrap } .human { text-align: right; color: #0a58ca }
  input { width: 75% } #status { color: #777 }
</style>
<h1>Chat</h1>
<ul id="messages"></ul>
<form id="send"><input id="text" autocomplete="off" autofocus> <button>Send</button></form>
<p><span id="status"></span> <button id="new">New conversation</button></p>
<script>
const $ = (id) => document.getElementById(id);
let feed, newest = 0;
async function refresh() {
  const mine = ++newest;
  const got = await (await fetch("/session")).json();
  if (mine !== newest) return;
  $("messages").replaceChildren(...got.messages.map((message) => {
    const item = document.createElement("li");
    item.className = message.from;
    item.textContent = message.text;  // never as HTML
    return item;
  }));
  $("status").textContent = got.session.status;
}
function listen() {
  if (feed) feed.close();
  feed = new EventSource("/events");
  feed.onmessage = refresh;
  feed.addEventListener("moved", () => { feed.close(); setTimeout(listen, 500); });  // another tab may begin a new one
}
const post = (path, body) =>
  fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
$("send").onsubmit = async (event) => {
  event.preventDefault();
  const text = $("text").value;
  $("text").value = "";
  if (text && !(await post("/messages", { text })).ok) {  // busy, or the conversation has ended
    $("text").value = text;
    await refresh();
  }
};
$("new").onclick = async () => { await post("/sessions", {}); listen(); };
refresh().then(listen);
</script>
"""


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def echo(text: str) -> str:
    """Stand in for a model."""
    return f"You said: {text}"


def chat_graph(saver: Any, memories: Memories, model: Model) -> Any:
    """Return a graph that answers, and remembers what it is asked to."""

    async def answer(state: Chat) -> dict[str, Any]:
        return {"messages": [AIMessage(await model(state["messages"][-1].text))]}

    def first(state: Chat) -> str:
        return "memory" if memory_requests(state) else "answer"

    graph = StateGraph(Chat).add_node("memory", memory_node(memories)).add_node("answer", answer)
    graph.add_conditional_edges(START, first, ["memory", "answer"])
    return graph.add_edge("memory", END).add_edge("answer", END).compile(checkpointer=saver)


class Web:
    """The requests of the chat."""

    def __init__(self, sessions: SessionManager, graph: Any) -> None:
        self.sessions, self.graph = sessions, graph

    async def page(self, request: Request) -> Response:
        """Show the page, in the session that the browser has or in a new one."""
        user = request.cookies.get("user") or str(uuid.uuid4())
        response = HTMLResponse(PAGE)
        try:
            session = await self.sessions.aget(request.cookies.get("session", ""), user)
        except SessionMissing:
            session = await self._new(request, user)
        if session.ended:
            session = await self._new(request, user)
        return self._known(response, user, session)

    async def new(self, request: Request) -> Response:
        """End the conversation and begin another one."""
        user, session = await self._open(request)
        made = await self._new(request, user)
        await self.sessions.aclose(session.session_id, user)
        return self._known(JSONResponse({"session_id": made.session_id}), user, made)

    async def session(self, request: Request) -> Response:
        """Return the conversation."""
        _, session = await self._open(request)
        state = await self.graph.aget_state({"configurable": {"thread_id": session.session_id}})
        messages = [
            {"from": "human" if isinstance(message, HumanMessage) else "agent", "text": message.text}
            for message in state.values.get("messages", ())
        ]
        return JSONResponse({"session": _told(session), "messages": messages})

    async def send(self, request: Request) -> Response:
        """Take a message and answer it; those of other tabs wait for their turn."""
        user, session = await self._open(request)
        text = _text_of(await request.body())
        device = request.headers.get("user-agent", "")[:80]
        try:
            async with self.sessions.turn(session.session_id, user, wait_s=30, device=device) as turn:
                got = await self.graph.ainvoke({"messages": [HumanMessage(text)]}, turn.config)
        except SessionEnded:
            raise HTTPException(410, "the conversation has ended") from None
        except Conflict:
            raise HTTPException(409, "the conversation is busy") from None
        return JSONResponse({"text": got["messages"][-1].text})

    async def events(self, request: Request) -> Response:
        """Tell each change of the session as a server-sent event."""
        user, session = await self._open(request)
        last = request.headers.get("last-event-id", "")
        since = int(last) if last.isdecimal() and len(last) < 20 else None
        return StreamingResponse(self._events(session, user, since), media_type="text/event-stream")

    async def _events(self, session: Session, user: str, since: int | None) -> AsyncIterator[str]:
        while True:
            async for seen in self.sessions.awatch(session.session_id, user, since=since, wait_s=QUIET_S):
                since = seen.rev
                yield f"id: {since}\ndata: {json.dumps(_told(seen))}\n\n"
                if seen.ended:
                    yield "event: moved\ndata: {}\n\n"
                    return
            try:
                await self.sessions.aget(session.session_id, user)
            except SessionMissing:
                return
            yield ": still here\n\n"  # so that nobody on the way takes the line for dead

    async def _open(self, request: Request) -> tuple[str, Session]:
        user = request.headers.get("x-user-id") or request.cookies.get("user") or ""
        id = request.headers.get("x-session-id") or request.cookies.get("session") or ""
        try:
            return user, await self.sessions.aget(id, user)
        except SessionMissing:
            raise HTTPException(404, "no such conversation: open the page again") from None

    async def _new(self, request: Request, user: str) -> Session:
        return await self.sessions.acreate(user, metadata={"device": request.headers.get("user-agent", "")[:80]})

    def _known(self, response: Response, user: str, session: Session) -> Response:
        response.set_cookie("user", user, **COOKIES)
        response.set_cookie("session", session.session_id, **COOKIES)
        return response


def _text_of(body: bytes) -> str:
    """Return the message that a client sent."""
    try:
        text = json.loads(body)["text"]
        if text.strip() and len(text.encode()) <= 40_000:  # lone surrogates cannot be encoded
            return str(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise HTTPException(400, "text must be a text of at most 40,000 bytes that is not blank")


def _told(session: Session) -> dict[str, Any]:
    return {"status": session.status, "device": session.device, "messages": session.message_count, "rev": session.rev}


def create_app(url: str, model: Model = echo, **options: Any) -> Starlette:
    """Return the application over a store.

    Args:
        url: Of the store, as for `open_saver`.
        model: Answers a text.
        options: Of the `SessionManager`.
    """
    saver = open_saver(url)
    memories = Memories(InMemoryStore())
    sessions = SessionManager(saver, agent=AGENT, version=VERSION, memories=memories, **options)
    web = Web(sessions, chat_graph(saver, memories, model))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with saver, sessions:
            yield

    routes = [
        Route("/", web.page),
        Route("/session", web.session),
        Route("/sessions", web.new, methods=["POST"]),
        Route("/messages", web.send, methods=["POST"]),
        Route("/events", web.events),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def main(url: str = "sqlite:///chat.db", port: str = "8000") -> None:
    import uvicorn

    # An open tab listens for ever.
    uvicorn.run(create_app(url), host="127.0.0.1", port=int(port), timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main(*sys.argv[1:])
