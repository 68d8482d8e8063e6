"""A summary without a model: the facts of a conversation in its own words, most facts for the fewest characters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from langgraph_statekit.context.digest import Call, calls_of, digest
from langgraph_statekit.context.pins import find_pins
from langgraph_statekit.context.plain_text import EDGES, plain_text, sentences
from langgraph_statekit.context.words import COMMON, STOP_CHARACTERS
from langgraph_statekit.errors import Misuse

__all__ = ["extract", "find_pins"]

JOINT: Final = "; "
_PART: Final = re.compile(
    r"(?:[;；，、|—–…]|\s-\s|,(?!\s?\d)|\.{3})[\s,]*"
    r"|\s(?=(?:and|but|because|so|since|while|although|though|which|who|where|when|especially|plus)\s)"
)
_BOUND: Final = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|nor|neither|cannot|without|unless|except|only|if|until|avoid|instead)\b"
    r"|n['’]t\b|[不没无未别勿莫禁非若]|除非|如果|只有|只能|拒绝",
    re.IGNORECASE,
)
"""What binds the parts of a sentence: one part alone could say the opposite of the whole."""
_WORD: Final = re.compile(
    r"[$€£¥￥]?\d[\d.,:/%°-]*(?:[A-Za-z]+\d*|[年月日号时点分元块万亿人天岁度])?|[\u3400-\u9fff]+"
    r"|[^\W\d_](?:(?![\u3400-\u9fff])[^\W_]|(?<=\w)[.'’@/_-](?=\w))*"
)
_ENDING: Final = re.compile(r"['’]")
_LEAD: Final = re.compile(
    r"^(?:(?:and|but|so|or|well|also|plus|then|anyway|honestly|actually|basically|which|ok|okay|oh|yes|yeah|hi|hey|hello"
    r"|thanks|the|an?)\s+)+(?=\w)",
    re.IGNORECASE,
)
_NUMBER, _NAME, _WORTH, _QUESTION, _PART_COST = 4.0, 3.5, 1.0, 0.7, 4
_SHORT, _SHORT_CHINESE = 11, 5
_SAID_BY: Final = {"human": 1.0, "tool": 0.8}
_BY_MODEL: Final = 0.6


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a sentence: its text, its words with what each may be worth, and how much its speaker counts."""

    text: str
    told: tuple[tuple[str, float], ...]
    factor: float


def extract(messages: Sequence[BaseMessage], max_chars: int, pins: Sequence[str] = ()) -> str:
    """Return the densest facts of messages in at most `max_chars` characters, in order, each in the original's words.

    Parts of sentences are taken, not sentences: names, numbers and rare words count, each once. A sentence with a
    negation or a condition is taken whole or not at all, so no part says the opposite of what was said. Tool results
    come as their digests. The same messages always give the same text.

    Args:
        messages: In English, Chinese, or any language with spaces between words.
        max_chars: The most characters to return; 0 gives an empty text.
        pins: What is kept elsewhere; it is not told again.

    Raises:
        Misuse: `max_chars` is negative.
    """
    if max_chars < 0:
        raise Misuse(f"max_chars must be at least 0, not {max_chars}")
    parts = list(_parts(messages))
    chosen = _densest(parts, _worth(parts), {word for pin in pins for word, _ in _told(pin)}, max_chars)
    if not chosen:  # greetings only: say at least one of them
        return next((part.text for part in parts if len(part.text) <= max_chars), "")
    return JOINT.join(parts[index].text for index in sorted(chosen))


def _densest(parts: Sequence[_Part], worth: Mapping[str, float], told: set[str], max_chars: int) -> list[int]:
    """Return the parts that tell most for their length, each new thing counted once, until nothing more fits."""
    tells = [{word: worth[word] for word, _ in part.told if word in worth} for part in parts]
    price = [part.factor / (len(part.text) + _PART_COST) for part in parts]
    queue = [(-sum(new.values()) * price[index], index) for index, new in enumerate(tells) if new]
    heapify(queue)
    left, chosen = max_chars + len(JOINT), []
    while queue:
        _, index = heappop(queue)
        if len(parts[index].text) + len(JOINT) > left:
            continue
        now = price[index] * sum(value for word, value in tells[index].items() if word not in told)
        if queue and now < -queue[0][0]:  # some of it has been told meanwhile
            heappush(queue, (-now, index))
        elif now > 0:
            chosen.append(index)
            left -= len(parts[index].text) + len(JOINT)
            told.update(tells[index])
    return chosen


def _parts(messages: Sequence[BaseMessage]) -> Iterator[_Part]:
    calls: dict[str, Call] = {}
    for message in messages:
        if isinstance(message, AIMessage):
            calls.update(calls_of(message))
        if isinstance(message, ToolMessage):
            text = digest(message, calls.get(message.tool_call_id))
            yield _Part(text, tuple(_told(text)), _SAID_BY["tool"])
            continue
        factor = _SAID_BY.get(message.type, _BY_MODEL)
        for sentence in sentences(plain_text(message)):
            asks = _QUESTION if sentence.rstrip().endswith(("?", "？")) else 1.0
            for index, text in enumerate([sentence] if _BOUND.search(sentence) else _split(sentence)):
                if text := _trimmed(text):
                    yield _Part(text, tuple(_told(text, begins=index == 0)), factor * asks)


def _split(sentence: str) -> Iterator[str]:
    """Yield the parts of a sentence; one too short to tell anything alone stays with the next."""
    begin = 0
    for match in _PART.finditer(sentence):
        part = sentence[begin : match.start()]
        if len(part) > _SHORT or (len(part) > _SHORT_CHINESE and not part.isascii()):
            yield part
            begin = match.end()
    yield sentence[begin:]


def _trimmed(text: str) -> str:
    text = text.replace("**", "").replace("`", "").strip(EDGES)
    if text.count("(") != text.count(")"):
        text = text.strip("()")
    return _LEAD.sub("", text, count=1).strip(EDGES) or text


def _told(text: str, *, begins: bool = True) -> Iterator[tuple[str, float]]:
    """Yield each word with what it would be worth: numbers most, then names; 0 where a capital letter tells nothing."""
    for index, word in enumerate(_WORD.findall(text)):
        if "\u3400" <= word[0] <= "\u9fff":
            for run in STOP_CHARACTERS.split(word):
                if len(run) > 1:
                    yield run, _WORTH
            continue
        lower = word.lower()
        if lower.isalpha():
            yield lower, _WORTH if word[0] == lower[0] else 0.0 if begins and index == 0 else _NAME
        elif any(map(str.isdigit, word)):
            yield lower, _NUMBER
        else:
            stem = _ENDING.split(lower, 1)[0]
            yield stem, _WORTH if word[0] == lower[0] else 0.0 if begins and index == 0 else _NAME


def _worth(parts: Iterable[_Part]) -> dict[str, float]:
    """Return what telling each word is worth: nothing for common ones."""
    found: dict[str, float] = {}
    small: set[str] = set()
    for part in parts:
        for word, worth in part.told:
            if worth == _WORTH:
                small.add(word)
            if worth == _NUMBER or not (word in COMMON or len(word) < 2 or (worth == _WORTH and word.endswith("ly"))):
                found[word] = max(found.get(word, _WORTH), worth)
    return {word: _WORTH if word in small else worth for word, worth in found.items()}  # names are never small
