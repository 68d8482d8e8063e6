"""Which memories a request to forget means, by the words of both. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

ENDS: Final = " \t\r\n,;:.!?。！？；，：、\"'“”"
"""What stands around a text and says nothing."""
_WORD: Final = re.compile(r"[\u3400-\u9fff]+|[^\W_\u3400-\u9fff]+")
_COMMON: Final = frozenset(
    [
        "a",
        "an",
        "the",
        "i",
        "i'm",
        "im",
        "am",
        "is",
        "are",
        "was",
        "were",
        "be",
        "been",
        "my",
        "me",
        "mine",
        "we",
        "our",
        "you",
        "your",
        "that",
        "this",
        "it",
        "of",
        "to",
        "in",
        "on",
        "at",
        "for",
        "about",
        "and",
        "or",
        "do",
        "does",
        "did",
        "have",
        "has",
        "had",
        "not",
        "so",
        "with",
        "as",
        "",
    ]
)


_COMMON_ZH: Final = re.compile("[我的是了在有和也就这那你关于说过事件个们所]+")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that tell what it is about; of Chinese what stands between common characters."""
    words = frozenset(word for found in _WORD.findall(text.casefold()) for word in _parts(found) if word not in _COMMON)
    return frozenset(word for word in words if word > "\u3400" or len(word) > 1) or words


def _parts(word: str) -> list[str]:
    return _COMMON_ZH.split(word) if word > "\u3400" else [word]


def matching(about: str, texts: Iterable[str]) -> list[int]:
    """Return which texts a request to forget means: the one that is the same, else those that have all of its words."""
    texts = list(texts)
    same = [at for at, text in enumerate(texts) if normal(text) == normal(about)]
    words = words_of(about)
    return same or [at for at, text in enumerate(texts) if words and _has(text.casefold(), words)]


def _has(text: str, words: frozenset[str]) -> bool:
    found = frozenset(_WORD.findall(text))
    return all(word in text if word > "\u3400" else word in found for word in words)


def normal(text: str) -> str:
    """Return a text without what makes no difference: case, spaces and the punctuation around it."""
    return " ".join(text.split()).strip(ENDS).casefold()
