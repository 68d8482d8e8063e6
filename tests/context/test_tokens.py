"""What the token counter promises."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.tools import tool

from langgraph_statekit import (
    ContextBuilder,
    ContextMiddleware,
    ContextPolicy,
    Misuse,
    SessionSummarizer,
    build_context,
    used_by,
)
from langgraph_statekit.context import tokens
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.tokens import MEDIA_TOKENS, MESSAGE_TOKENS, TokenCounter, count_text, message_tokens
from tests.context.histories import FEW, histories


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("four", 1), ("fours", 2), ("北京", 2), ('{"a": 1}', 3), ("\ud800", 1), ("x" * 4000, 1000)],
)
def test_a_text_counts_a_quarter_of_its_bytes_and_json_a_third(text: str, tokens: int) -> None:
    assert count_text(text) == tokens


@FEW
@given(histories())
def test_the_count_of_a_history_is_that_of_its_messages_whether_remembered_or_not(history: list[BaseMessage]) -> None:
    counter = TokenCounter()
    fresh = sum(map(message_tokens, history))
    assert counter(history) == fresh == counter(history) == counter(deepcopy(history))


@FEW
@given(histories(), st.data())
def test_a_message_that_changed_under_its_id_is_counted_anew(history: list[BaseMessage], data: st.DataObject) -> None:
    counter = TokenCounter()
    counter(history)
    for message in history:
        if isinstance(message, AIMessage) and message.tool_calls:
            message.tool_calls[0]["args"]["more"] = {"deep": ["x" * 4000]}
        else:
            message.content = data.draw(st.sampled_from(["y" * 8000, ""]))
    assert counter(history) == sum(map(message_tokens, history))


def test_each_message_is_asked_for_once() -> None:
    asked: list[str] = []

    def count(messages: list[BaseMessage]) -> int:
        asked.extend(str(message.content) for message in messages)
        return 7

    counter = TokenCounter(count)
    history = [HumanMessage("one", id="1"), AIMessage("two", id="2")]
    assert [counter(history), counter([*history, HumanMessage("three", id="3")])] == [14, 21]
    assert asked == ["one", "two", "three"]


@FEW
@given(histories())
def test_langchains_counter_fits(history: list[BaseMessage]) -> None:
    counter = TokenCounter(count_tokens_approximately)
    assert counter(history) == sum(count_tokens_approximately([message]) for message in history)


def test_media_count_the_same_whatever_their_size() -> None:
    def photo(size_bytes: int) -> HumanMessage:
        return HumanMessage([{"type": "image", "base64": "A" * size_bytes, "mime_type": "image/png"}])

    assert message_tokens(photo(10)) == message_tokens(photo(400_000)) == MESSAGE_TOKENS + MEDIA_TOKENS
    assert TokenCounter(media_tokens=85)([photo(400_000)]) == MESSAGE_TOKENS + 85


DATA = "A" * 400_000
MEDIA_BLOCKS: list[dict[str, Any]] = [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    {"image": {"format": "png", "source": {"bytes": DATA.encode()}}},
    {"document": {"format": "pdf", "name": "terms", "source": {"bytes": DATA.encode()}}},
    {"type": "image_generation_call", "id": "ig_1", "result": DATA},
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "image", "source": {"data": DATA}}]},
    {"type": "non_standard", "value": {"image": {"source": {"bytes": DATA.encode()}}}},
]


@pytest.mark.parametrize("block", MEDIA_BLOCKS, ids=["Anthropic", "Converse", "document", "OpenAI", "inner", "other"])
def test_media_of_each_provider_have_a_flat_cost_and_no_bytes_in_a_text(block: dict[str, Any]) -> None:
    message = HumanMessage([block])
    assert MEDIA_TOKENS <= message_tokens(message) < MEDIA_TOKENS + 20
    assert 0 < len(plain_text(message)) < 200


def test_calls_that_could_not_be_parsed_are_counted_by_what_they_say() -> None:
    counter = TokenCounter()
    for args in ("{", "{" * 4_000):
        call: Any = {"name": "pay", "args": args, "id": "c1", "error": None, "type": "invalid_tool_call"}
        message = AIMessage("", invalid_tool_calls=[call])
        assert counter([message]) == message_tokens(message)


def test_a_call_that_stands_in_the_content_too_counts_once() -> None:
    call = {"name": "pay", "args": {"to": "x" * 400}, "id": "c1", "type": "tool_call"}
    block = {"type": "tool_use", "name": "pay", "input": {"to": "x" * 400}, "id": "c1"}
    assert message_tokens(AIMessage([block], tool_calls=[call])) == message_tokens(AIMessage("", tool_calls=[call]))


def test_the_system_prompt_and_the_tools_are_counted() -> None:
    @tool
    def pay(to: str, amount: float) -> str:
        """Pay somebody an amount."""
        return f"{to} {amount}"

    counter, history = TokenCounter(), [HumanMessage("hello", id="1")]
    whole = counter.prompt(history, "be kind", [pay])
    assert whole == counter(history) + counter([SystemMessage("be kind")]) + counter.tools([pay])
    assert counter.tools([pay]) > 20
    schema = {"type": "function", "function": {"name": "pay", "parameters": {}}}
    assert counter.tools([schema, schema]) == 2 * counter.tools([schema])


@pytest.mark.parametrize("count", [3, lambda _: "7", lambda _: -1, lambda _: 1.5, lambda _: True])
def test_a_counter_that_counts_nothing_is_refused(count: object) -> None:
    with pytest.raises(Misuse, match="count"):
        TokenCounter(count)([HumanMessage("x")])  # type: ignore[arg-type]


def test_a_counter_may_be_shared_by_threads_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_CACHED", 16)
    counter = TokenCounter()
    histories = [[HumanMessage("x" * 4 * n, id=f"{n}") for n in range(first, first + 40)] for first in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda history: [counter(history) for _ in range(20)], histories))
    assert found == [[sum(map(message_tokens, history))] * 20 for history in histories]
    assert len(counter._known) < 16 + 8


def test_any_function_of_messages_counts_wherever_a_counter_is_taken() -> None:
    def hundred(messages: Sequence[BaseMessage]) -> int:
        return 100 * len(messages)

    messages = [HumanMessage("one", id="h1"), AIMessage("two", id="a1")]
    assert (
        build_context(messages[:1], policy=ContextPolicy(max_tokens=("tokens", 80)), counter=hundred).over_tokens == 20
    )
    for made in (
        ContextBuilder(counter=hundred),
        ContextBuilder(session=SessionSummarizer(counter=hundred)),
        ContextMiddleware(counter=hundred).builder,
    ):
        assert made.counter(messages) == 200
    assert used_by(AIMessage("x"), counter=hundred)["output_tokens"] == 100
