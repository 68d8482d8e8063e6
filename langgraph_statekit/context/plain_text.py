"""What a message says as plain text, and its sentences; what is no text leaves a mark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from langchain_core.messages import BaseMessage

from langgraph_statekit.context.tokens import is_media, plain_json, untyped

EDGES: Final = " \t.,;:!*_`。，；：！、"
"""What a sentence may begin and end with and say the same."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])[\"”’)*_]*\s+|(?<=[。！？])\s*")
_MARK: Final = re.compile(r"^[\s>]*(?:[#*•-]+|\d+[.)])\s+")
_NAME_CHARS: Final = 300
"""What is longer is no name but the medium itself."""
_DATA_CHARS: Final = 1_000
_DATA: Final = re.compile(r"[\w+/=:;,.-]+", re.ASCII)
_UNSAID: Final = frozenset(
    {"thinking", "redacted_thinking", "reasoning", "tool_use", "tool_call", "function_call", "tool_call_chunk"}
)
"""Blocks that are not addressed to the reader: the model's reasoning, and calls, which stand in `tool_calls` too."""


def plain_text(message: BaseMessage) -> str:
    """Return the text of a message, with a mark such as `[image: https://...]` where it has media."""
    content = message.content
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, map(_block_text, content)))


def media_mark(block: Mapping[str, Any]) -> str:
    """Return `[image: name]` for a media block: the name of the file or its address, never its bytes."""
    kind = str(block.get("type") or untyped(block) or "file").removesuffix("_url").removeprefix("input_")
    source: Any = block.get(f"{kind}_url") or block.get("source") or block.get(kind) or block
    if isinstance(source, Mapping):
        named = (source, block)
        source = next((place[key] for place in named for key in ("filename", "title", "url") if place.get(key)), "")
    name = str(source)
    return f"[{kind}: {name}]" if 0 < len(name) <= _NAME_CHARS and not name.startswith("data:") else f"[{kind}]"


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences and lines of a text."""
    for line in text.splitlines():
        for sentence in _SENTENCE.split(_MARK.sub("", line)):
            if sentence.strip(EDGES):
                yield sentence.strip()


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if is_media(block):
        return media_mark(block)
    if block.get("type") in _UNSAID:
        return ""
    text = block.get("text")
    return text if isinstance(text, str) else plain_json(_without_data(block))


def _without_data(value: Any) -> Any:
    """Return JSON with the size of bytes and of encoded bytes in place of them: nobody reads those."""
    if isinstance(value, Mapping):
        return {key: _without_data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(_without_data, value)]
    if isinstance(value, bytes) or (isinstance(value, str) and len(value) >= _DATA_CHARS and _DATA.fullmatch(value)):
        return f"[data: {len(value)}]"
    return value
