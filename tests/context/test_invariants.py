"""No history, however damaged, makes a prompt that a provider refuses, hides what nobody summarized, or loses a question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph.message import add_messages

from langgraph_statekit.context.builder import ContextBuilder
from langgraph_statekit.context.core import abuild_context, build_context
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.policy import ContextPolicy, ToolResultPolicy
from langgraph_statekit.context.summarize import SessionSummarizer
from langgraph_statekit.context.tokens import TokenCounter
from langgraph_statekit.context.window import is_made, live_question, open_call
from tests.context.histories import FEW, histories
from tests.context.rules import Recorder, assert_kept, assert_strict, marked, markers, snapshot, text_of

UNITS = {"turns": (1, 3), "messages": (1, 6), "tokens": (20, 200), "bytes": (50, 600)}
SIZES = st.sampled_from(list(UNITS)).flatmap(lambda unit: st.tuples(st.just(unit), st.integers(*UNITS[unit])))
POLICIES = st.builds(
    ContextPolicy,
    trigger=SIZES,
    slice=st.none() | SIZES,
    keep=SIZES,
    compact_to=st.none() | st.tuples(st.just("tokens"), st.integers(20, 100)),
    max_tokens=st.none() | st.tuples(st.just("tokens"), st.integers(60, 400)),
    fanout=st.integers(1, 3),
    max_depth=st.integers(1, 3),
    max_summary_chars=st.just(40),
    tool_results=st.builds(ToolResultPolicy, keep=st.integers(0, 2), digest=st.sampled_from(["auto", "off"])),
    digest_gain=st.none() | st.just(0.2),
)
WHOLE = POLICIES.map(lambda p: ContextPolicy.from_json(p.to_json().replace('"auto"', '"off"')))


@st.composite
def valid(draw: st.DrawFn) -> list[BaseMessage]:
    """A history as an agent makes it: parallel calls, results in any order, ids that come again."""
    messages: list[BaseMessage] = [SystemMessage("Be brief.", id="sys")] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 6))):
        messages.append(HumanMessage(f"question {turn}", id=f"h{turn}"))
        for loop in range(draw(st.integers(0, 2))):
            count = draw(st.integers(1, 3))
            start = draw(st.integers(0, 3))
            ids = [f"c{start + n}" for n in range(count)]
            calls: Any = [{"name": "look", "args": {"q": turn}, "id": id, "type": "tool_call"} for id in ids]
            messages.append(AIMessage("", tool_calls=calls, id=f"a{turn}-{loop}"))
            results = [
                ToolMessage("r" * draw(st.integers(0, 200)), tool_call_id=id, id=f"t{turn}-{loop}-{id}") for id in ids
            ]
            messages += draw(st.permutations(results))
        messages.append(AIMessage(f"answer {turn}", id=f"b{turn}"))
    return messages


HISTORIES = st.one_of(valid(), valid().flatmap(st.permutations), histories())


THOUGHT: list[BaseMessage] = [
    HumanMessage("x" * 300, id="m0"),
    AIMessage([{"type": "thinking", "thinking": "hm " * 40, "signature": "s" * 100}], id="m1"),
    ToolMessage("lost", tool_call_id="c1", id="m2"),
]
"""A message with nothing but reasoning, in a prompt beyond its limit."""


_CALL: Any = {"name": "weather", "args": {}, "id": "c1", "type": "tool_call"}
LONG = "Please book flight HAT136 for 305 dollars. I do not want to fly before 11 AM, it makes me tired."
SETTLED: list[BaseMessage] = [
    AIMessage(LONG, tool_calls=[_CALL, _CALL], id="m0"),
    HumanMessage("", id="m1"),
    HumanMessage("", id="m2"),
    ToolMessage([], name="weather", tool_call_id="c1", id="m3"),
    HumanMessage(LONG, id="m4"),
    HumanMessage(LONG, id="m5"),
    AIMessage("", id="m6"),
    HumanMessage(LONG, id="m7"),
    ToolMessage("", name="weather", tool_call_id="c1", id="m8"),
    HumanMessage(LONG, id="m9"),
]
BEYOND = ContextPolicy(
    trigger=("turns", 1),
    slice=None,
    max_tokens=("tokens", 190),
    fanout=1,
    max_summary_chars=40,
    tool_results=ToolResultPolicy(keep=1),
    digest_gain=None,
)
"""A prompt within its limit that a digest longer than the empty result takes beyond it."""


def steps(messages: Sequence[BaseMessage]) -> list[int]:
    """Return after how many messages a model is called."""
    return [at + 1 for at, message in enumerate(messages) if message.type in ("human", "tool")] or [len(messages)]


@FEW
@example(THOUGHT, ContextPolicy(trigger=("turns", 1), max_tokens=("tokens", 60)))
@given(HISTORIES, POLICIES)
def test_every_prompt_is_valid_and_keeps_the_question_and_changes_nothing(
    messages: list[BaseMessage], policy: ContextPolicy
) -> None:
    summary: Any = None
    before = snapshot(messages)
    for end in steps(messages):
        history = messages[:end]
        context = build_context(history, summary, policy, summarizer=Recorder())
        assert_strict(context.messages)
        assert_kept(history, context.messages)
        summary = context.summary
    assert snapshot(messages) == before


@FEW
@given(HISTORIES, WHOLE)
def test_what_is_not_in_the_prompt_was_shown_to_the_summarizer(
    messages: list[BaseMessage], policy: ContextPolicy
) -> None:
    messages, summary, recorder = marked(messages), None, Recorder()
    for end in steps(messages):
        context = build_context(messages[:end], summary, policy, summarizer=recorder)
        shown = text_of(context.messages) + "".join(recorder.prompts)
        assert markers(text_of(messages[:end])) <= markers(shown)
        summary = context.summary


@FEW
@example(SETTLED, replace(BEYOND, keep=("turns", 1)), ("",))
@example(SETTLED, replace(BEYOND, keep=("tokens", 35)), ("",))
@given(HISTORIES, POLICIES, st.sampled_from([(), ("",), (ValueError("down"),), ("", "fine")]))
def test_without_a_new_message_nothing_changes_and_no_model_is_asked(
    messages: list[BaseMessage], policy: ContextPolicy, answers: tuple[Any, ...]
) -> None:
    summary, recorder = None, Recorder(*answers)
    for end in steps(messages):
        context = build_context(messages[:end], summary, policy, summarizer=recorder)
        asked = len(recorder.prompts)
        again = build_context(messages[:end], context.summary, policy, summarizer=recorder)
        assert len(recorder.prompts) == asked
        assert not again.changed
        assert again.messages == context.messages
        summary = context.summary


@FEW
@given(HISTORIES, POLICIES)
def test_sync_and_async_make_the_same(messages: list[BaseMessage], policy: ContextPolicy) -> None:
    sync = build_context(messages, None, policy, summarizer=Recorder())
    other = asyncio.run(abuild_context(messages, None, policy, summarizer=Recorder()))
    assert sync == other


@FEW
@given(HISTORIES, WHOLE, st.data())
def test_messages_that_the_app_deletes_or_adds_hide_no_other(
    messages: list[BaseMessage], policy: ContextPolicy, data: st.DataObject
) -> None:
    history, recorder = marked(messages), Recorder()
    summary = build_context(history, None, policy, summarizer=recorder).summary
    for number in range(4):
        if number % 2:
            new = HumanMessage(f"M{number + 1000}; put in", id=f"new{number}")
            history = [*history]
            history.insert(data.draw(st.integers(0, len(history))), new)
        elif history:
            deleted = data.draw(st.sets(st.sampled_from(range(len(history))), max_size=5))
            history = [message for at, message in enumerate(history) if at not in deleted]
        context = build_context(history, summary, policy, summarizer=recorder)
        assert_strict(context.messages)
        assert_kept(history, context.messages)
        assert markers(text_of(history)) <= markers(text_of(context.messages) + "".join(recorder.prompts))
        summary = context.summary


@FEW
@given(HISTORIES, POLICIES.filter(lambda policy: policy.max_tokens is not None))
def test_the_limit_is_kept_or_nothing_more_may_be_left_out(messages: list[BaseMessage], policy: ContextPolicy) -> None:
    count = TokenCounter()
    context = build_context(messages, None, policy, summarizer=Recorder())
    over = count(context.messages) - int(policy.max_tokens[1] if policy.max_tokens else 0)
    assert context.over_tokens == max(0, over)
    if over > 0:
        live = [messages[at].id for at in live_question(messages)]
        rest = [m for m in context.messages if m.type != "system" and not is_made(m) and m.id not in live]
        assert all(count.text(plain_text(message)) <= 200 for message in rest), "a long message is whole"


def as_sent(channel: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return a stored history as a model node sends it, but for what nothing in it can change.

    These are where its system messages stand, an assistant that speaks first, and a call that waits for its result.
    """
    rest = [message for message in channel[: open_call(channel)] if message.type != "system"]
    return rest if rest[:1] == [] or rest[0].type == "human" else [HumanMessage("Hello", id="before"), *rest]


