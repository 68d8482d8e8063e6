"""The node that keeps a thread's summary up to date."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig

from langgraph_statekit.context.core import Context, abuild_context, build_context
from langgraph_statekit.context.faces import MESSAGES, SUMMARY, Furthest, bring_channels, messages_of, tell, value_of
from langgraph_statekit.context.policy import ContextPolicy, of_type
from langgraph_statekit.context.repair import mended_in_place
from langgraph_statekit.context.summaries import rendered
from langgraph_statekit.context.tokens import Counts, TokenCounter, counter_of
from langgraph_statekit.context.window import MARK, head, is_made, live_question, note_of
from langgraph_statekit.errors import Misuse
from langgraph_statekit.events import Hooks

MODES: Final = ("view", "replace")


class SessionSummarizer(Runnable[Any, dict[str, Any]]):
    """A LangGraph node that summarizes what a thread's policy says, before the model is called.

    In `view` mode the history stays as it is; the summary goes to a channel of its own, which the node brings along,
    and `build_context`, `ContextBuilder` or `pre_model_hook` make the prompt of both. In `replace` mode the summarized
    messages leave the history and one message takes the place of the first of them; only they are removed, so what
    parallel nodes add stays, and earlier checkpoints have all. What providers would refuse is mended in its place, also
    when nothing is summarized. Its tokens are not streamed to the user.

    Args:
        summarizer: A chat model, its name, or a runnable or function that takes a list with one message, the prompt,
            and gives a text or a message. None makes extracts without a model.
        policy: When and how much; None for the defaults.
        mode: `view` or `replace`.
        messages_key: The channel of the history.
        summary_key: The channel of the summary.
        counter: Counts tokens, as any function of messages; None estimates them from bytes.
        hooks: Called with a `Compacted` for each summary, and a `Failed` for each that failed.

    Raises:
        Misuse: An argument is wrong; or, when it runs, the state has no such messages.
    """

    def __init__(
        self,
        summarizer: Any = None,
        policy: ContextPolicy | None = None,
        *,
        mode: Literal["view", "replace"] = "view",
        messages_key: str = MESSAGES,
        summary_key: str = SUMMARY,
        counter: TokenCounter | Counts | None = None,
        hooks: Sequence[Any] = (),
    ) -> None:
        if mode not in MODES:
            raise Misuse(f"mode must be 'view' or 'replace', not {mode!r}")
        self.summarizer, self.policy, self.mode = summarizer, policy or ContextPolicy(), mode
        of_type(self.policy, ContextPolicy, "policy")
        self.messages_key, self.summary_key = messages_key, summary_key
        self.counter = None if counter is None else counter_of(counter)
        self._hooks = Hooks(hooks)
        bring_channels(self, {messages_key: list[AnyMessage], summary_key: Annotated[dict[str, Any], Furthest]})

    def __call__(self, state: Any) -> dict[str, Any]:
        """Return the update of a state."""
        return self.invoke(state)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return the update of a state; empty if there is nothing to do."""
        began, given = time.perf_counter(), self._given(input)
        context = build_context(
            given.messages,
            given.summary,
            self.policy,
            summarizer=self.summarizer,
            counter=self.counter,
            located=self.mode == "view",
        )
        tell(self._hooks, config, context.compactions, began)
        return self._update(given, context)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> dict[str, Any]:
        """Return the update of a state; empty if there is nothing to do."""
        began, given = time.perf_counter(), self._given(input)
        context = await abuild_context(
            given.messages,
            given.summary,
            self.policy,
            summarizer=self.summarizer,
            counter=self.counter,
            located=self.mode == "view",
        )
        tell(self._hooks, config, context.compactions, began)
        return self._update(given, context)

    def _given(self, state: Any) -> Given:
        messages, summary = messages_of(state, self.messages_key), value_of(state, self.summary_key)
        return given_to_replace(messages, summary) if self.mode == "replace" else Given(messages, summary)

    def _update(self, given: Given, context: Context) -> dict[str, Any]:
        if self.mode == "view":
            return {self.summary_key: context.summary} if context.changed else {}
        replaces = context.changed and (given.shown is not None or context.start > head(given.messages))
        update: dict[str, Any] = {self.summary_key: context.summary} if context.changed and not replaces else {}
        messages = replacement(given, context, self.policy) if replaces else mended(given)
        return update | ({self.messages_key: messages} if messages else {})


@dataclass(frozen=True, slots=True)
class Given:
    """What a node works on: the history without the message that shows the summaries, and that message."""

    messages: Sequence[BaseMessage]
    summary: Any
    shown: BaseMessage | None = None
    history: Sequence[BaseMessage] = ()


def given_to_replace(history: Sequence[BaseMessage], summary: Any) -> Given:
    """Return what `replace` works on: the history as strict providers take it."""
    shown = next((message for message in history if is_made(message) and "state" in note_of(message)), None)
    messages = mended_in_place([message for message in history if message is not shown])
    return Given(messages, summary if shown is None else note_of(shown)["state"], shown, history)


def mended(given: Given, gone: Container[str | None] = ()) -> list[BaseMessage]:
    """Return what takes the place of damaged messages, but for those that go.

    Raises:
        Misuse: A message has no id; `add_messages` gives each one.
    """
    known = {id(message) for message in given.history}
    changed = [message for message in given.messages if id(message) not in known and message.id not in gone]
    if (changed or gone) and any(message.id is None for message in given.history):
        raise Misuse("mode='replace' needs messages with ids: give their channel add_messages")
    return changed


def replacement(given: Given, context: Context, policy: ContextPolicy) -> list[BaseMessage]:
    """Return what makes the stored history the summarized one: removals by id, one message in place of the first."""
    messages, live = given.messages, live_question(given.messages)
    covered = [at for at in range(context.start) if at not in live and messages[at].type != "system"]
    gone = {messages[at].id for at in covered}
    changed = mended(given, gone)
    removed = [message for message in given.history if message.id in gone]
    place = given.shown.id if given.shown is not None else removed[0].id
    note = {"summary": context.summary["next"] - 1, "state": context.summary}
    return [
        *(RemoveMessage(id=str(message.id)) for message in removed if message.id != place),
        HumanMessage(rendered(context.summary, policy), id=place, additional_kwargs={MARK: note}),
        *changed,
    ]
