"""What compression without a model promises."""

from __future__ import annotations

import gc
import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from langgraph_statekit import Misuse
from langgraph_statekit.context.asking import transcript
from langgraph_statekit.context.compress import ContextCompressor, _copies, compress
from langgraph_statekit.context.digest import digest
from langgraph_statekit.context.extract import extract, find_pins
from langgraph_statekit.context.placeholders import (
    Placeholder,
    content_id,
    expand,
    find_placeholders,
    original,
    placeholder,
    unresolved,
)
from langgraph_statekit.context.policy import ToolResultPolicy
from langgraph_statekit.context.tokens import fingerprint
from langgraph_statekit.context.verbatim import verbatim_kinds
from tests.context.histories import FEW, histories

FOUND = json.dumps([{"flight_number": f"HAT{n}", "status": "available", "note": "x" * 80} for n in range(9)])
CODE = "Here it is:\n```python\n" + "print('pay once')\n" * 20 + "```"
DIFF = "diff --git a/pay.py b/pay.py\n@@ -1,3 +1,3 @@\n" + "-once\n+twice\n" * 60
TRACE = "Traceback (most recent call last):\n" + "  File 'x'\n" * 30 + "ValueError: no such seat"
CLAUSE = "Article 7\nThe supplier shall not be liable. " + "The parties hereby agree pursuant to Article 3. " * 8
QUOTE = "He wrote:\n" + "> I shall pay on Friday\n" * 30
POLICIES = st.builds(
    ToolResultPolicy,
    keep=st.integers(0, 3),
    exclude_tools=st.sampled_from([(), ("weather",)]),
    offload_chars=st.sampled_from([None, 50]),
    numbers=st.booleans(),
)


def turn(n: int, *results: str, name: str = "search") -> list[BaseMessage]:
    """A turn whose model calls a tool once for each result and answers."""
    calls = [{"name": name, "args": {"day": n}, "id": f"c{n}-{i}", "type": "tool_call"} for i in range(len(results))]
    return [
        HumanMessage(f"question {n}", id=f"h{n}"),
        AIMessage("", tool_calls=calls, id=f"a{n}"),
        *(ToolMessage(text, tool_call_id=f"c{n}-{i}", name=name, id=f"t{n}-{i}") for i, text in enumerate(results)),
        AIMessage(f"answer {n}", id=f"z{n}"),
    ]


@FEW
@given(histories(), POLICIES)
def test_compression_keeps_places_ids_and_pairs_and_changes_nothing_given(
    history: list[BaseMessage], policy: ToolResultPolicy
) -> None:
    before = deepcopy(history)
    shown = compress(history, policy)
    assert history == before
    assert [(m.id, type(m)) for m in shown] == [(m.id, type(m)) for m in history]
    for old, new in zip(history, shown, strict=True):
        assert getattr(new, "tool_calls", None) == getattr(old, "tool_calls", None)
        assert getattr(new, "tool_call_id", None) == getattr(old, "tool_call_id", None)
        assert isinstance(old, (AIMessage, ToolMessage)) or new is old
    assert compress(shown, policy) == shown
    assert [fingerprint(m) for m in compress(deepcopy(history), policy)] == [fingerprint(m) for m in shown]


@FEW
@given(histories(), POLICIES)
def test_every_shortened_message_leads_back_to_its_original(
    history: list[BaseMessage], policy: ToolResultPolicy
) -> None:
    for old, new in zip(history, compress(history, policy), strict=True):
        if new is old:
            continue
        assert new.additional_kwargs["statekit"]["shortened"] == content_id(old)
        assert original(new.additional_kwargs["statekit"]["shortened"], history).content == old.content
        assert unresolved(str(new.content), history) == [] or str(new.content) in str(old.content)


@FEW
@given(histories(), POLICIES)
def test_what_no_model_has_answered_yet_and_the_newest_results_stay_whole(
    history: list[BaseMessage], policy: ToolResultPolicy
) -> None:
    shown = compress(history, policy)
    last = max((n for n, message in enumerate(history) if isinstance(message, AIMessage)), default=-1)
    results = [n for n, message in enumerate(history) if isinstance(message, ToolMessage)]
    for n in {*range(last + 1, len(history)), *results[len(results) - policy.keep :]}:
        assert shown[n] is history[n]


