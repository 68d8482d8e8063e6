"""Making a prompt fit its limit when nothing more may be summarized: what is long is shown shortened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.repair import CALL_BLOCKS, EMPTY
from langgraph_statekit.context.tokens import TokenCounter
from langgraph_statekit.context.window import is_made, key_of, live_question

LEAST_CHARS: Final = 120
"""What is shorter is not shortened."""
_TRIES: Final = 4
_THOUGHTS: Final = ("thinking", "redacted_thinking", "reasoning")
"""Blocks without which providers refuse the calls that stand behind them in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A message that is shown shortened; the history has it whole.

    Attributes:
        message_id: The message.
        why: What made it necessary.
        tokens: What was left out.
    """

    message_id: str
    why: str
    tokens: int


def fitted(
    prompt: Sequence[BaseMessage], limit: int, counter: TokenCounter
) -> tuple[list[BaseMessage], list[Omission]]:
    """Return the prompt within the limit as far as shortening helps, and what was shortened.

    Tool results go first, oldest first, then other messages. System messages, summaries and the live question stay
    whole, and so do calls. Each shortened text says how much is missing and of which message.
    """
    shown, omissions = list(prompt), list[Omission]()
    over = counter(shown) - limit
    for at in _candidates(shown):
        if over <= 0:
            break
        message, less, saved = shown[at], float(over), 0
        has = counter.message(message)
        for _ in range(_TRIES):  # what is left may weigh more than its share: letters of several bytes
            short = _shortened(message, less, counter)
            saved = has - counter.message(short)
            if saved >= over:
                break
            less = has - (has - less) * max(0, has - over) / max(1, has - saved) * 0.95
        if saved > 0:
            shown[at] = short
            omissions.append(Omission(message_id=key_of(message), why="the prompt's limit", tokens=saved))
            over -= saved
    return shown, omissions


def _candidates(prompt: Sequence[BaseMessage]) -> Iterator[int]:
    live = live_question(prompt)
    yield from (at for at, message in enumerate(prompt) if message.type == "tool")
    yield from (
        at
        for at, message in enumerate(prompt)
        if message.type not in ("tool", "system") and at not in live and not is_made(message)
    )


def _shortened(message: BaseMessage, over: float, counter: TokenCounter) -> BaseMessage:
    """Return the message with so many tokens less, if its text has them."""
    text = plain_text(message)
    has = max(1, counter.message(message))
    left = max(LEAST_CHARS, int(len(text) * (1 - (over + 30) / has)))
    if left >= len(text) and isinstance(message.content, str):
        return message
    begin, end = text[: left * 3 // 4], text[len(text) - left // 4 :] if left < len(text) else ""
    gone = len(text) - len(begin) - len(end)
    note = f"\n[... {gone} characters left out here; message {key_of(message)} has them ...]\n" if gone else ""
    shown = f"{begin}{note}{end}" if gone else text
    content: Any = shown if isinstance(message.content, str) else _with(message, shown)
    return message.model_copy(update={"content": content})


def _with(message: BaseMessage, text: str) -> list[Any]:
    """Return a content with one text in place of all that is neither a call nor reasoning that belongs to one."""
    keeps = (*CALL_BLOCKS, *_THOUGHTS) if message.__dict__.get("tool_calls") else ()
    blocks: list[Any] = []
    for block in message.content:
        if isinstance(block, dict) and block.get("type") in keeps:
            blocks.append(block)
        elif text.strip():
            blocks.append({"type": "text", "text": text})
            text = ""
    return blocks or [{"type": "text", "text": EMPTY}]
