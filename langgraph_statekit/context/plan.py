"""When a history is compacted, and where it is cut: settings and counts in, a position out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.policy import ContextPolicy, Size
from langgraph_statekit.context.tokens import TokenCounter
from langgraph_statekit.context.window import cuts, live_question, turns
from langgraph_statekit.errors import Misuse

LEAST_GAIN = 0.25
"""What a cut must take of the unsummarized part: else each new message would call the summarizer again."""
LIMIT = "limit"


def in_tokens(size: Size | None, window_tokens: int | None) -> int | None:
    """Return a size of tokens or a fraction as tokens; None for no size, or a fraction of an unknown window."""
    if size is None or (size[0] == "fraction" and window_tokens is None):
        return None
    return int(size[1] * window_tokens) if size[0] == "fraction" and window_tokens is not None else int(size[1])


def require_window(policy: ContextPolicy, window_tokens: int | None) -> None:
    """Raise `Misuse` for a setting that is a fraction of a window which is not known."""
    if window_tokens is not None:
        return
    sizes = {"keep": policy.keep, "slice": policy.slice, "compact_to": policy.compact_to}
    fractions = [name for name, size in sizes.items() if size is not None and size[0] == "fraction"]
    fractions += ["trigger"] if any(size[0] == "fraction" for group in policy.trigger for size in group) else []
    if fractions:
        raise Misuse(f"{', '.join(fractions)} is a fraction of the model's window: set window_tokens in the policy")


def weight(message: BaseMessage, unit: str, counter: TokenCounter) -> int:
    """Return what one message weighs in a unit other than turns."""
    if unit == "messages":
        return 1
    return _bytes_of(message) if unit == "bytes" else counter.message(message)


def _bytes_of(message: BaseMessage) -> int:
    return len(plain_text(message).encode("utf-8", "replace"))


def reason(
    messages: Sequence[BaseMessage],
    start: int,
    prompt: Sequence[BaseMessage],
    has_turns: int,
    policy: ContextPolicy,
    tokens: Callable[[], int],
    window_tokens: int | None,
) -> Size | None:
    """Return the trigger that is reached, None if none is. `prompt`, with so many turns, would be sent now."""

    def reached(size: Size) -> bool:
        unit, number = size
        if unit == "messages":
            return len(messages) - start >= number
        if unit == "turns":
            return has_turns >= number or (has_turns + 1 >= number and live_question(messages).start < start)
        if unit == "bytes":
            return sum(map(_bytes_of, prompt)) >= number
        most = in_tokens(size, window_tokens)
        return most is not None and tokens() >= most

    return next((group[0] for group in policy.trigger if all(map(reached, group))), None)


def keep_from(
    messages: Sequence[BaseMessage], start: int, keep: Size, counter: TokenCounter, window_tokens: int | None
) -> int:
    """Return where begins what must stay whole: as many of the last turns or messages, or what fits of the others."""
    unit, number = keep
    if unit == "turns":
        begins = turns(messages, start)
        return len(messages) if number == 0 else begins[-int(number)] if len(begins) >= number else start
    most = in_tokens(keep, window_tokens) or 0 if unit == "fraction" else int(number)
    at = len(messages)
    while at > start:
        most -= weight(messages[at - 1], unit, counter)
        if most < 0:
            break
        at -= 1
    return at


def slice_to(
    messages: Sequence[BaseMessage], start: int, size: Size | None, counter: TokenCounter, window_tokens: int | None
) -> int:
    """Return where the oldest part ends that may become one summary."""
    if size is None:
        return len(messages)
    unit, number = size
    if unit == "turns":
        begins = turns(messages, start)
        return begins[int(number)] if len(begins) > number else len(messages)
    left = in_tokens(size, window_tokens) or 0 if unit == "fraction" else int(number)
    at = start
    while at < len(messages):
        left -= weight(messages[at], unit, counter)
        if left < 0:
            break
        at += 1
    return at


def cut(
    messages: Sequence[BaseMessage],
    start: int,
    policy: ContextPolicy,
    counter: TokenCounter,
    window_tokens: int | None,
    trigger: Size,
) -> int | None:
    """Return up to where the history becomes a summary; None if nothing worth it may."""
    kept = keep_from(messages, start, policy.keep, counter, window_tokens)
    end = min(slice_to(messages, start, policy.slice, counter, window_tokens), kept)
    allowed = [at for at in _worth(messages, start) if at <= kept]
    at = max((each for each in allowed if each <= end), default=min(allowed, default=None))
    # Slice after slice may go: what counts is how much they take together, else a long old history would never shrink.
    return at if at is not None and _gains(messages, start, max(allowed), trigger[0], counter) else None


def squeezed(messages: Sequence[BaseMessage], start: int) -> int | None:
    """Return up to where a prompt beyond its limit is cut: up to the live question, else up to the last block."""
    allowed = _worth(messages, start)
    live = live_question(messages)
    before = [at for at in allowed if at <= live.start]
    return max(before, default=max(allowed, default=None))


def _worth(messages: Sequence[BaseMessage], start: int) -> list[int]:
    """Return the cuts that take away more than system messages and the live question, which stay in the prompt."""
    live = live_question(messages)
    first = next((at for at in range(start, len(messages)) if messages[at].type != "system" and at not in live), None)
    return [at for at in cuts(messages, start) if first is not None and at > first]


def _gains(messages: Sequence[BaseMessage], start: int, end: int, unit: str, counter: TokenCounter) -> bool:
    if unit == "turns":
        gain, all_of_it = len(turns(messages, start, end)), len(turns(messages, start))
    elif unit == "messages":
        gain, all_of_it = end - start, len(messages) - start
    else:
        gain, all_of_it = counter(messages[start:end]), counter(messages[start:])
    return gain >= LEAST_GAIN * all_of_it
