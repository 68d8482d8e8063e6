"""The prompt in three layers: a fixed system layer, the session's window and summaries, knowledge on demand."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from langgraph_statekit.context.chain import roots
from langgraph_statekit.context.core import COUNTER, Context, abuild_context, build_context
from langgraph_statekit.context.faces import (
    KNOWLEDGE,
    MESSAGES,
    PROMPT,
    Furthest,
    bring_channels,
    messages_of,
    tell,
    value_of,
)
from langgraph_statekit.context.knowledge import (
    KnowledgePolicy,
    fitting,
    found_for,
    knowledge_message,
    knowledge_text,
    look_up,
    wanted,
    with_knowledge,
)
from langgraph_statekit.context.lint import lint_system
from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.plan import in_tokens
from langgraph_statekit.context.policy import ContextPolicy
from langgraph_statekit.context.report import ContextReport, Prices, report_of
from langgraph_statekit.context.summaries import loaded, locate
from langgraph_statekit.context.summarize import SessionSummarizer
from langgraph_statekit.context.tokens import Counts, TokenCounter, counter_of
from langgraph_statekit.context.window import live_question, turns
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import Hooks

_logger: Final = logging.getLogger("langgraph_statekit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one model call is to be sent, and what to store.

    Attributes:
        messages: All layers, valid for strict providers.
        update: New values of the channels of summary and knowledge; empty if nothing changed.
        report: What went in, what was left out and why, tokens and cost.
        context: The session layer by itself.
    """

    messages: list[BaseMessage]
    update: dict[str, Any]
    report: ContextReport
    context: Context


