"""The one core of all faces: a history and its summary in, a prompt and the next summary out.

Everything here is a pure function of its arguments but for the summarizer's answers. The history is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from langchain_core.messages import BaseMessage, HumanMessage

from langgraph_statekit.checkpoint.run import run_sync
from langgraph_statekit.context.asking import Answer, Ask, Job, asks, summarize, transcript
from langgraph_statekit.context.chain import roots
from langgraph_statekit.context.draft import Draft, View, digested, settled, view_of
from langgraph_statekit.context.extract import extract
from langgraph_statekit.context.fitting import Omission, fitted
from langgraph_statekit.context.pins import find_pins
from langgraph_statekit.context.plan import LEAST_GAIN, cut, in_tokens, reason, require_window, squeezed
from langgraph_statekit.context.policy import ContextPolicy, Size, of_type
from langgraph_statekit.context.summaries import (
    SessionSummary,
    condensable,
    condensed,
    left_over,
    loaded,
    locate,
    with_leaf,
)
from langgraph_statekit.context.tokens import Counts, TokenCounter, counter_of
from langgraph_statekit.context.window import turns
from langgraph_statekit.errors import Misuse, SummaryFailed

COUNTER: Final = TokenCounter()
_MOST_STEPS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What became of a part of the history.

    Attributes:
        node_id: The new summary; None if there is none, and the history is as before.
        condenses: Whether it is a summary of summaries.
        by: `model`, `extract` (made without a model), or `none`.
        reason: The trigger, such as `turns 20`; `limit` if the prompt was too large.
        messages: Messages that it stands for.
        turns: Turns that it stands for.
        tokens_in: Tokens of what was summarized.
        tokens_out: Tokens of the summary.
        attempts: Calls of the summarizer.
        problem: What was wrong with its last answer.
    """

    node_id: str | None
    condenses: bool = False
    by: str
    reason: str
    messages: int
    turns: int
    tokens_in: int
    tokens_out: int = 0
    attempts: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A prompt and the summary to store.

    Attributes:
        messages: What the model is to be sent: system messages, summaries, the rest; valid for strict providers.
        summary: The summary after it, for the channel; equal to the given one if nothing changed.
        changed: Whether the summary is another one than was given.
        compactions: What was summarized now.
        omissions: What was shortened to keep the limit.
        start: Where the unsummarized messages begin in the history.
        over_tokens: Tokens beyond the limit after all; what is left may not be left out.
    """

    messages: list[BaseMessage]
    summary: SessionSummary
    changed: bool
    compactions: tuple[Compaction, ...] = ()
    omissions: tuple[Omission, ...] = ()
    start: int = 0
    over_tokens: int = 0


@dataclass(slots=True)
class _Rules:
    """What stays the same while a prompt is built, and what the last view weighed."""

    policy: ContextPolicy
    counter: TokenCounter
    extra_tokens: int
    window_tokens: int | None
    limit: int | None
    ask: Ask | None
    weighed: list[Any] = field(default_factory=list)

    def tokens(self, view: View) -> int:
        """Return what a prompt and what is sent beside it take; one prompt is asked about several times in a row."""
        if not self.weighed or self.weighed[0] is not view:
            self.weighed[:] = [view, view.tokens(self.counter) + self.extra_tokens]
        found: int = self.weighed[1]
        return found

    def over(self, view: View) -> bool:
        """Tell whether a prompt is beyond the limit."""
        return self.limit is not None and self.tokens(view) > self.limit


def build_context(
    messages: Sequence[BaseMessage],
    summary: Any = None,
    policy: ContextPolicy | None = None,
    *,
    summarizer: Any = None,
    counter: TokenCounter | Counts | None = None,
    extra_tokens: int = 0,
    compact: bool = True,
    located: bool = True,
) -> Context:
    """Return the prompt for a history, and the summary to keep for the next one.

    Neither the history nor the summary is changed. Called again with the returned summary and no new message it asks
    no model and returns the same.

    Args:
        messages: The whole history, as its channel holds it.
        summary: What the last call returned, None at first. Messages that it covers are found by their ids.
        policy: When to compact and how much; None for the defaults.
        summarizer: A chat model, its name, or a runnable or function that takes a list with one message, the prompt,
            and gives a text or a message. None makes extracts without a model.
        counter: Counts tokens; None estimates them from bytes. A `TokenCounter` remembers what it counted, a mere
            function is asked for each message in each call.
        extra_tokens: What is sent beside the messages: a system prompt that is not among them, the tools' schemas.
        compact: False shows the stored summary and makes none, for a graph in which another node makes them.
        located: False if the covered messages are no longer in the history.

    Raises:
        SummaryFailed: The summarizer failed and the policy says `on_error="raise"`.
        Misuse: A fraction of the model's window is asked for, and the window is not known; or an argument is of another
            type.
        SchemaTooNew: A later release wrote the summary.
    """
    ask = asks(summarizer, sync=True)
    return run_sync(_build(messages, summary, policy, ask, counter, extra_tokens, compact, located))


async def abuild_context(
    messages: Sequence[BaseMessage],
    summary: Any = None,
    policy: ContextPolicy | None = None,
    *,
    summarizer: Any = None,
    counter: TokenCounter | Counts | None = None,
    extra_tokens: int = 0,
    compact: bool = True,
    located: bool = True,
) -> Context:
    """Return what `build_context` returns; the summarizer is awaited."""
    ask = asks(summarizer, sync=False)
    return await _build(messages, summary, policy, ask, counter, extra_tokens, compact, located)


async def _build(
    messages: Sequence[BaseMessage],
    summary: Any,
    policy: ContextPolicy | None,
    ask: Ask | None,
    counter: TokenCounter | Counts | None,
    extra_tokens: int,
    compact: bool,
    located: bool,
) -> Context:
    policy, counter = policy or ContextPolicy(), COUNTER if counter is None else counter_of(counter)
    of_type(policy, ContextPolicy, "policy")
    if messages and not isinstance(messages[0], BaseMessage):
        raise Misuse(f"a history is a list of messages, not of {type(messages[0]).__name__}: use convert_to_messages")
    window = policy.window_tokens
    require_window(policy, window)
    rules = _Rules(policy, counter, extra_tokens, window, in_tokens(policy.max_tokens, window), ask)
    given = loaded(summary)
    draft = Draft(messages, *(locate if located else left_over)(messages, given), shown=located)
    compactions: list[Compaction] = []
    if compact:
        draft, view, compactions = await _compacted(digested(draft, policy, rules.counter), rules)
    else:
        view = view_of(draft, policy)
    prompt, omissions, over = view.messages, list[Omission](), 0
    if rules.limit is not None and rules.over(view):
        prompt, omissions = fitted(prompt, rules.limit - extra_tokens, rules.counter)
        over = max(0, rules.counter(prompt) + extra_tokens - rules.limit)
    return Context(
        messages=prompt,
        summary=draft.summary,
        changed=draft.summary != given,
        compactions=tuple(compactions),
        omissions=tuple(omissions),
        start=draft.start,
        over_tokens=over,
    )


async def _compacted(draft: Draft, rules: _Rules) -> tuple[Draft, View, list[Compaction]]:
    """Compact until no trigger holds, the target is reached, or nothing more may go; return the prompt too."""
    policy, done = rules.policy, list[Compaction]()
    view, shown = view_of(draft, policy), draft
    for _ in range(_MOST_STEPS):
        if shown is not draft:
            view, shown = view_of(draft, policy), draft
        tokens = partial(rules.tokens, view)
        now = (draft.messages, draft.start, view.messages, view.shown.turns)
        due = reason(*now, policy, tokens, rules.window_tokens)
        over = rules.over(view)
        if due is None and done and policy.compact_to is not None:
            more = replace(policy, trigger=policy.compact_to)
            due = reason(*now, more, tokens, rules.window_tokens)
        if due is None and not over:
            break
        shorter = settled(draft, policy)
        if shorter is not draft:
            draft, before = shorter, view
            view, shown = view_of(draft, policy), draft
            over = rules.over(view)  # a digest of an empty result is longer than that
            if due is None or _spared(before, view, due, rules):
                continue  # that may have been enough
        end = None if due is None else cut(draft.messages, draft.start, policy, rules.counter, rules.window_tokens, due)
        if end is None and over:
            end = squeezed(draft.messages, draft.start)
        if end is None:
            break
        how = _how(draft, rules, over=over)
        if how == "wait":
            break
        draft, made = await _covered(draft, end, rules, how, _named(due), over=over)
        done += made
        if not made or made[0].node_id is None:
            break
    return draft, view if shown is draft else view_of(draft, policy), done


def _spared(view: View, shorter: View, due: Size, rules: _Rules) -> bool:
    """Tell whether shorter tool results alone put off the next compaction for long enough; turns stay as many."""
    return due[0] != "turns" and rules.tokens(shorter) <= (1 - LEAST_GAIN) * rules.tokens(view)


def _how(draft: Draft, rules: _Rules, *, over: bool) -> str:
    """Return how to make the next summary: `ask` a model, `extract` without one, or `wait`."""
    failures, policy = draft.summary["failures"], rules.policy
    if rules.ask is None:
        return "extract"
    if failures is None:
        return "ask"
    pause = policy.retry_after_messages << (min(failures["count"], 6) - 1)
    if _seen(draft) >= failures["seen"] + max(pause, 1):
        return "ask"
    broken = over or failures["count"] >= policy.max_failures
    return "extract" if broken and policy.on_error == "fallback" else "wait"


def _seen(draft: Draft) -> int:
    """Return how many messages the conversation had so far."""
    return sum(node["covered"] for node in draft.summary["nodes"]) + len(draft.messages) - draft.start


async def _covered(
    draft: Draft, end: int, rules: _Rules, how: str, why: str, *, over: bool
) -> tuple[Draft, list[Compaction]]:
    """Return the draft with one more summary, and what was done; the same draft but for the failure if it failed."""
    policy, summary, messages = rules.policy, draft.summary, draft.messages
    source = [message for message in messages[draft.start : end] if message.type != "system"]
    shown = roots(summary["nodes"])
    absorbs = shown if policy.fanout == 1 else []
    before = "\n".join(node["text"] for node in shown)
    job = Job(
        text=transcript(source, policy.tool_results),
        source=source,
        before=before,
        absorbs=bool(absorbs),
        max_chars=policy.max_summary_chars,
    )
    pins = find_pins(source) if policy.max_pin_chars else []
    answer = await _answer(job, rules, how)
    by, text = "model" if answer.text and how == "ask" else "extract", answer.text
    record = Compaction(
        node_id=None,
        by="none",
        reason=why,
        messages=end - draft.start,
        turns=len(turns(messages, draft.start, end)),
        tokens_in=rules.counter.text(job.text),
        attempts=answer.attempts,
        problem=answer.problem,
    )
    if not text:
        if policy.on_error == "raise":
            raise SummaryFailed(f"no summary after {answer.attempts} calls: {answer.problem}") from answer.error
        count = (summary["failures"] or {"count": 0})["count"] + 1
        summary = {
            **summary,
            "failures": {"count": count, "seen": _seen(draft), "problem": answer.problem},
        }
        if policy.on_error == "keep" or not (over or count >= policy.max_failures):
            return replace(draft, summary=summary), [record]
        text = _extracted(job, pins)
    elif how == "ask":
        summary = {**summary, "failures": None}
    tokens = (record.tokens_in, rules.counter.text(text))
    summary = with_leaf(
        summary,
        messages,
        draft.start,
        end,
        text=text,
        by=by,
        tokens=tokens,
        pins=pins,
        verbatim_kinds=policy.tool_results.verbatim_kinds,
        absorbs=absorbs,
    )
    made = [replace(record, node_id=summary["nodes"][-1]["id"], by=by, tokens_out=tokens[1])]
    draft = settled(replace(draft, start=end, summary=summary), policy)
    return await _condensed(draft, rules, made)


async def _condensed(draft: Draft, rules: _Rules, made: list[Compaction]) -> tuple[Draft, list[Compaction]]:
    """Make summaries of summaries where there are too many; one that fails is left for the next time."""
    policy, summary = rules.policy, draft.summary
    how = "extract" if rules.ask is None or summary["failures"] is not None else "ask"
    while nodes := condensable(summary, policy):
        texts = [node["text"] for node in nodes]
        job = Job(
            text="\n".join(texts),
            source=[HumanMessage(text) for text in texts],
            condenses=True,
            max_chars=policy.max_summary_chars,
        )
        answer = await _answer(job, rules, how)
        if not answer.text:
            break
        by = "model" if how == "ask" else "extract"
        tokens = (rules.counter.text(job.text), rules.counter.text(answer.text))
        summary = condensed(summary, nodes, policy, text=answer.text, by=by, tokens=tokens)
        made.append(
            Compaction(
                node_id=summary["nodes"][-1]["id"],
                condenses=True,
                by=by,
                reason=f"fanout {policy.fanout}",
                messages=sum(node["covered"] for node in nodes),
                turns=summary["nodes"][-1]["turns"],
                tokens_in=tokens[0],
                tokens_out=tokens[1],
                attempts=answer.attempts,
            )
        )
    return replace(draft, summary=summary), made


async def _answer(job: Job, rules: _Rules, how: str) -> Answer:
    if how == "ask" and rules.ask is not None:
        return await summarize(
            job, rules.ask, attempts=rules.policy.attempts, max_input_tokens=rules.policy.max_input_tokens
        )
    return Answer(text=_extracted(job, ()), attempts=0)


def _extracted(job: Job, pins: Sequence[str]) -> str:
    """Return a summary made without a model, which takes up what it replaces."""
    source = [HumanMessage(job.before), *job.source] if job.absorbs else job.source
    return extract(source, job.max_chars, pins) or f"({len(job.source)} messages without text)"[: job.max_chars]


def _named(due: Size | None) -> str:
    return "limit" if due is None else f"{due[0]} {due[1]:g}"
