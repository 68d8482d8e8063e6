"""How many tokens messages take, estimated so that it never costs more than the call it is for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable

from langchain_core.messages import BaseMessage, SystemMessage

from langgraph_statekit.errors import Misuse

BYTES_PER_TOKEN: Final = 4
"""Of UTF-8: right within a tenth for English, and on the safe side for Chinese."""
JSON_BYTES_PER_TOKEN: Final = 3
"""Of JSON, which is full of marks, digits and ids: four would be a quarter too few."""
MESSAGE_TOKENS: Final = 4
"""What a message takes beside its text: its role and the marks around it."""
MEDIA_TOKENS: Final = 1_000
"""What an image, a recording or a document takes, whatever the size of its bytes."""
MOST_CACHED: Final = 65_536
"""Messages whose count is remembered; the oldest is forgotten first."""
_JSON_BEGINS: Final = "{["
_MEDIA: Final = frozenset(
    {"image", "image_url", "input_image", "audio", "input_audio", "video", "file", "input_file", "document", "media"}
    | {"image_generation_call", "computer_screenshot"}
)
_UNTYPED: Final = ("image", "video", "audio", "document")
"""Blocks of Bedrock's Converse have no type but their only key."""
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call", "tool_call_chunk", "server_tool_call"})
_HIDDEN: Final = frozenset({"type", "id", "index", "signature", "extras", "cache_control"})
_Key = Callable[[BaseMessage], int]


@runtime_checkable
class Counts(Protocol):
    """Any callable that takes messages and gives their tokens, such as LangChain's `count_tokens_approximately`."""

    def __call__(self, messages: Sequence[BaseMessage], /) -> int:
        """Return the tokens of the messages together."""
        ...


def count_text(text: str) -> int:
    """Return the estimated tokens of a text: its UTF-8 bytes over four, those of JSON over three, rounded up."""
    size_bytes = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size_bytes // (JSON_BYTES_PER_TOKEN if text[:1] in _JSON_BEGINS and text else BYTES_PER_TOKEN))


class TokenCounter:
    """Counts the tokens of messages; what was counted once costs a dictionary look-up from then on.

    The count of a message is remembered by what the message says, so a message that changed under the same id is
    counted anew, and one that comes back from a checkpoint as another object is not. A counter may be shared by
    threads and graphs.

    Args:
        count: Gives the tokens of messages. None: UTF-8 bytes over four. LangChain's `count_tokens_approximately` and
            a model's `get_num_tokens_from_messages` fit. It is asked for one message at a time, so what it adds for
            each call it adds for each message.
        media_tokens: Tokens of an image, recording or file in the default estimate. A `count` of yours decides itself.

    Raises:
        Misuse: `count` cannot be called, or gives something that is no whole number of at least 0.
    """

    def __init__(self, count: Counts | None = None, *, media_tokens: int = MEDIA_TOKENS) -> None:
        if count is not None and not callable(count):
            raise Misuse(f"count must take messages and give a number, not be {type(count).__name__}")
        if media_tokens < 0:
            raise Misuse(f"media_tokens must be at least 0, not {media_tokens}")
        self._count, self._media_tokens = count, media_tokens
        self._known: dict[int, int] = {}
        self._tools: dict[int, tuple[Any, int]] = {}

    def __call__(self, messages: Sequence[BaseMessage]) -> int:
        """Return the tokens of the messages together."""
        known = self._known
        total = 0
        for message in messages:
            key = fingerprint(message)
            found = known.get(key)
            total += self._counted(message, key) if found is None else found
        return total

    def message(self, message: BaseMessage) -> int:
        """Return the tokens of one message."""
        key = fingerprint(message)
        found = self._known.get(key)
        return self._counted(message, key) if found is None else found

    def text(self, text: str) -> int:
        """Return the tokens of a text, as a `count` of yours would count it in a message."""
        return self.message(SystemMessage(text)) if self._count else count_text(text)

    def prompt(
        self, messages: Sequence[BaseMessage], system: str | BaseMessage | None = None, tools: Sequence[Any] = ()
    ) -> int:
        """Return the tokens of all that a model is sent: the system prompt, the tools' schemas and the messages."""
        if isinstance(system, str):
            system = SystemMessage(system)
        return self(messages) + (self.message(system) if system else 0) + self.tools(tools)

    def tools(self, tools: Sequence[Any]) -> int:
        """Return the tokens of tools' schemas: LangChain tools, functions, pydantic models or plain JSON schemas.

        A tool is taken not to change; its count is remembered for the object.
        """
        total = 0
        for tool in tools:
            held, found = self._tools.get(id(tool), (None, 0))
            if held is not tool:
                found = count_text(_schema(tool))
                make_room(self._tools, MOST_CACHED)
                self._tools[id(tool)] = (tool, found)
            total += found
        return total

    def _counted(self, message: BaseMessage, key: int) -> int:
        found = self._asked(message) if self._count else message_tokens(message, self._media_tokens)
        make_room(self._known, MOST_CACHED)
        self._known[key] = found
        return found

    def _asked(self, message: BaseMessage) -> int:
        assert self._count is not None
        found = self._count([message])
        if isinstance(found, bool) or not isinstance(found, int) or found < 0:
            raise Misuse(f"a token counter must give a whole number of at least 0, not {found!r}")
        return found