class ContextBuilder(Runnable[Any, dict[str, Any]]):
    """Makes the prompt of three layers; a LangGraph node and a `pre_model_hook` at once.

    As a node it returns `llm_input_messages` and what changed in the channels of summary and knowledge, which it brings
    along. In a model node of your own, `build(state)` gives the same without a channel for the prompt. The history is
    never changed.

    Args:
        system: The system layer: its bytes are the same in every call, so providers find it in their prompt cache.
            What `lint_system` finds wrong with it is logged once, and stands in every report.
        session: The summarizer and its policy, as a `SessionSummarizer` in `view` mode, or the policy alone; None for
            the defaults, with extracts made without a model.
        knowledge: Where knowledge comes from, when it is looked up, and its budget; None for no knowledge.
        tools: The model's tools, whose schemas are counted.
        max_system_tokens: The system layer's budget.
        counter: Counts tokens, as any function of messages; None estimates them from bytes.
        prices: For the cost in reports.
        messages_key: The channel of the history.
        knowledge_key: The channel of what was looked up.
        output_key: The channel of the prompt.
        hooks: Called with an event for each summary.

    Raises:
        Misuse: An argument is wrong; the system layer is over its budget.
    """

    def __init__(
        self,
        *,
        system: str | SystemMessage | None = None,
        session: SessionSummarizer | ContextPolicy | None = None,
        knowledge: KnowledgePolicy | None = None,
        tools: Sequence[Any] = (),
        max_system_tokens: int = 8_000,
        counter: TokenCounter | Counts | None = None,
        prices: Prices | None = None,
        messages_key: str | None = None,
        knowledge_key: str = KNOWLEDGE,
        output_key: str = PROMPT,
        hooks: Sequence[Any] = (),
    ) -> None:
        if not isinstance(session, SessionSummarizer):
            session = SessionSummarizer(policy=session, messages_key=messages_key or MESSAGES)
        if session.mode != "view":
            raise Misuse("a builder shows summaries beside the history: give it a SessionSummarizer with mode='view'")
        self.session, self.knowledge, self.tools = session, knowledge, list(tools)
        self.messages_key, self.summary_key = messages_key or session.messages_key, session.summary_key
        self.knowledge_key, self.output_key, self.prices = knowledge_key, output_key, prices
        self.counter = (session.counter or COUNTER) if counter is None else counter_of(counter)
        self._hooks = Hooks(hooks)
        self._search = look_up(knowledge) if knowledge else None
        self.system = SystemMessage(system, id="system") if isinstance(system, str) else system
        text = "" if self.system is None else plain_text(self.system)
        self.findings = tuple(lint_system(text, max_system_tokens))
        if self.counter.text(text) > max_system_tokens:
            raise Misuse(f"{self.findings[0]}: shorten it or raise max_system_tokens")
        self._made: tuple[str, str] | None = None
        self._warned = False
        for finding in self.findings:
            _logger.warning("%s", finding)
        stored = Annotated[dict[str, Any], Furthest]
        channels = {self.messages_key: list[AnyMessage], self.summary_key: stored}
        bring_channels(self, channels | ({knowledge_key: stored} if knowledge else {}))

    def __call__(self, state: Any) -> dict[str, Any]:
        """Return the update of a state."""
        return self.invoke(state)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return the update of a state: the prompt, and what changed in the other channels."""
        return self._output(input, self.build(input, config))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return the update of a state: the prompt, and what changed in the other channels."""
        return self._output(input, await self.abuild(input, config))

    def build(
        self,
        state: Any,
        config: RunnableConfig | None = None,
        *,
        extra_tokens: int = 0,
        policy: ContextPolicy | None = None,
    ) -> Prompt:
        """Return the prompt for a state.

        Args:
            state: With the channels of history, summary and knowledge.
            config: Tells the hooks the thread.
            extra_tokens: What is sent beside the prompt and the builder's tools.
            policy: In place of the session's.

        Raises:
            SummaryFailed: The summarizer failed and the policy says `on_error="raise"`.
        """
        began, work = time.perf_counter(), self._work(state, extra_tokens, policy)
        found = None if work.lookup is None or self._search is None else self._search[0](work.lookup[1])
        work = self._with_found(work, found)
        context = build_context(
            work.messages,
            work.summary,
            work.policy,
            summarizer=self.session.summarizer,
            counter=self.counter,
            extra_tokens=work.extra_tokens,
        )
        tell(self._hooks, config, context.compactions, began)
        self._notice(context)
        return self._prompt(work, context)

    async def abuild(
        self,
        state: Any,
        config: RunnableConfig | None = None,
        *,
        extra_tokens: int = 0,
        policy: ContextPolicy | None = None,
    ) -> Prompt:
        """Return the prompt for a state; retriever and summarizer are awaited."""
        began, work = time.perf_counter(), self._work(state, extra_tokens, policy)
        found = None if work.lookup is None or self._search is None else await self._search[1](work.lookup[1])
        work = self._with_found(work, found)
        context = await abuild_context(
            work.messages,
            work.summary,
            work.policy,
            summarizer=self.session.summarizer,
            counter=self.counter,
            extra_tokens=work.extra_tokens,
        )
        tell(self._hooks, config, context.compactions, began)
        self._notice(context)
        return self._prompt(work, context)

    def tool(self, name: str = "look_up", description: str | None = None) -> BaseTool:
        """Return a tool with which the model looks up knowledge itself.

        Raises:
            Misuse: The builder has no knowledge.
        """
        if self._search is None or self.knowledge is None:
            raise Misuse("the builder has no knowledge: give it a KnowledgePolicy")
        search, asearch = self._search
        policy, counter = self.knowledge, self.counter

        def told(found: Any) -> str:
            items, left_out = fitting(found, policy, counter)
            return "\n".join([knowledge_text(items) or "Nothing was found.", *(f"({each})" for each in left_out)])

        def look(query: str) -> str:
            return told(search(query))

        async def alook(query: str) -> str:
            return told(await asearch(query))

        text = description or "Look up documents and facts. Use it when you lack information to answer."
        return StructuredTool.from_function(look, alook, name=name, description=text)

    def _notice(self, context: Context) -> None:
        """Warn, once, of a summary that is made again: then the last one was not stored."""
        for node in context.summary["nodes"][-1:] if context.compactions and not self._warned else ():
            if self._made == (node["first_id"], node["last_id"]):
                self._warned = True
                _logger.warning(
                    "the same summary was made twice: store the update of %r, a channel of the state", self.summary_key
                )
            self._made = (node["first_id"], node["last_id"])

    def _work(self, state: Any, extra_tokens: int, policy: ContextPolicy | None) -> _Work:
        messages = messages_of(state, self.messages_key)
        summary, held = value_of(state, self.summary_key), value_of(state, self.knowledge_key) or None
        tokens = self.counter.tools(self.tools) + (self.counter([self.system]) if self.system else 0)
        lookup = None
        if self.knowledge is not None:
            lookup = wanted(messages, _turn(messages, summary), self.knowledge, held)
        return _Work(messages, summary, held, lookup, tokens + extra_tokens, policy or self.session.policy)

    def _with_found(self, work: _Work, found: Any) -> _Work:
        if self.knowledge is None:
            return work
        held, messages = work.held, work.messages
        if work.lookup is not None:
            held = found_for(messages, *work.lookup, found, self.knowledge, self.counter)
        shown = knowledge_message(messages, held)
        more = 0 if shown is None else self.counter([shown])
        return replace(work, held=held, shown=shown, extra_tokens=work.extra_tokens + more)

    def _prompt(self, work: _Work, context: Context) -> Prompt:
        messages = with_knowledge(context.messages, work.shown)
        if self.system is not None:
            messages = [self.system, *messages]
        update: dict[str, Any] = {self.summary_key: context.summary} if context.changed else {}
        if work.lookup is not None:
            update[self.knowledge_key] = work.held
        policy = work.policy
        report = report_of(
            messages,
            context,
            self.counter,
            tools_tokens=self.counter.tools(self.tools),
            max_tokens=in_tokens(policy.max_tokens, policy.window_tokens),
            prices=self.prices,
            max_pin_chars=policy.max_pin_chars,
            left_out=work.held["left_out"] if work.held else (),
            notes=self.findings,
            steady=work.lookup is None,
        )
        return Prompt(messages=messages, update=update, report=report, context=context)

    def _output(self, state: Any, prompt: Prompt) -> dict[str, Any]:
        history = messages_of(state, self.messages_key)
        return {self.output_key: unseen(prompt, history), **prompt.update}


