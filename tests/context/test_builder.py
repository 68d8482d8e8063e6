"""Three layers in one prompt: each within its budget, the first always the same bytes, and a report of it all."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.retrievers import BaseRetriever
from langgraph.store.memory import InMemoryStore
from pydantic import Field

from langgraph_statekit import (
    BudgetExceeded,
    ContextBuilder,
    ContextPolicy,
    KnowledgePolicy,
    Misuse,
    Prices,
    ResourcePolicy,
    SessionSummarizer,
    lint_system,
    spent,
    used_by,
)
from tests.context.rules import Recorder, assert_strict, conversation

POLICY = ContextPolicy(trigger=("turns", 6), slice=("turns", 3), keep=("turns", 3))


class Shelf(BaseRetriever):
    """A retriever that remembers what it was asked."""

    asked: list[str] = Field(default_factory=list)
    pages: list[str] = Field(default_factory=lambda: ["Refunds take 5 days."])

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        self.asked.append(query)
        return [Document(page, id=f"d{n}", metadata={"source": "manual"}) for n, page in enumerate(self.pages)]


def ask(text: str, before: list[BaseMessage] | None = None) -> dict[str, Any]:
    return {"messages": [*(before or []), HumanMessage(text, id=f"q-{text}")]}


def test_the_system_layer_is_the_same_bytes_in_every_call_and_comes_first() -> None:
    builder = ContextBuilder(system="You book flights.", session=SessionSummarizer(Recorder(), POLICY))
    state: dict[str, Any] = {}
    for turns in range(1, 12):
        prompt = builder.build({**state, "messages": conversation(turns)})
        state |= prompt.update
        assert prompt.messages[0] == SystemMessage("You book flights.", id="system")
        assert_strict(prompt.messages)


def test_between_two_compactions_a_prompt_begins_with_the_one_before() -> None:
    builder = ContextBuilder(session=SessionSummarizer(Recorder(), ContextPolicy.recommended()))
    state: dict[str, Any] = {}
    before: list[BaseMessage] = []
    broken = 0
    for turns in range(1, 60):
        prompt = builder.build({**state, "messages": conversation(turns, chars=400)})
        broken += prompt.messages[: len(before)] != before
        state |= prompt.update
        before = prompt.messages
    assert broken <= len(state["session_summary"]["nodes"]) + 3


def test_a_system_prompt_is_checked_for_length_repetition_and_what_changes() -> None:
    text = "Always answer in English please.\nToday is 2026-01-05 10:00:00.\nalways answer in english, please!"
    found = "\n".join(lint_system(text, max_tokens=10))
    assert "more than its budget of 10" in found
    assert "says twice" in found
    assert "a date or time" in found
    assert lint_system("You book flights. Never pay without asking.") == []
    assert ContextBuilder(system=text).build(ask("hi")).report.notes
    with pytest.raises(Misuse, match="max_system_tokens"):
        ContextBuilder(system="word " * 500, max_system_tokens=100)


@pytest.mark.parametrize(
    ("triggers", "text", "before", "looked_up"),
    [
        (["explicit"], "How long does a refund take?", [], True),
        (["explicit"], "退款需要多少天？", [], True),
        (["explicit"], "Thanks, that is all.", [], False),
        (
            ["self_assessed"],
            "Thanks.",
            [AIMessage("I don't have enough information. [NEED_INFO: refund time]", id="a")],
            True,
        ),
        (["self_assessed"], "Thanks.", [AIMessage("I need more information about refunds.", id="a")], True),
        (["self_assessed"], "Thanks.", [AIMessage("There isn't enough information here.", id="a")], True),
        (["self_assessed"], "好的。", [AIMessage("我没有相关资料。", id="a")], True),
        (["self_assessed"], "Thanks.", [AIMessage("I need more information from you.", id="a")], False),
        (["self_assessed"], "How long does a refund take?", [AIMessage("Hello!", id="a")], False),
        (["every:3"], "Go on.", conversation(2), True),
        (["every:3"], "Go on.", conversation(3), False),
        (["tool"], "How long does a refund take?", [], False),
    ],
)
def test_knowledge_is_looked_up_on_its_triggers_only(
    triggers: list[str], text: str, before: list[BaseMessage], looked_up: bool
) -> None:
    shelf = Shelf(asked=[])
    builder = ContextBuilder(knowledge=KnowledgePolicy(source=shelf, triggers=triggers))
    state = ask(text, before)
    prompt = builder.build(state)
    assert bool(shelf.asked) is looked_up
    assert ("Refunds take 5 days." in str(prompt.messages)) is looked_up
    assert prompt.messages[-1].content == text
    again = builder.build({**state, **prompt.update})
    assert len(shelf.asked) == int(looked_up), "looked up twice for one question"
    assert again.messages == prompt.messages


@pytest.mark.parametrize(
    "said",
    [
        "I lack context here.",
        "I'm missing details about refunds.",
        "I don't have access to that information.",
        "I do not currently have sufficient details.",
        "There is not enough context to answer.",
        "I couldn't find any information about it.",
        "I'm unable to answer without more information.",
        "我需要更多信息。",
        "我不太清楚。",
    ],
)
def test_a_model_may_say_in_many_words_that_it_lacks_information(said: str) -> None:
    shelf = Shelf(asked=[])
    knowledge = KnowledgePolicy(source=shelf, triggers=["self_assessed"])
    ContextBuilder(knowledge=knowledge).build(ask("Thanks.", [AIMessage(said, id="a")]))
    assert shelf.asked


@pytest.mark.parametrize(
    ("text", "looked_up"),
    [
        ("Tell me about the refund policy", True),
        ("Search the docs for refunds", True),
        ("I'd like to know the rules.", True),
        ("介绍一下你们的退款政策", True),
        ("请告诉我退款政策", True),
        ("Book it.", False),
        ("You explained it well, thanks!", False),
        ("好的，谢谢。", False),
    ],
)
def test_a_request_to_be_told_is_a_question_too(text: str, looked_up: bool) -> None:
    shelf = Shelf(asked=[])
    ContextBuilder(knowledge=KnowledgePolicy(source=shelf, triggers=["explicit"])).build(ask(text))
    assert bool(shelf.asked) is looked_up


async def test_a_store_and_a_function_are_sources_too_and_async() -> None:
    store = InMemoryStore()
    store.put(("facts",), "f1", {"text": "The user is vegan."})
    for source in (store, lambda query: ["The user is vegan."]):
        knowledge = KnowledgePolicy(source=source, namespace=("facts",))
        prompt = await ContextBuilder(knowledge=knowledge).abuild(ask("What do I eat?"))
        assert "The user is vegan." in str(prompt.messages)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("One text.", "[1] One text."),
        (Document("One page.", id="p"), "[p] One page."),
        ({"fact": "one"}, '[1] {"fact": "one"}'),
        (("Two", "texts."), "[1] Two\n[2] texts."),
        (None, ""),
        ([], ""),
    ],
)
async def test_a_function_may_give_one_piece_or_nothing(given: Any, told: str) -> None:
    for source in (lambda query: given, lambda query: iter(given if isinstance(given, (list, tuple)) else [given])):
        if given is None and source("") is not None:
            continue
        builder = ContextBuilder(knowledge=KnowledgePolicy(source=source))
        for prompt in (builder.build(ask("What is it?")), await builder.abuild(ask("What is it?"))):
            shown = [m.content for m in prompt.messages if "knowledge" in m.additional_kwargs.get("statekit", {})]
            assert shown == [] if not told else told in str(shown[0])
        assert await builder.tool().ainvoke({"query": "it"}) == (told or "Nothing was found.")


def test_what_the_model_looks_up_by_a_tool_keeps_to_the_budget_too() -> None:
    shelf = Shelf(pages=["short fact", "x" * 4_000, "y" * 4_000])
    builder = ContextBuilder(knowledge=KnowledgePolicy(source=shelf, max_tokens=200, triggers=["tool"]))
    told = builder.tool().invoke({"query": "it"})
    assert len(told) < 200 * 4 + 200
    assert "short fact" in told
    assert "(d2: over the budget of 200 tokens)" in told


def test_knowledge_beyond_its_budget_is_left_out_and_the_report_says_so() -> None:
    shelf = Shelf(pages=["short fact", "x" * 4_000, "y" * 4_000])
    builder = ContextBuilder(knowledge=KnowledgePolicy(source=shelf, max_tokens=200))
    report = builder.build(ask("What is it?")).report
    layer = next(layer for layer in report.layers if layer.name == "knowledge")
    assert 0 < layer.tokens <= 200 + 60
    assert [each.partition(":")[0] for each in layer.left_out] == ["d1", "d2"]
    assert "d2: over the budget" in str(report)


def test_the_model_can_look_up_by_a_tool() -> None:
    shelf = Shelf(asked=[])
    tool = ContextBuilder(knowledge=KnowledgePolicy(source=shelf, triggers=["tool"])).tool()
    assert tool.invoke({"query": "refund"}) == "[d0] manual Refunds take 5 days."


def test_a_summary_that_nobody_stores_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    builder = ContextBuilder(session=SessionSummarizer(Recorder(), POLICY))
    for turns in (6, 6, 6):
        builder.build({"messages": conversation(turns)})
    assert [record.message.partition(":")[0] for record in caplog.records] == ["the same summary was made twice"]


def test_the_report_adds_up_and_prices_the_prompt() -> None:
    prices = Prices(input=3.0, cached_input=0.3)
    builder = ContextBuilder(system="Be brief.", session=SessionSummarizer(Recorder(), POLICY), prices=prices)
    state: dict[str, Any] = {}
    for turns in range(1, 8):
        prompt = builder.build({**state, "messages": conversation(turns)})
        state |= prompt.update
        report = prompt.report
        assert report.tokens == builder.counter(prompt.messages) == sum(layer.tokens for layer in report.layers)
        assert 0 <= report.cached_tokens <= report.tokens
        assert report.cost is not None
        assert all(0 <= at < len(prompt.messages) for at in report.breakpoints)
        assert [each.reason for each in report.compactions] == (["turns 6"] if turns == 6 else [])
    assert report.cached_tokens > report.tokens / 2


@pytest.mark.parametrize("times", [40, 600])
def test_many_preferences_push_no_rule_and_no_name_out_of_the_prompt(times: int) -> None:
    held = ["Never pay without my approval.", "Remember that I fly on Monday.", "My user ID is mia_3668."]
    history: list[BaseMessage] = [HumanMessage(" ".join(held), id="h"), AIMessage("Fine.", id="a")]
    for turn in range(times):
        history += [HumanMessage(f"I prefer option {turn} today.", id=f"h{turn}"), AIMessage("Fine.", id=f"a{turn}")]
    policy = ContextPolicy(trigger=("turns", 20), slice=None, max_pin_chars=300)
    prompt = ContextBuilder(session=SessionSummarizer(Recorder(), policy)).build({"messages": history})
    shown = str(prompt.messages[0].content)
    assert all(pin in shown for pin in held)
    assert f"I prefer option {times - 6} today." in shown
    summary = next(layer for layer in prompt.report.layers if layer.name == "summary")
    assert "pinned statements: over max_pin_chars 300" in summary.left_out[0]


def test_the_limit_counts_all_layers_and_tools() -> None:
    tools = [{"name": "pay", "description": "d" * 400, "parameters": {}}]
    policy = ContextPolicy(trigger=("turns", 50), max_tokens=("tokens", 600), keep=("turns", 2))
    builder = ContextBuilder(system="s" * 200, session=SessionSummarizer(Recorder(), policy), tools=tools)
    report = builder.build({"messages": conversation(30)}).report
    assert report.tokens <= 600
    assert report.compactions


def test_resources_add_up_and_a_used_up_budget_stops_the_next_call() -> None:
    answer = AIMessage("ok", usage_metadata={"input_tokens": 90, "output_tokens": 10, "total_tokens": 100})
    used = spent(used_by(answer, elapsed_s=1.5), used_by(AIMessage("four words of text"), prompt_tokens=50))
    assert used["requests"] == 2
    assert used["input_tokens"] == 140
    assert used["elapsed_s"] == 1.5
    assert ResourcePolicy(max_tokens=1_000).enforce(used) is None
    with pytest.raises(BudgetExceeded, match="budget of 150 tokens"):
        ResourcePolicy(max_tokens=150).enforce(used, next_tokens=10)
    with pytest.raises(BudgetExceeded, match="2 requests"):
        ResourcePolicy(max_requests=2).enforce(used)
    ended = ResourcePolicy(max_elapsed_s=1, on_exceeded="finish").enforce(used)
    assert ended is not None
    assert "budget of 1 s" in str(ended.content)
    with pytest.raises(Misuse, match="not 'dollars'"):
        spent({}, {"dollars": 3})
