"""The context nodes as a middleware of LangChain's `create_agent`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain_core import exceptions
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.types import Command

from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.context.builder import ContextBuilder, Prompt
from langgraph_statekit.context.faces import KNOWLEDGE, SUMMARY
from langgraph_statekit.context.knowledge import SIGNAL, KnowledgePolicy
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.policy import ContextPolicy
from langgraph_statekit.context.resources import (
    RESOURCES,
    ResourcePolicy,
    ResourceState,
    spent,
    used_by,
    used_by_summaries,
)
from langgraph_statekit.context.summarize import SessionSummarizer
from langgraph_statekit.context.tokens import Counts, TokenCounter, counter_of

_OVERFLOW: tuple[type[Exception], ...] = tuple(filter(None, [getattr(exceptions, "ContextOverflowError", None)]))
_SMALLER = 0.7
"""The limit after a provider refused a prompt as too long, as a part of its estimate."""


class ContextAgentState(AgentState[Any]):
    """The agent's state with the channels of this package; summary and knowledge are no input and no output."""

    session_summary: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    session_knowledge: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]
    resources: NotRequired[Annotated[ResourceState, spent]]


class ContextMiddleware(AgentMiddleware[ContextAgentState, Any, Any]):
    """A middleware for `create_agent`: each model call gets the policy's view of the history, which stays whole.

    Summaries are stored with the model's answer, in a channel of their own. The agent's system prompt and its tools
    are counted; the model's window is read from its profile. When a provider refuses a prompt as too long, it is made
    smaller and sent once more. When the model says that it lacks information, knowledge is looked up and it is asked
    once more.

    Args:
        summarizer: A chat model, its name, or a runnable or function; None makes extracts without a model.
        policy: When to compact and how much; None for the defaults.
        knowledge: Where knowledge comes from; None for none. The trigger `tool` needs `middleware.tools`, which has the
            tool then.
        resources: The most that a thread may use, summaries included; None counts without a limit.
        counter: Counts tokens, as any function of messages; None estimates them from bytes.
        hooks: Called with an event for each summary.

    Raises:
        BudgetExceeded: In a call, if `resources` says so.
    """

    state_schema = ContextAgentState

    def __init__(
        self,
        summarizer: Any = None,
        policy: ContextPolicy | None = None,
        *,
        knowledge: KnowledgePolicy | None = None,
        resources: ResourcePolicy | None = None,
        counter: TokenCounter | Counts | None = None,
        hooks: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        counter = None if counter is None else counter_of(counter)
        session = SessionSummarizer(summarizer, policy, counter=counter)
        self.builder = ContextBuilder(session=session, knowledge=knowledge, counter=counter, hooks=hooks)
        self.resources = resources or ResourcePolicy()
        self.tools = [self.builder.tool()] if knowledge is not None and "tool" in knowledge.triggers else []

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ExtendedModelResponse[Any]:
        """Return the model's answer to the policy's view, and the update of the channels."""

        async def handle(request: ModelRequest[Any]) -> ModelResponse[Any]:
            return handler(request)

        async def build(state: Any, **options: Any) -> Prompt:
            return self.builder.build(state, _config(), **options)

        return run_sync(self._wrapped(request, handle, build))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ExtendedModelResponse[Any]:
        """Return the model's answer to the policy's view, and the update of the channels."""

        async def build(state: Any, **options: Any) -> Prompt:
            return await self.builder.abuild(state, _config(), **options)

        return await self._wrapped(request, handler, build)

    async def _wrapped(
        self,
        request: ModelRequest[Any],
        handle: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
        build: Callable[..., Awaitable[Prompt]],
    ) -> ExtendedModelResponse[Any]:
        policy = windowed(self.builder.session.policy, request.model)
        counter = self.builder.counter
        beside = counter.tools(request.tools)
        beside += counter([request.system_message]) if request.system_message is not None else 0
        state: dict[str, Any] = {**request.state, "messages": request.messages}
        began = time.perf_counter()
        prompt = await build(state, extra_tokens=beside, policy=policy)
        state.update(prompt.update)
        used = used_by_summaries(prompt.context.compactions, elapsed_s=time.perf_counter() - began)
        sent = prompt.report.tokens + beside
        if (ended := self.resources.enforce(spent(state.get(RESOURCES), used), sent)) is not None:
            update = {**prompt.update, **({RESOURCES: used} if used else {})}
            return ExtendedModelResponse(ModelResponse(result=[ended]), Command(update=update))
        began = time.perf_counter()
        try:
            response = await handle(_with(request, prompt))
        except _OVERFLOW:
            smaller = replace(policy, max_tokens=("tokens", int(sent * _SMALLER)))
            prompt = await build(state, extra_tokens=beside, policy=smaller)
            state.update(prompt.update)
            used, sent = spent(used, used_by_summaries(prompt.context.compactions)), prompt.report.tokens + beside
            response = await handle(_with(request, prompt))
        used = spent(used, self._used(response, began, sent))
        if (again := await self._informed(state, response, build, beside, policy)) is not None:
            sent = again.report.tokens + beside
            if not self.resources.exceeded(spent(state.get(RESOURCES), used), sent):
                state.update(again.update)
                began = time.perf_counter()
                response = await handle(_with(request, again))
                used = spent(used, self._used(response, began, sent))
        update = {key: state[key] for key in (SUMMARY, KNOWLEDGE) if state.get(key) is not request.state.get(key)}
        return ExtendedModelResponse(response, Command(update={**update, RESOURCES: used}))

    def _used(self, response: ModelResponse[Any], began: float, sent: int) -> ResourceState:
        answer = next((each for each in response.result if isinstance(each, AIMessage)), AIMessage(""))
        elapsed_s = time.perf_counter() - began
        return used_by(answer, elapsed_s=elapsed_s, prompt_tokens=sent, counter=self.builder.counter)

    async def _informed(
        self,
        state: dict[str, Any],
        response: ModelResponse[Any],
        build: Callable[..., Awaitable[Prompt]],
        beside: int,
        policy: ContextPolicy,
    ) -> Prompt | None:
        """Return a prompt with what the model said it lacks; None if it did not, or nothing was found."""
        knowledge = self.builder.knowledge
        answer = next((each for each in response.result if isinstance(each, AIMessage)), None)
        if knowledge is None or "self_assessed" not in knowledge.triggers or answer is None or answer.tool_calls:
            return None
        if not SIGNAL.search(plain_text(answer)):
            return None
        asked = await build({**state, "messages": [*state["messages"], answer]}, extra_tokens=beside, policy=policy)
        held = asked.update.get(KNOWLEDGE)
        if not held or not held["items"]:
            return None
        informed = await build({**state, **asked.update}, extra_tokens=beside, policy=policy)
        return replace(informed, update={**asked.update, **informed.update})


def _with(request: ModelRequest[Any], prompt: Prompt) -> ModelRequest[Any]:
    messages: list[Any] = list(prompt.messages)
    return request.override(messages=messages)


def _config() -> RunnableConfig | None:
    try:
        return get_config()
    except RuntimeError:  # called outside a graph
        return None


def windowed(policy: ContextPolicy, model: Any) -> ContextPolicy:
    """Return the policy with the model's window, from its profile, where the policy has none."""
    profile = getattr(model, "profile", None)
    window = profile.get("max_input_tokens") if isinstance(profile, dict) else None
    if policy.window_tokens is not None or not isinstance(window, int) or window < 1:
        return policy
    return replace(policy, window_tokens=window)