def test_old_results_become_digests_with_a_way_back() -> None:
    history = [*turn(1, FOUND), *turn(2, FOUND, FOUND), *turn(3, FOUND)]
    shown = compress(history, ToolResultPolicy(keep=2))
    text = str(shown[2].content)
    assert text.startswith("search: day=1 → 9: HAT0 available")
    assert original(text, history).content == FOUND
    assert [m.content == FOUND for m in shown if isinstance(m, ToolMessage)] == [False, False, True, True]
    assert expand(f"see {text}", history).endswith(FOUND)


def test_parallel_results_stay_whole_until_the_model_has_answered() -> None:
    history = [*turn(1, FOUND), *turn(2, *[FOUND] * 5)[:-1]]
    shown = compress(history, ToolResultPolicy(keep=0))
    assert [m.content == FOUND for m in shown if isinstance(m, ToolMessage)] == [False] + [True] * 5


@pytest.mark.parametrize("text", [CODE, DIFF, CLAUSE, QUOTE])
def test_verbatim_kinds_are_kept_whole_or_moved_out_with_a_handle(text: str) -> None:
    history = [*turn(1, text), *turn(2, "ok")]
    assert compress(history, ToolResultPolicy(keep=0)) == history
    moved = compress(history, ToolResultPolicy(keep=0, offload_chars=100))[2]
    assert str(moved.content).startswith(placeholder(history[2]))
    assert original(str(moved.content), history).content == text
    paraphrased = compress(history, ToolResultPolicy(keep=0, verbatim_kinds=()))[2]
    assert paraphrased.content != text


def test_a_traceback_is_told_by_its_error_unless_it_shall_stay() -> None:
    history = [*turn(1, TRACE), *turn(2, "ok")]
    assert "error: ValueError: no such seat" in str(compress(history, ToolResultPolicy(keep=0))[2].content)
    assert compress(history, ToolResultPolicy(keep=0, verbatim_kinds=("traceback",))) == history


def test_what_the_application_marked_or_excluded_stays_whole() -> None:
    history = [*turn(1, FOUND), *turn(2, "ok")]
    assert compress(history, ToolResultPolicy(keep=0, exclude_tools=("search",))) == history
    history[2].additional_kwargs["statekit"] = {"verbatim": True}
    assert compress(history, ToolResultPolicy(keep=0)) == history


def test_a_summarizer_reads_digests_but_what_is_excluded_whole() -> None:
    history = turn(1, FOUND)
    history[2].name = None
    assert FOUND in transcript(history)
    told = transcript(history, ToolResultPolicy())
    assert "[tool search] 9: HAT0 available" in told
    assert '[assistant calls search] {"day": 1}' in told
    assert FOUND in transcript(history, ToolResultPolicy(exclude_tools=("search",)))
    assert FOUND in transcript(history, ToolResultPolicy(digest="off"))


def test_a_repeated_thought_is_shown_once() -> None:
    thought = "I will look up the reservation first and then compare the two fares that the user asked for."
    history = turn(1, "a") + turn(2, "b") + turn(3, "c")
    for n in (1, 5, 9):
        history[n].content = thought
    shown = compress(history)
    assert [m.content for m in shown if m.content == thought] == [thought]
    assert [len(str(shown[n].content)) < 30 for n in (5, 9)] == [True, True]
    assert original(str(shown[9].content), history).content == thought
    assert [m.tool_calls for m in shown if isinstance(m, AIMessage)] == [
        m.tool_calls for m in history if isinstance(m, AIMessage)
    ]


def test_a_repeated_thought_in_a_block_is_shown_once_too() -> None:
    thought = "I will look up the reservation first and then compare the two fares that the user asked for."
    history = turn(1, "a") + turn(2, "b") + turn(3, "c")
    for n in (1, 5, 9):
        call: Any = {"type": "tool_use", "id": history[n].tool_calls[0]["id"], "name": "search", "input": {}}  # type: ignore[attr-defined]
        history[n].content = [{"type": "text", "text": thought}, call]
    before = deepcopy(history)
    shown = compress(history)
    assert history == before
    assert str([m.content for m in shown]).count(thought) == 1
    assert [block["type"] for block in shown[9].content] == ["text", "tool_use"]  # type: ignore[index]
    assert thought in expand(str(shown[9].content), history)
    assert compress(history)[9] is shown[9]


