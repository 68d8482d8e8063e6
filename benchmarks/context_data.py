"""The conversations that the context benchmarks replay; they are shipped with their licences in tests/data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages

DATA: Final = Path(__file__).parents[1] / "tests/data"
TURNS: Final = 200


@cache
def airline() -> tuple[str, list[BaseMessage]]:
    """Return the system prompt and the first 200 turns of the airline conversations, as one history with ids."""
    found = json.loads((DATA / "tau_airline_gpt4o_200turns.json").read_text(encoding="utf-8"))
    said = [message for episode in found["episodes"] for message in episode["messages"]]
    history: list[BaseMessage] = []
    turns = 0
    for number, message in enumerate(said):
        turns += message["role"] == "user"
        if turns > TURNS:
            break
        (converted,) = convert_to_messages([{"content": "", **message}])
        converted.id = f"m{number}"
        history.append(converted)
    return found["system"], history


@cache
def remembered() -> tuple[str, list[BaseMessage]]:
    """Return BFCL's scenarios as one chat of 323 turns without tools; a stand-in answers in as many words each time."""
    turns = [turn for scenario in memory()[0].values() for turn in scenario]
    history: list[BaseMessage] = []
    for number, turn in enumerate(turns):
        answer = f"Noted as number {number}. I keep it in mind, and I come back to it when you ask for it or change it."
        history += [HumanMessage(turn, id=f"h{number}"), AIMessage(answer, id=f"a{number}")]
    return "You are an assistant with a good memory.", history


@cache
def coding() -> tuple[str, list[BaseMessage]]:
    """Return a task that an agent solves in one turn with eleven calls of its tools."""
    found = json.loads((DATA / "sweagent_marshmallow_1867.json").read_text(encoding="utf-8"))["messages"]
    system, *said = convert_to_messages(found)
    for number, message in enumerate(said):
        message.id = f"m{number}"
    return str(system.content), said


def calls(history: list[BaseMessage]) -> Iterator[int]:
    """Yield the places where a model was called: the history before each of its answers."""
    for index, message in enumerate(history):
        if isinstance(message, AIMessage):
            yield index


@cache
def memory() -> tuple[dict[str, list[str]], list[dict[str, Any]]]:
    """Return BFCL's scenarios as lists of the user's turns, and the questions about them with their answers."""
    found = json.loads((DATA / "bfcl_v4_memory.json").read_text(encoding="utf-8"))
    scenarios = {
        name: [turn for part in parts for turn in part["turns"]] for name, parts in found["conversations"].items()
    }
    return scenarios, found["qa"]


CONVERSATIONS: Final = {"airline": airline, "memory": remembered, "coding": coding}
