"""What is remembered of a chain of summaries is never that of another chain, nor of what the chain was before."""

from __future__ import annotations

import copy

from langchain_core.messages import BaseMessage, SystemMessage

from langgraph_statekit.context import chain
from langgraph_statekit.context.core import build_context
from langgraph_statekit.context.policy import ContextPolicy
from langgraph_statekit.context.summaries import SessionSummary
from tests.context.rules import Recorder, conversation

HISTORY = conversation(40)
POLICY = ContextPolicy(trigger=("turns", 6), slice=("turns", 3), keep=("turns", 2), fanout=3)


def summarized() -> SessionSummary:
    return build_context(HISTORY, None, POLICY, summarizer=Recorder()).summary


def shown(summary: SessionSummary) -> str:
    return str(build_context(HISTORY, summary, POLICY, compact=False).messages)


def test_a_text_that_the_app_takes_out_of_a_summary_is_shown_no_more() -> None:
    summary = summarized()
    last = summary["nodes"][-1]
    assert last["text"] in shown(summary)
    last["text"] = "(taken out)"
    assert "(taken out)" in shown(summary)


def test_a_summary_that_the_app_removes_from_the_chain_or_exchanges_covers_nothing_more() -> None:
    summary = summarized()
    before = build_context(HISTORY, summary, POLICY, compact=False).start
    at, node = next((at, each) for at, each in reversed([*enumerate(summary["nodes"])]) if each["covered"])
    summary["nodes"][at] = {**node, "last_id": "nobody"}
    assert build_context(HISTORY, summary, POLICY, compact=False).start == before - node["covered"]
    summary["nodes"][at] = node
    assert build_context(HISTORY, summary, POLICY, compact=False).start == before
    del summary["nodes"][at]
    assert build_context(HISTORY, summary, POLICY, compact=False).start == before - node["covered"]


def test_system_messages_at_the_front_move_what_a_chain_covers() -> None:
    summary = summarized()
    plain = build_context(HISTORY, summary, POLICY, compact=False)
    fronts: list[list[BaseMessage]] = [[], [SystemMessage("Be brief.")], []]
    for front in fronts:
        context = build_context([*front, *HISTORY], summary, POLICY, compact=False)
        assert context.start == plain.start + len(front)


def test_a_chain_is_looked_at_once_and_few_are_remembered() -> None:
    summary = summarized()
    shown(summary)
    known = chain._known[id(summary["nodes"])]
    shown(summary)
    assert chain._known[id(summary["nodes"])] is known
    for _ in range(100):
        shown(copy.deepcopy(summary))
    assert len(chain._known) <= chain._MOST_KNOWN
