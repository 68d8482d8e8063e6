"""Threads to look at: the incident of a price monitor, an agent with tools and subgraphs, and a hostile one."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

PAGES = [{"sku": f"A-{n}", "competitor": 900 - n * 10} for n in range(5)]
HTML = "<script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">&amp;\"'</pre></details>"
EMOJI = "👩‍👩‍👧‍👦🏳️‍🌈 ٣"
RTL = "שלום עולם \u202e reversed \u2066 isolated"
LONG = "node_" + "x" * 295


def named(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


class Shop(TypedDict, total=False):
    pages: list[dict[str, Any]]
    prices: dict[str, float]
    done: list[str]
    cuts: Annotated[list[dict[str, Any]], operator.add]
    round: int


def monitor(saver: Any, empty_from: int = 3, rounds: int = 9) -> Any:
    """Return an agent that crawls, and cuts the first price that is not done; crawls come back empty from one on."""

    def crawl(state: Shop) -> Shop:
        turn = state.get("round", 0) + 1
        pages = PAGES if turn < empty_from else []
        known = {page["sku"] for page in pages}
        return {"pages": pages, "round": turn, "done": [sku for sku in state["done"] if sku in known]}

    def cut(state: Shop) -> Shop:
        sku = next(sku for sku in state["prices"] if sku not in state["done"])
        new = round(state["prices"][sku] * 0.95, 2)
        done = [*state["done"], sku] if state["pages"] else state["done"]
        return {"prices": {**state["prices"], sku: new}, "cuts": [{"sku": sku, "to": new}], "done": done}

    graph = StateGraph(Shop)
    graph.add_node("crawl", crawl)
    graph.add_node("cut", cut)
    graph.add_edge(START, "crawl").add_edge("crawl", "cut")
    graph.add_conditional_edges("cut", lambda state: "crawl" if state["round"] < rounds else END, ["crawl", END])
    return graph.compile(checkpointer=saver)


START_OF_SHOP: Shop = {"prices": {f"A-{n}": 1000.0 for n in range(9)}, "done": [], "cuts": []}


class Chat(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    found: str


def agent(saver: Any) -> Any:
    """Return a model's loop with a tool, a subgraph and a question to a person."""

    def think(state: Chat) -> Chat:
        turn = sum(isinstance(each, AIMessage) for each in state["messages"])
        reason = {"type": "reasoning", "reasoning": f"The price of A-{turn} is above the market."}
        call = {"name": "get_price", "args": {"sku": "A-1", "api_key": "k-123"}, "id": f"call-{turn}"}
        used = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
        return {
            "messages": [AIMessage([reason], id=f"ai-{turn}", tool_calls=[call], usage_metadata=used)],  # type: ignore[list-item, typeddict-item]
        }

    def act(state: Chat) -> Chat:
        call = state["messages"][-1].tool_calls[0]  # type: ignore[union-attr]
        return {"messages": [ToolMessage("12.50", tool_call_id=call["id"], name=call["name"], id=f"tool-{call['id']}")]}

    def ask(state: Chat) -> Chat:
        return {"found": interrupt({"question": "Cut the price?", "password": "hunter2"})}

    inner = StateGraph(Chat)
    inner.add_node("look", lambda state: {"found": "inside"})
    inner.add_node("note", lambda state: {"found": state["found"] + " noted"})
    inner.add_edge(START, "look").add_edge("look", "note")
    graph = StateGraph(Chat)
    graph.add_node("think", think)
    graph.add_node("act", act)
    graph.add_node("research", inner.compile())
    graph.add_node("ask", ask)
    graph.add_edge(START, "think").add_edge("think", "act").add_edge("research", "ask")
    graph.add_conditional_edges("act", lambda state: "think" if len(state["messages"]) < 7 else "research")
    return graph.compile(checkpointer=saver)


def talk(saver: Any, thread: str = "agent") -> Any:
    """Return the agent after it ran up to its question."""
    graph = agent(saver)
    graph.invoke({"messages": [HumanMessage("Are we too expensive?", id="ask-1")]}, named(thread), durability="sync")
    return graph


def put(saver: Any, thread: str, states: list[Mapping[str, Any]], **more: Any) -> None:
    """Put states, one checkpoint each; the values that differ from those before are new."""
    config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    begin = datetime.now(UTC) - timedelta(seconds=len(states))
    versions: dict[str, str] = {}
    before: Mapping[str, Any] = {}
    for at, state in enumerate(states):
        new = {name: f"{at + 1:032}.0" for name, value in state.items() if before.get(name, state) is not value}
        versions = {**{name: version for name, version in versions.items() if name in state}, **new}
        checkpoint: Any = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=at)),
            "ts": (begin + timedelta(seconds=at)).isoformat(),
            "channel_values": dict(state),
            "channel_versions": dict(versions),
            "updated_channels": list(new),
        }
        metadata: Any = {"source": "loop" if at else "input", "step": at - 1, "parents": {}, **more}
        config = saver.put(config, checkpoint, metadata, new)
        before = state


def hostile(saver: Any, thread: str = HTML) -> None:
    """Put a thread in which every text is meant to break a page: HTML, 5 MB, long names, emoji, right to left."""
    big = "y" * 5_000_000
    texts = [HTML, EMOJI, RTL, LONG, "\x1b[2J\x07", "a\u0000b", "&#x3c" * 2000, "</style></svg></script>"]
    messages = [
        HumanMessage(HTML, id=HTML),
        AIMessage(
            [{"type": "thinking", "thinking": HTML + RTL}, {"type": "text", "text": EMOJI * 200}],
            id="ai",
            tool_calls=[{"name": HTML, "args": {"x": HTML, LONG: RTL}, "id": "c"}],
        ),
        ToolMessage(HTML * 50, tool_call_id="c", name=LONG, status="error", id="t"),
    ]
    states: list[Mapping[str, Any]] = [{"big": big, HTML: HTML}]
    for at in range(24):
        before = states[-1]
        states.append({**before, f"{at} {texts[at % len(texts)]}"[:60]: texts[at % len(texts)], "n": at})
        if at % 6 == 0:
            states[-1] = {**states[-1], "big": f"{at}{big}", "deep": [[[[[[[[HTML] * 99] * 99]]]]]] * 3}
        if at % 8 == 7:
            states[-1] = {**states[-1], "messages": [*before.get("messages", []), *messages[at // 8 :][:1]]}
    put(saver, thread, states, **{"note": HTML, LONG: RTL})
    latest = saver.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
    saver.put_writes(latest.config, [("__error__", f"ValueError({HTML!r})")], "task", HTML)
    saver.put_writes(latest.config, [("__interrupt__", ({"id": "i", "value": HTML + RTL},))], "task2", LONG)
