"""The texts that our extract makes of a conversation, for the questions that compare them with others'."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import HumanMessage

from langgraph_statekit.context.extract import extract, find_pins


def ours(texts: Sequence[str], chars: int) -> str:
    return extract([HumanMessage(text) for text in texts], chars)


def pinned(texts: Sequence[str], chars: int, share: float) -> str:
    """Return pins in at most this share of the characters, and an extract in the rest."""
    messages = [HumanMessage(text) for text in texts]
    pins: list[str] = []
    left = int(chars * share)
    for pin in find_pins(messages):
        if len(pin) < left:
            pins.append(pin)
            left -= len(pin) + 1
    used = sum(len(pin) + 1 for pin in pins)
    return "\n".join([*pins, extract(messages, chars - used, pins)])
