"""What every prompt must keep to, whatever the history, and a summarizer that remembers what it was shown."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_statekit.context.repair import is_blank
from langgraph_statekit.context.window import is_made, live_question

MARKER = re.compile(r"M\d+;")


class Recorder:
    """A summarizer that gives short summaries, or what it is told to."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.prompts = list(answers), list[str]()

    def __call__(self, messages: Any) -> Any:
        self.prompts.append(messages[0].content)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0] if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        return f"Summary {len(self.prompts)}." if answer is None else answer


def marked(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return copies of messages in which each can be told by its text."""
    out = []
    for at, message in enumerate(messages):
        content = message.content
        mark = f"M{at}; "
        new = mark + content if isinstance(content, str) else [{"type": "text", "text": mark}, *content]
        out.append(message.model_copy(update={"content": new}))
    return out


def snapshot(messages: Sequence[BaseMessage]) -> list[Any]:
    return copy.deepcopy([message.model_dump() for message in messages])


def text_of(messages: Sequence[BaseMessage]) -> str:
    return "\n".join(str(message.content) for message in messages)


def markers(text: str) -> set[str]:
    return set(MARKER.findall(text))


def assert_strict(prompt: Sequence[BaseMessage]) -> None:
    """Assert what Anthropic, OpenAI and Gemini refuse a prompt for."""
    ids = [message.id for message in prompt]
    assert len(ids) == len(set(ids)), "two messages with one id"
    kinds = [message.type for message in prompt]
    front = next((at for at, kind in enumerate(kinds) if kind != "system"), len(kinds))
    assert "system" not in kinds[front:], "a system message in the middle"
    assert kinds[front : front + 1] in ([], ["human"]), "the first is not the user's"
    seen: set[str | None] = set()
    waiting: list[str | None] = []
    for message in prompt:
        if isinstance(message, ToolMessage):
            assert waiting and message.tool_call_id == waiting.pop(0), "a result without its call"
            continue
        assert not waiting, "a call without its result"
        if isinstance(message, AIMessage):
            assert not message.invalid_tool_calls
            waiting = [call["id"] for call in message.tool_calls]
            assert all(waiting) and len(set(waiting)) == len(waiting) and seen.isdisjoint(waiting), "an id twice"
            seen.update(waiting)
            own = [(id or "").partition("__thought__")[0] for id in waiting]  # LiteLLM takes the rest off for OpenAI
            assert all(len(id) <= 40 for id in own), "an id that OpenAI refuses"
            blocks = message.content if isinstance(message.content, list) else []
            called = [b.get("id") for b in blocks if isinstance(b, dict) and b.get("type") == "tool_use"]
            assert set(called) <= set(waiting), "a call in the content only"
            assert len(called) == len(set(called)), "a call twice in the content"
            assert message.tool_calls or not is_blank(message.content), "an empty message"
        elif message.type != "system":
            assert not is_blank(message.content), "an empty message"
    assert not waiting, "a call without its result"


def assert_kept(history: Sequence[BaseMessage], prompt: Sequence[BaseMessage]) -> None:
    """Assert that the live question and all system messages are in the prompt, word for word."""
    live = [history[at] for at in live_question(history)]
    asked = [message for message in prompt if message.type == "human" and not is_made(message)]
    assert ["(empty)" if is_blank(m.content) else m.content for m in live] == [
        m.content for m in asked[len(asked) - len(live) :]
    ]
    systems = [message.content for message in history if message.type == "system" and not is_blank(message.content)]
    assert [message.content for message in prompt if message.type == "system"] == systems


def conversation(turns: int, *, calls: int = 1, chars: int = 60) -> list[BaseMessage]:
    """Return a plain conversation in which each turn has a question, a round of calls, and an answer."""
    messages: list[BaseMessage] = []
    for turn in range(turns):
        asked = [{"name": "look", "args": {"q": turn}, "id": f"c{turn}-{n}", "type": "tool_call"} for n in range(calls)]
        messages.append(HumanMessage(f"question {turn} " + "q" * chars, id=f"h{turn}"))
        if calls:
            messages.append(AIMessage("", tool_calls=asked, id=f"a{turn}"))
            messages += [
                ToolMessage(f"result {turn} " + "r" * chars, tool_call_id=call["id"], id=f"t{call['id']}")
                for call in asked
            ]  # type: ignore[arg-type]
        messages.append(AIMessage(f"answer {turn} " + "a" * chars, id=f"b{turn}"))
    return messages
