"""What a thread has used of its budgets: tokens, requests, time. A channel with a reducer, and rules over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.context.core import Compaction
from langgraph_statekit.context.tokens import Counts, TokenCounter, counter_of
from langgraph_statekit.errors import BudgetExceeded, Misuse

RESOURCES: Final = "resources"
_COUNTED: Final = ("input_tokens", "output_tokens", "requests", "elapsed_s")


class ResourceState(TypedDict, total=False):
    """What was used so far. A node returns what it used itself; the reducer `spent` adds it.

    Attributes:
        input_tokens: Tokens sent to models.
        output_tokens: Tokens that models gave.
        requests: Calls of models.
        elapsed_s: Seconds in calls of models; a thread that waits for a human uses none.
    """

    input_tokens: int
    output_tokens: int
    requests: int
    elapsed_s: float


def spent(total: Mapping[str, Any] | None, used: Mapping[str, Any] | None) -> ResourceState:
    """Return the sum of two resource states: a reducer, so what parallel nodes use adds up.

    Raises:
        Misuse: Something other than the counts of `ResourceState`, or a negative number.
    """
    result: dict[str, Any] = {}
    for part in (total or {}, used or {}):
        for name, number in part.items():
            if name not in _COUNTED:
                raise Misuse(f"resources are {', '.join(_COUNTED)}, not {name!r}")
            require_numbers(float, 0, **{name: number})
            result[name] = result.get(name, 0) + number
    return result  # type: ignore[return-value]


def used_by(
    response: BaseMessage,
    *,
    elapsed_s: float = 0.0,
    prompt_tokens: int = 0,
    counter: TokenCounter | Counts | None = None,
) -> ResourceState:
    """Return what one model call used, as its provider tells it; estimated where it does not.

    Args:
        response: The model's answer.
        elapsed_s: Seconds that the call took.
        prompt_tokens: Estimate of what was sent, for a provider that tells nothing.
        counter: For the estimate of the answer.
    """
    told = response.usage_metadata if isinstance(response, AIMessage) else None
    estimate = 0 if told else (TokenCounter() if counter is None else counter_of(counter))([response])
    return {
        "input_tokens": told["input_tokens"] if told else prompt_tokens,
        "output_tokens": told["output_tokens"] if told else estimate,
        "requests": 1,
        "elapsed_s": elapsed_s,
    }


def used_by_summaries(compactions: Iterable[Compaction], *, elapsed_s: float = 0.0) -> ResourceState:
    """Return what a model used for summaries, estimated: `prompt.context.compactions`; empty if none was asked.

    Args:
        compactions: What was summarized.
        elapsed_s: Seconds that it took.
    """
    made = [each for each in compactions if each.attempts]
    if not made:
        return {}
    return {
        "input_tokens": sum(each.tokens_in for each in made),
        "output_tokens": sum(each.tokens_out for each in made if each.by == "model"),
        "requests": sum(each.attempts for each in made),
        "elapsed_s": elapsed_s,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePolicy:
    """The most that a thread may use; None for no limit.

    Attributes:
        max_tokens: Tokens sent and received.
        max_requests: Calls of models.
        max_elapsed_s: Seconds in calls of models.
        on_exceeded: `raise` raises `BudgetExceeded` before the next call; `finish` lets the graph end: no model is
            called, and the answer says why.
    """

    max_tokens: int | None = None
    max_requests: int | None = None
    max_elapsed_s: float | None = None
    on_exceeded: Literal["raise", "finish"] = "raise"

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_requests", "max_elapsed_s"):
            if getattr(self, name) is not None:
                require_numbers(float if name.endswith("_s") else int, 0, **{name: getattr(self, name)})
        if self.on_exceeded not in ("raise", "finish"):
            raise Misuse(f"on_exceeded must be 'raise' or 'finish', not {self.on_exceeded!r}")

    def exceeded(self, used: Mapping[str, Any] | None, next_tokens: int = 0) -> str:
        """Return which limit the next call would pass, as a sentence; empty if it may be made.

        Args:
            used: The channel's value.
            next_tokens: Tokens that the next call would send.
        """
        used = used or {}
        tokens = used.get("input_tokens", 0) + used.get("output_tokens", 0) + next_tokens
        if self.max_tokens is not None and tokens > self.max_tokens:
            return f"The budget of {self.max_tokens} tokens is used up: with the next call it would be {tokens}."
        for name, unit, most in (("requests", "requests", self.max_requests), ("elapsed_s", "s", self.max_elapsed_s)):
            if most is not None and used.get(name, 0) >= most:
                return f"The budget of {most:g} {unit} is used up: it is {used.get(name, 0):g}."
        return ""

    def enforce(self, used: Mapping[str, Any] | None, next_tokens: int = 0) -> AIMessage | None:
        """Return None if the next call may be made; else raise, or return the answer that ends the run.

        Raises:
            BudgetExceeded: A budget is used up, and `on_exceeded` is `raise`.
        """
        why = self.exceeded(used, next_tokens)
        if not why:
            return None
        if self.on_exceeded == "raise":
            raise BudgetExceeded(f"{why} Raise the limit to go on; nothing is lost.")
        return AIMessage(why, additional_kwargs={"statekit": {"budget": why}})