def fingerprint(message: BaseMessage) -> int:
    """Return a number that tells what a message says, another one as soon as that changes. Ids do not count.

    It is the same within a process only. Python remembers the hash of a string, so this is fast the second time.
    """
    fields = message.__dict__
    content = fields["content"]
    said = hash(content) if content.__class__ is str else hash_of(content)
    calls = fields.get("tool_calls")
    if calls:
        for call in calls:
            said = hash((said, call["name"], call["id"], hash_of(call["args"])))
    for call in fields.get("invalid_tool_calls") or ():
        said = hash((said, call["name"], call["id"], call["args"]))
    return hash((message.__class__, said, fields.get("name"), fields.get("tool_call_id")))


def message_tokens(message: BaseMessage, media_tokens: int = MEDIA_TOKENS) -> int:
    """Return the estimated tokens of one message: text, tool calls, reasoning, media at a flat price, and its frame."""
    fields = message.__dict__  # pydantic makes missing attributes slow
    content = fields["content"]
    calls: Sequence[Mapping[str, Any]] = fields.get("tool_calls") or ()
    invalid: Sequence[Mapping[str, Any]] = fields.get("invalid_tool_calls") or ()
    total = MESSAGE_TOKENS + count_text(f"{fields.get('name') or ''}{fields.get('tool_call_id') or ''}")
    for call in (*calls, *invalid):
        total += count_text(f"{call['name']}{call['id']}{plain_json(call['args'])}")
    if isinstance(content, str):
        return total + count_text(content)
    for block in content:
        if isinstance(block, str):
            total += count_text(block)
        elif is_media(block):
            total += media_tokens
        elif not (calls and block.get("type") in _CALLS):  # those stand in tool_calls too, and are sent once
            total += _block_tokens(block, media_tokens)
    return total


def counter_of(count: TokenCounter | Counts) -> TokenCounter:
    """Return a counter as it is, and one that asks a function for what it has not asked it before."""
    return count if isinstance(count, TokenCounter) else TokenCounter(count)


def is_media(block: Any) -> bool:
    """Tell whether a part of a message's content is an image, a recording, a film or a file."""
    if not isinstance(block, Mapping):
        return False
    if (kind := block.get("type")) in _MEDIA:
        return True
    mime = str(block.get("mime_type") or block.get("media_type") or "")
    return mime.partition("/")[0] in _UNTYPED or (kind is None and untyped(block) is not None)


def untyped(block: Mapping[str, Any]) -> str | None:
    """Return what medium a block without a type holds; None for none."""
    return next((kind for kind in _UNTYPED if isinstance(block.get(kind), Mapping)), None)


def plain_json(value: Any) -> str:
    """Return JSON as a provider gets it, with letters of all scripts as they are; other objects as their text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _block_tokens(block: Any, media_tokens: int) -> int:
    if isinstance(block, str):
        return count_text(block)
    if is_media(block) or isinstance(block, (bytes, bytearray)):
        return media_tokens
    if isinstance(block, Mapping):
        return sum(_block_tokens(value, media_tokens) for key, value in block.items() if key not in _HIDDEN)
    if isinstance(block, (list, tuple)):
        return sum(_block_tokens(item, media_tokens) for item in block)
    return count_text(plain_json(block))


def make_room(known: dict[int, Any], most: int) -> None:
    """Forget the oldest of what is known if there is no room for one more; other threads may do the same."""
    if len(known) >= most:
        with suppress(RuntimeError, StopIteration):  # another thread has just changed it
            known.pop(next(iter(known)), None)


def hash_of(value: Any) -> int:
    """Return a number that tells JSON values apart, within a process."""
    kind = value.__class__
    if kind is str:
        return hash(value)
    if kind is dict or isinstance(value, Mapping):
        values = value.values()
        try:  # most are flat; 1, 1.0 and True are one to Python but not to a reader
            return hash((dict, *value, *values, *map(type, values)))
        except TypeError:
            return hash((dict, *value, *map(hash_of, values)))
    if kind is list or isinstance(value, (list, tuple)):
        return hash((list, *map(hash_of, value)))
    try:
        return hash((kind, value))
    except TypeError:
        return hash(repr(value))


def _schema(tool: Any) -> str:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    if isinstance(tool, Mapping):
        return plain_json(tool)
    try:
        return plain_json(convert_to_openai_tool(tool))
    except (TypeError, ValueError) as error:
        raise Misuse(f"{tool!r} is no tool whose schema can be counted: {error}") from error