@FEW
@given(HISTORIES)
def test_a_damaged_history_is_mended_in_its_places_before_anything_is_summarized(messages: list[BaseMessage]) -> None:
    before = snapshot(messages)
    node = SessionSummarizer(None, ContextPolicy(trigger=("messages", 10_000)), mode="replace")
    update = node.invoke({"messages": messages}).get("messages", [])
    after: Any = add_messages(list(messages), list(update))  # type: ignore[arg-type]
    assert [message.id for message in after] == [message.id for message in messages]
    assert_strict(as_sent(after))
    assert node.invoke({"messages": after}) == {}
    assert snapshot(messages) == before


@FEW
@given(HISTORIES, WHOLE)
def test_replacing_loses_nothing_and_leaves_a_valid_history(messages: list[BaseMessage], policy: ContextPolicy) -> None:
    messages, recorder = marked(messages), Recorder()
    node = SessionSummarizer(recorder, policy, mode="replace")
    state: dict[str, Any] = {"messages": []}
    done = 0
    for end in steps(messages):
        state["messages"] = add_messages(state["messages"], list(messages[done:end]))  # type: ignore[arg-type]
        done, before = end, state["messages"]
        update = node.invoke(dict(state))
        state["messages"] = after = add_messages(before, update.pop("messages", []))
        state.update(update)
        if after is not before and any(map(is_made, after)):
            assert_kept(
                before, after[:0] + [m for m in after if m.type == "system"] + [m for m in after if m.type != "system"]
            )
        assert markers(text_of(messages[:end])) <= markers(text_of(after) + "".join(recorder.prompts))
        assert node.invoke(dict(state)) == {}
        assert_strict(build_context(after, compact=False).messages)
        assert_strict(as_sent(after))


@FEW
@given(HISTORIES, POLICIES)
def test_the_builder_and_the_hook_show_the_same_as_the_core(messages: list[BaseMessage], policy: ContextPolicy) -> None:
    state = {"messages": messages}
    core = build_context(messages, None, policy, summarizer=Recorder())
    prompt = ContextBuilder(session=SessionSummarizer(Recorder(), policy)).build(state)
    assert prompt.messages == core.messages
    assert prompt.update == ({"session_summary": core.summary} if core.changed else {})
    hooked = asyncio.run(ContextBuilder(session=SessionSummarizer(Recorder(), policy)).ainvoke(state))
    assert [(m.type, m.content) for m in hooked["llm_input_messages"]] == [(m.type, m.content) for m in core.messages]
    assert {m.id for m in hooked["llm_input_messages"]} <= {m.id for m in messages}, "LangGraph would stream it"
