"""What only looks like a call becomes text, and a call has an id that every provider takes."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph.message import add_messages

from langgraph_statekit.context.core import build_context
from langgraph_statekit.context.policy import ContextPolicy
from langgraph_statekit.context.repair import is_blank, mended_in_place, repair
from langgraph_statekit.context.summarize import SessionSummarizer
from tests.context.histories import LONG_ID, SIGNED_ID
from tests.context.rules import Recorder, assert_strict, snapshot

HELLO = HumanMessage("hello", id="h")
GO_ON = HumanMessage("go on", id="h2")


def call(id: str, **args: Any) -> Any:
    return {"name": "pay", "args": args, "id": id, "type": "tool_call"}


def block(id: str, **args: Any) -> Any:
    return {"type": "tool_use", "id": id, "name": "pay", "input": args}


@pytest.mark.parametrize("mend", [repair, mended_in_place])
def test_a_call_that_the_app_took_back_is_told_as_text_though_it_stands_in_the_content(mend: Any) -> None:
    taken_back = AIMessage([block("c1", eur=5), block("c2", eur=7), block("c1")], tool_calls=[call("c1")], id="a")
    history = [HELLO, taken_back, ToolMessage("paid", tool_call_id="c1", id="t"), GO_ON]
    before = snapshot(history)
    shown = mend(history)
    assert_strict(shown)
    assert [each.get("id") for each in shown[1].content] == ["c1", None]
    assert "[Called pay" in shown[1].content[1]["text"]
    assert '"eur": 7' in shown[1].content[1]["text"]
    assert snapshot(history) == before


def test_what_responses_and_chunks_call_is_told_as_text_too() -> None:
    asked: Any = {"type": "function_call", "call_id": "c1", "id": "fc1", "name": "pay", "arguments": '{"eur": 7}'}
    (_, shown, _) = repair([HELLO, AIMessage([asked], id="a"), GO_ON])
    assert shown.content == [{"type": "text", "text": '[Called pay {"eur": 7}. No result was recorded for this call.]'}]


def test_a_mended_message_is_the_same_object_in_each_prompt_until_it_is_summarized() -> None:
    history: list[BaseMessage] = [
        HELLO,
        AIMessage([block("c1")], id="a"),
        GO_ON,
        AIMessage("fine", id="b"),
        HumanMessage("more", id="h3"),
    ]
    first, second = (build_context(history, None, ContextPolicy()).messages for _ in range(2))
    assert_strict(first)
    assert first[1] is second[1]


def test_a_call_in_a_chunk_has_a_result_like_any_other() -> None:
    parts: Any = [{"name": "pay", "args": "{}", "id": "c1", "index": 0}]
    shown = repair([HELLO, AIMessageChunk("I pay.", tool_call_chunks=parts, id="a"), GO_ON])
    assert_strict(
        [each if each.type != "AIMessageChunk" else AIMessage(**each.model_dump(exclude={"type"})) for each in shown]
    )
    assert [each.type for each in shown] == ["human", "AIMessageChunk", "tool", "human"]


def test_an_id_that_is_too_long_for_a_provider_is_shortened_with_its_result() -> None:
    history = [
        HELLO,
        AIMessage("", tool_calls=[call(LONG_ID)], id="a"),
        ToolMessage("paid", tool_call_id=LONG_ID, id="t"),
    ]
    shown = repair(history)
    assert_strict(shown)
    assert shown == repair([each.model_copy() for each in history])
    assert [each.id for each in shown] == ["h", "a", "t"]


@pytest.mark.parametrize("mend", [repair, mended_in_place])
def test_an_id_that_carries_a_signature_of_gemini_keeps_it(mend: Any) -> None:
    def asked_and_answered(id: str, turn: int) -> list[BaseMessage]:
        return [
            AIMessage("", tool_calls=[call(id)], id=f"a{turn}"),
            ToolMessage("paid", tool_call_id=id, id=f"t{turn}"),
        ]

    name, _, signature = SIGNED_ID.partition("__thought__")
    long_name = f"{LONG_ID}__thought__{signature}"
    once = [HELLO, *asked_and_answered(SIGNED_ID, 1)]
    assert all(shown is given for shown, given in zip(mend(once), once, strict=True))
    shown = mend([*once, *asked_and_answered(SIGNED_ID, 2), *asked_and_answered(long_name, 3)])
    assert_strict(shown)
    ids = [each.tool_calls[0]["id"] for each in shown if isinstance(each, AIMessage)]
    assert ids[:2] == [SIGNED_ID, f"{name}_2__thought__{signature}"]
    assert all(id.endswith(f"__thought__{signature}") for id in ids)


@pytest.mark.parametrize(
    "content", ["", " \n", [], [""], [" \n"], [{"type": "text", "text": " "}, "\t"], [{"text": None}]]
)
def test_blanks_of_all_forms_are_blank(content: Any) -> None:
    assert is_blank(content)


def test_a_live_question_that_stays_in_a_replaced_history_is_not_summarized_again() -> None:
    said = [AIMessage(f"step {n} " + "x" * 60, id=f"a{n}") for n in range(6)]
    recorder = Recorder()
    policy = ContextPolicy(trigger=("messages", 3), slice=("messages", 2), keep=("messages", 1))
    node = SessionSummarizer(recorder, policy, mode="replace")
    state: Any = {"messages": [HELLO, *said]}
    state["messages"] = add_messages(state["messages"], node.invoke(state)["messages"])
    asked = len(recorder.prompts)
    assert node.invoke(state) == {}
    assert len(recorder.prompts) == asked
    assert "hello" in [message.content for message in state["messages"]]
