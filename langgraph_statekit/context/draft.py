"""A history on its way into a prompt: what is summarized, what is settled, and the messages that a model is sent."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Final

from langchain_core.messages import BaseMessage, HumanMessage

from langgraph_statekit.context.chain import has_systems
from langgraph_statekit.context.compress import compress
from langgraph_statekit.context.policy import ContextPolicy
from langgraph_statekit.context.repair import is_blank, opening, repair
from langgraph_statekit.context.shown import Shown
from langgraph_statekit.context.summaries import SessionSummary, message_of
from langgraph_statekit.context.tokens import BYTES_PER_TOKEN, TokenCounter
from langgraph_statekit.context.window import AI, head, key_of, live_question

_id: Final = attrgetter("id")
_THOUGHTS: Final = ("thinking", "redacted_thinking")


@dataclass(frozen=True)
class Draft:
    """A history, where its unsummarized part begins, and the summary of what is before."""

    messages: Sequence[BaseMessage]
    start: int
    summary: SessionSummary
    shown: bool = True
    """Whether a prompt is made of it: nothing is settled otherwise."""

    @cached_property
    def unsettled(self) -> int:
        """Where the messages begin whose older tool results may still be shown in another way."""
        last, rest = self.summary["settled"], self.messages[self.start :]
        if last is None:
            return self.start
        ids = list(map(_id, rest))
        if not all(ids):
            ids = [id or key_of(message) for id, message in zip(ids, rest, strict=True)]
        return len(self.messages) - ids[::-1].index(last) if last in ids else self.start


def digested(draft: Draft, policy: ContextPolicy, counter: TokenCounter) -> Draft:
    """Shorten more results now if that saves enough for the prompt cache that is lost behind the first of them."""
    results, messages, gain = policy.tool_results, draft.messages, policy.digest_gain
    if results.digest != "auto" or gain is None:
        return draft
    start, end = draft.start, _before_last_block(draft)
    places = [at for at, message in enumerate(messages[start:end], start) if message.__dict__["type"] == "tool"]
    if len(places) <= results.keep:
        return draft
    shortened = max(0, bisect_left(places, draft.unsettled) - results.keep)
    more = places[shortened : max(shortened, len(places) - results.keep)]
    if not more:
        return draft
    whole, sent = _chars([messages[at] for at in more], counter), 0
    for message in messages[more[0] :]:
        content = message.__dict__["content"]
        sent += len(content) if content.__class__ is str else _chars([message], counter)
        if whole < gain * (sent - whole):
            return draft  # even nothing in their place would save too little
    short = compress(messages[draft.start : end], results)
    saved = whole - _chars([short[at - draft.start] for at in more], counter)
    return settled(draft, policy) if saved >= gain * (sent - saved) else draft


def _chars(messages: Sequence[BaseMessage], counter: TokenCounter) -> int:
    """Return how long messages are: near enough to compare, and far faster than counting tokens."""
    contents = ((message.__dict__["content"], message) for message in messages)
    return sum(
        len(said) if said.__class__ is str else BYTES_PER_TOKEN * counter.message(message) for said, message in contents
    )


def settled(draft: Draft, policy: ContextPolicy) -> Draft:
    """Return the draft with all but its last block settled: what is shortened up to there stays so, byte for byte."""
    end = _before_last_block(draft)
    if end <= draft.start or not draft.shown:
        return draft
    last = key_of(draft.messages[end - 1])
    return draft if last == draft.summary["settled"] else replace(draft, summary={**draft.summary, "settled": last})


def _before_last_block(draft: Draft) -> int:
    """Return where the last block begins: the model has not read its results yet."""
    at = len(draft.messages) - 1
    while at > draft.start and draft.messages[at].__dict__["type"] == "tool":
        at -= 1
    return at


@dataclass(frozen=True, slots=True)
class View:
    """What a model would be sent: `front`, then the messages of `shown`."""

    front: list[BaseMessage]
    shown: Shown
    messages: list[BaseMessage]

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens of the messages."""
        return counter(self.front) + self.shown.tokens(counter)


def view_of(draft: Draft, policy: ContextPolicy) -> View:
    """Return what a model would be sent."""
    messages, start = draft.messages, draft.start
    at = head(messages)
    systems = list(messages[:at])
    if start > at and has_systems(draft.summary["nodes"]):
        systems += [message for message in messages[at:start] if message.type == "system"]
    live = live_question(messages)
    tail = _tail(draft, policy, live, max(start, at))
    systems += tail.systems
    front: list[BaseMessage] = [message for message in systems if not is_blank(message.content)]
    asked = repair(messages[live.start : min(live.stop, start)]) if live.start < start else []
    summary = _summary_message(draft, policy, live)
    front += opening([*asked, *tail.messages[:1]]) if summary is None else [summary]
    front += asked
    return View(front, tail, [*front, *tail.messages])


def _tail(draft: Draft, policy: ContextPolicy, live: range, start: int) -> Shown:
    """Return the unsummarized messages as they are shown."""
    tail = draft.messages[start:]
    until = max(0, draft.unsettled - start)
    answered = min(until, max(0, live.start - start))

    def show(at: int) -> Sequence[BaseMessage]:
        if at >= until:
            return tail[at:]
        older: Sequence[BaseMessage] = tail[:until]
        if policy.tool_results.digest == "auto":
            older = compress(older, policy.tool_results)
        return [*map(_without_thoughts, older[:answered]), *older[answered:], *tail[until:]][at:]

    return Shown(tail, until, (until, answered, policy.tool_results) if until else None, show)


def _summary_message(draft: Draft, policy: ContextPolicy, live: range) -> HumanMessage | None:
    """Return the message with the summaries; its id is that of a message it stands for, so that no stream shows it."""
    if not draft.summary["nodes"]:
        return None
    id = "summary"
    for at in range(draft.start):
        message = draft.messages[at]
        if message.__dict__["type"] != "system" and at not in live:
            id = key_of(message)
            break
    return message_of(draft.summary, policy, id)


def _without_thoughts(message: BaseMessage) -> BaseMessage:
    """Return an answered message without signed reasoning, which a provider refuses once what is before it changed."""
    if message.type not in AI or isinstance(message.content, str):
        return message
    kept = [block for block in message.content if not (isinstance(block, dict) and block.get("type") in _THOUGHTS)]
    return message if len(kept) == len(message.content) else message.model_copy(update={"content": kept})
