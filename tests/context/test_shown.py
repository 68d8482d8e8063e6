"""What is remembered of a history changes no prompt, is forgotten with it, and spares looking at it again."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langgraph_statekit.context import shown
from langgraph_statekit.context.core import build_context
from langgraph_statekit.context.policy import ContextPolicy, ToolResultPolicy
from langgraph_statekit.context.tokens import TokenCounter
from tests.context.histories import FEW
from tests.context.rules import Recorder, assert_strict, conversation
from tests.context.test_invariants import HISTORIES, POLICIES, steps

NEVER = ContextPolicy(trigger=("turns", 10**6), max_tokens=("tokens", 10**6))


@FEW
@given(HISTORIES, POLICIES)
def test_a_prompt_is_the_same_whether_its_beginning_is_remembered_or_not(
    messages: list[BaseMessage], policy: ContextPolicy
) -> None:
    summary: Any = None
    for end in steps(messages):
        known = build_context(messages[:end], summary, policy, summarizer=Recorder())
        fresh = [message.model_copy(deep=True) for message in messages[:end]]
        assert build_context(fresh, summary, policy, summarizer=Recorder()) == known
        summary = known.summary


def test_only_new_messages_are_looked_at_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, counted = list[int](), list[int]()

    class Counter(TokenCounter):
        def __call__(self, messages: Sequence[BaseMessage]) -> int:
            counted.append(len(messages))
            return super().__call__(messages)

    def sound_until(messages: Sequence[BaseMessage], seen: set[str], start: int = 0) -> int:
        looked.append(0 if start else len(messages))
        return whole(messages, seen, start)

    whole = shown.sound_until
    monkeypatch.setattr(shown, "sound_until", sound_until)
    history, counter = conversation(503), Counter()
    for message in history:  # call ids that come again are given names of their own, once
        if isinstance(message, AIMessage) and message.tool_calls:
            message.tool_calls[0]["id"] = "again"
        elif isinstance(message, ToolMessage):
            message.tool_call_id = "again"
    build_context(history[:2_000], None, NEVER, counter=counter)
    for end in (2_004, 2_008, 2_012):
        looked.clear()
        counted.clear()
        assert_strict(build_context(history[:end], None, NEVER, counter=counter).messages)
        assert sum(looked) <= 8
        assert sum(counted) <= 8


def test_a_message_that_is_changed_in_place_is_looked_at_again() -> None:
    history = [*conversation(3), HumanMessage("and now?", id="now")]
    build_context(history, None, NEVER)
    history[0].content = "another question"
    assert build_context(history, None, NEVER).messages == history
    assert isinstance(history[1], AIMessage)
    history[1].tool_calls.pop()
    assert_strict(build_context(history, None, NEVER).messages)
    history[5].tool_calls = []
    assert_strict(build_context(history, None, NEVER).messages)
    history[3].content = " "
    assert_strict(build_context(history, None, NEVER).messages)


def test_a_prompt_that_its_receiver_changes_changes_no_later_prompt() -> None:
    policy = ContextPolicy(trigger=("turns", 50), tool_results=ToolResultPolicy(keep=0), digest_gain=0.0)
    history = conversation(5, chars=900)
    first = build_context(history, None, policy)
    again = build_context(history, first.summary, policy)
    before = [message.content for message in again.messages]
    for message in again.messages:
        if message not in history:
            message.content = "changed"
    assert [message.content for message in build_context(history, first.summary, policy).messages] == before


def test_messages_are_forgotten_with_their_history() -> None:
    history = conversation(30)
    build_context(history, None, NEVER)
    held, known = ref(history[0]), len(shown._known)
    del history
    gc.collect()
    assert held() is None
    assert len(shown._known) < known
