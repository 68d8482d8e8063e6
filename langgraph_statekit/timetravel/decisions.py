"""What a model decided: the tools it called, with what, and why, read from messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_statekit.checkpoint.plain import plain, text

CALL: Final = "call"
REASON: Final = "reason"
SAID: Final = "said"
ASKED: Final = "asked"
RESULT: Final = "result"
_MOST: Final = 2000
_REASONING: Final = ("reasoning", "thinking")


class Decision(NamedTuple):
    """One line of a decision trail.

    Attributes:
        kind: `asked` by a person; `reason`, what the model thought; `call` of a tool; its `result`; or what was `said`.
        name: The tool, or empty.
        text: Arguments, result, or what was said; cut after 2,000 characters.
        failed: A tool's result that is an error.
    """

    kind: str
    name: str
    text: str
    failed: bool = False


def decisions(messages: Iterable[Any]) -> Iterator[Decision]:
    """Yield the decisions in messages; other values are passed over."""
    for message in messages:
        if isinstance(message, AIMessage):
            yield from (Decision(REASON, "", each) for each in _reasons(message))
            if said := _words(message):
                yield Decision(SAID, "", said)
            for call in (*message.tool_calls, *message.invalid_tool_calls):
                yield Decision(CALL, str(call["name"]), _arguments(call["args"]))
        elif isinstance(message, ToolMessage):
            failed = message.status == "error"
            yield Decision(RESULT, message.name or message.tool_call_id, _words(message), failed)
        elif isinstance(message, HumanMessage):
            yield Decision(ASKED, "", _words(message))


def _arguments(args: Any) -> str:
    if not isinstance(args, Mapping):
        return str(args)[:_MOST]
    shown = plain(dict(args))
    return ", ".join(f"{name}={text(value)[:_MOST]}" for name, value in shown.items())[:_MOST]


def _words(message: BaseMessage) -> str:
    if isinstance(message.content, str):
        return message.content[:_MOST]
    parts = (each if isinstance(each, str) else each.get("text", "") for each in message.content)
    return "\n".join(str(part) for part in parts if part)[:_MOST]


def _reasons(message: AIMessage) -> Iterator[str]:
    """Yield what models of different providers call reasoning."""
    told = message.additional_kwargs.get("reasoning_content")
    if isinstance(told, str) and told:
        yield told[:_MOST]
    for block in message.content if isinstance(message.content, list) else ():
        if isinstance(block, dict) and block.get("type") in _REASONING:
            words = next((block[name] for name in _REASONING if isinstance(block.get(name), str)), "")
            parts = block.get("summary")
            if not words and isinstance(parts, list):
                words = "\n".join(str(each.get("text", "")) for each in parts if isinstance(each, dict))
            if words:
                yield words[:_MOST]


def tokens_of(messages: Iterable[Any]) -> int:
    """Return the tokens that messages say they used, in and out; 0 where none tells."""
    used = (each.usage_metadata for each in messages if isinstance(each, AIMessage))
    return sum(each["total_tokens"] for each in used if each)
