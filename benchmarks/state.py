"""The text, the graphs and the threads that workloads use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, MessagesState, StateGraph

from benchmarks.bench import Bench, Face, check

PIECES: Sequence[str] = json.loads((Path(__file__).parent / "data/conversation.json").read_text(encoding="utf-8"))
"""Pieces of 400 characters of real conversations."""


def text(start: int, size: int) -> str:
    """Return `size` characters of the conversations, from any place on and around the end."""
    whole = "".join(PIECES)
    start %= len(whole)
    return (whole[start:] + whole * (size // len(whole) + 1))[:size]


def message(index: int) -> AnyMessage:
    """Return the message at this place of the chat: users and the assistant take turns."""
    content = PIECES[index % len(PIECES)]
    if index % 2 == 0:
        return HumanMessage(content=content, id=f"m{index}")
    return AIMessage(content=content, id=f"m{index}")


def config(thread: str) -> dict[str, Any]:
    """Return the config of a thread's main graph."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}


def chat_graph() -> StateGraph[Any, Any, Any, Any]:
    """Return a chat of three nodes with plain `add_messages`: each turn stores five checkpoints."""
    builder = StateGraph(MessagesState)
    builder.add_node("load", lambda state: {})
    builder.add_node("answer", lambda state: {"messages": [message(len(state["messages"]))]})
    builder.add_node("finish", lambda state: {})
    builder.add_edge(START, "load")
    builder.add_edge("load", "answer")
    builder.add_edge("answer", "finish")
    builder.add_edge("finish", END)
    return builder


async def chat(saver: Face, app: Any, turns: range, thread: str = "chat") -> None:
    """Add turns to a chat."""
    for turn in turns:
        await saver.invoke(app, {"messages": [message(2 * turn)]}, {"configurable": {"thread_id": thread}})


async def check_chat(bench: Bench, turns: int, thread: str = "chat") -> None:
    """Check with a new saver that a chat is whole: its messages, its order, and its earlier states."""
    expected = [message(index) for index in range(2 * turns)]
    async with bench.open() as saver:
        latest = await saver.get(config(thread))
        check(latest is not None, "the thread is gone")
        check(latest.checkpoint["channel_values"]["messages"] == expected, "the latest state is not what was said")
        found = await saver.list(config(thread), **({} if bench.thorough else {"limit": 25}))
    count = 5 * turns
    check(len(found) == (count if bench.thorough else min(25, count)), f"{len(found)} checkpoints are listed")
    for index, item in enumerate(found):
        step = count - 2 - index
        turn, phase = divmod(step + 1, 5)
        said = 2 * turn + (0, 1, 1, 2, 2)[phase]  # input, the user's message, load, answer, finish
        held = item.checkpoint["channel_values"].get("messages", [])
        check(item.metadata["step"] == step, f"step {item.metadata['step']} stands where {step} belongs")
        kinds = {type(each).__name__ for each in held} - {"HumanMessage", "AIMessage"}
        check(not kinds, f"list returns messages as {', '.join(sorted(kinds))}")
        check(held == expected[:said], f"the state of step {step} is not what was said by then")


class Thread:
    """Stores checkpoints as LangGraph's loop does, without the loop.

    Args:
        saver: Where to.
        name: The thread's id.
    """

    def __init__(self, saver: Face, name: str) -> None:
        self.config: Any = config(name)
        self.values: dict[str, Any] = {}
        self.versions: dict[str, Any] = {}
        self.step = -1
        self._saver = saver

    async def advance(self, changed: Mapping[str, Any], *, writes: bool = True) -> None:
        """Store one superstep: the writes of its task, then the checkpoint after it."""
        if writes and self.step >= 0:
            await self.write(changed)
        await self.put(changed)

    async def write(self, changed: Mapping[str, Any]) -> None:
        """Store the writes of a task that ran on the latest checkpoint."""
        await self._saver.put_writes(self.config, [*changed.items()], str(uuid4()))

    async def put(self, changed: Mapping[str, Any]) -> None:
        """Store the next checkpoint."""
        self.step += 1
        versions = {name: self._saver.saver.get_next_version(self.versions.get(name), None) for name in changed}
        self.values |= changed
        self.versions |= versions
        checkpoint = {
            **empty_checkpoint(),
            "id": str(uuid6(clock_seq=self.step)),
            "channel_values": dict(self.values),
            "channel_versions": dict(self.versions),
            "updated_channels": sorted(changed),
        }
        metadata = {"source": "loop", "step": self.step, "parents": {}}
        self.config = await self._saver.put(self.config, checkpoint, metadata, versions)


async def talk(thread: Thread, turns: int) -> None:
    """Store what a chat of so many turns stores: five checkpoints a turn, and lists that grow by one message."""
    said = thread.values.get("messages", [])
    for _ in range(turns):
        await thread.advance({"turn": len(said)})
        for _ in range(2):
            said = [*said, message(len(said))]
            await thread.advance({"messages": said})
            await thread.advance({"turn": len(said)})