@dataclass(frozen=True, slots=True)
class _Work:
    """What is known before the session layer is made."""

    messages: list[BaseMessage]
    summary: Any
    held: Mapping[str, Any] | None
    lookup: tuple[str, str] | None
    extra_tokens: int
    policy: ContextPolicy
    shown: HumanMessage | None = None


def _turn(messages: Sequence[BaseMessage], summary: Any) -> int:
    start, chain = locate(messages, loaded(summary))
    return sum(node["turns"] for node in roots(chain["nodes"])) + len(turns(messages, start))


def unseen(prompt: Prompt, history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the prompt's messages with no id that the history has not.

    LangGraph streams a node's new messages to the user; it knows them by their ids.
    """
    if not history or history[-1].id is None:
        return prompt.messages
    tail, live = history[prompt.context.start :], live_question(history)
    known = {message.id for message in (*tail, *(history[at] for at in live))}

    def seen(message: BaseMessage) -> bool:
        return message.id in known or any(message.id == each.id for each in history)

    last = history[-1].id
    return [message if seen(message) else message.model_copy(update={"id": last}) for message in prompt.messages]


def pre_model_hook(summarizer: Any = None, policy: ContextPolicy | None = None, **options: Any) -> ContextBuilder:
    """Return a `pre_model_hook` for `create_react_agent`: the prompt is the policy's view, the history stays whole.

    Args:
        summarizer: As for `SessionSummarizer`.
        policy: When to compact and how much; None for the defaults.
        options: More arguments of `ContextBuilder`.
    """
    return ContextBuilder(session=SessionSummarizer(summarizer, policy), **options)
