"""The conversations that the context benchmarks replay; they are shipped with their licences in tests/data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages

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
