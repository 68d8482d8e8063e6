"""What makes a system prompt worse than it need be: length, repetition, and what changes from call to call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from langgraph_statekit.context.plain_text import sentences
from langgraph_statekit.context.tokens import count_text

_CHANGING: Final = {
    "a date or time": re.compile(r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d)?|\b\d{1,2}:\d\d:\d\d\b"),
    "a random id": re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE),
    "an object's address": re.compile(r"<[\w.]+ (?:object )?at 0x[0-9a-f]+>"),
    "a placeholder that was not filled in": re.compile(r"\{\{?\s*\w+\s*\}?\}"),
}
_LEAST_WORDS: Final = 4


def lint_system(text: str, max_tokens: int = 2_000) -> list[str]:
    """Return what is wrong with a system prompt, one sentence each, empty if nothing is.

    It is too long for its budget, says something twice, or holds what looks as if it changed from call to call: then
    no provider finds the rest of the prompt in its cache.
    """
    return [*_length(text, max_tokens), *_repeated(text), *_changing(text)]


def _length(text: str, max_tokens: int) -> Iterator[str]:
    tokens = count_text(text)
    if tokens > max_tokens:
        yield f"the system prompt has {tokens} tokens, {tokens - max_tokens} more than its budget of {max_tokens}"


def _repeated(text: str) -> Iterator[str]:
    seen: dict[frozenset[str], str] = {}
    for sentence in sentences(text):
        words = re.findall(r"\w+", sentence.casefold())
        if len(words) < _LEAST_WORDS:
            continue
        known = frozenset(words)
        if known in seen:
            yield f"the system prompt says twice: {sentence:.80}"
        seen[known] = sentence


def _changing(text: str) -> Iterator[str]:
    for what, pattern in _CHANGING.items():
        if found := pattern.search(text):
            yield f"the system prompt holds {what} ({found[0]:.40}): if it changes, the provider's prompt cache is lost"
