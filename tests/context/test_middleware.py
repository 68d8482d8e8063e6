"""The middleware in LangChain's agents: it sees tools and overflows, stores what was used, and asks again when informed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from langgraph_statekit import (
    BudgetExceeded,
    ContextPolicy,
    KnowledgePolicy,
    ResourcePolicy,
    build_context,
    recall_tool,
)
from tests.context.histories import FEW
from tests.context.rules import Recorder, assert_strict, conversation
from tests.context.test_invariants import HISTORIES, POLICIES
from tests.faces import config

agents = pytest.importorskip("langchain.agents")
from langgraph_statekit import ContextMiddleware  # noqa: E402


class Script(BaseChatModel):
    """A model that gives its answers in turn, raises those that are errors, and keeps its prompts."""

    answers: list[Any] = Field(default_factory=list)
    prompts: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.prompts.append(list(messages))
        answer = self.answers.pop(0) if self.answers else AIMessage("done")
        if isinstance(answer, Exception):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def look(q: int) -> str:
    """Look something up."""
    return f"found {q} " * 30


def agent(model: Script, middleware: Any, tools: Any = (look,)) -> Any:
    return agents.create_agent(
        model, list(tools), system_prompt="Be brief.", middleware=[middleware], checkpointer=InMemorySaver()
    )


@FEW
@given(HISTORIES, POLICIES)
def test_the_middleware_shows_the_model_the_same_as_the_core(
    messages: list[BaseMessage], policy: ContextPolicy
) -> None:
    from langchain.agents.middleware.types import ModelRequest, ModelResponse

    core = build_context(messages, None, policy, summarizer=Recorder())
    shown: list[Any] = []

    def sync(request: Any) -> Any:
        shown.append(request.messages)
        return ModelResponse(result=[AIMessage("fine")])

    async def other(request: Any) -> Any:
        return sync(request)

    request: Any = ModelRequest(model=Script(), messages=messages, state={"messages": messages})  # type: ignore[arg-type, typeddict-item]
    answered = ContextMiddleware(Recorder(), policy).wrap_model_call(request, sync)
    asyncio.run(ContextMiddleware(Recorder(), policy).awrap_model_call(request, other))
    assert shown == [core.messages, core.messages]
    assert answered.command is not None
    assert answered.command.update.get("session_summary") == (core.summary if core.changed else None)


async def test_tool_loops_keep_their_pairs_and_their_question() -> None:
    calls = [
        AIMessage("", tool_calls=[{"name": "look", "args": {"q": n}, "id": "same", "type": "tool_call"}])
        for n in range(12)
    ]
    model = Script(answers=[*calls, AIMessage("the end")], prompts=[])
    policy = ContextPolicy(trigger=("messages", 8), slice=None, keep=("messages", 4))
    recorder = Recorder()
    app = agent(model, ContextMiddleware(recorder, policy))
    state = await app.ainvoke({"messages": [HumanMessage("GOAL")]}, {**config(), "recursion_limit": 50})
    for prompt in model.prompts:
        assert_strict(prompt)
        assert "GOAL" in [message.content for message in prompt]
        assert len(prompt) < 12
    assert len(state["messages"]) == 26
    assert state["resources"]["requests"] == 13 + len(recorder.prompts)
    assert "session_summary" not in state
    assert app.get_state(config()).values["session_summary"]["nodes"]


def test_a_prompt_that_the_provider_refuses_as_too_long_is_made_smaller_once() -> None:
    from langchain_core.exceptions import ContextOverflowError

    model = Script(answers=[ContextOverflowError("too long"), AIMessage("fits")], prompts=[])
    app = agent(model, ContextMiddleware(Recorder(), ContextPolicy(trigger=("turns", 90))))
    state = app.invoke({"messages": [*conversation(12, chars=300), HumanMessage("now?")]}, config())
    assert state["messages"][-1].content == "fits"
    first, second = (sum(len(str(message.content)) for message in prompt) for prompt in model.prompts)
    assert second < 0.8 * first
    assert model.prompts[1][-1].content == "now?"


@pytest.mark.parametrize("sync", [True, False])
async def test_a_model_that_lacks_information_is_asked_again_with_knowledge(sync: bool) -> None:
    model = Script(answers=[AIMessage("I don't know. [NEED_INFO: refund time]"), AIMessage("5 days")], prompts=[])
    asked: list[str] = []
    knowledge = KnowledgePolicy(
        source=lambda query: asked.append(query) or ["Refunds: 5 days."], triggers=["self_assessed"]
    )
    app = agent(model, ContextMiddleware(None, knowledge=knowledge))
    given = {"messages": [HumanMessage("I want my money back.")]}
    state = app.invoke(given, config()) if sync else await app.ainvoke(given, config())
    assert asked == ["refund time"]
    assert [message.content for message in state["messages"]] == ["I want my money back.", "5 days"]
    assert "Refunds: 5 days." in str(model.prompts[1])
    assert state["resources"]["requests"] == 2


def test_a_used_up_budget_stops_the_agent_before_the_next_call() -> None:
    model = Script(prompts=[])
    app = agent(model, ContextMiddleware(resources=ResourcePolicy(max_requests=2)))
    for turn in range(2):
        app.invoke({"messages": [HumanMessage(f"q{turn}")]}, config())
    with pytest.raises(BudgetExceeded):
        app.invoke({"messages": [HumanMessage("q2")]}, config())
    assert len(model.prompts) == 2
    ending = agent(model, ContextMiddleware(resources=ResourcePolicy(max_requests=0, on_exceeded="finish")))
    assert "budget of 0 requests" in ending.invoke({"messages": [HumanMessage("q")]}, config())["messages"][-1].content
    assert len(model.prompts) == 2


@pytest.mark.parametrize("answer", ["They talked.", ""])
def test_what_summaries_use_counts_too_and_a_used_up_budget_asks_no_second_time(answer: str) -> None:
    model, recorder = Script(prompts=[]), Recorder(answer)
    policy = ContextPolicy(trigger=("turns", 3), slice=("turns", 2), keep=("turns", 1), attempts=2)
    app = agent(model, ContextMiddleware(recorder, policy))
    for turn in range(3):
        state = app.invoke({"messages": [HumanMessage(f"q{turn} " + "w" * 400)]}, config())
    assert state["resources"]["requests"] == len(model.prompts) + len(recorder.prompts) > 3
    assert state["resources"]["input_tokens"] > sum(len(str(prompt[0].content)) for prompt in model.prompts) / 4
    lacking = Script(answers=[AIMessage("[NEED_INFO: refund time]"), AIMessage("5 days")], prompts=[])
    knowledge = KnowledgePolicy(source=lambda query: ["Refunds: 5 days."], triggers=["self_assessed"])
    ended = ContextMiddleware(knowledge=knowledge, resources=ResourcePolicy(max_requests=1))
    assert agent(lacking, ended).invoke({"messages": [HumanMessage("q")]}, config())["resources"]["requests"] == 1


def test_the_tool_trigger_gives_the_model_a_tool() -> None:
    call = AIMessage("", tool_calls=[{"name": "look_up", "args": {"query": "refund"}, "id": "c1", "type": "tool_call"}])
    model = Script(answers=[call, AIMessage("5 days")], prompts=[])
    knowledge = KnowledgePolicy(source=lambda query: [f"{query}: 5 days."], triggers=["tool"])
    state = agent(model, ContextMiddleware(knowledge=knowledge), ()).invoke(
        {"messages": [HumanMessage("When?")]}, config()
    )
    assert state["messages"][2].content == "[1] refund: 5 days."


def test_the_model_can_get_back_what_a_summary_stands_for() -> None:
    call = AIMessage("", tool_calls=[{"name": "recall", "args": {"handle": "s1"}, "id": "r1", "type": "tool_call"}])
    model = Script(answers=[AIMessage("ok"), call, AIMessage("so it was")], prompts=[])
    policy = ContextPolicy(trigger=("turns", 4), slice=("turns", 2), keep=("turns", 2))
    app = agent(model, ContextMiddleware(Recorder("Short."), policy), [recall_tool()])
    app.invoke({"messages": [*conversation(3, calls=0), HumanMessage("go on")]}, config())
    state = app.invoke({"messages": [HumanMessage("what was first?")]}, config())
    found = next(message for message in state["messages"] if message.type == "tool")
    assert "question 0" in found.content
    assert "question 1" in found.content
    assert "question 2" not in found.content
