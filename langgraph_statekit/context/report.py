"""What went into a prompt, what was left out and why, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from langgraph_statekit.checkpoint.options import require_numbers
from langgraph_statekit.context.core import Compaction, Context
from langgraph_statekit.context.pins import shown_pins
from langgraph_statekit.context.tokens import TokenCounter
from langgraph_statekit.context.window import head, is_made, note_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What a model costs, in any currency, for a million tokens.

    Attributes:
        input: Tokens sent.
        cached_input: Tokens sent that the provider has in its prompt cache.
        summarizer_input: Tokens sent to the summarizer; None for the price of `input`.
    """

    input: float
    cached_input: float
    summarizer_input: float | None = None

    def __post_init__(self) -> None:
        require_numbers(float, 0, input=self.input, cached_input=self.cached_input)
        if self.summarizer_input is not None:
            require_numbers(float, 0, summarizer_input=self.summarizer_input)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of a prompt.

    Attributes:
        name: `system`, `summary`, `window`, `knowledge` or `tools`.
        tokens: What it takes.
        messages: Messages in it.
        left_out: What is not in it, each with the reason.
    """

    name: str
    tokens: int
    messages: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReport:
    """What went into one prompt.

    Attributes:
        layers: The layers in their order.
        tokens: Tokens of the prompt, estimated, with the tools' schemas.
        max_tokens: The limit; None for none.
        cached_tokens: Tokens that the provider has cached from the call before, if it caches prefixes: all but the
            last block, or where this call changed the prompt, only what is before the change.
        cost: Estimated price of the prompt and of the summaries made for it; None without prices.
        breakpoints: After which messages a provider that must be told where to cache is best told so.
        compactions: What was summarized for it.
        notes: What a reader should know: a system layer that changes, a limit that cannot be kept.
    """

    layers: tuple[Layer, ...]
    tokens: int
    max_tokens: int | None
    cached_tokens: int
    cost: float | None
    breakpoints: tuple[int, ...]
    compactions: tuple[Compaction, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        limit = "" if self.max_tokens is None else f" of {self.max_tokens}"
        lines = [f"{self.tokens} tokens{limit}, {self.cached_tokens} of them cached"]
        lines += [f"  {layer.name}: {layer.tokens} tokens in {layer.messages} messages" for layer in self.layers]
        lines += [f"  not in {layer.name}: {each}" for layer in self.layers for each in layer.left_out]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines if self.cost is None else [f"{lines[0]}, cost {self.cost:.6f}", *lines[1:]])


def report_of(
    prompt: Sequence[BaseMessage],
    context: Context,
    counter: TokenCounter,
    *,
    tools_tokens: int = 0,
    max_tokens: int | None = None,
    prices: Prices | None = None,
    max_pin_chars: int | None = None,
    left_out: Sequence[str] = (),
    notes: Sequence[str] = (),
    steady: bool = True,
) -> ContextReport:
    """Return the report of a prompt.

    Args:
        prompt: What is sent, all layers together.
        context: What `build_context` returned.
        counter: Counts tokens.
        tools_tokens: Tokens of the tools' schemas.
        max_tokens: The limit.
        prices: For the cost.
        max_pin_chars: The room of pinned statements; None for all.
        left_out: Knowledge that is not in it, each with the reason.
        notes: To pass on.
        steady: False if the knowledge is new, so that the cache ends before it.
    """
    front = head(prompt)
    kinds = [kind_of(message) for message in prompt]
    shortened = tuple(f"{each.tokens} tokens of {each.message_id}: {each.why}" for each in context.omissions)
    layers = [
        Layer(
            name=name,
            tokens=counter([message for message, kind in zip(prompt, kinds, strict=True) if kind == name]),
            messages=kinds.count(name),
            left_out=missing,
        )
        for name, missing in (
            ("system", ()),
            ("summary", _unpinned(context, max_pin_chars)),
            ("knowledge", tuple(left_out)),
            ("window", shortened),
        )
    ]
    layers.append(Layer(name="tools", tokens=tools_tokens, messages=0))
    tokens = sum(layer.tokens for layer in layers)
    last = len(prompt) - 1
    while last > front and prompt[last].type == "tool":
        last -= 1
    changed = next((at for at, kind in enumerate(kinds) if kind == "summary"), front) if context.changed else last
    if not steady:
        changed = min(changed, kinds.index("knowledge") if "knowledge" in kinds else last)
    cached = counter(prompt[: min(changed, last)]) + tools_tokens
    made = sum(each.tokens_in for each in context.compactions if each.by == "model")
    over = [f"{context.over_tokens} tokens over the limit: nothing more may be left out"] if context.over_tokens else []
    points = [front - 1, *(at for at, kind in enumerate(kinds) if kind == "summary"), last - 1]
    return ContextReport(
        layers=tuple(layers),
        tokens=tokens,
        max_tokens=max_tokens,
        cached_tokens=cached,
        cost=None if prices is None else _cost(prices, tokens, cached, made),
        breakpoints=tuple(sorted({at for at in points if at >= 0})),
        compactions=context.compactions,
        notes=(*notes, *over),
    )


def _unpinned(context: Context, max_chars: int | None) -> tuple[str, ...]:
    pins = tuple(context.summary["pins"]) if context.summary["nodes"] and max_chars is not None else ()
    gone = len(pins) - len(shown_pins(pins, max_chars or 0))
    return (f"{gone} of {len(pins)} pinned statements: over max_pin_chars {max_chars}",) if gone else ()


def kind_of(message: BaseMessage) -> str:
    """Return the layer that a message of a prompt belongs to."""
    if message.type == "system":
        return "system"
    if is_made(message):
        return "knowledge" if "knowledge" in note_of(message) else "summary"
    return "window"


def _cost(prices: Prices, tokens: int, cached: int, summarized: int) -> float:
    per_summarized = prices.input if prices.summarizer_input is None else prices.summarizer_input
    sent = (tokens - cached) * prices.input + cached * prices.cached_input
    return (sent + summarized * per_summarized) / 1e6