def test_reasoning_that_a_provider_signed_is_left_as_it_is() -> None:
    block: list[Any] = [{"type": "thinking", "thinking": "hm " * 60, "signature": "s"}, {"type": "text", "text": "ok"}]
    history = [AIMessage(block, id="1"), AIMessage(block, id="2")]
    assert compress(history) == history


def test_the_model_that_changes_what_it_was_shown_changes_no_later_prompt() -> None:
    history = [*turn(1, FOUND), *turn(2, "ok")]
    policy = ToolResultPolicy(keep=0)
    first = compress(history, policy)[2]
    text, first.content = first.content, "spoiled"
    assert compress(history, policy)[2].content == text


def test_what_is_shown_lives_no_longer_than_the_history() -> None:
    before = len(_copies)
    history = [*turn(1, FOUND), *turn(2, "ok")]
    for _ in range(2):
        assert compress(history, ToolResultPolicy(keep=0))[2].content != FOUND
    assert len(_copies) == before + 1
    del history
    gc.collect()
    assert len(_copies) <= before


def test_a_mark_leads_only_to_the_text_it_was_made_of() -> None:
    history = [HumanMessage("terms " * 100, id="1")]
    mark = placeholder(history[0])
    assert list(find_placeholders(f"see {mark} and {mark}")) == [Placeholder("DOC_SUMMARY", content_id(history[0]))] * 2
    assert expand(mark, history) == history[0].content
    changed = [HumanMessage("other terms", id="1")]
    assert [str(each) for each in unresolved(mark, changed)] == [mark]
    assert expand(f"see {mark}", changed) == f"see {mark[:-1]} is not in this conversation]"
    with pytest.raises(Misuse, match="no message has the id"):
        original(mark, changed)
    assert expand("[DOC_SUMMARY:made-up]", history) == "[DOC_SUMMARY:made-up is not in this conversation]"


def test_the_node_writes_a_view_and_leaves_the_history() -> None:
    class State(MessagesState):
        llm_input_messages: list[BaseMessage]

    graph = StateGraph(State).add_node("compress", ContextCompressor(ToolResultPolicy(keep=0)))
    app = graph.add_edge(START, "compress").add_edge("compress", END).compile()
    history = [*turn(1, FOUND), *turn(2, "ok")]
    state = app.invoke({"messages": history, "llm_input_messages": []})
    assert state["messages"] == history
    assert state["llm_input_messages"] == compress(history, ToolResultPolicy(keep=0)) != history


async def test_it_is_a_step_of_a_chain_too() -> None:
    history = [*turn(1, FOUND), *turn(2, "ok")]
    chain = ContextCompressor(ToolResultPolicy(keep=0)) | (lambda messages: [m.content for m in messages])
    assert (
        chain.invoke(history)
        == await chain.ainvoke(history)
        == [m.content for m in compress(history, ToolResultPolicy(keep=0))]
    )


@pytest.mark.parametrize("state", ["text", {}, {"messages": "text"}, None])
def test_a_state_without_messages_is_refused(state: Any) -> None:
    with pytest.raises(Misuse, match="messages_key"):
        ContextCompressor().invoke(state)


HOSTILE = [" ", "\n", " \n", "\t ", "`", "> a\n", "```\n", "not "]


@pytest.mark.parametrize("piece", HOSTILE, ids=map(repr, HOSTILE))
def test_no_text_takes_patterns_longer_than_its_length_allows(piece: str) -> None:
    """A pattern that looks back from each character would take hours here; the suite's time limit is what fails."""
    history = [HumanMessage(piece * (1_000_000 // len(piece)) + "x")]
    verbatim_kinds(history[0])
    find_pins(history)
    extract([HumanMessage(piece * (60_000 // len(piece)) + "x")], 200)
    digest(ToolMessage(piece * (200_000 // len(piece)) + "x", tool_call_id="c1"), None)
