"""Marks such as `[DOC_SUMMARY:1f0c5d2a9b3e]` that stand for a text and lead back to it.

The id is made of the text itself, so a mark can only lead to the very text it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.plain_text import plain_text
from langgraph_statekit.context.tokens import plain_json
from langgraph_statekit.errors import Misuse

DOCUMENT: Final = "DOC_SUMMARY"
"""Stands for a long text that was moved out of the prompt."""
RESULT: Final = "TOOL_RESULT"
"""Stands beside a digest, for the whole result."""
SAME: Final = "SAME_AS"
"""Stands for a text that was said before, word for word."""
_ID_DIGITS: Final = 12
_MARK: Final = re.compile(rf"\[({DOCUMENT}|{RESULT}|{SAME}):([^\]\s]{{1,64}})\]")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A mark: its kind and the id of the text it stands for."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f"[{self.kind}:{self.id}]"


def content_id(message: BaseMessage) -> str:
    """Return the id of what a message says: twelve hexadecimal digits of its SHA-256."""
    return sha256(plain_json(message.content).encode("utf-8", "surrogatepass")).hexdigest()[:_ID_DIGITS]


def placeholder(message: BaseMessage, kind: str = DOCUMENT) -> str:
    """Return the mark that stands for what a message says."""
    return str(Placeholder(kind, content_id(message)))


def find_placeholders(text: str) -> Iterator[Placeholder]:
    """Yield the marks in a text, in their order."""
    for kind, id in _MARK.findall(text):
        yield Placeholder(kind, id)


def original(mark: str, messages: Iterable[BaseMessage]) -> BaseMessage:
    """Return the message whose text a mark stands for.

    Args:
        mark: A mark such as `[TOOL_RESULT:1f0c5d2a9b3e]`, or its id alone.
        messages: The history, as the checkpoint has it.

    Raises:
        Misuse: No message says what the mark stands for: the id is made up, or the message was deleted or changed.
    """
    found = _MARK.search(mark)
    id = found.group(2) if found else mark.strip()
    for message in messages:
        if content_id(message) == id:
            return message
    raise Misuse(f"no message has the id {id!r}; use an id that stands in a mark of this conversation")


def unresolved(text: str, messages: Iterable[BaseMessage]) -> list[Placeholder]:
    """Return the marks of a text that lead nowhere; an empty list if all is well."""
    marks = list(find_placeholders(text))
    known = {content_id(message) for message in messages} if marks else set()
    return [mark for mark in marks if mark.id not in known]


def expand(text: str, messages: Iterable[BaseMessage]) -> str:
    """Return a text with each mark replaced by what it stands for; one that leads nowhere says so."""
    wanted = {mark.id for mark in find_placeholders(text)}
    texts = {id: plain_text(message) for message in messages if wanted and (id := content_id(message)) in wanted}

    def shown(match: re.Match[str]) -> str:
        return texts.get(match.group(2), f"[{match.group(1)}:{match.group(2)} is not in this conversation]")

    return _MARK.sub(shown, text)
